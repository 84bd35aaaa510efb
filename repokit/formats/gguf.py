"""GGUF headers: a bounded reader that is never laxer than ggml's own.

Layout (ggml-org/ggml docs/gguf.md), little-endian: `GGUF`, u32 version, u64 number of tensors, u64 number of entries;
the entries (string key, u32 type, value); the tensors (string name, u32 number of dimensions, u64 each, u32 type,
u64 offset); padding to the alignment; the data. A string is a u64 length and its bytes.

gguf-py 0.19 takes 8 to 10 s for a vocabulary of 150,000 tokens and follows any length that a file claims. Here every
number is held against the bytes that are left before anything is allocated, and big arrays stay the bytes they are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final, NamedTuple

from repokit.errors import LimitExceeded, MalformedFile
from repokit.formats.ggml_types import GGML_TYPES, REMOVED, reader_of
from repokit.formats.signature import identify
from repokit.printable import count as counted, printable, size

MAGIC: Final = b"GGUF"
FIRST_READ: Final = 256 * 1024  # one request for a file without a vocabulary; then twice as much each time
MAX_HEADER: Final = 100_000_000  # bytes; gemma's 262,144 tokens with a tokenizer.json beside them take 45 MB
MAX_KEYS: Final = 100_000  # huggingface.js packages/gguf
MAX_TENSORS: Final = 200_000  # the largest published checkpoints have 60,000
MAX_DEPTH: Final = 4  # of arrays in arrays
MAX_NESTED: Final = 10_000  # arrays in arrays, in one file: ggml refuses the first
MAX_KEY: Final = 65_535  # bytes; docs/gguf.md
MAX_DIMENSIONS: Final = 4  # ggml.h GGML_MAX_DIMS

# ggml.h GGML_MAX_NAME, with the zero at its end. stable-diffusion.cpp and ComfyUI-GGUF set it to 128.
_LONGEST_NAME: Final = 63
_LONGEST_IMAGE_NAME: Final = 127
# ComfyUI-GGUF tools/convert.py, `arch` of its models.
_IMAGE_MODELS: Final = frozenset(
    {"flux", "sd1", "sdxl", "sd3", "aura", "hidream", "cosmos", "hyvid", "wan", "ltxv", "lumina2", "qwen_image"}
)

Read = Callable[[int, int], bytes]

# Type number to name, as docs/gguf.md has them, and to how `struct` reads one.
STRING, ARRAY, BOOL = 8, 9, 7
KINDS: Final = {
    0: "u8",
    1: "i8",
    2: "u16",
    3: "i16",
    4: "u32",
    5: "i32",
    6: "f32",
    7: "bool",
    8: "string",
    9: "array",
    10: "u64",
    11: "i64",
    12: "f64",
}
_NUMBERS: Final = {
    kind: struct.Struct("<" + code)
    for kind, code in {
        0: "B",
        1: "b",
        2: "H",
        3: "h",
        4: "I",
        5: "i",
        6: "f",
        7: "B",
        10: "Q",
        11: "q",
        12: "d",
    }.items()
}
_U32, _U64 = _NUMBERS[4], _NUMBERS[10]
_LARGE: Final = 1000  # items of an array that is looked for in other files
_ALIKE: Final = 8  # arrays of one type and length that are looked for: a file can hold 100,000 that all differ
_LEAST: Final = {STRING: 8, ARRAY: 12}  # bytes that an empty string and an empty array take

_UNREADABLE: Final = "llama.cpp, and with it every program that is built on it, refuses to open the file"
_DEAD_TYPE: Final = "llama.cpp dropped the type years or versions ago"


class GgufArray:
    """An array, kept as the bytes of the file: a vocabulary is often only counted.

    Attributes:
        kind: Of its items, a value of KINDS.
        raw: The bytes of all items, with their lengths where they are strings.
    """

    __slots__ = ("__dict__", "_count", "kind", "raw")

    def __init__(self, kind: str, count: int, raw: bytes) -> None:
        self.kind = kind
        self.raw = raw
        self._count = count

    def __len__(self) -> int:
        return self._count

    @cached_property
    def strings(self) -> tuple[bytes, ...]:
        """The items of an array of strings, which need not be UTF-8: tokens may be parts of characters."""
        if self.kind != "string":
            return ()
        found, position, raw, unpack = [], 0, self.raw, _U64.unpack_from
        for _ in range(self._count):
            (length,) = unpack(raw, position)
            position += 8
            found.append(raw[position : position + length])
            position += length
        return tuple(found)


Scalar = int | float | bool | str
Known = dict[tuple[int, int], list[GgufArray]]  # by type and number of items


class GgufValue(NamedTuple):
    """One entry.

    Attributes:
        kind: Its type, a value of KINDS.
        value: A number, a flag, a text or an array.
    """

    kind: str
    value: Scalar | GgufArray


class GgufTensor(NamedTuple):
    """One tensor.

    Attributes:
        dims: In ggml's order, the fastest first: columns, rows.
        kind: Number of the ggml type.
        offset: From the beginning of the data section, in bytes.
        size: Bytes; None where the type is not among GGML_TYPES.
    """

    name: str
    dims: tuple[int, ...]
    kind: int
    offset: int
    size: int | None


class GgufHeader(NamedTuple):
    """What a .gguf file says about itself.

    Attributes:
        metadata: Key to value, in file order.
        tensors: In file order, which is the order of their data.
        data_start: Where the data section begins in the file, in bytes.
    """

    version: int
    alignment: int
    metadata: Mapping[str, GgufValue]
    tensors: tuple[GgufTensor, ...]
    data_start: int


def read_gguf(read: Read, file_size: int, path: str, known: Known | None = None) -> GgufHeader:
    """Parses and validates the header of one file.

    Args:
        read: `read(offset, length)` gives the bytes at that place, fewer at the end of the file.
        file_size: Bytes in the whole file.
        path: For messages.
        known: Large arrays of files read before. The quantisations of one model share a vocabulary: it is then kept
            once, and compared instead of walked through.

    Raises:
        MalformedFile: ggml would refuse the file, or two of its readers would read different things.
        LimitExceeded: The header is larger than any real one.
    """
    return _Parser(read, file_size, path, {} if known is None else known).header()


class _Parser:
    """A position in a growing buffer."""

    def __init__(self, read: Read, file_size: int, path: str, known: Known) -> None:
        self.read = read
        self.size = file_size
        self.path = path
        self.known = known
        self.buffer = bytearray()
        self.position = 0
        self.nested = 0
        self.place: str | None = None

    # ---------------------------------------------------------------- bytes

    def malformed(self, what: str, why: str = _UNREADABLE) -> MalformedFile:
        return MalformedFile(what, why=why, path=self.path, place=self.place)

    def need(self, end: int) -> None:
        """Makes the buffer reach to `end`, which the file must have."""
        if end <= len(self.buffer):
            return
        if end > self.size:
            raise self.malformed("ends inside its own header")
        if end > MAX_HEADER:
            raise LimitExceeded(f"has a header of more than {size(MAX_HEADER)}", path=self.path, place=self.place)
        begin = len(self.buffer)
        wanted = min(self.size, max(end, begin * 2 or FIRST_READ, begin + FIRST_READ))
        self.buffer += self.read(begin, wanted - begin)
        if len(self.buffer) < end:
            raise self.malformed("ends inside its own header")

    def fits(self, count: int, least: int, noun: str, plural: str | None = None) -> None:
        """Refuses a count of items that the rest of the file cannot hold."""
        if count * least > self.size - self.position:
            raise self.malformed(f"claims {counted(count, noun, plural)}, more than the file can hold")

    def number(self, kind: struct.Struct) -> int:
        self.need(self.position + kind.size)
        (value,) = kind.unpack_from(self.buffer, self.position)
        self.position += kind.size
        found: int = value
        return found

    def raw(self, length: int) -> bytes:
        end = self.position + length
        self.need(end)
        found = bytes(self.buffer[self.position : end])
        self.position = end
        return found

    def text(self, longest: int, what: str) -> str:
        length = self.number(_U64)
        if length > min(longest, self.size - self.position):
            raise self.malformed(f"has {what} of {length:,} bytes")
        try:
            return self.raw(length).decode("utf-8")
        except UnicodeDecodeError:
            raise self.malformed(f"has {what} that is not UTF-8", _NOT_TEXT) from None

    # ---------------------------------------------------------------- the whole

    def header(self) -> GgufHeader:
        version = self.preamble()
        tensors, keys = self.number(_U64), self.number(_U64)
        self.fits(keys, 8 + 1 + 4 + 1, "metadata entry", "metadata entries")
        self.fits(tensors, 8 + 1 + 4 + 4 + 8, "tensor")
        if keys > MAX_KEYS or tensors > MAX_TENSORS:
            raise LimitExceeded(f"has {keys:,} entries and {tensors:,} tensors", path=self.path)
        metadata = self.metadata(keys)
        alignment = self.alignment(metadata)
        longest = longest_name(metadata)
        found = self.tensors(tensors, longest)
        self.place = None
        start = _padded(self.position, alignment) if found else self.position
        self.layout(found, start, alignment)
        return GgufHeader(version, alignment, metadata, found, start)

    def preamble(self) -> int:
        self.need(min(self.size, 64))
        head = bytes(self.buffer[:64])
        if not head:
            raise self.malformed("is empty")
        if not head.startswith(MAGIC):
            raise self.malformed(f"is {identify(head) or 'no GGUF file: it does not begin with GGUF'}")
        self.position = len(MAGIC)
        version = self.number(_U32)
        if version not in {2, 3}:
            raise self.malformed(*_version_fault(version))
        return version

    def metadata(self, count: int) -> dict[str, GgufValue]:
        found: dict[str, GgufValue] = {}
        for _ in range(count):
            self.place = None
            key = self.text(MAX_KEY, "a key")
            self.place = printable(key, 100)
            if not key:
                raise self.malformed("has an empty key")
            if key in found:
                raise self.malformed("has a key twice")
            kind = self.number(_U32)
            if kind not in KINDS:
                raise self.malformed(f"has a value of type {kind}, which GGUF does not have")
            found[key] = GgufValue(KINDS[kind], self.value(kind))
        return found

    # ---------------------------------------------------------------- values

    def value(self, kind: int) -> Scalar | GgufArray:
        if kind == ARRAY:
            return self.array(1)
        if kind == STRING:
            return self.text(MAX_HEADER, "a text")
        value = self.number(_NUMBERS[kind])
        if kind != BOOL:
            return value
        if value > 1:
            raise self.malformed(f"has {value} where true (1) or false (0) belongs")
        return bool(value)

    def array(self, depth: int) -> GgufArray:
        kind, count = self.number(_U32), self.number(_U64)
        if kind not in KINDS:
            raise self.malformed(f"has an array of type {kind}, which GGUF does not have")
        self.fits(count, _LEAST[kind] if kind in _LEAST else _NUMBERS[kind].size, "item")
        if kind == STRING:
            return self.strings(count)
        if kind == ARRAY:
            return GgufArray("array", count, self.arrays(count, depth + 1))
        if same := self.same(kind, count):
            return same
        raw = self.raw(count * _NUMBERS[kind].size)
        if kind == BOOL and raw.strip(b"\0\1"):
            raise self.malformed("has flags that are neither true (1) nor false (0)")
        return self.kept(kind, GgufArray(KINDS[kind], count, raw))

    def same(self, kind: int, count: int) -> GgufArray | None:
        """An array of an earlier file, where the next bytes are its own; goes past them."""
        for array in self.known.get((kind, count), ()):
            end = self.position + len(array.raw)
            if end <= self.size:
                self.need(end)
                if self.buffer.startswith(array.raw, self.position):
                    self.position = end
                    return array
        return None

    def kept(self, kind: int, array: GgufArray) -> GgufArray:
        if len(array) >= _LARGE and len(alike := self.known.setdefault((kind, len(array)), [])) < _ALIKE:
            alike.append(array)
        return array

    def arrays(self, count: int, depth: int) -> bytes:
        begin = self.position
        if depth > MAX_DEPTH:
            raise self.malformed(f"has arrays in arrays, more than {MAX_DEPTH} deep")
        self.nested += count
        if self.nested > MAX_NESTED:
            raise LimitExceeded(f"has more than {MAX_NESTED:,} arrays in arrays", path=self.path, place=self.place)
        for _ in range(count):
            self.array(depth)
        return bytes(self.buffer[begin : self.position])

    def strings(self, count: int) -> GgufArray:
        """That many strings, walked through from length to length."""
        if same := self.same(STRING, count):
            return same
        begin = self.position
        self.walk(count)
        return self.kept(STRING, GgufArray("string", count, bytes(self.buffer[begin : self.position])))

    def walk(self, count: int) -> None:
        """Past that many strings. unpack_from itself says where the buffer ends: a check for each would double it."""
        position, done, buffer, unpack = self.position, 0, self.buffer, _U64.unpack_from
        while done < count:
            try:
                for done in range(done, count):  # noqa: B007, B020 - goes on where the buffer ended
                    (length,) = unpack(buffer, position)
                    position += 8 + length
                break
            except (struct.error, OverflowError):
                self.need(position + 8)
        self.need(position)
        self.position = position

    # ---------------------------------------------------------------- tensors

    def alignment(self, metadata: Mapping[str, GgufValue]) -> int:
        self.place = "general.alignment"
        entry = metadata.get(self.place)
        if entry is None:
            return 32  # docs/gguf.md
        if entry.kind != "u32" or not isinstance(entry.value, int):
            raise self.malformed(f"is {entry.kind}, not u32")
        if entry.value <= 0 or entry.value & (entry.value - 1):
            raise self.malformed(f"is {entry.value:,}, no power of two")
        return entry.value

    def tensors(self, count: int, longest: int) -> tuple[GgufTensor, ...]:
        found, names = [], set()
        self.place = "tensors"
        for _ in range(count):
            tensor = self.tensor(longest)
            if tensor.name in names:
                raise self.malformed("is the name of two tensors")
            names.add(tensor.name)
            found.append(tensor)
        return tuple(found)

    def tensor(self, longest: int) -> GgufTensor:
        name = self.text(MAX_KEY, "a name")
        self.place = printable(name, 100) or "tensors"
        if fault := _name_fault(name, longest):
            raise self.malformed(f"has a tensor whose name {fault}")
        dimensions = self.number(_U32)
        if dimensions > MAX_DIMENSIONS:
            raise self.malformed(f"has {dimensions:,} dimensions; ggml has {MAX_DIMENSIONS} at most")
        dims = tuple(self.number(_U64) for _ in range(dimensions))
        kind, offset = self.number(_U32), self.number(_U64)
        return GgufTensor(name, dims, kind, offset, self.bytes_of(dims, kind))

    def bytes_of(self, dims: tuple[int, ...], kind: int) -> int | None:
        elements = 1
        for dimension in dims:
            if not dimension:
                raise self.malformed("has a dimension of 0")
            elements *= dimension
        if elements >= 2**63:
            raise self.malformed(f"has the shape {list(dims)}, whose size overflows")
        if kind not in GGML_TYPES:
            if kind in REMOVED:
                raise self.malformed(f"is {REMOVED[kind]}, a type that ggml no longer has", _DEAD_TYPE)
            if reader_of(kind) is None:
                raise self.malformed(f"has the type {kind}, which ggml does not have")
            return None
        name, block, bytes_ = GGML_TYPES[kind]
        columns = dims[0] if dims else 1
        if columns % block:
            raise self.malformed(f"is {name} with rows of {columns:,}, no multiple of {block}")
        return elements // block * bytes_

    def layout(self, tensors: tuple[GgufTensor, ...], start: int, alignment: int) -> None:
        """Each tensor begins where the one before ends, padded (gguf.cpp `ti.offset != ctx->size`), inside the file."""
        expected: int | None = 0
        for tensor in tensors:
            self.place = printable(tensor.name, 100)
            if tensor.offset % alignment:
                raise self.malformed(f"begins at {tensor.offset:,}, no multiple of {alignment}")
            if expected is not None and tensor.offset != expected:
                gap = tensor.offset - expected
                where = "overlaps the tensor before it" if gap < 0 else f"lies behind a hole of {gap:,} bytes"
                raise self.malformed(where)
            end = start + tensor.offset + (tensor.size or 0)
            if end > self.size:
                missing = end - self.size
                raise self.malformed(f"ends {missing:,} bytes behind the end of the file: truncated", _TRUNCATED)
            expected = None if tensor.size is None else tensor.offset + _padded(tensor.size, alignment)


_NOT_TEXT: Final = "the format wants UTF-8; Python's readers stop at it"
_TRUNCATED: Final = "llama.cpp refuses it: tensor data is not within the file bounds"


def longest_name(metadata: Mapping[str, GgufValue]) -> int:
    """Bytes that a tensor's name may have."""
    entry = metadata.get("general.architecture")
    return _LONGEST_IMAGE_NAME if entry is not None and entry.value in _IMAGE_MODELS else _LONGEST_NAME


def _version_fault(version: int) -> tuple[str, str]:
    if version == 1:
        return "is GGUF version 1, which nothing reads any more", "convert the original model again"
    if version and not version & 0xFFFF:  # gguf.cpp tells it by the same bits
        return "is big-endian", "only big-endian machines load it: x86 and ARM read its numbers backwards"
    return f"is GGUF version {version:,}; versions 2 and 3 are known", _UNREADABLE


def _name_fault(name: str, longest: int) -> str | None:
    if not name:
        return "is empty"
    if len(name.encode()) > longest:
        return f"has {len(name.encode()):,} bytes; {longest} are allowed"
    if not name.isprintable():
        return "has control characters"
    return "is a path" if name.startswith("/") or "../" in name or "\\" in name else None


def _padded(number: int, alignment: int) -> int:
    return number + -number % alignment
