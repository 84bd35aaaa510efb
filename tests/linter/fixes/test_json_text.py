"""JSON that some readers refuse, as all of them take it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from repokit.errors import InputError
from repokit.formats.strict_json import loads
from repokit.linter.fixes.json_text import finite, readable, without_equal_keys

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def repaired(text: str | bytes) -> str | None:
    found = readable(text if isinstance(text, bytes) else text.encode(), "config.json")
    return None if found is None else found[0].decode()


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ('{"a": 1,}', '{"a": 1}'),
        ('{"a": [1, 2 , ]\r\n,}', '{"a": [1, 2  ]\r\n}'),
        ('{"a": ",}", "b": 1,}', '{"a": ",}", "b": 1}'),
        ('{"a": "\\",}",}', '{"a": "\\",}"}'),
        ('{"a": 1, "a": 1}', '{"a": 1}'),
        ('{"x": {"a": [1], "b": 2, "a": [1]}}', '{"x": {"a": [1], "b": 2}}'),
        ("\ufeff{}", "{}"),
    ],
)
def test_what_can_be_meant_in_one_way_is_written_so(text, plain):
    assert repaired(text) == plain


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        '{"a": 1, "a": 1.0}',
        '{"a": 1, "a": true}',
        '<<<<<<< HEAD\n{"a": 1}\n=======\n{"a": 2}\n>>>>>>> other\n',
        '{"a": NaN}',
        "{'a': 1}",
        '{"a": 1,, "b": 2}',
        '{"a" 1}',
        '{"a": 1',
        "[" * 200 + "]" * 200,
        "",
    ],
)
def test_what_can_be_meant_in_two_ways_is_left_alone(text):
    assert repaired(text) is None


def test_utf_16_becomes_utf_8():
    assert repaired('{"ä": 1}'.encode("utf-16")) == '{"ä": 1}'


def test_text_that_is_not_utf_8_is_left_alone():
    assert repaired(b'{"\xe4": 1,}') is None


@given(VALUES)
def test_json_is_left_alone(value):
    assert readable(json.dumps(value).encode(), "x.json") is None


@given(st.dictionaries(st.text(), VALUES, min_size=1, max_size=4))
def test_equal_keys_are_one_key(value):
    inner = json.dumps(value)[1:-1]
    assert json.loads(without_equal_keys(f"{{{inner}, {inner}}}")) == json.loads(json.dumps(value))


@given(st.text(alphabet='{}[],:"\\ 1antrue\n'))
def test_any_text_becomes_json_or_is_left_alone(text):
    found = repaired(text)
    if found is not None:
        try:
            loads(found.encode(), "x.json", infinity=True)
        except InputError:
            pytest.fail("it is not JSON")


def test_infinity_is_spelled_out_of_strings_only():
    assert finite(b'{"a": [0.0, Infinity], "b": "Infinity", "c": -Infinity}') == (
        b'{"a": [0.0, {"__float__": "Infinity"}], "b": "Infinity", "c": {"__float__": "-Infinity"}}'
    )
