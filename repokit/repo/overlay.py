"""A repository as it will be once edits are carried out: a Source over another one, nothing of which is written.

A file of an overlay is bytes, or a .safetensors file put together: the exact bytes of its header, then ranges of files
of the source below. Ranges always name the source below, however often a file was edited, so that what is written in
the end is read once. Every edit gives a new overlay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.errors import MissingInput
from repokit.formats.paths import unsafe
from repokit.formats.safetensors import METADATA_KEY, header_bytes, in_file_order, read_header
from repokit.formats.tensors import TensorInfo
from repokit.repo.source import Entry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from repokit.repo.source import Source


class RefusedEditError(ValueError):
    """An edit does not go with what is there: a rename onto a tensor that stays, a path that leaves the repository."""


class Range(NamedTuple):
    """Bytes of a file of the source below."""

    path: str
    offset: int
    length: int


class Assembled(NamedTuple):
    """A .safetensors file that is put together from others.

    Attributes:
        header: The length prefix and the header, byte for byte.
        ranges: The data behind it, in order.
    """

    header: bytes
    ranges: tuple[Range, ...]

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.header) + sum(part.length for part in self.ranges)


Content = bytes | Assembled | None
_UNCHANGED: Final = object()


class Overlay:
    """A Source over another: some files differ, some are gone.

    Attributes:
        base: The source below.
        label: Its label.
        changed: By path, sorted, what differs; None for a file that is gone.
    """

    def __init__(self, base: Source, changed: Mapping[str, Content] | None = None) -> None:
        self.base = base
        self.label = base.label
        self.changed: Mapping[str, Content] = dict(sorted((changed or {}).items()))
        self._entries: Mapping[str, Entry] | None = None

    # ---------------------------------------------------------------- as a Source

    def entries(self) -> Mapping[str, Entry]:
        if self._entries is None:
            kept = {path: entry for path, entry in self.base.entries().items() if path not in self.changed}
            new = {path: Entry(_size(content)) for path, content in self.changed.items() if content is not None}
            self._entries = dict(sorted({**kept, **new}.items()))
        return self._entries

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        match self.changed.get(path, _UNCHANGED):
            case None:
                raise MissingInput("is not in the repository", path=path)
            case bytes(content):
                return content[offset:] if length is None else content[offset : offset + length]
            case Assembled() as shard:
                wanted = shard.size - offset if length is None else length
                return b"".join(self._parts(shard, offset, max(0, wanted)))
            case _:
                return self.base.read(path, offset, length)

    def _parts(self, shard: Assembled, offset: int, length: int) -> Iterator[bytes]:
        head = shard.header[offset : offset + length]
        yield head
        behind = max(0, offset - len(shard.header))
        for part in _cut(shard.ranges, behind, length - len(head)):
            yield self.base.read(*part)

    # ---------------------------------------------------------------- edits

    def with_file(self, path: str, content: bytes | Assembled) -> Overlay:
        """The same with one file's content; nothing changes where it is what the file has.

        Raises:
            RefusedEditError: No such file can be in a repository.
        """
        below = self.base.entries().get(path)
        if below is None and (why := unsafe(path)):
            raise RefusedEditError(f"the path of a new file {why}")
        changed = {**self.changed, path: content}
        if isinstance(content, bytes) and below is not None and below.size == len(content) and self._is(path, content):
            del changed[path]
        return Overlay(self.base, changed)

    def _is(self, path: str, content: bytes) -> bool:
        try:
            return self.base.read(path) == content
        except MissingInput:  # a broken link
            return False

    def without(self, path: str) -> Overlay:
        """The same without a file.

        Raises:
            RefusedEditError: It is not there.
        """
        if path not in self.entries():
            raise RefusedEditError("is not there, so that it cannot be deleted")
        changed = {**self.changed, path: None}
        if path not in self.base.entries():
            del changed[path]
        return Overlay(self.base, changed)

    def with_tensors(
        self,
        path: str,
        *,
        rename: Mapping[str, str] | None = None,
        drop: Collection[str] = (),
        metadata: Mapping[str, str] | None = None,
    ) -> Overlay:
        """The same with tensors of a .safetensors file renamed or dropped, or with other metadata.

        The bytes of a tensor stay as they are. They lie as a build lays them: by descending dtype size, then name. A
        file that loses its last tensor is gone.

        Args:
            path: The file.
            rename: Old name to new name.
            drop: Names.
            metadata: `__metadata__` from now on; None keeps what is there.

        Raises:
            RefusedEditError: A name is not there, or two tensors would have the same one.
            MalformedFile: The file is not one of safetensors, or would not be.
        """
        size = self.entries()[path].size if path in self.entries() else 0
        header = read_header(lambda offset, length: self.read(path, offset, length), size, path)
        kept = _renamed(header.tensors, rename or {}, frozenset(drop))
        if not kept:
            return self.without(path)
        wanted = header.metadata or {} if metadata is None else metadata
        same = not drop and wanted == (header.metadata or {}) and all(name == old.name for name, old in kept.items())
        if same and not header.remarks:
            return self
        placed = in_file_order(old._replace(name=name) for name, old in kept.items())
        head = header_bytes(placed, wanted)
        data = sum(tensor.end - tensor.begin for tensor in placed)
        read_header(lambda offset, length: head[offset : offset + length], len(head) + data, path)
        old_places = ((header.data_start + kept[new.name].begin, new.end - new.begin) for new in placed)
        return self.with_file(path, self._assembled(path, head, old_places))

    def _assembled(self, path: str, head: bytes, places: Iterator[tuple[int, int]]) -> bytes | Assembled:
        """A file out of ranges of what this overlay has at a path: offset and length of each."""
        current = self.changed.get(path)
        if isinstance(current, bytes):
            return head + b"".join(current[offset : offset + length] for offset, length in places)
        ranges: list[Range] = []
        for offset, length in places:
            if current is None:
                ranges.append(Range(path, offset, length))
            else:
                ranges += _cut(current.ranges, offset - len(current.header), length)
        return Assembled(head, tuple(_joined(ranges)))


def _size(content: bytes | Assembled) -> int:
    return len(content) if isinstance(content, bytes) else content.size


def _renamed(tensors: tuple[TensorInfo, ...], rename: Mapping[str, str], drop: frozenset[str]) -> dict[str, TensorInfo]:
    """New name to the tensor as it was."""
    known = {tensor.name for tensor in tensors}
    if unknown := sorted((rename.keys() | drop) - known):
        raise RefusedEditError(f"has no tensor {unknown[0]}")
    kept: dict[str, TensorInfo] = {}
    for tensor in tensors:
        if tensor.name in drop:
            continue
        name = rename.get(tensor.name, tensor.name)
        if name in kept or name == METADATA_KEY:
            raise RefusedEditError(f"two tensors would be called {name}")
        kept[name] = tensor
    return kept


def _cut(ranges: tuple[Range, ...], offset: int, length: int) -> Iterator[Range]:
    """What of a chain of ranges lies at `offset`, as many bytes as `length`."""
    for part in ranges:
        if length <= 0:
            return
        if offset >= part.length:
            offset -= part.length
            continue
        taken = min(part.length - offset, length)
        yield Range(part.path, part.offset + offset, taken)
        offset, length = 0, length - taken


def _joined(ranges: list[Range]) -> Iterator[Range]:
    """Neighbours become one; empty tensors take no reading."""
    last: Range | None = None
    for part in ranges:
        if last is not None and (part.path, part.offset) == (last.path, last.offset + last.length):
            last = last._replace(length=last.length + part.length)
            continue
        if last is not None and last.length:
            yield last
        last = part
    if last is not None and last.length:
        yield last
