"""safetensors headers: a reader that is never laxer than the Rust one, and a writer whose bytes never vary.

Layout (huggingface/safetensors README.md): 8 bytes N, an unsigned little-endian 64-bit integer; N bytes of JSON,
padded with spaces; then the tensors' bytes, without holes.

Measured against safetensors 0.8: it accepts duplicate tensor names (the last wins) and arrays in place of entries;
this reader refuses both. A test holds every input that safetensors refuses against this reader.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple

from repokit.errors import MalformedFile
from repokit.formats.signature import identify
from repokit.formats.strict_json import loads
from repokit.formats.tensors import DTYPE_BITS, TensorInfo, byte_size
from repokit.printable import printable, size

METADATA_KEY: Final = "__metadata__"  # a key of the header that is no tensor
MAX_HEADER: Final = 100_000_000  # safetensors/src/tensor.rs MAX_HEADER_SIZE
FIRST_READ: Final = 256 * 1024  # one request per shard: headers of up to about 2,000 tensors come whole

Read = Callable[[int, int], bytes]


class Header(NamedTuple):
    """What a .safetensors file says about itself.

    Attributes:
        tensors: In file order.
        metadata: The `__metadata__` map; None where the header has none.
        data_start: Where the data section begins in the file, in bytes.
        remarks: What safetensors reads but its specification does not allow.
    """

    tensors: tuple[TensorInfo, ...]
    metadata: Mapping[str, str] | None
    data_start: int
    remarks: tuple[str, ...]


def read_header(read: Read, file_size: int, path: str) -> Header:
    """Parses and validates the header of one file.

    Args:
        read: `read(offset, length)` gives the bytes at that place, fewer at the end of the file.
        file_size: Bytes in the whole file.
        path: For messages.

    Raises:
        MalformedFile: safetensors would refuse the file, or two of its readers would read different things.
    """
    head = read(0, min(FIRST_READ, file_size))
    if file_size < 8 or len(head) < 8:
        raise MalformedFile("is empty" if not file_size else f"has only {file_size} bytes", why=_UNREADABLE, path=path)
    length = int.from_bytes(head[:8], "little")
    if length > MAX_HEADER or length > file_size - 8 or head[8:9] not in _OPENING:
        raise MalformedFile(_not_a_header(head, length, file_size), why=_UNREADABLE, path=path)
    body = head[8 : 8 + length]
    if len(body) < length:
        body += read(8 + len(body), length - len(body))
    if len(body) < length:
        raise MalformedFile("ends inside its own header", why=_UNREADABLE, path=path)
    return _parsed(body, file_size - 8 - length, path)


_UNREADABLE: Final = "safetensors refuses to open the file, and with it every loader"
_OPENING: Final = frozenset({b"{", b" ", b"\t", b"\n", b"\r"})


def _not_a_header(head: bytes, length: int, file_size: int) -> str:
    if guess := identify(head):
        return f"is {guess}"
    if head[:1] in b"{[" and head[1:2] in b'"\n\r {':
        return "is JSON text, not a safetensors file"
    if length > MAX_HEADER:
        return f"claims a header of {size(length)}; safetensors reads at most {size(MAX_HEADER)}"
    if length > file_size - 8:
        return f"claims a header of {size(length)} and has {size(file_size)} in all: truncated"
    return "has no JSON header"


# An entry as every known writer spells it. findall and join run in C: 60,000 entries take 0.1 s, json.loads with a
# hook that sees duplicates 0.43 s. What does not match to the last byte is parsed by the strict loader instead.
# Numbers of up to 19 digits are below 2**64, whatever their digits.
_ENTRY: Final = re.compile(
    r'"([^"\\\x00-\x1f]*)":\{"dtype":"([A-Z0-9_]+)","shape":\[([0-9,]*)\],'
    r'"data_offsets":\[(0|[1-9][0-9]{0,18}),(0|[1-9][0-9]{0,18})\]\}(,?)'
)
_AROUND: Final = len('"":{"dtype":"","shape":[],"data_offsets":[,]}')  # of an entry, what is in none of its groups
_METADATA: Final = re.compile(r'\{"__metadata__":(\{[^{}\\]*\}),')
_SHAPE: Final = re.compile(r"(?:(?:0|[1-9][0-9]{0,18})(?:,(?:0|[1-9][0-9]{0,18}))*)?")


def _parsed(body: bytes, data_size: int, path: str) -> Header:
    remarks = [] if body[:1] == b"{" else ["has white space before the header's first brace"]
    metadata, tensors = _canonical(body, path) or _any_spelling(body, path, remarks)
    _check_names(tensors, path)
    _check_layout(tensors, data_size, path)
    return Header(tensors, metadata, 8 + len(body), tuple(remarks))


def _canonical(body: bytes, path: str) -> tuple[Mapping[str, str] | None, tuple[TensorInfo, ...]] | None:
    """The entries of a header in the usual spelling, or None where it has another, or is none."""
    try:
        text = body.decode("utf-8").rstrip(" ")
        found = _METADATA.match(text)
        metadata = None if found is None else _metadata_of(loads(found[1].encode(), path), path)
    except (UnicodeDecodeError, MalformedFile):
        return None
    start, stop = found.end() if found else 1, len(text) - 1
    matches = _ENTRY.findall(text, start, stop)
    matched = len(matches) * _AROUND + len("".join(chain.from_iterable(matches)))
    if text[:1] != "{" or text[stop:] != "}" or matched != stop - start:
        return None
    tensors = _entries(matches)
    return None if tensors is None else (metadata, tensors)


def _entries(matches: list[tuple[str, str, str, str, str, str]]) -> tuple[TensorInfo, ...] | None:
    """The matched entries as tensors; None where only the strict loader can say what is wrong with them."""
    shapes: dict[str, tuple[int, ...]] = {}  # a few spellings serve thousands of tensors
    tensors = []
    for name, dtype, shape, begin, end, _ in matches:
        if shape not in shapes:
            if not _SHAPE.fullmatch(shape):
                return None
            shapes[shape] = tuple(map(int, shape.split(","))) if shape else ()
        tensors.append(TensorInfo(name, dtype, shapes[shape], int(begin), int(end)))
    commas = [match[5] for match in matches]
    names = {tensor.name for tensor in tensors}
    if not tensors or commas.pop() or not all(commas) or len(names) < len(tensors) or METADATA_KEY in names:
        return None
    return tuple(tensors)


def _any_spelling(
    body: bytes, path: str, remarks: list[str]
) -> tuple[Mapping[str, str] | None, tuple[TensorInfo, ...]]:
    try:
        document = loads(body, path)
    except MalformedFile as error:
        place = f"header, {error.place}" if error.place else "header"
        raise MalformedFile(error.what, why=_UNREADABLE, path=path, place=place) from None
    if b"-0" in body:
        json.loads(body, parse_int=lambda digits: _unsigned(digits, path))
    if not isinstance(document, dict):
        raise MalformedFile("has a header that is not a JSON object", why=_UNREADABLE, path=path)
    metadata = None
    if (raw := document.pop(METADATA_KEY, None)) is not None:
        metadata = _metadata_of(raw, path)
    tensors = tuple(_entry(name, raw, path, remarks) for name, raw in document.items())
    return metadata, tensors


def _metadata_of(raw: object, path: str) -> Mapping[str, str]:
    if not isinstance(raw, dict):
        raise MalformedFile("is not a map of strings", why=_UNREADABLE, path=path, place=METADATA_KEY)
    for key, value in raw.items():
        if not isinstance(value, str):
            what = f"has the value {printable(value, 40)} at {printable(key, 40)!r}; only strings are allowed"
            raise MalformedFile(what, why=_UNREADABLE, path=path, place=METADATA_KEY)
    return raw


def _entry(name: str, raw: object, path: str, remarks: list[str]) -> TensorInfo:
    match raw:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [begin, end], **rest} if (
            all(_is_size(dimension) for dimension in shape) and _is_size(begin) and _is_size(end)
        ):
            if rest:
                fields = printable(", ".join(map(str, rest)))
                remarks.append(f"has unknown fields in the entry {printable(name)!r}: {fields}")
            return TensorInfo(name, dtype, tuple(shape), begin, end)
    what = "needs a dtype (string), a shape (list of sizes) and data_offsets (two sizes)"
    raise MalformedFile(what, why=_UNREADABLE, path=path, place=name)


def _unsigned(digits: str, path: str) -> int:
    """json.loads reads `-0` as the integer 0; serde, and so safetensors, as a floating-point number."""
    if digits == "-0":
        raise MalformedFile("has -0 where a size belongs", why=_UNREADABLE, path=path, place="header")
    return int(digits)


def _is_size(value: Any) -> bool:  # noqa: ANN401 - anything that JSON can hold
    return type(value) is int and 0 <= value < 2**64


def _check_names(tensors: Iterable[TensorInfo], path: str) -> None:
    if _all_plain([tensor.name for tensor in tensors]):
        return
    for tensor in tensors:
        name = tensor.name
        if not name or not name.isprintable() or len(name) > MAX_NAME or name.startswith("/") or "../" in name:
            what = f"has a tensor whose name {_fault(name)}"
            raise MalformedFile(what, why=_BAD_NAME, path=path, place=printable(name) or "header")


def _all_plain(names: list[str]) -> bool:
    """Whether nothing is wrong with any name, asked of all at once: a terabyte has sixty thousand."""
    together = "".join(names)
    apart = "\n".join(["", *names])
    return (
        together.isprintable()
        and "../" not in apart
        and "\n/" not in apart
        and all(names)
        and max(map(len, names), default=0) <= MAX_NAME
    )


MAX_NAME: Final = 1024  # characters; the longest in transformers' architectures has about 150
_BAD_NAME: Final = "no module has such a name; it can rewrite a terminal, forge a log line, or lead a converter astray"


def _fault(name: str) -> str:
    if not name:
        return "is empty"
    if len(name) > MAX_NAME:
        return f"has {len(name):,} characters"
    return "is a path" if name.isprintable() else "has control characters"


def _check_layout(tensors: Iterable[TensorInfo], data_size: int, path: str) -> None:
    """Every byte of the data section belongs to exactly one tensor, and every tensor has the bytes its shape needs."""
    expected: dict[tuple[str, tuple[int, ...]], int] = {}
    position = 0
    for tensor in sorted(tensors, key=itemgetter(3, 4)):  # by begin, then end
        _, dtype, shape, begin, end = tensor
        needed = expected.get((dtype, shape))
        if needed is None:
            needed = expected[dtype, shape] = _needed(tensor, path)
        if end - begin != needed:
            what = f"is {dtype} {_shown(shape)}, which takes {needed:,} bytes, at an extent of {end - begin:,}"
            raise MalformedFile(what, why=_UNREADABLE, path=path, place=tensor.name)
        if begin != position:
            what = (
                "overlaps another tensor" if begin < position else f"lies behind a hole of {begin - position:,} bytes"
            )
            raise MalformedFile(what, why=_UNREADABLE, path=path, place=tensor.name)
        position = end
    if position != data_size:
        what = (
            f"is truncated: its tensors need {position:,} bytes of data and it has {data_size:,}"
            if position > data_size
            else f"has {data_size - position:,} bytes after its last tensor"
        )
        raise MalformedFile(what, why=_UNREADABLE, path=path)


def _needed(tensor: TensorInfo, path: str) -> int:
    if tensor.dtype not in DTYPE_BITS:
        what = f"has the dtype {printable(tensor.dtype, 40)!r}, which safetensors 0.8 does not know"
        raise MalformedFile(what, why=_UNREADABLE, path=path, place=tensor.name)
    if _overflows(tensor.dtype, tensor.shape):
        what = f"has the shape {_shown(tensor.shape)}, whose size overflows"
        raise MalformedFile(what, why=_UNREADABLE, path=path, place=tensor.name)
    needed = byte_size(tensor.dtype, tensor.shape)
    if needed is None:
        what = f"is {tensor.dtype} {_shown(tensor.shape)}, which does not fill whole bytes"
        raise MalformedFile(what, why=_UNREADABLE, path=path, place=tensor.name)
    return needed


def _overflows(dtype: str, shape: tuple[int, ...]) -> bool:
    """Whether the bits do not fit 64 bits, multiplied from the left as safetensors does: a 0 at the end comes late.

    Stopping early also keeps a shape of a million large dimensions from becoming an hour of long multiplication.
    """
    elements = 1
    for dimension in shape:
        elements *= dimension
        if elements >= 2**64:
            return True
    return elements * DTYPE_BITS[dtype] >= 2**64


def _shown(shape: tuple[int, ...]) -> str:
    return printable(list(shape[:32]), 120)


def in_file_order(tensors: Iterable[TensorInfo]) -> list[TensorInfo]:
    """Descending dtype size, then name: every tensor is then aligned to its own elements, and order never varies.

    Byte ranges are laid out anew, from 0, without holes.
    """
    ordered = sorted(tensors, key=lambda tensor: (-DTYPE_BITS[tensor.dtype], tensor.name))
    placed, position = [], 0
    for tensor in ordered:
        needed = byte_size(tensor.dtype, tensor.shape)
        assert needed is not None, tensor  # noqa: S101 - read from a valid header or cast to whole bytes
        placed.append(TensorInfo(tensor.name, tensor.dtype, tensor.shape, position, position + needed))
        position += needed
    return placed


def header_bytes(tensors: Iterable[TensorInfo], metadata: Mapping[str, str]) -> bytes:
    """The length prefix and header of a file with these tensors, padded so that the data begins at a multiple of 8.

    Metadata keys are sorted: safetensors' own writer keeps them in a hash map, so that with two keys or more its
    bytes vary from run to run (measured, 0.8.0).
    """
    document: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    for tensor in tensors:
        document[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [tensor.begin, tensor.end],
        }
    body = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    body += b" " * (-len(body) % 8)
    return len(body).to_bytes(8, "little") + body
