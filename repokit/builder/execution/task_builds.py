"""A plan carried out in tasks, each by itself and on any machine that shares the disk; then put into place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from repokit.builder.build import Built, Meter, put_into_place
from repokit.builder.execution import in_place, locking, staging
from repokit.builder.execution.execute import execute
from repokit.builder.execution.journal import NAME, Journal
from repokit.builder.execution.tasks import (
    Task,
    assigned,
    journal_path,
    journals,
    lock_path,
    locks,
    refuse_running,
    weight,
)
from repokit.builder.execution.writing import explained
from repokit.builder.preview import Preview
from repokit.errors import BuildError, PlanError
from repokit.formats.urls import is_url
from repokit.operations import DeleteFile
from repokit.printable import count, some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from repokit.builder.build import Gate, Progress
    from repokit.builder.plan import Plan
    from repokit.schema.manifest import ManifestFile


@dataclass(frozen=True)
class Written:
    """What one task has done.

    Attributes:
        task: Which.
        output: The directory that the plan builds.
        paths: Its files.
        size: Their bytes.
        reused: How many of them it had written before.
        waiting: Tasks that have not written everything yet.
        in_place: Whether the finished output was there before: all tasks had written, and it was finalized.
    """

    task: Task
    output: Path
    paths: tuple[str, ...]
    size: int
    reused: int
    waiting: tuple[Task, ...]
    in_place: bool = False


class _Place:
    """Where the tasks of a plan write."""

    def __init__(self, plan: Plan) -> None:
        if is_url(plan.output):
            what = "is an address, and tasks write into a directory that they share"
            raise PlanError(what, path=plan.output, hint="build into a directory, or without --task: --jobs N")
        if not Path(plan.output).is_absolute():
            what = "is relative in this plan, and means another place on another machine"
            raise PlanError(what, path=plan.output, hint="make the plan with `repokit build --plan FILE`")
        self.plan = plan
        self.target = Path(plan.output)
        digest = plan.digest
        self.files = staging.staging_path(self.target, digest)
        self.tasks = staging.tasks_path(self.target, digest)

    @property
    def is_finalized(self) -> bool:
        """Whether the output is that of the plan, and nothing waits beside it to be put in its place."""
        return not (self.files.exists() or self.tasks.exists()) and in_place.holds(self.target, self.plan)

    def journal(self, task: Task | None = None) -> Journal:
        """What the tasks have finished, and a build of the whole plan before; what `task` finishes is added to it."""
        own = self.files / NAME if task is None else journal_path(self.tasks, task)
        return Journal(self.files, own, [self.files / NAME, *journals(self.tasks)])

    def unwritten(self, finished: Mapping[str, ManifestFile]) -> list[str]:
        """Paths of the plan that are not finished."""
        wanted = (operation for operation in self.plan.operations if not isinstance(operation, DeleteFile))
        return [operation.path for operation in wanted if operation.path not in finished]

    def waiting(self, of: int, finished: Mapping[str, ManifestFile]) -> list[Task]:
        """Tasks that have files to write, in order."""
        shares = assigned(self.plan.operations, of)
        return sorted({shares[path] for path in self.unwritten(finished)})

    @contextlib.contextmanager
    def running(self, task: Task) -> Iterator[None]:
        """Holds the lock of a task, unless the target is being built as a whole."""
        try:
            with locking.lock(self.target, lock_path(self.tasks, task), task.doing):
                locking.refuse_held(locking.path_of(self.target), self.target)
                yield
        finally:
            with contextlib.suppress(OSError):
                self.tasks.rmdir()  # where nothing was finished


def write_task(
    plan: Plan,
    task: Task,
    *,
    progress: Progress = lambda _stage, _done, _total: None,
    jobs: int = 1,
    force: bool = False,
    memory: int | None = None,
    executor: Executor | str | None = None,
) -> Written:
    """Writes the files of one task, except those that are finished.

    The plan is not linted: it was before it was written down, and what comes of it is before it is put in place.

    Args:
        plan: Read from a file, the same for all tasks.
        task: Which.
        progress: Told of stages and bytes.
        jobs: Files that are written at once.
        force: As of the build: the output may be anyone's.
        memory: Bytes that the task may take; see `execute`.
        executor: See `execute`.

    Raises:
        BuildError: Lock, disk, target. What the task has finished stays.
        InputError, PlanError: A source changed, or is not on this machine.
    """
    place = _Place(plan)
    shares = assigned(plan.operations, task.of)
    own = [operation for operation in plan.operations if shares[operation.path] == task]
    total = sum(map(weight, own))
    if place.is_finalized:
        return Written(task, place.target, tuple(one.path for one in own), total, len(own), (), in_place=True)
    journal = place.journal(task)
    try:
        with place.running(task):
            staging.check_target(place.target, force=force, kept=plan.kept)
            finished = journal.finished()
            reused = [finished[operation.path] for operation in own if operation.path in finished]
            staging.check_space(place.target, total - sum(record.size for record in reused))
            if own:
                place.files.mkdir(mode=0o700, exist_ok=True)
            meter = Meter(progress, total)
            execute(
                plan, place.files, journal, operations=own, jobs=jobs, advance=meter, memory=memory, executor=executor
            )
        waiting = place.waiting(task.of, place.journal().finished())
    except OSError as error:
        raise explained(error, plan.output, total) from None
    return Written(task, place.target, tuple(operation.path for operation in own), total, len(reused), tuple(waiting))


def finalize(
    plan: Plan,
    *,
    gate: Gate,
    progress: Progress = lambda _stage, _done, _total: None,
    force: bool = False,
    command: Callable[[str], str] = lambda task: f"--task {task}",
) -> Built:
    """Puts into place what the tasks of a plan have written.

    Args:
        plan: That of the tasks.
        gate: Lints the planned and then the written repository.
        progress: Told of stages and bytes.
        force: Replace the output even if repokit did not build it or a person edited it.
        command: What carries out a task such as `2/8`, for the message that says which are missing.

    Raises:
        Stopped: Findings. Nothing was published, and what the tasks wrote stays.
        BuildError: Files are missing, which are named; lock, disk, target.
    """
    place = _Place(plan)
    if place.is_finalized:
        files = staging.manifest_of(place.target)
        return Built(place.target, () if files is None else files.files, 0, in_place=True)
    with locking.lock(place.target):
        refuse_running(place.target)
        try:
            staging.check_target(place.target, force=force, kept=plan.kept)
            finished = place.journal().finished()
            if place.unwritten(finished):
                raise _incomplete(place, finished, command)
            progress("plan", 0, plan.size)
            gate(Preview(plan), "plan")
            staging.clean(place.target, keep=(place.files, place.tasks))
            _keep_journal(place)
            wanted = [finished[path] for path in sorted(finished)]
            built = put_into_place(plan, place.files, wanted, gate=gate, progress=progress)
            staging.remove(place.tasks, place.target)
        except OSError as error:
            raise explained(error, plan.output, plan.size) from None
    return built


def _keep_journal(place: _Place) -> None:
    """That of an interrupted build of the whole plan, where the lint does not find it and a second attempt does."""
    place.tasks.mkdir(exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        (place.files / NAME).rename(journal_path(place.tasks, Task(1, 1)))


def _incomplete(place: _Place, finished: Mapping[str, ManifestFile], command: Callable[[str], str]) -> BuildError:
    """Which files are missing, and what writes them."""
    missing = place.unwritten(finished)
    what = f"{count(len(missing), 'file')} of the plan {'is' if len(missing) == 1 else 'are'} missing: {some(missing)}"
    interrupted = set(locks(place.tasks).values())  # none of them runs
    known = max((task.of for task in (*journals(place.tasks).values(), *interrupted)), default=None)
    if known is None:
        why = "no task of this plan has written beside it, as far as this machine sees"
        if set(staging.left_by(place.target, ".tasks")) - {place.tasks}:
            why = "the tasks that have written beside it had another plan, which was made again since"
        hint = f"carry out each task: {command('1/N')} to {command('N/N')}"
        return BuildError(what, why=why, path=str(place.target), hint=hint)
    waiting = place.waiting(known, finished)
    verb = "has" if len(waiting) == 1 else "have"
    why = f"{_named(waiting)} {verb} not finished, or wrote where this machine does not see it"
    if set(waiting) <= interrupted:
        why = f"{_named(waiting)} {'was' if len(waiting) == 1 else 'were'} interrupted"
    return BuildError(what, why=why, path=str(place.target), hint=command(str(waiting[0])))


def _named(tasks: Sequence[Task]) -> str:
    return f"{'task' if len(tasks) == 1 else 'tasks'} {some([str(task) for task in tasks], 8)}"
