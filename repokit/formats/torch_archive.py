"""Zip archives as torch.save writes them, read by their central directory, and strictly.

`zipfile` and the reader inside torch (miniz) differ in what they take when a header lies; a payload then shows to one
of them only. Here both headers of a member must agree, nothing may lie before, between or behind, and names are unique.

Layout: PKWARE APPNOTE.TXT 4.3; caffe2/serialize/inline_container.cc for what torch writes: members are stored, their
sizes stand behind them in a data descriptor, and their local extra field pads the contents to 64 bytes.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from repokit.errors import MalformedFile
from repokit.formats.paths import unsafe
from repokit.printable import printable, size

MAX_MEMBERS: Final = 1_000_000
MAX_DIRECTORY: Final = 256 * 1024 * 1024
MAX_INFLATED: Final = 256 * 1024 * 1024  # bytes of one deflated member
MAX_RATIO: Final = 200  # of inflated to deflated bytes, once there is more than RATIO_FROM
RATIO_FROM: Final = 1024 * 1024

STORED: Final = 0
DEFLATED: Final = 8

Read = Callable[[int, int], bytes]


class Member(NamedTuple):
    """One file in the archive, as the central directory tells it.

    Attributes:
        name: Its whole path, the root folder included.
        method: STORED or DEFLATED.
        flags: The general purpose bits.
        crc: CRC-32 of the contents.
        packed: Bytes that it takes in the archive.
        size: Bytes of its contents.
        header: Where its local header begins.
        limit: Where the next member begins, or the directory.
    """

    name: str
    method: int
    flags: int
    crc: int
    packed: int
    size: int
    header: int
    limit: int = 0


class Archive(NamedTuple):
    """A zip archive.

    Attributes:
        members: By their name, in the order of the central directory; folders are left out.
        directory: Where the central directory begins: the end of the last member.
    """

    members: Mapping[str, Member]
    directory: int

    @property
    def root(self) -> str | None:
        """The one folder that holds everything; None where there is none or more than one."""
        roots = {name.partition("/")[0] if "/" in name else "" for name in self.members}
        return roots.pop() or None if len(roots) == 1 else None


def is_zip(head: bytes) -> bool:
    """Whether a file begins as a zip archive does."""
    return head.startswith((_LOCAL_SIGNATURE, _END_SIGNATURE))


def ends_as_zip(read: Read, file_size: int) -> bool:
    """Whether a file ends as a zip archive does: readers find one by its end, whatever stands before it."""
    tail = read(max(0, file_size - _END.size), min(file_size, _END.size))
    return tail.startswith(_END_SIGNATURE)


_LOCAL_SIGNATURE: Final = b"PK\x03\x04"
_CENTRAL_SIGNATURE: Final = b"PK\x01\x02"
_END_SIGNATURE: Final = b"PK\x05\x06"
_END64_SIGNATURE: Final = b"PK\x06\x06"
_LOCATOR_SIGNATURE: Final = b"PK\x06\x07"
_LOCAL: Final = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL: Final = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END: Final = struct.Struct("<4sHHHHIIH")
_END64: Final = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR: Final = struct.Struct("<4sIQI")

_WHY: Final = "readers of zip archives differ in what they then take for its contents"
_FULL16: Final = 0xFFFF
_FULL32: Final = 0xFFFFFFFF
_KNOWN_FLAGS: Final = 0x0806 | 0x0008  # UTF-8 names, levels of deflate, sizes in a data descriptor
_DESCRIPTOR: Final = 0x0008


def read_archive(read: Read, file_size: int, path: str) -> Archive:
    """Reads the central directory.

    Raises:
        MalformedFile: It is no whole zip archive, or one that two readers would read differently.
    """
    start, end, members = _locate(read, file_size, path)
    if end - start > MAX_DIRECTORY or members > MAX_MEMBERS:
        raise MalformedFile(f"claims {members:,} members in a directory of {size(end - start)}", why=_WHY, path=path)
    directory = read(start, end - start)
    if len(directory) != end - start:
        raise MalformedFile("ends inside its directory", why=_WHY, path=path)
    found = _members(directory, members, path)
    limits = _extents(found, start, path)
    files = (member for member in found if not member.name.endswith("/"))
    return Archive({member.name: member._replace(limit=limits[member.header]) for member in files}, start)


def _locate(read: Read, file_size: int, path: str) -> tuple[int, int, int]:
    """Begin and end of the central directory, and how many members it has."""
    behind = _END64.size + _LOCATOR.size + _END.size
    tail = read(max(0, file_size - behind), min(behind, file_size))
    if len(tail) < _END.size or not tail[-_END.size :].startswith(_END_SIGNATURE):
        raise MalformedFile(*_no_end(read, file_size), why=_TRUNCATED, path=path)
    _, disk, first_disk, here, members, length, start, comment = _END.unpack(tail[-_END.size :])
    if disk or first_disk or here != members or comment:
        raise MalformedFile("is one part of a zip archive of several, or has a comment", why=_WHY, path=path)
    end = file_size - _END.size
    locator = tail[-_END.size - _LOCATOR.size : -_END.size]
    if locator.startswith(_LOCATOR_SIGNATURE) and len(locator) == _LOCATOR.size:
        end, wide = _zip64(tail, locator, file_size, path)
        narrow = ((members, _FULL16), (length, _FULL32), (start, _FULL32))
        if any(value not in {full, wider} for (value, full), wider in zip(narrow, wide, strict=True)):
            raise MalformedFile("has two directories that differ", why=_WHY, path=path)
        members, length, start = wide
    if start + length != end:
        raise MalformedFile(
            "does not end with its directory, or has bytes before its first member", why=_WHY, path=path
        )
    return start, end, members


def _zip64(tail: bytes, locator: bytes, file_size: int, path: str) -> tuple[int, tuple[int, int, int]]:
    """Where the 64-bit end record begins, and what it says: members, length and start of the directory."""
    _, disk, position, disks = _LOCATOR.unpack(locator)
    expected = file_size - _END.size - _LOCATOR.size - _END64.size
    record = tail[: _END64.size]
    if disk or disks != 1 or position != expected or len(tail) < _END64.size + _LOCATOR.size + _END.size:
        raise MalformedFile("has bytes before its first member, or its 64-bit directory elsewhere", why=_WHY, path=path)
    signature, length, _, _, disk, first_disk, here, members, directory, start = _END64.unpack(record)
    if signature != _END64_SIGNATURE or length != _END64.size - 12 or disk or first_disk or here != members:
        raise MalformedFile("has a 64-bit directory that is none", why=_WHY, path=path)
    return position, (members, directory, start)


_TRUNCATED: Final = "an archive that was cut off, or added to, has lost its directory"


def _no_end(read: Read, file_size: int) -> tuple[str]:
    tail = read(max(0, file_size - _FULL16 - _END.size), min(file_size, _FULL16 + _END.size))
    behind = len(tail) - tail.rfind(_END_SIGNATURE) - _END.size
    if _END_SIGNATURE in tail and behind > 0:
        return (f"has {behind:,} bytes behind its directory",)
    return ("has no directory at its end: truncated",)


def _members(directory: bytes, count: int, path: str) -> list[Member]:
    found: dict[str, Member] = {}
    position = 0
    for _ in range(count):
        try:
            fields = _CENTRAL.unpack_from(directory, position)
        except struct.error:
            raise MalformedFile("has fewer members than it says", why=_WHY, path=path) from None
        member, position = _member(directory, position, fields, path)
        if member.name in found:
            raise MalformedFile("is in the archive twice", why=_WHY, path=path, place=member.name)
        found[member.name] = member
    if position != len(directory):
        raise MalformedFile("has more in its directory than its members", why=_WHY, path=path)
    return list(found.values())


def _member(directory: bytes, position: int, fields: tuple[Any, ...], path: str) -> tuple[Member, int]:
    """One entry of the directory, and where the next begins."""
    signature, _, _, flags, method, _, _, crc, packed, plain, name_length, extra, comment, disk, _, outer, header = (
        fields
    )
    begin = position + _CENTRAL.size
    end = begin + name_length + extra + comment
    if signature != _CENTRAL_SIGNATURE or end > len(directory) or comment:
        raise MalformedFile("has a directory with a broken entry", why=_WHY, path=path)
    name = _name(directory[begin : begin + name_length], path)
    extras = directory[begin + name_length : begin + name_length + extra]
    if _extra(extras, 0x7075):  # Info-ZIP Unicode Path, which Python's zipfile follows since 3.12 and miniz does not
        raise MalformedFile("has a member with a second name", why=_WHY, path=path, place=name)
    if _FULL32 in {packed, plain, header}:
        packed, plain, header = _wide(extras, (packed, plain, header), path, name)
    if disk or flags & ~_KNOWN_FLAGS or method not in {STORED, DEFLATED}:
        what = f"has flags 0x{flags:04x} and method {method}: encrypted, or packed as torch never does"
        raise MalformedFile(what, why=_WHY, path=path, place=name)
    if outer & _FOLDER and not name.endswith("/"):
        what = "is a folder by its attributes: torch would leave its values unset"
        raise MalformedFile(what, why=_WHY, path=path, place=name)
    if method == STORED and packed != plain:
        raise MalformedFile(f"is stored, yet {packed:,} bytes are {plain:,}", why=_WHY, path=path, place=name)
    return Member(name, method, flags, crc, packed, plain, header), end


_FOLDER: Final = 0x10  # FILE_ATTRIBUTE_DIRECTORY, which miniz goes by (mz_zip_reader_is_file_a_directory)
_PLAIN: Final = re.compile(r"(?:\.?[A-Za-z0-9_-][A-Za-z0-9_.-]*/)*\.?[A-Za-z0-9_-][A-Za-z0-9_.-]*")


def _name(raw: bytes, path: str) -> str:
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedFile("has a member whose name is not UTF-8", why=_WHY, path=path) from None
    plain = _PLAIN.fullmatch(name) and ".." not in name  # nearly every name, and 20 times faster
    if not plain and (why := unsafe(name.removesuffix("/"))):
        what = f"has a member whose name {why}"
        raise MalformedFile(what, why=_WHY, path=path, place=printable(name, 120) or None)
    return name


def _wide(extras: bytes, values: tuple[int, int, int], path: str, name: str) -> tuple[int, int, int]:
    """Packed size, size and header offset, of which some stand in the zip64 extra field (APPNOTE 4.5.3)."""
    wide = _extra(extras, 0x0001)
    packed, plain, header = values
    numbers = iter(struct.unpack(f"<{len(wide) // 8}Q", wide[: len(wide) // 8 * 8]))
    try:
        plain = next(numbers) if plain == _FULL32 else plain
        packed = next(numbers) if packed == _FULL32 else packed
        header = next(numbers) if header == _FULL32 else header
    except StopIteration:
        raise MalformedFile("claims 4 GiB without a 64-bit size", why=_WHY, path=path, place=name) from None
    return packed, plain, header


def _extra(extras: bytes, kind: int) -> bytes:
    position = 0
    while position + 4 <= len(extras):
        found, length = struct.unpack_from("<HH", extras, position)
        if found == kind:
            return extras[position + 4 : position + 4 + length]
        position += 4 + length
    return b""


def _extents(members: list[Member], directory: int, path: str) -> dict[int, int]:
    """Where each member ends that begins at a place.

    Raises:
        MalformedFile: They do not lie one behind the other from byte 0 on, or with more between them than headers.
    """
    if first := min((member.header for member in members), default=directory):
        raise MalformedFile(f"has {size(first)} before its first member", why=_WHY, path=path)
    ordered = sorted(members, key=lambda member: member.header)
    ends = [member.header for member in ordered[1:]]
    for member, end in zip(ordered, [*ends, directory], strict=False):
        least = member.header + _LOCAL.size + len(member.name.encode()) + member.packed
        if least > end:
            what = f"takes {member.packed:,} bytes and reaches into what follows it"
            raise MalformedFile(what, why=_WHY, path=path, place=member.name)
        if end - least > _MOST_BETWEEN:
            raise MalformedFile(
                f"is followed by {size(end - least)} of nothing", why=_WHY, path=path, place=member.name
            )
    return {member.header: end for member, end in zip(ordered, [*ends, directory], strict=False)}


_MOST_BETWEEN: Final = _FULL16 + 24  # a local extra field, and a 64-bit data descriptor


def contents_at(read: Read, member: Member, path: str) -> int:
    """Where the contents of a member begin in the file, by its local header, which must agree with the directory.

    Raises:
        MalformedFile: The two headers differ.
    """
    name = member.name.encode()
    head = read(member.header, _LOCAL.size + len(name))
    if len(head) != _LOCAL.size + len(name):
        raise MalformedFile("ends before this member", why=_WHY, path=path, place=member.name)
    signature, _, flags, method, _, _, crc, packed, plain, name_length, extra = _LOCAL.unpack_from(head)
    if signature != _LOCAL_SIGNATURE or head[_LOCAL.size :] != name or name_length != len(name):
        raise MalformedFile("has another name in its own header", why=_WHY, path=path, place=member.name)
    if flags != member.flags or method != member.method:
        raise MalformedFile("is packed otherwise by its own header", why=_WHY, path=path, place=member.name)
    behind = bool(flags & _DESCRIPTOR)
    sizes = ((packed, member.packed), (plain, member.size))
    if crc not in {member.crc, 0 if behind else member.crc} or any(
        value not in {expected, 0 if behind else expected, _FULL32} for value, expected in sizes
    ):
        raise MalformedFile("has another size or checksum in its own header", why=_WHY, path=path, place=member.name)
    begin = member.header + _LOCAL.size + len(name) + int(extra)
    if begin + member.packed > member.limit:
        what = "reaches into what follows it, by its own header"
        raise MalformedFile(what, why=_WHY, path=path, place=member.name)
    return begin


def local_contents(data: bytes, header: int) -> int:
    """Where a local header at this place says that the contents begin; at most the end of the data."""
    if header + _LOCAL.size > len(data):
        return len(data)
    *_, name_length, extra = _LOCAL.unpack_from(data, header)
    return min(header + _LOCAL.size + int(name_length) + int(extra), len(data))


def contents(read: Read, member: Member, path: str, limit: int = MAX_INFLATED) -> bytes:
    """The bytes of a member, inflated within limits, its checksum verified.

    Raises:
        MalformedFile: The headers, the size or the checksum do not hold, or it is larger than `limit`.
    """
    start = contents_at(read, member, path)
    if member.size > limit or member.packed > limit:
        raise MalformedFile(f"has {size(member.size)}, more than any real one", why=_WHY, path=path, place=member.name)
    if member.size > RATIO_FROM and member.size > MAX_RATIO * member.packed:
        what = f"inflates {member.packed:,} bytes to {size(member.size)}"
        raise MalformedFile(what, why="no real file does; a bomb does", path=path, place=member.name)
    raw = read(start, member.packed)
    plain = raw if member.method == STORED else _inflated(raw, member, path)
    if len(plain) != member.size or (zlib.crc32(plain) != member.crc and not _is_without_checksum(member)):
        raise MalformedFile(
            "does not have the size and checksum that its headers tell", why=_WHY, path=path, place=member.name
        )
    return plain


def beginning(read: Read, member: Member, path: str, length: int = 128) -> bytes:
    """The first bytes of a member.

    Raises:
        MalformedFile: The headers do not hold, or it cannot be inflated.
    """
    raw = read(contents_at(read, member, path), min(member.packed, 4 * length))
    if member.method == STORED:
        return raw[:length]
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(raw, length)
    except zlib.error:
        raise MalformedFile("cannot be inflated", why=_WHY, path=path, place=member.name) from None


def _is_without_checksum(member: Member) -> bool:
    """Whether it was written under `torch.serialization.set_crc32_options(False)`, which puts 0 in its place."""
    return member.crc == 0 and member.method == STORED


def _inflated(raw: bytes, member: Member, path: str) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        plain = inflater.decompress(raw, member.size + 1)
    except zlib.error:
        raise MalformedFile("cannot be inflated", why=_WHY, path=path, place=member.name) from None
    if not inflater.eof or inflater.unused_data or inflater.unconsumed_tail:
        raise MalformedFile("inflates to another size than it tells", why=_WHY, path=path, place=member.name)
    return plain
