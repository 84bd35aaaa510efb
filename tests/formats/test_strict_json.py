from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from repokit.errors import LimitExceeded, MalformedFile, RepokitError
from repokit.formats import strict_json
from repokit.formats.strict_json import MAX_DEPTH, dumps, loads, locate

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def pointers(value: Any, pointer: str = "") -> list[tuple[str, Any]]:
    """Every value of a document with its JSON Pointer."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    below = [pointers(item, f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}") for key, item in items]
    return [(pointer, value), *(pair for found in below for pair in found)]


# ---------------------------------------------------------------- what is read


@settings(deadline=None)
@given(VALUES)
def test_what_is_written_is_read_again(value: Any) -> None:
    assert loads(dumps(value), "x.json") == value


@settings(deadline=None)
@given(VALUES, st.fixed_dictionaries({"indent": st.sampled_from([None, 1, "\t"]), "ensure_ascii": st.booleans()}))
def test_strict_documents_read_as_json_reads_them(value: Any, spelling: dict[str, Any]) -> None:
    text = json.dumps(value, **spelling)
    assert loads(text.encode(), "x.json") == json.loads(text)


@settings(deadline=None)
@given(st.dictionaries(TEXT, st.integers(), max_size=6))
def test_the_order_of_keys_is_kept(value: dict[str, int]) -> None:
    assert list(loads(dumps(value), "x.json")) == list(value)


def test_keys_can_be_written_in_order() -> None:
    assert dumps({"b": 1, "a": {"d": 1, "c": "é"}}, sort_keys=True).decode() == (
        '{\n  "a": {\n    "c": "é",\n    "d": 1\n  },\n  "b": 1\n}\n'
    )


def test_a_document_may_be_as_deep_as_the_limit() -> None:
    assert loads(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, "x.json")


# ---------------------------------------------------------------- what is refused


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_give_a_document_or_an_error_for_people(content: bytes) -> None:
    with suppress(RepokitError):
        loads(content, "x.json")


@settings(deadline=None)
@given(st.text('{}[]:,"\\ \n0123456789.eE-+trufalsn NaIity\ud800\ufeff', max_size=60))
@example('{"a": 1}')
def test_what_is_read_is_json(text: str) -> None:
    try:
        value = loads(text.encode(errors="surrogatepass"), "x.json")
    except RepokitError:
        return
    assert json.loads(json.dumps(value, allow_nan=False)) == value


@pytest.mark.parametrize(
    ("content", "what", "place"),
    [
        (b"", "is empty", "line 1 column 1"),
        (b" \n\t", "is empty", "line 2 column 2"),
        (b'{"a":\n{"b" 1}}', "is not JSON: expecting ':'", "line 2 column 6"),
        (b'{"a": 1}\n=======\n{"a": 2}', "Git conflict marker", "line 2 column 1"),
        (b"<!DOCTYPE html>", "an HTML page", "line 1 column 1"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer", "line 1 column 1"),
        (b'\xef\xbb\xbf{"a": 1}', "byte order mark", "line 1 column 1"),
        ('{"a": 1}'.encode("utf-16"), "UTF-16", "line 1"),
        (b'{"a":\n"\xff"}', "is not UTF-8: byte 7", "line 2"),
        (b'{"a": "NaN",\n "b": NaN, "c": "NaN"}', "has NaN", "line 2 column 7"),
        (b'{"a": [-Infinity]}', "has -Infinity", "line 1 column 8"),
        (b'{"a": "1e999", "b": 1e999}', "out of range", "line 1 column 21"),
        (b"[1" + b"0" * 400 + b".0]", "out of range", "line 1 column 2"),
        (b"[1" + b"0" * 250 + b"e99]", "out of range", "line 1 column 2"),
        (b"[" + b"9" * 5000 + b"]", "no reader takes", None),
        (b'{"a": "\\ud800"}', "surrogate", None),
    ],
)
def test_a_malformed_document_says_what_and_where(content: bytes, what: str, place: str | None) -> None:
    with pytest.raises(MalformedFile, match=what) as caught:
        loads(content, "x.json")
    assert caught.value.place == place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a": 1, "a": 2}', "line 1 column 10"),
        ('{"x": {"a": 1,\n "a": 2}, "y": {"a": 3}, "a": 4}', "line 2 column 2"),
        ('[{"a": "a", "b": {"a": "a"},\n\n"a": 1}, {"a": 1}]', "line 3 column 1"),
        ('{"a\\u0062": 1, "ab": 2}', "line 1 column 16"),
    ],
)
def test_a_duplicate_key_is_the_second_one_of_its_object(text: str, place: str) -> None:
    with pytest.raises(MalformedFile, match="twice in one object") as caught:
        loads(text.encode(), "x.json")
    assert caught.value.place == place


@settings(deadline=None)
@given(VALUES, TEXT)
def test_a_duplicate_key_is_found_at_any_depth(value: Any, key: str) -> None:
    name = json.dumps(key)
    text = f'[{json.dumps(value)}, {{{name}: {json.dumps(value)}, "x{key[:0]}": 0, {name}: 1}}]'
    if key == "x":
        return
    with pytest.raises(MalformedFile, match="twice") as caught:
        loads(text.encode(), "x.json")
    assert caught.value.place == f"line 1 column {text.rindex(name) + 1}"


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 5_000, 200_000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_document_deeper_than_the_limit_is_refused(depth: int, opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    with pytest.raises(LimitExceeded):
        loads((opening * depth + "0" + closing * depth).encode(), "x.json")


def test_a_document_larger_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_json, "MAX_BYTES", 10)
    with pytest.raises(LimitExceeded):
        loads(b'{"a": 12345}', "x.json")


def test_infinity_is_read_where_it_is_asked_for_and_written_as_it_was() -> None:
    document = loads(b'{"a": -Infinity}', "x.json", infinity=True)
    assert json.loads(dumps(document, infinity=True)) == {"a": float("-inf")}


def test_infinity_is_not_written_unless_it_is_asked_for() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dumps({"a": float("inf")})


def test_nan_is_never_read() -> None:
    with pytest.raises(MalformedFile, match="NaN"):
        loads(b'{"a": NaN}', "x.json", infinity=True)


# ---------------------------------------------------------------- where values stand


def position(text: str, place: tuple[int, int]) -> int:
    return sum(len(line) for line in text.splitlines(keepends=True)[: place[0] - 1]) + place[1] - 1


@settings(deadline=None)
@given(VALUES, st.sampled_from([None, 2]))
def test_a_pointer_leads_to_its_value(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    for pointer, expected in pointers(value):
        place = locate(text, pointer)
        assert place is not None
        assert json.JSONDecoder().raw_decode(text, position(text, place))[0] == expected


@settings(deadline=None)
@given(VALUES, TEXT, st.integers(0, 9))
def test_a_pointer_to_what_is_not_there_leads_nowhere(value: Any, key: str, index: int) -> None:
    known = {pointer for pointer, _ in pointers(value)}
    for pointer in list(known):
        for step in (key.replace("~", "~0").replace("/", "~1"), str(index)):
            if f"{pointer}/{step}" not in known:
                assert locate(json.dumps(value), f"{pointer}/{step}") is None
