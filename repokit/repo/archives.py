"""Archives that are no checkpoints of torch (.npz, .keras, .zip), by their directories and first bytes of members.

Nothing is unpacked: what a member inflates to is taken from the directory, and of its contents a few hundred bytes are
looked at; an inner archive or a config is read whole where it is small. Checkpoints have a reader of their own, which
refuses what torch and Python would read differently (formats/torch_archive.py); these are opened as Python opens them.
"""

from __future__ import annotations

import ast
import io
import re
import zipfile
import zlib
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.errors import LimitExceeded, UnsupportedSource
from repokit.printable import printable
from repokit.repo.source import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from _typeshed import WriteableBuffer

    from repokit.repo.repository import Repository
    from repokit.repo.source import Source

NAMES: Final = re.compile(r"\.(?:npz|keras|zip)$", re.IGNORECASE)
MOST_INNER: Final = 1024 * 1024  # bytes of an inner archive, or of a config, that is read whole
DEEPEST: Final = 4  # archives in archives; what lies deeper is not looked at
_MOST_READ: Final = 2 * 1024 * 1024  # bytes in one go: a directory of some 20,000 members
_AT_ONCE: Final = 64 * 1024  # bytes of one request: many small members lie in it
_LOOKED_AT: Final = 100  # members whose contents are looked at; of all the directory tells name and size
_BEGINNING: Final = 512
_UNPACKED: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})  # the others inflate without a limit
_ENCRYPTED: Final = 0x1
_UNREADABLE: Final = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, ValueError, EOFError)
# numpy/lib/format.py: magic, version, length of the header in 2 or 4 bytes, a Python dict, a line end.
_ARRAY: Final = re.compile(rb"\x93NUMPY([\x01-\x03])\x00")
_ITEM: Final = re.compile(r"[<>|=]?(?:[biufcSV]\d{1,9}|\?)")


class ArrayHeader(NamedTuple):
    """What the header of a .npy member says.

    Attributes:
        kind: `descr`, as `<f4`; `|O` is a Python object.
        shape: Its sizes.
        begin: Where the values begin, in bytes.
    """

    kind: str
    shape: tuple[int, ...]
    begin: int

    @property
    def is_pickled(self) -> bool:
        """Whether its values are Python objects."""
        return self.kind.lstrip("<>|=").startswith("O")

    @property
    def size(self) -> int | None:
        """Bytes of all values; None for a type that is not of one size."""
        if not _ITEM.fullmatch(self.kind):
            return None
        item = re.search(r"\d+", self.kind)
        return prod(self.shape) * (int(item[0]) if item else 1)


class ArchiveFile:
    """One archive.

    Attributes:
        path: In the repository.
        members: As the directory tells them, folders left out.
    """

    def __init__(self, path: str, archive: zipfile.ZipFile) -> None:
        self.path = path
        self.members = tuple(member for member in archive.infolist() if not member.is_dir())
        self._archive = archive

    @property
    def arrays(self) -> Iterator[tuple[zipfile.ZipInfo, ArrayHeader]]:
        """Members that are arrays of NumPy, with their headers."""
        for member in self.members[:_LOOKED_AT]:
            if member.filename.endswith(".npy") and (header := array_header(self.beginning(member))) is not None:
                yield member, header

    def beginning(self, member: zipfile.ZipInfo, length: int = _BEGINNING) -> bytes:
        """The first bytes of a member; none where it cannot be read."""
        if member.compress_type not in _UNPACKED or member.flag_bits & _ENCRYPTED:
            return b""
        try:
            with self._archive.open(member) as file:
                return file.read(length)
        except _UNREADABLE:
            return b""

    def contents(self, member: zipfile.ZipInfo) -> bytes | None:
        """The whole of a small member; None for a larger one."""
        content = self.beginning(member, MOST_INNER + 1)
        return content if len(content) <= MOST_INNER else None

    def depth(self, above: int = 0) -> int:
        """How many archives lie in each other, this one counted; DEEPEST + 1 where there are more."""
        if above == DEEPEST:
            return 1
        begun = (member for member in self.members[:_LOOKED_AT] if self.beginning(member, 4) == b"PK\x03\x04")
        inner = (self.contents(member) for member in begun)
        opened = (_opened(io.BytesIO(data), self.path) for data in inner if data is not None)
        return 1 + max((file.depth(above + 1) for file in opened if file is not None), default=0)


class _Ranges(io.RawIOBase):
    """A file of a source, for `zipfile`, which seeks."""

    def __init__(self, source: Source, path: str, size: int) -> None:
        self._source, self._path, self._size, self._at = source, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if self._at < 0:
            raise ValueError("seeks before the beginning")
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        wanted = min(len(view), max(0, self._size - self._at))
        if wanted > _MOST_READ:
            raise LimitExceeded(f"asks for {wanted:,} bytes in one go", path=self._path)
        data = self._source.read(self._path, self._at, wanted) if wanted else b""
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def archives(repository: Repository) -> Mapping[str, ArchiveFile]:
    """Every archive by its path.

    Raises:
        UnsupportedSource: One of them cannot be opened, or is larger than is looked into.
    """
    return repository.remember(("archives", ""), lambda: {file.path: file for file in _archives(repository)})


def _archives(repository: Repository) -> Iterator[ArchiveFile]:
    for path, entry in repository.files.items():
        if entry.kind is not Kind.FILE or not NAMES.search(path) or not repository.head(path).startswith(b"PK"):
            continue
        try:
            raw = _Ranges(repository.source, path, entry.size)
            file = _opened(io.BufferedReader(raw, _AT_ONCE), path)
        except LimitExceeded as error:
            raise _unchecked(path, error.what) from None
        if file is None:
            raise _unchecked(path, "is no whole zip archive")
        yield file


def _unchecked(path: str, what: str) -> UnsupportedSource:
    return UnsupportedSource(what, why="its members were not looked at", path=printable(path))


def _opened(file: io.BufferedReader | io.BytesIO, path: str) -> ArchiveFile | None:
    try:
        return ArchiveFile(path, zipfile.ZipFile(file))
    except _UNREADABLE:
        return None


def array_header(head: bytes) -> ArrayHeader | None:
    """The header of a .npy file by its first bytes; None where it is none, or goes on behind them."""
    found = _ARRAY.match(head)
    if found is None:
        return None
    width = 2 if found[1] == b"\x01" else 4
    begin = 8 + width + int.from_bytes(head[8 : 8 + width], "little")
    try:
        described = ast.literal_eval(head[8 + width : begin].decode("latin-1").strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    match described:
        case {"descr": str(kind), "shape": tuple(shape)} if all(type(size) is int and size >= 0 for size in shape):
            return ArrayHeader(kind, shape, begin)
    return None
