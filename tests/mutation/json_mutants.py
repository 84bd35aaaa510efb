"""A JSON document -> its mutants: every key at every level."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from edit import Edit

Pointer = tuple[str | int, ...]

# A value that exists, for words that a reader looks up: the others are altered by a letter, which none knows.
OTHER_WORDS = {
    "bfloat16": "float16",
    "eager": "sdpa",
    "float16": "bfloat16",
    "float32": "bfloat16",
    "full_attention": "sliding_attention",
    "gelu": "silu",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "left": "right",
    "quick_gelu": "gelu",
    "relu": "gelu",
    "right": "left",
    "silu": "gelu",
    "sliding_attention": "full_attention",
}


def of_document(content: bytes) -> Iterator[Edit]:
    """Mutants of a whole JSON file."""
    yield from of_value(json.loads(content))


def of_value(document: Any, skip: Callable[[Pointer], bool] = lambda _pointer: False) -> Iterator[Edit]:
    """Mutants of a parsed document.

    Args:
        document: An object.
        skip: Tells pointers below which nothing is changed.
    """
    for pointer in pointers(document):
        if not any(skip(pointer[:length]) for length in range(1, len(pointer) + 1)):
            for operation, change in changes(value_at(document, pointer), pointer):
                copied = copy.deepcopy(document)
                change(value_at(copied, pointer[:-1]))
                yield Edit(operation, spelled(pointer), written(copied))


def pointers(document: Any, pointer: Pointer = ()) -> Iterator[Pointer]:
    """Every key of every object; of a list of objects, those of its first two."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield (*pointer, key)
            yield from pointers(value, (*pointer, key))
    elif isinstance(document, list):
        for index, value in enumerate(document[:2]):
            yield from pointers(value, (*pointer, index))


Change = Callable[[Any], None]


def changes(value: Any, pointer: Pointer) -> Iterator[tuple[str, Change]]:
    """What can be done to one member of an object."""
    key = str(pointer[-1])
    yield "delete key", lambda holder: holder.pop(key)
    yield "rename key", lambda holder: _rename(holder, key)
    for operation, other in other_values(value):
        yield operation, lambda holder, other=other: holder.__setitem__(key, other)


def other_values(value: Any) -> Iterator[tuple[str, Any]]:
    """Other values than this one, each with what it is."""
    if value is not None:
        yield "set null", None
    match value:
        case None:
            yield "number for null", 1
            yield "text for null", "x"
        case bool():
            yield "flip", not value
            yield "text for flag", str(value).lower()
        case int() | float():
            yield from _numbers(value)
            yield "text for number", str(value)
            yield "list for number", [value]
        case str():
            yield "alter text", value + "x"
            yield "number for text", 7
            yield "list for text", [value]
            if value in OTHER_WORDS:
                yield "another known word", OTHER_WORDS[value]
        case list():
            yield from _lists(value)
        case dict():
            yield "list for object", list(value)
            yield "text for object", "x"
            yield "empty object", {}


def _numbers(value: float) -> Iterator[tuple[str, float]]:
    for operation, other in (
        ("number + 1", value + 1),
        ("number - 1", value - 1),
        ("zero", 0 * value),
        ("number x 2", value * 2),
        ("minus one", -1),
    ):
        if other != value:
            yield operation, other


def _lists(value: list[Any]) -> Iterator[tuple[str, Any]]:
    yield "text for list", "x"
    yield "empty list", []
    if not value:
        return
    if len(value) > 1:
        yield "shorter list", value[:-1]
    yield "longer list", [*value, value[-1]]
    for operation, other in other_values(value[0]):
        if not isinstance(value[0], dict | list):
            yield f"first item: {operation}", [other, *value[1:]]


def _rename(holder: dict[str, Any], key: str) -> None:
    """Takes a letter out of the middle of the key, in its place; of a short one, doubles the last."""
    middle = len(key) // 2
    other = key[:middle] + key[middle + 1 :] if len(key) > 2 else key + key[-1:]
    items = [(other if name == key else name, value) for name, value in holder.items()]
    holder.clear()
    holder.update(items)


def shared(files: Mapping[str, bytes], other: Mapping[str, bytes], path: str) -> frozenset[str]:
    """Pointers of a document that lead to the same value in another repository's document of that name."""
    if path not in files or path not in other:
        return frozenset()
    one, two = json.loads(files[path]), json.loads(other[path])
    return frozenset(spelled(pointer) for pointer in pointers(one) if _leads_to(two, pointer) == value_at(one, pointer))


def _leads_to(document: Any, pointer: Pointer) -> Any:
    try:
        return value_at(document, pointer)
    except (KeyError, IndexError, TypeError):
        return ABSENT


ABSENT = object()


def value_at(document: Any, pointer: Pointer) -> Any:
    """The value that a pointer leads to."""
    for part in pointer:
        document = document[part]
    return document


def spelled(pointer: Pointer) -> str:
    """As a JSON Pointer."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in pointer)


def written(document: Any) -> bytes:
    """As transformers writes it."""
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
