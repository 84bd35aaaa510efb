"""Bytes of weight files, streamed once in chunks that stay in a core's cache, from several threads.

Extent      the bytes of one tensor in its file
Part        some of them: a large tensor is work for several threads
Work        parts that one thread reads one after the other, or a whole file where its hash is wanted
Consumer    what a chunk is handed to; one for each work
stream      does the works, whatever the threads, in their order
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from repokit.errors import InputError, MissingInput
from repokit.repo.directory import Directory
from repokit.threads import Threads

if TYPE_CHECKING:
    from repokit.repo.source import Source

# Larger ones leave a core's cache between the read and the look.
CHUNK: Final = 1024 * 1024

# What one thread takes at once: small enough that all end together, large enough that a disk reads ahead.
_WORK: Final = 64 * 1024 * 1024

Progress = Callable[[str, int, int], object]
Fill = Callable[[memoryview, int], None]  # fills a buffer from an offset in a file


class Extent(NamedTuple):
    """Where a tensor lies.

    Attributes:
        offset: From the beginning of the file, in bytes.
        size: Bytes.
        step: Bytes that are not to be cut: a row, or an element. At most CHUNK.
    """

    offset: int
    size: int
    step: int


class Part(NamedTuple):
    """Bytes of an extent, counted from its beginning; a whole number of steps but for the last one."""

    extent: int
    start: int
    stop: int


class Work(NamedTuple):
    """What one thread does at once.

    Attributes:
        path: The file.
        extents: Of all tensors that are looked at.
        parts: In file order.
        hashed: The length of the file, where every byte of it goes into a sha256 as well.
    """

    path: str
    extents: Sequence[Extent]
    parts: Sequence[Part]
    hashed: int | None

    @property
    def size(self) -> int:
        """Bytes that are read."""
        return sum(part.stop - part.start for part in self.parts) if self.hashed is None else self.hashed


class Consumer(Protocol):
    """Looks at chunks."""

    def __call__(self, extent: int, start: int, content: memoryview) -> None:
        """Takes bytes of an extent, `start` from its beginning; they are overwritten afterwards."""


_Consumer = TypeVar("_Consumer", bound=Consumer)


class Outcome(NamedTuple, Generic[_Consumer]):
    """What became of a work.

    Attributes:
        work: The work.
        consumer: What it handed its chunks to.
        sha256: Where it was asked for.
        error: Why it could not be done to its end.
    """

    work: Work
    consumer: _Consumer
    sha256: str | None
    error: InputError | None


def works(path: str, extents: Sequence[Extent], hashed: int | None = None, *, apart: bool = False) -> list[Work]:
    """The work in one file, cut so that several threads can share it; not where its bytes are hashed in their order.

    Args:
        path: The file.
        extents: Of its tensors.
        hashed: Its length, where its hash is wanted.
        apart: Whether it is then read twice, so that one thread hashes while others look: they find in memory what the
            first of them has read.
    """
    order = sorted((index for index, extent in enumerate(extents) if extent.size), key=lambda index: extents[index])
    if hashed is not None:
        overlap = any(extents[index].offset < _end(extents[before]) for before, index in pairwise(order))
        if apart or overlap:  # tensors may overlap in GGUF, behind one of a type that is not known
            return [Work(path, extents, [], hashed), *works(path, extents)]
        return [Work(path, extents, [Part(index, 0, extents[index].size) for index in order], hashed)]
    found: list[Work] = []
    parts: list[Part] = []
    size = 0
    for index in order:
        for part in _cut(index, extents[index], _WORK):
            parts.append(part)
            size += part.stop - part.start
            if size >= _WORK:
                found.append(Work(path, extents, parts, None))
                parts, size = [], 0
    return [*found, Work(path, extents, parts, None)] if parts else found


def _end(extent: Extent) -> int:
    return extent.offset + extent.size


def _cut(index: int, extent: Extent, most: int, start: int = 0, stop: int | None = None) -> Iterator[Part]:
    """Parts of at most so many bytes that cut no step."""
    length, end = most - most % extent.step, extent.size if stop is None else stop
    for begin in range(start, end, length):
        yield Part(index, begin, min(end, begin + length))


class _Read(NamedTuple):
    """One read of a file, and the parts that are in it: index, start, and where in the read."""

    offset: int
    length: int
    parts: list[tuple[Part, int]]


def _reads(work: Work) -> Iterator[_Read]:
    """Neighbours that are small are read together; of a hashed file also what is no tensor's."""
    pending = _Read(0, 0, [])
    for whole in work.parts:
        extent = work.extents[whole.extent]
        for part in _cut(whole.extent, extent, CHUNK, whole.start, whole.stop):
            begin, length = extent.offset + part.start, part.stop - part.start
            if begin != pending.offset + pending.length or pending.length + length > CHUNK:
                if pending.length:
                    yield pending
                if work.hashed is not None:
                    yield from _filling(pending.offset + pending.length, begin)
                pending = _Read(begin, 0, [])
            pending.parts.append((part, pending.length))
            pending = pending._replace(length=pending.length + length)
    if pending.length:
        yield pending
    if work.hashed is not None:
        yield from _filling(pending.offset + pending.length, work.hashed)


def _filling(begin: int, end: int) -> Iterator[_Read]:
    for offset in range(begin, end, CHUNK):
        yield _Read(offset, min(CHUNK, end - offset), [])


def stream(
    source: Source,
    todo: Sequence[Work],
    make: Callable[[Work], _Consumer],
    *,
    jobs: int = 2,
    progress: Progress | None = None,
) -> list[Outcome[_Consumer]]:
    """Does every work. Memory is a chunk or two a thread, whatever the files.

    Args:
        source: Where the files are.
        todo: Largest files need not come first: works are small, unless they hash.
        make: Gives a consumer for a work.
        jobs: Threads.
        progress: Told of bytes, from any thread, one at a time.

    Returns:
        The outcomes in the order of `todo`.
    """
    executor = Threads(max_workers=max(1, jobs), thread_name_prefix="repokit")
    reader = _Reader(source, sum(work.size for work in todo), progress)
    left = deque(enumerate(todo))
    outcomes: dict[int, Outcome[_Consumer]] = {}

    def share() -> None:
        """Takes one work after the other: a queue of thousands would be long in the making, and to cancel."""
        while not reader.stopped.is_set():
            try:
                number, work = left.popleft()
            except IndexError:  # nothing left; to ask first would be to ask what is not true any more
                return
            outcomes[number] = reader.do(work, make(work))

    try:
        for running in [executor.submit(share) for _ in range(max(1, jobs))]:
            running.result()
        return [outcomes[number] for number in range(len(todo))]
    finally:
        reader.stopped.set()  # Ctrl-C in the main thread: the others stop at their next chunk
        executor.shutdown()


class _Reader:
    """Reads for several threads."""

    def __init__(self, source: Source, total: int, progress: Progress | None) -> None:
        self._source = source
        self._total = total
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()
        self._kept = threading.local()
        self.stopped = threading.Event()

    def do(self, work: Work, consumer: _Consumer) -> Outcome[_Consumer]:
        try:
            with opened(self._source, work.path) as fill:
                digest = self._through(work, fill, consumer)
        except InputError as error:
            return Outcome(work, consumer, None, error)
        return Outcome(work, consumer, digest, None)

    def _through(self, work: Work, fill: Fill, consumer: Consumer) -> str | None:
        digest = None if work.hashed is None else hashlib.sha256()
        for read in _reads(work):
            if self.stopped.is_set():
                break
            content = self._buffer()[: read.length]
            fill(content, read.offset)
            if digest is not None:
                digest.update(content)
            for part, begin in read.parts:
                consumer(part.extent, part.start, content[begin : begin + part.stop - part.start])
            self._advance(read.length)
        return None if digest is None else digest.hexdigest()

    def _buffer(self) -> memoryview:
        """The one buffer of this thread."""
        if not hasattr(self._kept, "buffer"):
            self._kept.buffer = memoryview(bytearray(CHUNK))
        buffer: memoryview = self._kept.buffer
        return buffer

    def _advance(self, length: int) -> None:
        with self._lock:
            self._done += length
            if self._progress is not None:
                self._progress("values", self._done, self._total)


@contextmanager
def opened(source: Source, path: str) -> Iterator[Fill]:
    """Reads ranges of one file: of a folder without a copy.

    Raises:
        MissingInput: It cannot be read, or ends too early.
    """
    if not isinstance(source, Directory) or not hasattr(os, "preadv"):
        yield lambda buffer, offset: _copy(source, path, buffer, offset)
        return
    descriptor = source.descriptor(path)
    try:
        yield lambda buffer, offset: _fill(descriptor, path, buffer, offset)
    finally:
        os.close(descriptor)


def _copy(source: Source, path: str, buffer: memoryview, offset: int) -> None:
    content = source.read(path, offset, len(buffer))
    if len(content) != len(buffer):
        raise _short(path)
    buffer[:] = content


def _fill(descriptor: int, path: str, buffer: memoryview, offset: int) -> None:
    done = 0
    while done < len(buffer):
        try:
            length = os.preadv(descriptor, [buffer[done:]], offset + done)
        except OSError as error:
            raise MissingInput(f"cannot be read: {error.strerror}", path=path) from None
        if not length:
            raise _short(path)
        done += length


def _short(path: str) -> MissingInput:
    return MissingInput("became shorter while it was read", path=path, hint="wait until nothing writes to it")
