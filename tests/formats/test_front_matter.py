from __future__ import annotations

from contextlib import suppress
from string import printable as printable_characters

import pytest
import yaml
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from hypothesis import example, given, settings, strategies as st

from repokit.errors import LimitExceeded, MalformedFile, RepokitError
from repokit.formats import front_matter
from repokit.formats.front_matter import MAX_DEPTH, MAX_NODES, load_list, load_mapping, parse_card

KEYS = st.from_regex(r"[a-z][a-z_-]{0,12}", fullmatch=True).filter(lambda key: isinstance(yaml.safe_load(key), str))
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Co", "Cn"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.dates() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
METADATA = st.dictionaries(KEYS, VALUES, max_size=5)
# Texts that are nearly cards: fences, blanks, line ends and keys in any order.
NEARLY = st.lists(
    st.sampled_from(
        ["---", "----", "--", " ", "\n", "\r\n", "\r", "\t", "license: mit", "a: [b", "# Title", "x", "\u2028"]
    ),
    max_size=12,
).map("".join)


def card(metadata: str, body: str = "# Title\n") -> bytes:
    return f"---\n{metadata}---\n{body}".encode()


# ---------------------------------------------------------------- what is read


@settings(deadline=None)
@given(METADATA)
def test_metadata_is_what_yaml_says(metadata: dict[str, object]) -> None:
    text = yaml.safe_dump(metadata, allow_unicode=True, sort_keys=False)
    assert parse_card(card(text), "README.md").metadata == yaml.safe_load(text)


@settings(deadline=None)
@given(METADATA, st.text(st.characters(codec="utf-8"), max_size=60))
def test_the_body_is_kept_as_it_is(metadata: dict[str, object], body: str) -> None:
    assert parse_card(card(yaml.safe_dump(metadata), body), "README.md").body == body


@settings(deadline=None)
@given(METADATA)
def test_lines_are_those_of_the_keys(metadata: dict[str, object]) -> None:
    content = card("# a comment\n" + yaml.safe_dump(metadata, sort_keys=False))
    lines = content.decode().split("\n")
    found = parse_card(content, "README.md").lines
    assert {key: lines[number - 1].partition(":")[0] for key, number in found.items()} == {key: key for key in metadata}


@settings(deadline=None)
@given(NEARLY)
@example("---\n---\n---\n")
@example("\n---\nlicense: mit\n---  ")
def test_a_front_matter_is_what_the_hub_takes_for_one(text: str) -> None:
    found = REGEX_YAML_BLOCK.search(text)
    try:
        parsed = parse_card(text.encode(), "README.md")
    except MalformedFile:
        return
    assert (parsed.metadata is not None) == (found is not None)
    assert parsed.body == (text[found.end() :] if found else text)


def test_a_card_without_front_matter_has_no_metadata() -> None:
    assert parse_card(b"# Title\n\n---\nlicense: mit\n---\n", "README.md").metadata is None


def test_a_horizontal_rule_on_top_is_no_front_matter() -> None:
    assert parse_card(b"---\n\n# Title\n", "README.md").metadata is None


@pytest.mark.parametrize("text", ["\n", "# only a comment\n", "null\n", "---\n"])
def test_a_front_matter_without_a_key_is_empty(text: str) -> None:
    assert parse_card(card(text), "README.md").metadata == {}


def test_windows_line_ends_are_fine() -> None:
    parsed = parse_card(b"---\r\nlicense: mit\r\ntags:\r\n- a\r\n---\r\n# Title\r\n", "README.md")
    assert (parsed.metadata, parsed.lines) == ({"license": "mit", "tags": ["a"]}, {"license": 2, "tags": 3})


def test_lines_count_as_editors_count_them() -> None:
    parsed = parse_card(card('a: "x\u2028y"\nb: 1\n'), "README.md")
    assert parsed.lines == {"a": 2, "b": 3}


def test_the_body_begins_on_its_line() -> None:
    assert parse_card(card("license: mit\ntags: [a]\n"), "README.md").body_line == 5


# ---------------------------------------------------------------- what is refused


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_card_or_an_error_for_people(content: bytes) -> None:
    with suppress(RepokitError):
        parse_card(content, "README.md")


@settings(deadline=None)
@given(st.text(printable_characters + "é\u2028&*!<>", max_size=80))
def test_any_text_gives_a_mapping_or_an_error_for_people(text: str) -> None:
    with suppress(RepokitError):
        load_mapping(text, "README.md")


@pytest.mark.parametrize(
    ("content", "what", "place"),
    [
        (b"---\nlicense: mit\n# Title\n", "never closes", "line 1"),
        (b"\n---  \nlicense: mit\n---\n", "blanks behind", "line 2"),
        (b"\xef\xbb\xbf---\nlicense: mit\n---\n", "byte order mark", "line 1"),
        (b"---\nlicense: mit\n---\n\xff", "not UTF-8", "line 4"),
        (card("license: mit\ntags: [a\n"), "is not YAML", "line 3 column 9"),
        (card("license: mit\nlicense: apache-2.0\n"), "'license' twice", "line 3"),
        (card("a:\n  b: 1\n  b: 2\n"), "'b' twice", "line 4"),
        (card("hello\n"), "not a mapping", "line 2"),
        (card("tags:\n\t- a\n"), "is not YAML", "line 3 column 1"),
        (card("yes: 1\n"), "does not read as a string", "line 2"),
        (card("[a, b]: 1\n"), "does not read as a string", "line 2"),
        (card("license: !secret x\n"), "has the tag '!secret'", "line 2"),
        (card("a: 1\nb: \x07\n"), "has the character", "line 3"),
        (card("released: 2026-13-45\n"), "cannot read", None),
        (card("flag: !!bool maybe\n"), "cannot read", None),
    ],
)
def test_a_malformed_card_says_what_and_where(content: bytes, what: str, place: str | None) -> None:
    with pytest.raises(MalformedFile, match=what) as caught:
        parse_card(content, "README.md")
    assert caught.value.place == place


@pytest.mark.parametrize(
    "tag", ["python/object/apply:os.mkdir [x]", "python/name:builtins.len ''", "python/module:os ''"]
)
def test_a_python_tag_is_refused_before_anything_is_built(tag: str) -> None:
    with pytest.raises(MalformedFile, match="has the tag"):
        parse_card(card(f"license: !!{tag}\n"), "README.md")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1) + "\n", id="deep"),
        pytest.param("a: " + "[" * 20_000 + "]" * 20_000 + "\n", id="very deep"),
        pytest.param("a: &a [*a]\n", id="an alias of itself"),
        pytest.param(
            "m0: &m0 [x, x, x, x, x, x, x, x]\n"
            + "".join(f"m{i}: &m{i} [{', '.join([f'*m{i - 1}'] * 8)}]\n" for i in range(1, 9)),
            id="aliases of aliases",
        ),
        pytest.param("a: [" + "x," * MAX_NODES + "]\n", id="many values"),
        pytest.param("a: " + "x" * front_matter.MAX_BYTES + "\n", id="large"),
    ],
)
def test_what_would_cost_too_much_is_refused(text: str) -> None:
    with pytest.raises(LimitExceeded):
        load_mapping(text, "README.md")


def test_a_card_with_all_results_of_a_benchmark_is_read() -> None:
    results = "".join(f"    - type: metric_{index}\n      value: {index}.5\n" for index in range(20_000))
    metadata = parse_card(card(f"model-index:\n- name: x\n  results:\n  - metrics:\n{results}"), "README.md").metadata
    assert metadata is not None
    assert len(metadata["model-index"][0]["results"][0]["metrics"]) == 20_000


# ---------------------------------------------------------------- without libyaml


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML as it is where it was built without libyaml."""
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    front_matter._loader_class.cache_clear()
    yield
    front_matter._loader_class.cache_clear()


@pytest.mark.usefixtures("slow")
def test_the_slow_parser_reads_the_same() -> None:
    text = "# c\nlanguage: no\ntags: [a, é]\nnested: {x: 2026-01-02}\n"
    assert load_mapping(text, "README.md") == (yaml.safe_load(text), {"language": 2, "tags": 3, "nested": 4})


@pytest.mark.usefixtures("slow")
def test_the_slow_parser_stops_too() -> None:
    with pytest.raises(LimitExceeded):
        load_mapping("a: " + "[" * 20_000 + "]" * 20_000, "README.md")


def test_yaml_list_is_read():
    assert load_list(b"\xef\xbb\xbf---\n# scores\n- value: 1.5\n", "x.yaml") == [{"value": 1.5}]


@pytest.mark.parametrize("data", [b"", b"# nothing\n", b"null\n"])
def test_yaml_without_a_list_is_empty(data):
    assert load_list(data, "x.yaml") == []


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"value: 1\n", "is not a list"),
        (b"5\n", "is not a list"),
        (b"- a: 1\n  a: 2\n", "has the key 'a' twice"),
        (b"- \xff\n", "is not UTF-8"),
        (b"- [\n", "is not YAML"),
    ],
)
def test_yaml_that_is_no_list_is_refused_at_its_line(data, what):
    with pytest.raises(MalformedFile, match=what) as caught:
        load_list(data, "x.yaml")
    assert caught.value.place.startswith("line ")
