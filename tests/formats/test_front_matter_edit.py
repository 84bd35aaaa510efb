"""Values of a front matter are set, and everything that a person wrote beside them stays byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from repokit.errors import MalformedFile
from repokit.formats.front_matter import parse_card
from repokit.formats.front_matter_edit import with_metadata

# Text that YAML can hold: a card with anything else does not parse in the first place.
TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x7f\ufeff\ufffe\uffff", min_codepoint=0x20)
)
VALUES = st.one_of(
    TEXT,
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.sampled_from(
        ["no", "yes", "null", "~", "1e3", "2024-01-01", "1:30:00", "---", "a: b", "# x", "x\n---\ny", "é\u2028"]
    ),
    st.lists(TEXT, max_size=3),
    st.dictionaries(st.sampled_from(["type", "options", "no"]), TEXT, max_size=2),
)
KEYS = st.sampled_from(
    ["license", "language", "tags", "base_model", "pipeline_tag", "extra_gated_prompt", "model-index"]
)
NEW = st.dictionaries(KEYS, VALUES, max_size=4)

CARD = """\
---
# Who may use it
license: mit  # chosen by legal
# What it speaks
language:
- en
- "no"

tags: [text-generation, pytorch]
extra_gated_prompt: |
  You agree

  # this is no comment
model-index:
  - name: x
---
# Title

A body\twith a rule

---
license: this is no front matter
"""


def edited(card, values, **arguments):
    data = card if isinstance(card, bytes) else card.encode()
    return with_metadata(data, values, "README.md", **arguments).decode()


def metadata(card):
    return dict(parse_card(card.encode(), "README.md").metadata)


# ------------------------------------------------------------------------------------------------ properties


def entries():
    """Lines of one key as a person may write them, with comments and blank lines around."""
    styles = st.sampled_from(
        [
            "{key}: plain text\n",
            "{key}: 'quoted ''text'''  # with a comment\n",
            '"{key}": "escaped \\u00e4 \\n"\n',
            "{key}:\n- one\n- two\n",
            "{key}:\n  - one\n  # between\n  - two\n",
            "{key}: [a, b]\n",
            "{key}: {{a: 1, b: [2]}}\n",
            "{key}: |\n  text\n\n  # no comment\n",
            "{key}: >-\n  folded\n  text\n",
            "{key}: &{key} [a]\n",
            "{key}:\n",
            "{key}: null\n",
            "{key}: text with \u2028 and \u0085\n",
        ]
    )
    around = st.sampled_from(["", "", "# a comment\n", "\n", "\n# a comment\n\n"])
    keys = st.lists(KEYS, unique=True, max_size=5)
    return keys.flatmap(lambda names: st.tuples(*(st.tuples(st.just(name), around, styles) for name in names)))


CARDS = st.builds(
    lambda found, body, end: (found, body, end),
    entries(),
    st.sampled_from(
        ["", "# Title\n\nText.\n", "\n\n---\nlicense: x\n---\n", "no line break at the end", "\u2028é\r\n"]
    ),
    st.sampled_from(["\n", "\r\n"]),
)


def written(card):
    found, body, end = card
    lines = "".join(around + style.format(key=key) for key, around, style in found) or "# nothing here yet\n"
    return "---" + end + lines.replace("\n", end) + "---" + end + body


@settings(max_examples=300, deadline=None)
@given(CARDS, NEW)
def test_the_values_are_set_and_the_others_stay(card, new):
    text = written(card)
    assert metadata(edited(text, new)) == {**metadata(text), **new}


@settings(max_examples=300, deadline=None)
@given(CARDS, NEW)
def test_the_body_stays_byte_for_byte(card, new):
    text = written(card)
    assert parse_card(edited(text, new).encode(), "README.md").body == parse_card(text.encode(), "README.md").body


@settings(max_examples=300, deadline=None)
@given(CARDS, NEW)
def test_keys_that_do_not_change_keep_their_lines(card, new):
    after = edited(written(card), new)
    found, _, end = card
    kept = [style.format(key=key).replace("\n", end) for key, _, style in found if key not in new]
    assert [lines for lines in kept if lines not in after] == []


@settings(max_examples=300, deadline=None)
@given(CARDS, NEW)
def test_comments_between_the_keys_stay(card, new):
    text = written(card)
    assert edited(text, new).count("# a comment") == text.count("# a comment")


@settings(max_examples=300, deadline=None)
@given(CARDS, NEW)
def test_a_second_time_changes_nothing(card, new):
    once = edited(written(card), new)
    assert edited(once, new) == once


@settings(max_examples=200, deadline=None)
@given(NEW.filter(bool), st.sampled_from([b"", b"# Title\n", b"---\n---\ntext", b"\xef\xbb\xbf# Title\n"]))
def test_a_card_without_a_front_matter_gets_one(new, body):
    assert metadata(edited(body, new)) == new


# ------------------------------------------------------------------------------------------------ cases


def test_what_is_already_said_leaves_every_byte_alone():
    assert edited(CARD, {"license": "mit", "language": ["en", "no"]}) == CARD


def test_none_leaves_a_key_alone():
    assert edited(CARD, {"license": None, "datasets": None}) == CARD


def test_one_changed_value_is_all_that_changes_in_its_line():
    assert edited(CARD, {"license": "apache-2.0"}) == CARD.replace("license: mit", "license: apache-2.0")


def test_a_new_key_follows_the_others():
    assert edited(CARD, {"pipeline_tag": "text-generation"}) == CARD.replace(
        "  - name: x\n---\n", "  - name: x\npipeline_tag: text-generation\n---\n"
    )


def test_a_replaced_block_of_text_leaves_nothing_behind():
    assert "no comment" not in edited(CARD, {"extra_gated_prompt": "Agree."})


def test_a_key_that_must_not_be_there_is_taken_out():
    assert edited(CARD, {}, without=["tags"]) == CARD.replace("tags: [text-generation, pytorch]\n", "")


def test_the_last_key_can_be_taken_out():
    assert edited("---\nlicense: mit\n---\nText\n", {}, without=["license"]) == "Text\n"


def test_a_boolean_is_not_a_number():
    assert edited("---\nx: 1\n---\n", {"x": True}) == "---\nx: true\n---\n"


def test_windows_line_breaks_stay():
    assert edited("---\r\nlicense: mit\r\n---\r\nText\r\n", {"license": "other", "tags": ["a"]}) == (
        "---\r\nlicense: other\r\ntags:\r\n- a\r\n---\r\nText\r\n"
    )


@pytest.mark.parametrize(
    "front",
    [
        "{license: mit, tags: [a]}",
        "  license: mit\n  tags: [a]",
        "? license\n: mit\ntags: [a]",
        "x: &a [a]\ntags: *a\nlicense: mit",
        "license: &license mit\ntags: [*license]",
    ],
)
def test_a_front_matter_in_another_style_keeps_its_values(front):
    text = f"---\n{front}\n---\nText\n"
    assert metadata(edited(text, {"license": "other", "x": 1})) == {**metadata(text), "license": "other", "x": 1}


@pytest.mark.parametrize(
    "word", ["no", "yes", "on", "null", "~", "1.0", "2024-01-01", "", "a: b", "- a", "#x", "'", "\t"]
)
def test_a_string_stays_a_string(word):
    assert metadata(edited("# Title\n", {"language": word})) == {"language": word}


def test_a_card_that_does_not_parse_is_refused():
    with pytest.raises(MalformedFile, match="twice"):
        edited("---\na: 1\na: 2\n---\n", {"license": "mit"})
