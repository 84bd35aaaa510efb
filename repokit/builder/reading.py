"""What the tensors of a plan are made of, as a stream of bytes: read, put together, not yet cast.

Everything that is read of the sources is read here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from repokit.builder.transforms.gather import gathered
from repokit.builder.transforms.interleave import interleaved
from repokit.errors import MissingInput, PlanError
from repokit.operations import Filled, Interleaved, Piece

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from repokit.builder.stored import Stored
    from repokit.operations import Content

# Large enough that Python's share of the work vanishes, small enough to stay in a core's cache between the read, the
# hash and the write: with 4 MiB the same copy takes twice the processor time (measured, tests/bench/build.py). A power
# of two, so that a chunk never ends inside an element.
CHUNK: Final = 1024 * 1024
MEMORY: Final = "memory:"  # before the name of a tensor that a running program holds


class Reader:
    """Reads the sources of a plan. One for each thread: it keeps a buffer."""

    def __init__(self, sources: Sequence[str], given: Stored | None = None) -> None:
        """Reads nothing yet.

        Args:
            sources: Paths, or `memory:NAME`, in the order of the plan.
            given: The tensors of a running program, where some are of it.
        """
        self._sources = sources
        self._given = given
        self._buffer = memoryview(bytearray(CHUNK))

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
            case Filled(size=size):
                zeros = memoryview(bytes(min(size, CHUNK)))
                for done in range(0, size, CHUNK):
                    yield zeros[: min(CHUNK, size - done)]

    def _piece(self, piece: Piece) -> Iterator[memoryview]:
        source = self._sources[piece.source]
        if source.startswith(MEMORY):
            assert self._given is not None  # noqa: S101 - check_sources refuses the plan without it
            yield from self._given.contents(self._given.tensors[source.removeprefix(MEMORY)])
        elif piece.view is None:
            yield from self._streamed(piece)
        else:
            yield from gathered(lambda offset, length: self._span(piece, offset, length), piece.view)

    def _streamed(self, piece: Piece) -> Iterator[memoryview]:
        """Reads into one buffer with pread: mapped pages would count as our memory."""
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
        descriptor = _opened(self._sources[piece.source])
        try:
            _fill(descriptor, buffer, piece.offset + offset, self._sources[piece.source])
        finally:
            os.close(descriptor)
        return buffer


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
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
