"""Changes values of a JSON file and nothing else.

Number spelling, key order, indentation, line ends and what stands behind the last brace stay byte for byte: a diff of
the file shows what was meant, and a checksum of what was not touched holds. A value is named by its JSON Pointer
(RFC 6901); `-` in the place of an index means "behind the last item", as in JSON Patch (RFC 6902).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from repokit.formats.strict_json import loads

if TYPE_CHECKING:
    from collections.abc import Sequence

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_MARGIN: Final = re.compile(r"[ \t]*")
# The first break of a line inside a container, and the margin behind it. No string can match: strict JSON has no line
# breaks in strings.
_FIRST_BREAK: Final = re.compile(r"[{\[][ \t]*(\r?\n)([ \t]+)\S")
_ESCAPED: Final = re.compile(r"\\u(?!00[0-7])[0-9a-fA-F]{4}")
_END: Final = "-"  # RFC 6902, section 4.1


class NoSuchPlaceError(LookupError):
    """A pointer leads to nothing."""


class _Item(NamedTuple):
    """A member of an object or an item of an array.

    Attributes:
        key: None in an array.
        start: Of the key, or of the item.
        value: Where the value begins.
        end: Behind the value.
    """

    key: str | None
    start: int
    value: int
    end: int


def with_value(data: bytes, pointer: str, value: object, path: str) -> bytes:
    """The document with a value set; a member that its object does not have is added as the last.

    Args:
        data: The whole file.
        pointer: Of the value; what it is to stand in must be there.
        value: Any JSON value. Where the same one stands already, nothing changes.
        path: For messages.

    Raises:
        MalformedFile: The file is not strict JSON.
        NoSuchPlaceError: The pointer leads into nothing.
    """
    text = _text(data, path)
    parts = _parts(pointer)
    if not parts:
        start, end = _whole(text)
        return _replaced(text, start, end, value, _Style.of(text), margin="").encode()
    container = _container(text, parts, pointer)
    items, key = _items(text, container), parts[-1]
    found = _named(text, container, items, key)
    if found is not None:
        style = _Style.of(text)
        broken = _breaks_before(text, found.start)
        margin = _margin(text, found.start) if broken or _breaks_in(text, found) else None
        return _replaced(text, found.value, found.end, value, style, margin=margin).encode()
    if text[container] == "[" and key != _END:
        raise NoSuchPlaceError(f"{path} has no item {pointer}")
    return _added(text, container, items, key if text[container] == "{" else None, value).encode()


def without(data: bytes, pointer: str, path: str) -> bytes:
    """The document without a member of an object or an item of an array; what is not there is no error.

    Args:
        data: The whole file.
        pointer: Of the member or item.
        path: For messages.

    Raises:
        MalformedFile: The file is not strict JSON.
        NoSuchPlaceError: It names the whole document.
    """
    text = _text(data, path)
    parts = _parts(pointer)
    if not parts:
        raise NoSuchPlaceError(f"{path}: the whole document cannot be taken out of it")
    try:
        container = _container(text, parts, pointer)
    except NoSuchPlaceError:
        return data
    items = _items(text, container)
    found = _named(text, container, items, parts[-1])
    return data if found is None else _dropped(text, container, items, items.index(found)).encode()


def value_at(data: bytes, parts: Sequence[str], path: str) -> Any:  # noqa: ANN401 - whatever the document holds
    """The value that the parts of a pointer lead to, as they stand in it; None where they lead to nothing.

    Raises:
        MalformedFile: The file is not strict JSON.
    """
    value = loads(data, path, infinity=True)
    for key in _unescaped(parts):
        if isinstance(value, list):
            value = value[int(key)] if key.isdecimal() and int(key) < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(data: bytes, path: str) -> str:
    loads(data, path, infinity=True)  # what is walked over below is known to be JSON without repeated keys
    return data.decode("utf-8")


def _parts(pointer: str) -> list[str]:
    return _unescaped(pointer.split("/")[1:])


def _unescaped(parts: Sequence[str]) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]


# ---------------------------------------------------------------- where things are


def _space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None  # noqa: S101 - it matches the empty string
    return match.end()


def _whole(text: str) -> tuple[int, int]:
    start = _space(text, 0)
    return start, _DECODER.raw_decode(text, start)[1]


def _container(text: str, parts: list[str], pointer: str) -> int:
    """Where the object or array begins in which the last part of a pointer stands."""
    position = _space(text, 0)
    for part in parts[:-1]:
        found = _named(text, position, _items(text, position), part)
        if found is None:
            raise NoSuchPlaceError(f"there is nothing in which {pointer} could stand")
        position = found.value
    if text[position] not in "{[":
        raise NoSuchPlaceError(f"{pointer} would stand in a value that is no object and no array")
    return position


def _items(text: str, container: int) -> list[_Item]:
    """What an object or array holds; nothing for any other value."""
    if text[container] not in "{[":
        return []
    is_object = text[container] == "{"
    position = _space(text, container + 1)
    items = []
    while text[position] not in "}]":
        start, key = position, None
        if is_object:
            key, position = _DECODER.raw_decode(text, position)
            position = _space(text, _space(text, position) + 1)  # over the colon
        value = position
        _, position = _DECODER.raw_decode(text, position)
        items.append(_Item(key, start, value, position))
        position = _space(text, position)
        if text[position] == ",":
            position = _space(text, position + 1)
    return items


def _named(text: str, container: int, items: list[_Item], key: str) -> _Item | None:
    if text[container] == "{":
        return next((item for item in items if item.key == key), None)
    if not (key.isascii() and key.isdecimal()):
        return None
    return items[int(key)] if int(key) < len(items) else None


# ---------------------------------------------------------------- how the document is written


class _Style(NamedTuple):
    r"""How a document spells what has more than one spelling.

    Attributes:
        indent: What a level is indented by; "" for a document on one line.
        line_break: `\n` or `\r\n`.
        escaped: Whether letters beyond ASCII are written as `\uXXXX`.
        spaced: Whether a blank follows a colon.
    """

    indent: str
    line_break: str
    escaped: bool
    spaced: bool

    @classmethod
    def of(cls, text: str) -> _Style:
        found = _FIRST_BREAK.search(text)
        line_break = found[1] if found else ("\r\n" if "\r\n" in text else "\n")
        escaped = text.isascii() and _ESCAPED.search(text) is not None
        return cls(found[2] if found else "", line_break, escaped, spaced='":' not in text or '": ' in text)

    def spelled(self, value: object, margin: str | None) -> str:
        """A value; over several lines where it begins one of its own, whose margin is given."""
        if margin is None or not self.indent:
            separators = (", ", ": ") if self.spaced else (",", ":")
            return json.dumps(value, ensure_ascii=self.escaped, separators=separators)
        text = json.dumps(value, ensure_ascii=self.escaped, indent=self.indent, separators=(",", ": "))
        return text.replace("\n", self.line_break + margin)


def _breaks_before(text: str, position: int) -> bool:
    """Whether nothing but blanks stands before a place in its line, and a line is before that."""
    head = text[:position].rstrip(" \t")
    return head.endswith("\n")


def _breaks_in(text: str, item: _Item) -> bool:
    return "\n" in text[item.value : item.end]


def _margin(text: str, position: int) -> str:
    """The blanks with which the line of a place begins."""
    match = _MARGIN.match(text, text.rfind("\n", 0, position) + 1)
    assert match is not None  # noqa: S101 - it matches the empty string
    return match[0]


# ---------------------------------------------------------------- the edits


def _replaced(text: str, start: int, end: int, value: object, style: _Style, *, margin: str | None) -> str:
    old = text[start:end]
    if _same(_DECODER.decode(old), value):
        return text
    on_one_line = old[0] in "{[" and "\n" not in old and len(old) > 2  # an empty one says nothing of how it is written
    return text[:start] + style.spelled(value, None if on_one_line else margin) + text[end:]


def _same(one: object, other: object) -> bool:
    """Whether two values are written alike, the order of keys aside: 1 is neither True nor 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _added(text: str, container: int, items: list[_Item], key: str | None, value: object) -> str:
    style = _Style.of(text)
    if not items:
        return _first(text, container, key, value, style)
    last = items[-1]
    gap = text[text.index(",", items[-2].end) + 1 if len(items) > 1 else container + 1 : last.start]
    if len(items) == 1 and "\n" not in gap:  # `{"a": 1}` and `{ "a": 1 }` have a blank behind their commas
        gap = " " if style.spaced else ""
    colon = text[last.start : last.value].rpartition('"')[2] if key is not None else ""
    margin = _margin(text, last.start) if "\n" in gap else None
    spelled = style.spelled(value, margin)
    name = "" if key is None else json.dumps(key, ensure_ascii=style.escaped) + colon
    return f"{text[: last.end]},{gap}{name}{spelled}{text[last.end :]}"


def _first(text: str, container: int, key: str | None, value: object, style: _Style) -> str:
    """The first of an empty object or array: on a line of its own where the document has lines, or is nothing else."""
    closing = _space(text, container + 1)
    if not (text[:container].strip() or text[closing + 1 :].strip()):
        style = style._replace(indent=style.indent or "  ")
    outer = _margin(text, container)
    inner = outer + style.indent
    colon = ": " if style.spaced else ":"
    name = "" if key is None else json.dumps(key, ensure_ascii=style.escaped) + colon
    spelled = style.spelled(value, inner)
    if not style.indent:
        return f"{text[: container + 1]}{name}{spelled}{text[closing:]}"
    head, tail = style.line_break + inner, style.line_break + outer
    return f"{text[: container + 1]}{head}{name}{spelled}{tail}{text[closing:]}"


def _dropped(text: str, container: int, items: list[_Item], index: int) -> str:
    if len(items) == 1:
        return text[: container + 1] + text[_space(text, items[0].end) :]
    if index + 1 < len(items):
        return text[: items[index].start] + text[items[index + 1].start :]
    return text[: items[index - 1].end] + text[items[index].end :]
