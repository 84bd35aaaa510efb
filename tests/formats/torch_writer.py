"""Pickles, zip archives and torch files written by hand, opcode by opcode, so that any of them can be wrong.

A part of a pickle is bytes that leave one value on the stack; parts are nested like the values that they stand for.
"""

from __future__ import annotations

import pickle
import struct
import zlib
from dataclasses import dataclass

# ------------------------------------------------------------------------------------------------ pickles


def program(part: bytes, protocol: int = 2) -> bytes:
    """A whole pickle that holds one value."""
    return b"\x80" + bytes([protocol]) + part + b"."


def text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"K" + bytes([value]) if 0 <= value < 256 else b"\x8a" + bytes([len(raw)]) + raw


def tuple_of(*parts: bytes) -> bytes:
    return b"(" + b"".join(parts) + b"t"


def list_of(*parts: bytes) -> bytes:
    return b"](" + b"".join(parts) + b"e"


def dict_of(*pairs: tuple[bytes | str, bytes]) -> bytes:
    keyed = ((text(key) if isinstance(key, str) else key) + value for key, value in pairs)
    return b"}(" + b"".join(keyed) + b"u"


def name(module: str, attribute: str) -> bytes:
    return b"c" + module.encode() + b"\n" + attribute.encode() + b"\n"


def stack_name(module: str, attribute: str) -> bytes:
    return text(module) + text(attribute) + b"\x93"


def call(callee: bytes, *arguments: bytes) -> bytes:
    return callee + tuple_of(*arguments) + b"R"


ORDERED_DICT = call(name("collections", "OrderedDict"))


def storage(kind: str, key: str, elements: int, *more: bytes, module: str = "torch", location: str = "cpu") -> bytes:
    described = (text("storage"), name(module, kind), text(key), text(location), number(elements), *more)
    return tuple_of(*described) + b"Q"


def tensor(
    shape: tuple[int, ...] = (2, 2),
    strides: tuple[int, ...] | None = None,
    *,
    stored: bytes | None = None,
    offset: int = 0,
    hooks: bytes = ORDERED_DICT,
    more: tuple[bytes, ...] = (),
    function: str = "_rebuild_tensor_v2",
) -> bytes:
    """By default the float32 tensor that fills the storage "0" of four elements."""
    if strides is None:
        strides = tuple(_rows(shape))
    sizes = (tuple_of(*map(number, shape)), tuple_of(*map(number, strides)))
    stored = storage("FloatStorage", "0", 4) if stored is None else stored
    return call(name("torch._utils", function), stored, number(offset), *sizes, b"\x89", hooks, *more)


def _rows(shape: tuple[int, ...]) -> list[int]:
    strides, step = [], 1
    for dimension in reversed(shape):
        strides.insert(0, step)
        step *= max(dimension, 1)
    return strides


def parameter(part: bytes) -> bytes:
    return call(name("torch._utils", "_rebuild_parameter"), part, b"\x88", ORDERED_DICT)


# ------------------------------------------------------------------------------------------------ zip archives


@dataclass
class Entry:
    """A member of an archive. What is None is as it should be."""

    name: str
    content: bytes
    deflate: bool = False
    flags: int = 0
    crc: int | None = None
    size: int | None = None
    packed: int | None = None
    local_name: str | None = None
    local_flags: int | None = None
    local_size: int | None = None
    local_method: int | None = None
    padding: int = 0
    behind: bytes = b""
    header: int | None = None
    zip64: bool = False


def archive(entries: list[Entry], *, prefix: bytes = b"", wide: bool = False, comment: bytes = b"") -> bytes:
    """A zip archive. `wide` adds the 64-bit end record, which torch always writes."""
    out, directory = bytearray(prefix), bytearray()
    for entry in entries:
        header = len(out) - len(prefix) if entry.header is None else entry.header
        out += _member(entry)
        directory += _central(entry, header)
    start = len(out) - len(prefix)
    end = bytearray()
    if wide:
        where = len(out) + len(directory)
        counts = (len(entries), len(entries), len(directory), start)
        end += struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, *counts)
        end += struct.pack("<4sIQI", b"PK\x06\x07", 0, where, 1)
    counts = (len(entries), len(entries), len(directory), start)
    end += struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, *counts, len(comment)) + comment
    return bytes(out + directory + end)


def _packed(entry: Entry) -> bytes:
    if not entry.deflate:
        return entry.content
    deflater = zlib.compressobj(wbits=-15)
    return deflater.compress(entry.content) + deflater.flush()


def _member(entry: Entry) -> bytes:
    packed, crc = _packed(entry), zlib.crc32(entry.content)
    behind = bool(entry.flags & 8)  # sizes stand in a descriptor, as torch writes them
    raw = (entry.name if entry.local_name is None else entry.local_name).encode()
    extra = struct.pack("<HH", 0x4246, entry.padding) + b"Z" * entry.padding if entry.padding else b""
    sizes = (0, 0, 0) if behind else (crc, len(packed), len(entry.content))
    if entry.local_size is not None:
        sizes = (sizes[0], entry.local_size, entry.local_size)
    method = (8 if entry.deflate else 0) if entry.local_method is None else entry.local_method
    flags = entry.flags if entry.local_flags is None else entry.local_flags
    head = struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", 20, flags, method, 0, 0, *sizes, len(raw), len(extra))
    descriptor = struct.pack("<4sIII", b"PK\x07\x08", crc, len(packed), len(entry.content)) if behind else b""
    return head + raw + extra + packed + descriptor + entry.behind


def _central(entry: Entry, header: int) -> bytes:
    packed = len(_packed(entry)) if entry.packed is None else entry.packed
    size = len(entry.content) if entry.size is None else entry.size
    crc = zlib.crc32(entry.content) if entry.crc is None else entry.crc
    raw, extra = entry.name.encode(), b""
    if entry.zip64:
        extra = struct.pack("<HHQQQ", 1, 24, size, packed, header)
        size = packed = header = 0xFFFFFFFF
    fields = (20, 20, entry.flags, 8 if entry.deflate else 0, 0, 0, crc, packed, size, len(raw), len(extra), 0, 0, 0, 0)
    return struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\x01\x02", *fields, header) + raw + extra


# ------------------------------------------------------------------------------------------------ torch files

FOUR_FLOATS = struct.pack("<4f", 1, 2, 3, 4)


def torch_entries(
    pickled: bytes, storages: dict[str, bytes] | None = None, *, root: str = "archive", order: bytes = b"little"
) -> list[Entry]:
    """The members that torch.save writes, with flags and paddings as it sets them."""
    contents = {"data.pkl": pickled, "byteorder": order}
    contents |= {f"data/{key}": raw for key, raw in ({"0": FOUR_FLOATS} if storages is None else storages).items()}
    contents |= {"version": b"3\n", ".data/serialization_id": b"1" * 40}
    return [Entry(f"{root}/{path}", content, flags=0x0808, padding=7) for path, content in contents.items()]


def torch_zip(part: bytes, storages: dict[str, bytes] | None = None, **options: bytes | str) -> bytes:
    """A checkpoint with one value in the zip format."""
    return archive(torch_entries(program(part), storages, **options), wide=True)  # type: ignore[arg-type]


def legacy(part: bytes, storages: dict[str, tuple[int, bytes]] | None = None, *, little_endian: bool = True) -> bytes:
    """The same in the format before: `storages` gives the number of elements and the bytes."""
    storages = {"0": (4, FOUR_FLOATS)} if storages is None else storages
    facts = {"protocol_version": 1001, "little_endian": little_endian, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    heads = [0x1950A86A20F9469CFC6C, 1001, facts]
    body = b"".join(pickle.dumps(head, 2) for head in heads) + program(part) + pickle.dumps(list(storages), 2)
    return body + b"".join(struct.pack("<q", count) + raw for count, raw in storages.values())
