"""JSON as the strictest of a repository's readers takes it.

`json.loads` accepts NaN, Infinity, 1e999, duplicate keys and lone surrogates; serde (safetensors, tokenizers) and the
Hub's own parser refuse them. Line and column are looked for only when a place is asked for: a parser that keeps
positions costs eight times as much in Python.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NoReturn

from repokit.errors import LimitExceeded, MalformedFile
from repokit.formats.signature import identify
from repokit.printable import printable, size

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES: Final = (
    256 * 1024 * 1024
)  # the largest real tokenizer.json is about 35 MB; an index of 500,000 tensors 46 MB
MAX_DEPTH: Final = 100  # config.json of composed models nests 5 deep, tokenizer.json 8

_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


def loads(data: bytes, path: str, *, infinity: bool = False) -> Any:  # noqa: ANN401 - whatever the document holds
    """The document in `data`, or an error that says where it stops being JSON.

    Args:
        data: The whole file.
        path: For messages.
        infinity: Read Infinity and -Infinity, which Python's own readers and writers take for JSON.

    Raises:
        MalformedFile: Not strict JSON: not UTF-8, a byte order mark, a syntax error, a duplicate key, NaN or Infinity,
            a number out of range, a lone surrogate.
        LimitExceeded: Larger than MAX_BYTES or nested deeper than MAX_DEPTH.
    """
    if len(data) > MAX_BYTES:
        raise LimitExceeded(f"is {size(len(data))} of JSON; no real file has more than {size(MAX_BYTES)}", path=path)
    text = _decoded(data, path)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_without_duplicates,
            parse_constant=_infinite if infinity else _refuse_constant,
            parse_float=_finite,
        )
    except _Refused as refused:
        raise MalformedFile(refused.what, why=_WHY, path=path, place=_place(text, refused)) from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise MalformedFile(_syntax(data, error), why=_WHY, path=path, place=place) from None
    except RecursionError:
        raise LimitExceeded(f"is nested deeper than {MAX_DEPTH} levels", path=path) from None
    except ValueError as error:  # an integer of more than 4,300 digits
        raise MalformedFile(f"has a number that no reader takes: {printable(error)}", path=path) from None
    if _deeper_than(value, MAX_DEPTH):
        raise LimitExceeded(f"is nested deeper than {MAX_DEPTH} levels", path=path)
    if _SURROGATE.search(data):
        _check_surrogates(value, path)
    return value


_WHY: Final = "strict readers (the Hub, safetensors, tokenizers) refuse the whole file"


class _Refused(Exception):
    def __init__(self, what: str, token: str, *, is_key: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.token = token
        self.is_key = is_key


def _decoded(data: bytes, path: str) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        guess = identify(data)
        what = f"is {guess}" if guess else f"is not UTF-8: byte {error.start:,} is 0x{data[error.start]:02x}"
        raise MalformedFile(what, path=path, place=f"line {line}") from None
    if text.startswith("\ufeff"):
        raise MalformedFile("begins with a byte order mark", why=_WHY, path=path, place="line 1 column 1")
    return text


def _syntax(data: bytes, error: json.JSONDecodeError) -> str:
    if not data.strip():
        return "is empty"
    if guess := identify(data):
        return f"is {guess}"
    if error.doc[error.pos : error.pos + 7] in {"<<<<<<<", "=======", ">>>>>>>"}:
        return "has a Git conflict marker in it"
    message = error.msg[:1].lower() + error.msg[1:]
    return f"is not JSON: {message}"


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) == len(pairs):
        return document
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _Refused(f"has the key {printable(key)!r} twice in one object", key, is_key=True)
        seen.add(key)
    raise AssertionError("unreachable: fewer keys than pairs means that one repeats")


def _refuse_constant(name: str) -> NoReturn:
    raise _Refused(f"has {name}, which is not JSON", name)


def _infinite(name: str) -> float:
    return float(name) if name != "NaN" else _refuse_constant(name)


_INFINITE: Final = frozenset({float("inf"), float("-inf")})


def _finite(text: str) -> float:
    number = float(text)
    if number in _INFINITE:  # 1e999, or 400 digits and a point
        raise _Refused(f"has the number {printable(text, 40)}, which is out of range", text)
    return number


_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def _place(text: str, refused: _Refused) -> str | None:
    """Line and column of what was refused: the constant or number, or the second of two equal keys of one object."""
    for position, token in _repeated_keys(text) if refused.is_key else _bare_words(text):
        if token == refused.token:
            return _line_and_column(text, position)
    return None


def _bare_words(text: str) -> Iterator[tuple[int, str]]:
    return ((found.start(), found[0]) for found in _TOKEN.finditer(text) if found[0][0] != '"')


def _repeated_keys(text: str) -> Iterator[tuple[int, str]]:
    """Keys that their object has had before. A file with one of them is parsed to its end, and so is JSON."""
    objects: list[set[str] | None] = []  # from the outside in; None for a list
    expects_key = False
    for found in _TOKEN.finditer(text):
        match found[0]:
            case "{" | "[" as opening:
                objects.append(set() if opening == "{" else None)
                expects_key = opening == "{"
            case "}" | "]":
                objects.pop()
                expects_key = False
            case ",":
                expects_key = objects[-1] is not None
            case token if expects_key and (keys := objects[-1]) is not None:
                key = json.loads(token)
                if key in keys:
                    yield found.start(), key
                keys.add(key)
                expects_key = False


def _line_and_column(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    return f"line {line} column {column}"


def _deeper_than(value: object, limit: int) -> bool:
    """Level by level instead of by recursion, which a hostile file would turn into a crash.

    A vocabulary has 150,000 entries: this is the one loop over all values of a document, and written to be short.
    """
    level: list[Any] = [value] if type(value) in _CONTAINERS else []
    for _ in range(limit):
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else container)
            if type(item) in _CONTAINERS
        ]
        if not level:
            return False
    return True


_CONTAINERS: Final = frozenset({dict, list})


def _check_surrogates(value: object, path: str) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise MalformedFile("has half of a surrogate pair in a string", why=_WHY, path=path) from None


def dumps(value: object, *, sort_keys: bool = False, infinity: bool = False) -> bytes:
    """The spelling that transformers and huggingface_hub write: indent 2, UTF-8 unescaped, a newline at the end."""
    text = json.dumps(value, indent=2, ensure_ascii=False, sort_keys=sort_keys, allow_nan=infinity)
    return (text + "\n").encode("utf-8")


def locate(text: str, pointer: str) -> tuple[int, int] | None:
    """Line and column (both from 1) of the value that a JSON Pointer (RFC 6901) names, or None.

    Walks the text once with the standard decoder, skipping over what lies beside the path; `text` has been parsed
    before, so it is known to be JSON.
    """
    position = offset(text, pointer)
    if position is None:
        return None
    line = text.count("\n", 0, position) + 1
    return line, position - (text.rfind("\n", 0, position) + 1) + 1


def offset(text: str, pointer: str, start: int = 0) -> int | None:
    """Where the value begins that a JSON Pointer names, from the value at `start` on; None where there is none."""
    position = _skip_space(text, start)
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = _step(text, position, key)
        if found is None:
            return None
        position = found
    return position


_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\n\r]*")


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _step(text: str, position: int, key: str) -> int | None:
    match text[position : position + 1]:
        case "{":
            return _member(text, position + 1, key)
        case "[" if key.isascii() and key.isdecimal():
            return _item(text, position + 1, int(key))
        case _:
            return None


def _member(text: str, position: int, wanted: str) -> int | None:
    following: int | None = position
    while following is not None:
        position = _skip_space(text, following)
        if text[position] == "}":
            return None  # an empty object
        key, position = _DECODER.raw_decode(text, position)
        position = _skip_space(text, _skip_space(text, position) + 1)  # over the colon
        if key == wanted:
            return position
        following = _behind(text, position)
    return None


def _item(text: str, position: int, wanted: int) -> int | None:
    following: int | None = position
    for _ in range(wanted):
        if following is None or text[position := _skip_space(text, following)] == "]":
            return None
        following = _behind(text, position)
    if following is None or text[position := _skip_space(text, following)] == "]":
        return None
    return position


def _behind(text: str, position: int) -> int | None:
    """Where the value behind this one begins; None where the object or list ends."""
    _, position = _DECODER.raw_decode(text, position)
    position = _skip_space(text, position)
    return position + 1 if text[position] == "," else None
