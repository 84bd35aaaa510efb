"""Values of a front matter changed where they stand."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import assume, given, strategies as st

from repokit.formats.front_matter_edit import with_metadata
from repokit.formats.front_matter_values import parts, texts_in, without_equal_keys


def edited(block: str, values: dict[str, object], without: tuple[str, ...] = ()) -> str:
    card = f"---\n{block}---\n# Body\n".encode()
    return with_metadata(card, values, "README.md", without=without).decode().split("---\n")[1]


def test_a_comment_behind_a_value_stays():
    assert edited("license: MIT  # as the authors say\n", {"license": "mit"}) == "license: mit  # as the authors say\n"


def test_of_several_values_each_keeps_its_comment():
    block = "license: MIT # a\npipeline_tag: Fill Mask # b\n"
    assert (
        edited(block, {"license": "mit", "pipeline_tag": "fill-mask"})
        == "license: mit # a\npipeline_tag: fill-mask # b\n"
    )


def test_an_item_of_a_list_is_replaced_alone():
    block = "language:\n- en # first\n- no # Norwegian\n"
    assert edited(block, {"language": ["en", "no"]}) == "language:\n- en # first\n- 'no' # Norwegian\n"


def test_an_item_of_a_list_is_left_out_with_its_line():
    block = "datasets:\n- squad # public\n- /home/me/data # private\n- glue\n"
    assert edited(block, {"datasets": ["squad", "glue"]}) == "datasets:\n- squad # public\n- glue\n"


def test_an_item_without_a_value_is_left_out():
    assert (
        edited("tags: # ours\n- chat\n-\n- small\n", {"tags": ["chat", "small"]}) == "tags: # ours\n- chat\n- small\n"
    )


def test_a_list_on_one_line_keeps_its_line():
    assert edited("language: [en, no] # two\n", {"language": ["en", "no"]}) == "language: [en, 'no'] # two\n"


def test_an_alias_is_not_changed_with_its_anchor():
    block = "license: &name MIT # a\nmodel_name: *name\n"
    assert "model_name: MIT" in edited(block, {"license": "mit"})


def test_windows_line_ends_stay():
    card = b"---\r\nlicense: MIT # a\r\n---\r\n# Body\r\n"
    assert with_metadata(card, {"license": "mit"}, "README.md") == card.replace(b"MIT", b"mit")


# ------------------------------------------------------------------------------------------------ keys twice


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,8}", fullmatch=True),
        st.text(max_size=8) | st.lists(st.integers(), max_size=3),
        min_size=1,
    )
)
def test_a_mapping_that_stands_twice_is_the_mapping(mapping):
    block = yaml.safe_dump(mapping, allow_unicode=True)
    assume(yaml.safe_load(block) == mapping)  # the library writes some line breaks so that it reads blanks
    found = without_equal_keys(block + block)
    assert found is not None
    assert (yaml.safe_load(found[0]), sorted(found[1])) == (mapping, sorted(mapping))


@pytest.mark.parametrize("block", ["a: 1\nb: 2\n", "a: 1\na: 2\n", "{a: 1, a: 1}\n", "a: &x [*x\n", "- a\n- a\n", ""])
def test_what_is_not_a_key_twice_is_left_alone(block):
    assert without_equal_keys(block) is None


def test_comments_before_what_follows_stay():
    assert without_equal_keys("a: 1\na: 1\n# of b\nb: 2\n") == ("a: 1\n# of b\nb: 2\n", ["a"])


def test_a_key_inside_of_a_value_is_not_a_key_of_the_whole():
    assert without_equal_keys("a:\n  b: 1\n  b: 1\n") is None


# ------------------------------------------------------------------------------------------------ as typed


def test_a_value_is_the_text_that_was_typed():
    assert texts_in("a: no\nb: [0x1F, 2026-01-02]\n") == {"a": "no", "b": ["0x1F", "2026-01-02"]}


def test_a_rule_of_markdown_is_no_fence():
    assert parts("# Title\n---\na: 1\n---\n") is None
