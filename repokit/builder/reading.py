"""What the tensors of a plan are made of, as a stream of bytes: read, put together, not yet cast.

Everything that is read of the sources is read here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from repokit.builder.transforms.gather import gathered
from repokit.builder.transforms.interleave import interleaved
from repokit.builder.transforms.merge import merged
from repokit.errors import MissingInput, PlanError
from repokit.formats.urls import Url, is_url
from repokit.operations import Filled, Interleaved, Merged, Piece
from repokit.repo.remote_files import Ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from repokit.builder.checkpoints.stored import Stored
    from repokit.operations import Content

# Large enough that Python's share of the work vanishes, small enough to stay in a core's cache between the read, the
# hash and the write: with 4 MiB the same copy takes twice the processor time (measured, tests/bench/build.py). A power
# of two, so that a chunk never ends inside an element.
CHUNK: Final = 1024 * 1024
OPENED: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in the place of a file must not make us wait
MEMORY: Final = "tensor:"  # before the name of a tensor that a running program holds; fsspec has memory:// files


class Reader:
    """Reads the sources of a plan. One for each thread: it keeps a buffer."""

    def __init__(self, sources: Sequence[str], given: Stored | None = None) -> None:
        """Reads nothing yet.

        Args:
            sources: Paths, addresses, or `tensor:NAME`, in the order of the plan.
            given: The tensors of a running program, where some are of it.
        """
        self._sources = sources
        self._given = given
        self._buffer = memoryview(bytearray(CHUNK))
        self._remote: Ranges | None = None  # of the source that was read last: its next bytes may be at hand

    def contents(self, content: Content) -> Iterator[memoryview]:
        """The bytes of a part of a shard before its cast, in pieces of any length; each is valid until the next.

        Raises:
            InputError, PlanError: A source is gone or has become shorter.
        """
        match content:
            case Piece():
                yield from self._piece(content)
            case Interleaved():
                yield interleaved(content, self.contents)
            case Merged():
                yield from merged(content, self.contents, Reader(self._sources, self._given).contents)
            case Filled(size=size):
                zeros = memoryview(bytes(min(size, CHUNK)))
                for done in range(0, size, CHUNK):
                    yield zeros[: min(CHUNK, size - done)]

    def _piece(self, piece: Piece) -> Iterator[memoryview]:
        source = self._sources[piece.source]
        if source.startswith(MEMORY):
            assert self._given is not None  # noqa: S101 - check_sources refuses the plan without it
            yield from _first(self._given.contents(self._given.tensors[source.removeprefix(MEMORY)]), piece.length)
        elif piece.view is None:
            yield from self._streamed(piece)
        else:
            yield from gathered(lambda offset, length: self._span(piece, offset, length), piece.view)

    def _streamed(self, piece: Piece) -> Iterator[memoryview]:
        """Reads into one buffer with pread: mapped pages would count as our memory."""
        if is_url(self._sources[piece.source]):
            yield from self._requested(piece)
            return
        descriptor = _opened(self._sources[piece.source])
        try:
            for done in range(0, piece.length, CHUNK):
                wanted = self._buffer[: min(CHUNK, piece.length - done)]
                _fill(descriptor, wanted, piece.offset + done, self._sources[piece.source])
                yield wanted
        finally:
            os.close(descriptor)

    def _span(self, piece: Piece, offset: int, length: int) -> memoryview:
        buffer = memoryview(bytearray(length))
        if is_url(self._sources[piece.source]):
            self._ranges(piece).whole(buffer, piece.offset + offset)
            return buffer
        descriptor = _opened(self._sources[piece.source])
        try:
            _fill(descriptor, buffer, piece.offset + offset, self._sources[piece.source])
        finally:
            os.close(descriptor)
        return buffer

    def _requested(self, piece: Piece) -> Iterator[memoryview]:
        """Asks for ranges of many chunks, and for those of the next pieces with them."""
        ranges = self._ranges(piece)
        for done in range(0, piece.length, CHUNK):
            wanted = self._buffer[: min(CHUNK, piece.length - done)]
            ranges.fill(wanted, piece.offset + done, piece.length - done)
            yield wanted

    def _ranges(self, piece: Piece) -> Ranges:
        source = self._sources[piece.source]
        if self._remote is None or str(self._remote.url) != source:
            self._remote = Ranges(Url.parse(source))
        return self._remote


def _first(chunks: Iterator[memoryview], length: int) -> Iterator[memoryview]:
    """The first bytes of a stream, which may be all."""
    for chunk in chunks:
        if length:
            yield chunk[:length]
        length -= min(length, len(chunk))


def _opened(path: str) -> int:
    try:
        return os.open(path, OPENED)
    except OSError as error:
        raise MissingInput(f"cannot be read: {error.strerror}", path=path) from None


def _fill(descriptor: int, buffer: memoryview, position: int, path: str) -> None:
    done = 0
    while done < len(buffer):
        try:
            read = os.preadv(descriptor, [buffer[done:]], position + done)
        except OSError as error:
            raise MissingInput(f"cannot be read: {error.strerror}", path=path) from None
        if not read:
            raise PlanError("has become shorter since the plan was made", path=path)
        done += read
