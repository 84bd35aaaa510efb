"""One operation becomes one file: a function of the operation and the sources alone.

So any thread, process or machine may carry it out, in any order, and twice: who writes a file over writes the same
bytes into the same places, and takes none away.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from repokit.builder.execution.uploads import Uploaded, remove
from repokit.builder.reading import CHUNK, MEMORY, OPENED, Reader
from repokit.builder.transforms.cast import DoesNotFitError, cast
from repokit.errors import BuildError, NoSpace, PlanError, RepokitError
from repokit.formats.tensors import DTYPE_BITS
from repokit.formats.urls import Url
from repokit.operations import CopyFile, DeleteFile, Merged, Piece, WriteShard, WriteText
from repokit.printable import printable, size
from repokit.schema.manifest import ManifestFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repokit.builder.checkpoints.stored import Stored
    from repokit.builder.execution.reservation import Reservation
    from repokit.formats.urls import Place
    from repokit.operations import Content, Operation

# After so many bytes the disk is told to begin writing, while the next ones are read: an fsync at the end then waits
# for little.
WRITE_BEHIND: Final = 32 * 1024 * 1024
# Bytes of one copy inside the kernel. Between two of them it is seen whether the build was stopped.
_RANGE: Final = 16 * 1024 * 1024
_FICLONE: Final = 0x40049409  # linux/fs.h: a whole file that shares its blocks with another (btrfs, XFS)

Advance = Callable[[int], None]  # bytes of output written since the last call


class StoppedError(Exception):
    """Another file failed, or the build was interrupted; this one has nothing to say."""


@dataclass(frozen=True)
class Terms:
    """Under what a file is written. Nothing of it changes a byte.

    Attributes:
        hashed: Whether its SHA-256 is wanted.
        reservation: For what must stand in memory.
        advance: Told of every written chunk.
        stopped: Whether the build was stopped meanwhile.
        given: The tensors of a running program, where the plan is made of them.
    """

    hashed: bool
    reservation: Reservation
    advance: Advance = lambda _written: None
    stopped: Callable[[], bool] = lambda: False
    given: Stored | None = None


def write_file(sources: Sequence[str], operation: Operation, staging: Place, terms: Terms) -> ManifestFile | None:
    """Carries out one operation.

    Args:
        sources: Paths, in the order of the plan; those that the operation does not read may be anything.
        operation: What to write.
        staging: An existing directory, and in it the folder of the file; or an address.
        terms: See Terms.

    Returns:
        What was written, once it is on the disk; its hash is all zeros where none is wanted. None of a DeleteFile.

    Raises:
        BuildError: The disk is full, or the file system refused.
        InputError, PlanError: A source changed, or holds values that the wanted dtype cannot.
        StoppedError: See there.
    """
    place = staging / operation.path
    if isinstance(operation, DeleteFile):
        remove(place) if isinstance(place, Url) else place.unlink(missing_ok=True)
        return None
    try:
        output = _opened(place, operation.size, terms)
        try:
            _Writer(sources, output, terms).write(operation)
            output.finish()
        finally:
            output.close()
    except RepokitError as error:
        error.path = error.path or operation.path
        raise
    except OSError as error:
        raise explained(error, operation.path, operation.size) from None
    except MemoryError:
        hint = "build it where there is more, or with fewer --jobs"
        raise BuildError("needs more memory than there is", path=operation.path, hint=hint) from None
    origin = "weights" if isinstance(operation, WriteShard) else operation.origin
    return ManifestFile(path=operation.path, size=operation.size, sha256=output.sha256, origin=origin)


def _opened(place: Place, size: int, terms: Terms) -> _Output | Uploaded:
    if isinstance(place, Url):
        return Uploaded(place, size, hashed=terms.hashed, advance=terms.advance)
    return _Output(place, terms)


class _Writer:
    """Streams the parts of one operation from the sources into its file."""

    def __init__(self, sources: Sequence[str], output: _Output | Uploaded, terms: Terms) -> None:
        self._sources = sources
        self._reader = Reader(sources, terms.given)
        self._output = output
        self._terms = terms

    def write(self, operation: WriteShard | WriteText | CopyFile) -> None:
        match operation:
            case WriteText(content=content):
                self._output.write(content)
            case CopyFile(source=source, size=size):
                if not self._cloned(source, size):
                    self._copy(Piece(source=source, offset=0, length=size))
            case WriteShard():
                self._write_shard(operation)

    def _write_shard(self, operation: WriteShard) -> None:
        self._output.write(operation.header)
        for piece in operation.pieces:
            try:
                self._copy(piece)
            except DoesNotFitError as overflow:
                wanted = (piece.cast or "").rpartition(">")[2] or ("F32" if isinstance(piece, Merged) else "")
                position = self._output.written + overflow.element * DTYPE_BITS[wanted] // 8
                what = f"has the value {overflow.value:g}, which {wanted} cannot hold"
                why = "it would become infinite, and the model would answer with NaN"
                hint = "cast to bfloat16, or keep the tensor as it is: weights.keep"
                place = operation.tensor_at(position)
                raise PlanError(what, why=why, path=operation.path, place=place, hint=hint) from None

    def _copy(self, content: Content) -> None:
        """Streams one piece, in chunks that end with an element."""
        if not self._terms.hashed and isinstance(content, Piece) and not content.cast and content.view is None:
            content = self._moved(content)
        with self._terms.reservation.of(content.memory):
            for part in self._reader.contents(content):
                for first in range(0, len(part), CHUNK):
                    self._go_on()
                    chunk = part[first : first + CHUNK]
                    self._output.write(cast(chunk, content.cast) if content.cast else chunk)

    def _go_on(self) -> None:
        if self._terms.stopped():
            raise StoppedError

    def _moved(self, piece: Piece) -> Piece:
        """Copies inside the kernel as much of a run of bytes as it copies; what is left of it.

        Whatever the systems refuse with (another file system, a network, a sandbox), the plain copy does it or says
        why not.
        """
        done = 0
        with contextlib.suppress(OSError), self._opened(piece.source) as descriptor:
            while done < piece.length:
                self._go_on()
                wanted = min(_RANGE, piece.length - done)
                copied = self._output.copied_from(descriptor, piece.offset + done, wanted)
                if not copied:
                    break
                done += copied
        return piece.model_copy(update={"offset": piece.offset + done, "length": piece.length - done})

    def _cloned(self, source: int, length: int) -> bool:
        """Whether the file now shares its blocks with a source: nothing was copied then."""
        with contextlib.suppress(OSError), self._opened(source) as descriptor:
            if os.fstat(descriptor).st_size == length:
                return self._output.cloned_from(descriptor, length)
        return False

    @contextlib.contextmanager
    def _opened(self, source: int) -> Iterator[int]:
        """A descriptor of a source that is a file."""
        path = self._sources[source]
        if path.startswith(MEMORY):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        descriptor = os.open(path, OPENED)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


class _Output:
    """A file that is being written: hashed on the way, synced at the end.

    It is not emptied first: another process may have written it, and be about to say so.
    """

    def __init__(self, place: Path, terms: Terms) -> None:
        self._place = place
        self._descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._hash = hashlib.sha256() if terms.hashed else None
        self._advance = terms.advance
        self.written = self._told = 0

    def write(self, content: bytes | memoryview) -> None:
        view = memoryview(content)
        if self._hash is not None:
            self._hash.update(view)
        while view:
            written = os.write(self._descriptor, view)
            self._count(written)
            view = view[written:]

    def copied_from(self, source: int, offset: int, length: int) -> int:
        """Bytes that the kernel copied from there to the end of the file; 0 where it has no such call."""
        if sys.platform != "linux":
            return 0
        copied = os.copy_file_range(source, self._descriptor, length, offset)
        self._count(copied)
        return copied

    def cloned_from(self, source: int, length: int) -> bool:
        """Makes the file, which is new, share the blocks of another one.

        Raises:
            OSError: The file systems cannot do that.
        """
        if sys.platform != "linux":
            return False
        fcntl.ioctl(self._descriptor, _FICLONE, source)
        if self._hash is not None:  # of the clone, which changes no more
            with self._place.open("rb") as stream:
                self._hash = hashlib.file_digest(stream, "sha256")
        os.lseek(self._descriptor, length, os.SEEK_SET)
        self._count(length)
        return True

    def _count(self, written: int) -> None:
        self.written += written
        self._advance(written)
        if self.written - self._told >= WRITE_BEHIND:
            self._begin_writing()

    def _begin_writing(self) -> None:
        """Starts the transfer of what was written since the last call, without waiting for it.

        POSIX_FADV_DONTNEED does that to pages that are not on the disk yet (Linux, mm/fadvise.c); macOS has no such
        call.
        """
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # advice that a file system does not take
                os.posix_fadvise(self._descriptor, self._told, self.written - self._told, os.POSIX_FADV_DONTNEED)
        self._told = self.written

    def finish(self) -> None:
        """All of it is written: it is on the disk when this returns."""
        if os.fstat(self._descriptor).st_size > self.written:  # left by a write of something longer
            os.ftruncate(self._descriptor, self.written)
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest() if self._hash is not None else "0" * 64


def explained(error: OSError, path: str, wanted: int) -> BuildError:
    """What it means for a build that the file system refused to write `wanted` bytes."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        hint = "free some, or choose another output; what was there before is untouched"
        return NoSpace(f"did not fit on the disk: it needs {size(wanted)}", path=path, hint=hint)
    return BuildError(f"cannot be written: {printable(error.strerror)}", path=path)
