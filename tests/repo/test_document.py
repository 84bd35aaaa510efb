"""Typed accessors: a value of another type is as good as absent."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from repokit.formats.strict_json import locate
from repokit.repo.document import Document

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab~/", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab~/", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_an_accessor_gives_its_type_or_nothing(value: object) -> None:
    document = Document("config.json", {"key": value})
    assert document.integer("key") is (value if type(value) is int else None)
    assert document.number("key") is (value if type(value) in {int, float} else None)
    assert document.string("key") is (value if isinstance(value, str) else None)
    assert document.flag("key") is (value if isinstance(value, bool) else None)


@given(JSON)
def test_lists_keep_what_has_the_type(value: object) -> None:
    document = Document("config.json", {"key": value})
    items = value if isinstance(value, list) else []
    assert list(document.strings("key")) == [item for item in items if isinstance(item, str)]
    assert [nested.raw for nested in document.objects("key")] == [item for item in items if isinstance(item, dict)]


@pytest.mark.parametrize(
    ("value", "integers"), [(3, (3,)), ([3, True, "4", 5], (3, 5)), (True, ()), ("3", ()), (None, ()), ({}, ())]
)
def test_one_integer_or_many(value: object, integers: tuple[int, ...]) -> None:
    assert Document("config.json", {"key": value}).integers("key") == integers


def test_a_missing_key_is_nothing() -> None:
    document = Document("config.json", {})
    found = (
        document.integer("a"),
        document.string("a"),
        document.flag("a"),
        document.mapping("a"),
        document.strings("a"),
    )
    assert found == (None, None, None, None, ())
    assert "a" not in document


@given(st.dictionaries(st.text("ab~/", max_size=3), st.integers(), min_size=1))
def test_a_pointer_leads_to_the_value(raw: dict[str, int]) -> None:
    import json

    text = json.dumps({"outer": raw})
    nested = Document("config.json", {"outer": raw}).mapping("outer")
    assert nested is not None
    for key, value in raw.items():
        found = locate(text, nested.at(key))
        assert found is not None
        line, column = found
        assert (line, text[column - 1 :].startswith(json.dumps(value))) == (1, True)


def test_items_of_lists_have_pointers() -> None:
    document = Document("config.json", {"a": [1, {"b": 2}]})
    assert [nested.at("b") for nested in document.objects("a")] == ["/a/1/b"]
