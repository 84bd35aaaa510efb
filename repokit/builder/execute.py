"""Plan -> files. Every operation is a pure task: any order and any number of threads give the same bytes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Executor, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Final

from repokit.builder.reading import CHUNK, MEMORY, Reader
from repokit.builder.transforms.cast import DoesNotFitError, cast
from repokit.errors import BuildError, MissingInput, NoSpace, PlanError, RepokitError
from repokit.formats.safetensors import read_header
from repokit.formats.tensors import DTYPE_BITS
from repokit.operations import CopyFile, DeleteFile, Piece, WriteShard, WriteText
from repokit.printable import printable, size
from repokit.schema.manifest import ManifestFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from repokit.builder.journal import Journal
    from repokit.builder.plan import Plan, SourceFile
    from repokit.builder.stored import Stored
    from repokit.operations import Content, Operation

# After so many bytes the disk is told to begin writing, while the next ones are read: an fsync at the end then waits
# for little.
WRITE_BEHIND: Final = 32 * 1024 * 1024

Advance = Callable[[int], None]  # bytes of output written since the last call


def check_sources(sources: Sequence[SourceFile], given: Stored | None) -> None:
    """Refuses a plan whose inputs have changed since it was made, or are those of a program that is gone.

    Raises:
        PlanError, MissingInput: Naming the file.
    """
    for source in sources:
        if source.path.startswith(MEMORY):
            if given is None or source.path.removeprefix(MEMORY) not in given.tensors:
                hint = "build it in the program that has the tensors: repokit.build(recipe, tensors=...)"
                raise PlanError("is a tensor of a program that is not this one", path=source.path, hint=hint)
            continue
        try:
            status = Path(source.path).stat()
        except OSError as error:
            raise MissingInput(f"cannot be read: {error.strerror}", path=source.path) from None
        if (status.st_size, status.st_mtime_ns) != (source.size, source.mtime_ns):
            hint = "let the training finish, then build again"
            raise PlanError("has changed since the plan was made", path=source.path, hint=hint)


def execute(
    plan: Plan,
    staging: Path,
    journal: Journal,
    *,
    jobs: int = 1,
    advance: Advance,
    given: Stored | None = None,
) -> list[ManifestFile]:
    """Writes every file of a plan into a staging directory, except those that the journal has.

    Args:
        plan: What to write.
        staging: An existing directory.
        journal: Of that directory.
        jobs: Files that are written at once.
        advance: Told of every written chunk, from any thread.
        given: The tensors of a running program, where the plan is made of them.

    Returns:
        A record of every file, sorted by path. With `manifest: off` no hashes are computed, and the list is empty.

    Raises:
        BuildError: The disk is full, or the file system refused.
        InputError, PlanError: A source changed, or holds values that the wanted dtype cannot.
    """
    check_sources(plan.sources, given)
    finished = journal.finished()
    pending = [operation for operation in plan.operations if operation.path not in finished]
    advance(sum(record.size for record in finished.values()))
    task = _Task(plan, staging, journal, advance, given)
    with ThreadPoolExecutor(max_workers=max(1, jobs), thread_name_prefix="repokit") as executor:
        records = _all_of(executor, task, pending)
    check_sources(plan.sources, given)  # a training that still goes on may have written while we read
    if plan.manifest == "off":
        return []
    return sorted([*finished.values(), *records], key=lambda record: record.path)


def _all_of(executor: Executor, task: _Task, operations: Iterable[Operation]) -> list[ManifestFile]:
    """Largest first, so that the last task is a short one; the first failure stops the rest."""
    by_size = sorted(operations, key=lambda operation: 0 if isinstance(operation, DeleteFile) else -operation.size)
    futures = [executor.submit(task, operation) for operation in by_size]
    try:
        done, waiting = wait(futures, return_when=FIRST_EXCEPTION)
    except BaseException:  # Ctrl-C in the main thread: running tasks stop at their next chunk
        task.stopped.set()
        executor.shutdown(cancel_futures=True)
        raise
    if waiting:
        task.stopped.set()
        executor.shutdown(cancel_futures=True)
    for future in done:
        if (
            not future.cancelled()
            and (error := future.exception()) is not None
            and not isinstance(error, _StoppedError)
        ):
            raise error
    return [record for future in futures if (record := future.result()) is not None]


class _StoppedError(Exception):
    """Another task failed; this one has nothing to say."""


class _Task:
    """Carries out one operation: a pure function of the plan and the source files."""

    def __init__(self, plan: Plan, staging: Path, journal: Journal, advance: Advance, given: Stored | None) -> None:
        self.given = given
        self.sources = [source.path for source in plan.sources]
        self.staging = staging
        self.journal = journal
        self.advance = advance
        self.hashed = plan.manifest != "off"
        self.stopped = threading.Event()

    def __call__(self, operation: Operation) -> ManifestFile | None:
        if isinstance(operation, DeleteFile):
            (self.staging / operation.path).unlink(missing_ok=True)
            return None
        try:
            record = self._write(operation)
            self.journal.append(record)
        except RepokitError as error:
            error.path = error.path or operation.path
            raise
        except OSError as error:
            raise explained(error, operation.path, operation.size) from None
        return record

    def _write(self, operation: WriteShard | WriteText | CopyFile) -> ManifestFile:
        place = self.staging / operation.path
        place.parent.mkdir(parents=True, exist_ok=True)
        reader = Reader(self.sources, self.given)
        output = _Output(place, self)
        try:
            match operation:
                case WriteText(content=content):
                    output.write(content)
                    origin = operation.origin
                case CopyFile():
                    self._copy(Piece(source=operation.source, offset=0, length=operation.size), output, reader)
                    origin = operation.origin
                case WriteShard():
                    self._write_shard(operation, output, reader)
                    origin = "weights"
        finally:
            output.close()
        return ManifestFile(path=operation.path, size=operation.size, sha256=output.sha256, origin=origin)

    def _write_shard(self, operation: WriteShard, output: _Output, reader: Reader) -> None:
        output.write(operation.header)
        for piece in operation.pieces:
            try:
                self._copy(piece, output, reader)
            except DoesNotFitError as overflow:
                wanted = (piece.cast or "").rpartition(">")[2]
                position = output.written + overflow.element * DTYPE_BITS[wanted] // 8
                what = f"has the value {overflow.value:g}, which {wanted} cannot hold"
                why = "it would become infinite, and the model would answer with NaN"
                hint = "cast to bfloat16, or keep the tensor as it is: weights.keep"
                place = _tensor_at(operation, position)
                raise PlanError(what, why=why, path=operation.path, place=place, hint=hint) from None

    def _copy(self, content: Content, output: _Output, reader: Reader) -> None:
        """Streams one piece, in chunks that end with an element."""
        for part in reader.contents(content):
            for first in range(0, len(part), CHUNK):
                if self.stopped.is_set():
                    raise _StoppedError
                chunk = part[first : first + CHUNK]
                output.write(cast(chunk, content.cast) if content.cast else chunk)


def _tensor_at(operation: WriteShard, position: int) -> str | None:
    """The tensor that holds a byte of a shard, counted from the start of the file."""
    header = read_header(
        lambda offset, length: operation.header[offset : offset + length], operation.size, operation.path
    )
    position -= header.data_start
    return next((tensor.name for tensor in header.tensors if tensor.begin <= position < tensor.end), None)


class _Output:
    """A file that is being written: hashed on the way, synced at the end."""

    def __init__(self, place: Path, task: _Task) -> None:
        self._descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._hash = hashlib.sha256() if task.hashed else None
        self._advance = task.advance
        self.written = self._told = 0

    def write(self, content: bytes | memoryview) -> None:
        view = memoryview(content)
        if self._hash is not None:
            self._hash.update(view)
        while view:
            written = os.write(self._descriptor, view)
            self._advance(written)
            self.written += written
            view = view[written:]
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

    def close(self) -> None:
        try:
            os.fsync(self._descriptor)
        finally:
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
