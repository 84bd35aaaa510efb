"""JSON that only some readers take, as all of them do: the text edited where it has to be, and nowhere else."""

from __future__ import annotations

import json
import re
from typing import Final

from repokit.errors import InputError
from repokit.formats.strict_json import loads

_BOM: Final = b"\xef\xbb\xbf"
_UTF16: Final = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_STRING: Final = r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'  # one that is never closed too: what begins is not looked at again
_TRAILING: Final = re.compile(rf"(?P<string>{_STRING})|,(?=[ \t\r\n]*[}}\]])", re.DOTALL)
_INFINITE: Final = re.compile(rf"(?P<string>{_STRING})|(?P<word>-?Infinity)", re.DOTALL)
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()
_DEEPEST: Final = 100
_LARGEST: Final = 4 * 1024 * 1024  # bytes; a person does not edit larger ones


def utf8(content: bytes) -> tuple[bytes, str] | None:
    """Text with a byte order mark as UTF-8 without one, and what was done; None where it has none."""
    if content.startswith(_BOM):
        return content.removeprefix(_BOM), "remove the byte order mark"
    for mark, encoding in _UTF16.items():
        if content.startswith(mark):
            try:
                return content[2:].decode(encoding).encode(), "write it in UTF-8"
            except UnicodeError:
                return None
    return None


def readable(content: bytes, path: str) -> tuple[bytes, str] | None:
    """A file that is not strict JSON as one that is, and what was done; None where its meaning is not clear."""
    told: list[str] = []
    if len(content) > _LARGEST:
        return None
    if (found := utf8(content)) is not None:
        content, what = found
        told.append(what)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    plain = _TRAILING.sub(lambda found: found["string"] or "", text)
    if plain != text:
        told.append("remove the comma before a closing bracket")
    if not is_strict(plain.encode(), path):
        try:
            plain = without_equal_keys(plain)
        except (ValueError, RecursionError):
            return None
        told.append("remove the second of two equal keys")
    new = plain.encode()
    return (new, " and ".join(told)) if told and is_strict(new, path) else None


def is_strict(content: bytes, path: str) -> bool:
    """Whether this is JSON, Infinity aside, of which another rule speaks."""
    try:
        loads(content, path, infinity=True)
    except InputError:
        return False
    return True


def finite(content: bytes) -> bytes:
    """Infinity and -Infinity as transformers 5 writes them."""
    text = content.decode()
    spelled = _INFINITE.sub(lambda found: found["string"] or f'{{"__float__": "{found["word"]}"}}', text)
    return spelled.encode()


# ---------------------------------------------------------------- equal keys


def without_equal_keys(text: str) -> str:
    """The document without the later ones of keys that stand twice in one object with the same value.

    Raises:
        ValueError: It is no JSON, or two values of one key differ.
    """
    cuts: list[tuple[int, int]] = []
    _walk(text, _space(text, 0), cuts, 0)
    for start, end in sorted(cuts, reverse=True):
        text = text[:start] + text[end:]
    return text


def _space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()


def _walk(text: str, position: int, cuts: list[tuple[int, int]], depth: int) -> int:
    """Behind the value at a position; what is to be cut out of it is added to `cuts`."""
    if depth > _DEEPEST:
        raise ValueError("is nested too deeply")
    match text[position : position + 1]:
        case "{":
            return _walk_object(text, position + 1, cuts, depth + 1)
        case "[":
            return _walk_list(text, position + 1, cuts, depth + 1)
        case _:
            return _DECODER.raw_decode(text, position)[1]


def _walk_list(text: str, behind: int, cuts: list[tuple[int, int]], depth: int) -> int:
    position = _space(text, behind)
    while text[position : position + 1] != "]":
        position = _next(text, _walk(text, position, cuts, depth), "]")
    return position + 1


def _walk_object(text: str, behind: int, cuts: list[tuple[int, int]], depth: int) -> int:
    seen: dict[str, str] = {}
    position = _space(text, behind)
    while text[position : position + 1] != "}":
        key, position = _DECODER.raw_decode(text, position)
        position = _space(text, position)
        if not isinstance(key, str) or text[position : position + 1] != ":":
            raise ValueError("has no key")
        start = _space(text, position + 1)
        inner: list[tuple[int, int]] = []
        end = _walk(text, start, inner, depth)
        value = json.dumps(_DECODER.decode(text[start:end]), sort_keys=True)
        if seen.get(key, value) != value:
            raise ValueError("has two values for one key")
        cuts += [(behind, end)] if key in seen else inner
        seen[key] = value
        behind, position = end, _next(text, end, "}")
    return position + 1


def _next(text: str, end: int, closing: str) -> int:
    """Where the next item begins, or the bracket that closes them all stands."""
    position = _space(text, end)
    if text[position : position + 1] == ",":
        return _space(text, position + 1)
    if text[position : position + 1] != closing:
        raise ValueError("has no comma")
    return position
