"""Edits of JSON text: the document that is meant, and not a byte more."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from repokit.errors import MalformedFile
from repokit.formats.json_edit import NoSuchPlaceError, with_value, without

CONFIG = b"""{
  "architectures": ["LlamaForCausalLM"],
  "eps": 1e-06,
  "rope": {
    "theta": 10000.00
  },
  "last": null
}
"""


def changed(data: bytes, pointer: str, value: Any) -> str:
    return with_value(data, pointer, value, "x.json").decode()


def dropped(data: bytes, pointer: str) -> str:
    return without(data, pointer, "x.json").decode()


# ---------------------------------------------------------------- set


def test_a_value_is_replaced_in_its_place() -> None:
    assert changed(CONFIG, "/eps", 2) == CONFIG.decode().replace("1e-06", "2")


def test_the_same_value_leaves_its_spelling() -> None:
    assert changed(CONFIG, "/rope/theta", 10000.0) == CONFIG.decode()


@pytest.mark.parametrize(("old", "new"), [(b"1", True), (b"1", 1.0), (b"true", 1), (b"0", False)])
def test_equal_for_python_is_not_the_same(old: bytes, new: Any) -> None:
    assert changed(b'{"a": ' + old + b"}", "/a", new) == '{"a": ' + json.dumps(new) + "}"


def test_a_new_key_is_the_last_of_its_object() -> None:
    assert changed(CONFIG, "/rope/type", "default") == CONFIG.decode().replace(
        "10000.00\n", '10000.00,\n    "type": "default"\n'
    )


def test_a_new_key_at_the_top_keeps_the_line_end() -> None:
    assert changed(CONFIG, "/new", 1).endswith('"last": null,\n  "new": 1\n}\n')


def test_a_list_on_one_line_stays_on_one_line() -> None:
    assert '"architectures": ["A", "B"],' in changed(CONFIG, "/architectures", ["A", "B"])


def test_a_list_in_the_place_of_a_number_is_written_in_lines() -> None:
    assert '"eps": [\n    4,\n    2\n  ],\n' in changed(CONFIG, "/eps", [4, 2])


def test_windows_line_ends_are_kept() -> None:
    data = CONFIG.replace(b"\n", b"\r\n")
    edited = changed(data, "/rope/list", [1])
    assert edited.count("\n") == edited.count("\r\n") == data.count(b"\n") + 3


def test_tabs_are_kept() -> None:
    assert changed(b'{\n\t"a": 1\n}', "/b", {"c": 2}) == '{\n\t"a": 1,\n\t"b": {\n\t\t"c": 2\n\t}\n}'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"a":1}', '{"a":1,"b":2}'),
        ('{"a": 1}', '{"a": 1, "b": 2}'),
        ('{ "a": 1 }', '{ "a": 1, "b": 2 }'),
        ('{"x":3,"a":1}\n', '{"x":3,"a":1,"b":2}\n'),
        ("{}", '{\n  "b": 2\n}'),
        ("{ }\n", '{\n  "b": 2\n}\n'),
    ],
)
def test_a_member_is_added_as_the_document_is_written(before: str, after: str) -> None:
    assert changed(before.encode(), "/b", 2) == after


def test_the_first_member_of_an_inner_object_gets_a_line() -> None:
    assert changed(b'{\n  "a": {}\n}', "/a/b", 1) == '{\n  "a": {\n    "b": 1\n  }\n}'


def test_the_first_member_of_an_inner_object_on_one_line_stays_there() -> None:
    assert changed(b'{"a":{}}', "/a/b", 1) == '{"a":{"b":1}}'


def test_a_minus_means_behind_the_last_item() -> None:
    assert changed(b'{"a": [1, 2]}', "/a/-", 3) == '{"a": [1, 2, 3]}'


def test_an_item_is_replaced() -> None:
    assert changed(b'{"a": [1, 2]}', "/a/0", "x") == '{"a": ["x", 2]}'


def test_the_whole_document_can_be_replaced() -> None:
    assert changed(b' {"a": 1}\n', "", [1]) == " [1]\n"


def test_letters_are_escaped_where_the_document_does() -> None:
    assert changed(b'{"a": "\\u00e9"}', "/b", "ü") == '{"a": "\\u00e9", "b": "\\u00fc"}'


def test_letters_are_written_as_they_are_otherwise() -> None:
    assert changed('{"a": "é"}'.encode(), "/b", "ü") == '{"a": "é", "b": "ü"}'


def test_an_escaped_pointer_names_its_key() -> None:
    assert changed(b'{"a/b~": 1}', "/a~1b~0", 2) == '{"a/b~": 2}'


def test_infinity_beside_the_edit_stays() -> None:
    assert changed(b'{"limit": [0.0, Infinity], "a": 1}', "/a", 2) == '{"limit": [0.0, Infinity], "a": 2}'


@pytest.mark.parametrize("pointer", ["/none/a", "/eps/a", "/architectures/1", "/architectures/x"])
def test_a_place_in_nothing_is_refused(pointer: str) -> None:
    with pytest.raises(NoSuchPlaceError):
        with_value(CONFIG, pointer, 1, "x.json")


# ---------------------------------------------------------------- drop


@pytest.mark.parametrize(
    ("before", "pointer", "after"),
    [
        ('{"a": 1, "b": 2}', "/a", '{"b": 2}'),
        ('{"a": 1, "b": 2}', "/b", '{"a": 1}'),
        ('{"a":1 ,\n"b":2 }', "/b", '{"a":1 }'),
        ('{"a": 1}', "/a", "{}"),
        ('{\n  "a": 1\n}\n', "/a", "{}\n"),
        ('{"a": [1, 2, 3]}', "/a/1", '{"a": [1, 3]}'),
        ('{"a": [1]}', "/a/0", '{"a": []}'),
    ],
)
def test_what_is_dropped_takes_its_comma_along(before: str, pointer: str, after: str) -> None:
    assert dropped(before.encode(), pointer) == after


def test_a_line_is_dropped_whole() -> None:
    assert dropped(CONFIG, "/eps") == CONFIG.decode().replace('  "eps": 1e-06,\n', "")


def test_the_last_line_is_dropped_with_the_comma_before_it() -> None:
    assert dropped(CONFIG, "/last") == CONFIG.decode().replace(',\n  "last": null', "")


@pytest.mark.parametrize("pointer", ["/none", "/none/a", "/eps/a", "/architectures/7"])
def test_what_is_not_there_is_no_error(pointer: str) -> None:
    assert dropped(CONFIG, pointer) == CONFIG.decode()


def test_the_whole_document_is_not_dropped() -> None:
    with pytest.raises(NoSuchPlaceError):
        without(CONFIG, "", "x.json")


@pytest.mark.parametrize(
    "edit", [lambda data: with_value(data, "/a", 1, "x.json"), lambda d: without(d, "/a", "x.json")]
)
def test_what_is_no_json_is_not_edited(edit: Any) -> None:
    with pytest.raises(MalformedFile):
        edit(b'{"a": 1, "a": 2}')


# ---------------------------------------------------------------- any document

LETTERS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | LETTERS
VALUES = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=4) | st.dictionaries(LETTERS, below, max_size=4), max_leaves=12
)
SPELLINGS = st.fixed_dictionaries(
    {
        "indent": st.sampled_from([None, 1, 2, 4, "\t"]),
        "ensure_ascii": st.booleans(),
        "separators": st.sampled_from([(",", ":"), (", ", ": "), (",", ": "), (" , ", " : ")]),
    }
)
OBJECTS = st.dictionaries(LETTERS, VALUES, max_size=4)


def places(value: Any, pointer: str = "") -> list[str]:
    """The pointers of everything below a document."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = []
    for key, below in pairs:
        here = pointer + "/" + str(key).replace("~", "~0").replace("/", "~1")
        found += [here, *places(below, here)]
    return found


def walked(document: Any, pointer: str) -> tuple[Any, Any]:
    """The container and the key of a pointer, in a Python document."""
    *above, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    for part in above:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document, int(last) if isinstance(document, list) else last


@st.composite
def documents(draw: st.DrawFn) -> tuple[bytes, Any]:
    document = draw(OBJECTS)
    text = json.dumps(document, **draw(SPELLINGS)) + draw(st.sampled_from(["", "\n"]))
    line_break = draw(st.sampled_from(["\n", "\r\n"]))
    return text.replace("\n", line_break).encode(), document


@given(documents(), VALUES, st.data())
def test_a_set_value_is_the_only_difference(written: tuple[bytes, Any], value: Any, data: st.DataObject) -> None:
    text, document = written
    pointer = data.draw(st.sampled_from([*places(document), "/added"]))
    expected = copy.deepcopy(document)
    container, key = walked(expected, pointer)
    container[key] = value
    edited = with_value(text, pointer, value, "x.json")
    assert json.dumps(json.loads(edited)) == json.dumps(expected)


@given(documents(), VALUES, st.data())
def test_setting_twice_is_setting_once(written: tuple[bytes, Any], value: Any, data: st.DataObject) -> None:
    text, document = written
    pointer = data.draw(st.sampled_from([*places(document), "/added"]))
    once = with_value(text, pointer, value, "x.json")
    assert with_value(once, pointer, value, "x.json") == once


@given(documents(), st.data())
def test_a_dropped_place_is_the_only_difference(written: tuple[bytes, Any], data: st.DataObject) -> None:
    text, document = written
    pointer = data.draw(st.sampled_from(places(document) or ["/none"]))
    expected = copy.deepcopy(document)
    if document:
        container, key = walked(expected, pointer)
        del container[key]
    assert json.dumps(json.loads(without(text, pointer, "x.json"))) == json.dumps(expected)


@given(documents(), VALUES)
def test_an_added_member_can_be_taken_out_again(written: tuple[bytes, Any], value: Any) -> None:
    text, document = written
    if not document or "added" in document:
        return
    assert without(with_value(text, "/added", value, "x.json"), "/added", "x.json") == text


@given(documents(), VALUES, st.data())
def test_the_text_around_a_replaced_value_is_untouched(
    written: tuple[bytes, Any], value: Any, data: st.DataObject
) -> None:
    text, document = written
    if not document:
        return
    key = data.draw(st.sampled_from(list(document)))
    pointer = "/" + key.replace("~", "~0").replace("/", "~1")
    edited = with_value(text, pointer, value, "x.json")
    assert with_value(edited, pointer, 0, "x.json") == with_value(text, pointer, 0, "x.json")
