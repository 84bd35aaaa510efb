"""Conditions over the fields of a config, evaluated and never executed."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from repokit.schema.config_conditions import holds, is_known, names
from repokit.schema.field_types import table

STORED = sorted({text for texts in table()["refused"].values() for text in texts})


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a % b != 0", {"a": 7, "b": 2}),
        ("a * b != c", {"a": 2, "b": 3, "c": 7}),
        ("a is None or a <= 0", {"a": None}),
        ("len(a) != b", {"a": [1, 2], "b": 3}),
        ("a not in ['x', 'y']", {"a": "z"}),
        ("not 0 < a <= b", {"a": 5, "b": 4}),
        ("is_list(a) and a[-1] > 2", {"a": [1, 3]}),
        ("a and (not b)", {"a": True, "b": False}),
        ("(a if b else c) > 1", {"a": 0, "b": False, "c": 2}),
    ],
)
def test_a_condition_holds(text, values):
    assert holds(text, values)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a % b != 0", {"a": 8, "b": 2}),
        ("a % b != 0", {"a": 8}),
        ("a % b != 0", {"a": 8, "b": 0}),
        ("a % b != 0", {"a": 8, "b": None}),
        ("a * b != c", {"a": "auto", "b": 3, "c": 7}),
        ("len(a) != b", {"a": 5, "b": 3}),
        ("a[0] > 1", {"a": []}),
        ("a * b != 1", {"a": 10**12, "b": 2}),
    ],
)
def test_a_condition_does_not_hold_or_cannot_be_told(text, values):
    assert not holds(text, values)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "a.b",
        "getattr(a, 'b')",
        "(lambda: 1)()",
        "[x for x in a]",
        "a ** b",
        "a << b",
        "len(a, b)",
        "a[b]",
        "f'{a}'",
    ],
)
def test_what_is_no_plain_condition_is_not_taken(text):
    assert not is_known(text)


def test_names_are_the_fields_and_not_the_functions():
    assert names("len(a) != b and is_list(c)") == {"a", "b", "c"}


@pytest.mark.parametrize("text", STORED)
def test_every_stored_condition_is_one_that_can_be_evaluated(text):
    assert is_known(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(STORED), st.data())
def test_a_condition_never_raises(text, data):
    values = {name: data.draw(JSON) for name in names(text)}
    assert holds(text, values) in {True, False}
