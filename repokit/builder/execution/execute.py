"""Plan -> files. Every operation is a pure task: any order and any number of threads or workers give the same bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, as_completed
from functools import partial
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from repokit.builder.execution import executors
from repokit.builder.execution.executors import write_there
from repokit.builder.execution.reservation import Reservation, for_tensors
from repokit.builder.execution.writing import Terms, explained, write_file
from repokit.builder.reading import MEMORY
from repokit.errors import MissingInput, PlanError, UsageError
from repokit.formats.urls import Url, is_url
from repokit.operations import CopyFile, DeleteFile, WriteShard
from repokit.repo.remote_files import looked_up_again
from repokit.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from repokit.builder.checkpoints.stored import Stored
    from repokit.builder.execution.writing import Advance
    from repokit.builder.plan import Plan, SourceFile
    from repokit.formats.urls import Place
    from repokit.operations import Operation
    from repokit.schema.manifest import ManifestFile

    Submit = Callable[[Operation], Future[ManifestFile | None]]


_CHANGED: Final = "let the training finish, then build again; a plan in a file is made anew with --plan"


class Written(Protocol):
    """Which files are finished: a journal, wherever it lies."""

    def finished(self) -> Mapping[str, ManifestFile]:
        """Files that are whole."""

    def append(self, record: ManifestFile) -> None:
        """Records a file that has been written."""


def check_sources(sources: Iterable[SourceFile], given: Stored | None) -> None:
    """Refuses a plan whose inputs have changed since it was made, or are those of a program that is gone.

    Raises:
        PlanError, MissingInput: Naming the file.
    """
    remote: dict[Url, SourceFile] = {}
    for source in sources:
        if source.path.startswith(MEMORY):
            if given is None or source.path.removeprefix(MEMORY) not in given.tensors:
                hint = "build it in the program that has the tensors: repokit.build(recipe, tensors=...)"
                raise PlanError("is a tensor of a program that is not this one", path=source.path, hint=hint)
            continue
        if is_url(source.path):
            remote[Url.parse(source.path)] = source
            continue
        try:
            status = Path(source.path).stat()
        except OSError as error:
            hint = "a plan holds the paths of its sources: carry it out where they are, or plan again"
            raise MissingInput(f"cannot be read: {error.strerror}", path=source.path, hint=hint) from None
        if not S_ISREG(status.st_mode):
            raise MissingInput("is not a file", path=source.path)
        if (status.st_size, status.st_mtime_ns) != (source.size, source.mtime_ns):
            raise PlanError("has changed since the plan was made", path=source.path, hint=_CHANGED)
    for url, found in looked_up_again(remote).items():
        if found.differs(remote[url].size, remote[url].version):
            raise PlanError("has changed since the plan was made", path=str(url), hint=_CHANGED)


def execute(
    plan: Plan,
    staging: Place,
    journal: Written,
    *,
    operations: Sequence[Operation] | None = None,
    jobs: int = 1,
    advance: Advance,
    given: Stored | None = None,
    memory: int | None = None,
    executor: Executor | str | None = None,
) -> list[ManifestFile]:
    """Writes the files of a plan into a staging directory, except those that the journal has.

    Args:
        plan: What to write.
        staging: An existing directory, or an address.
        journal: Of that place.
        operations: Some of the plan's; None: all of them.
        jobs: Files that are written at once.
        advance: Told of every written chunk, from any thread.
        given: The tensors of a running program, where the plan is made of them.
        memory: Bytes that the build may take; see reservation.for_tensors. Of an executor: each of its processes.
        executor: Writes instead of threads of this process; `dask://HOST:PORT`: that cluster.

    Returns:
        A record of every file, sorted by path. With `manifest: off` no hashes are computed, and the list is empty.

    Raises:
        BuildError: The disk is full, or the file system refused; ExecutorLost: what should write is gone.
        InputError, PlanError: A source changed, or holds values that the wanted dtype cannot.
    """
    wanted = plan.operations if operations is None else operations
    room = for_tensors(wanted, memory)
    sources = sources_of(plan, wanted)
    check_sources(sources, given)
    finished = journal.finished()
    reused = [finished[operation.path] for operation in wanted if operation.path in finished]
    advance(sum(record.size for record in reused))
    pending = [operation for operation in wanted if operation.path not in finished]
    if isinstance(staging, Path):
        for folder in {(staging / operation.path).parent for operation in pending}:
            folder.mkdir(parents=True, exist_ok=True)
    work = _Work(plan, pending, staging, journal, advance)
    if executor is None:
        records = _here(work, jobs, room, given)
    elif isinstance(staging, Url):
        raise alone(staging)
    else:
        records = _elsewhere(work, staging.absolute(), executor, room)
    check_sources(sources, given)  # a training that still goes on may have written while we read
    if plan.manifest == "off":
        return []
    return sorted([*reused, *records], key=lambda record: record.path)


def alone(target: Url) -> UsageError:
    """What is said of an executor where the output is an address."""
    what = "--executor writes into a directory that every worker sees, and the output is an address"
    return UsageError(what, path=str(target), hint="leave out the executor: --jobs writes several files at once")


def sources_of(plan: Plan, operations: Iterable[Operation]) -> list[SourceFile]:
    """What some operations of a plan read, each file once."""
    return [plan.sources[index] for index in sorted({index for one in operations for index in read_by(one)})]


def read_by(operation: Operation) -> set[int]:
    """Positions in the plan's sources of what an operation reads."""
    match operation:
        case CopyFile(source=source):
            return {source}
        case WriteShard(pieces=pieces):
            return {piece.source for content in pieces for piece in content.read()}
    return set()


class _Work(NamedTuple):
    """What is left to write, and who is told."""

    plan: Plan
    operations: Sequence[Operation]
    staging: Place
    journal: Written
    advance: Advance


def _here(work: _Work, jobs: int, room: int, given: Stored | None) -> list[ManifestFile]:
    """In threads of this process, each of which journals what it has written."""
    sources = [source.path for source in work.plan.sources]
    stopped = threading.Event()
    terms = Terms(work.plan.manifest != "off", Reservation(room), work.advance, stopped.is_set, given)

    def written(operation: Operation) -> ManifestFile | None:
        if stopped.is_set():  # a task that was not cancelled in time
            return None
        record = write_file(sources, operation, work.staging, terms)
        if record is not None:
            _append(work.journal, record)
        return record

    with Threads(max_workers=max(1, jobs), thread_name_prefix="repokit") as threads:
        return _all_of(lambda operation: threads.submit(written, operation), work.operations, stop=stopped.set)


def _elsewhere(work: _Work, staging: Path, executor: Executor | str, room: int) -> list[ManifestFile]:
    """In other processes. What they have written is journalled here, by one."""
    paths = [source.path for source in work.plan.anywhere().sources]
    if any(path.startswith(MEMORY) for path in paths):
        what = "--executor writes in other processes, and the tensors are in this one"
        raise UsageError(what, hint="leave out the executor")
    hashed = work.plan.manifest != "off"

    def finished(record: ManifestFile) -> None:
        _append(work.journal, record)
        work.advance(record.size)

    running = executors.Running(staging)
    with running as token, executors.opened(executor, staging, token) as pool:

        def submit(operation: Operation) -> Future[ManifestFile | None]:
            wanted = read_by(operation)
            own = [path if index in wanted else "" for index, path in enumerate(paths)]
            call = partial(write_there, own, operation, str(staging), token, hashed=hashed, room=room)
            return pool.submit(call)

        return _all_of(submit, work.operations, stop=running.end, done=finished)


def _append(journal: Written, record: ManifestFile) -> None:
    try:
        journal.append(record)
    except OSError as error:
        raise explained(error, record.path, record.size) from None


def _all_of(
    submit: Submit,
    operations: Iterable[Operation],
    *,
    stop: Callable[[], None],
    done: Callable[[ManifestFile], None] = lambda _record: None,
) -> list[ManifestFile]:
    """Largest first, so that the last one is short. The first failure, and Ctrl-C, stop the rest at its next chunk."""
    by_size = sorted(operations, key=lambda operation: 0 if isinstance(operation, DeleteFile) else -operation.size)
    futures: list[Future[ManifestFile | None]] = []
    records = []
    try:
        futures.extend(submit(operation) for operation in by_size)
        for future in as_completed(futures):
            if (record := future.result()) is not None:
                done(record)
                records.append(record)
    except BaseException as error:
        stop()
        for future in futures:
            future.cancel()
        if (gone := executors.lost(error)) is not None:
            raise gone from None
        raise
    return records
