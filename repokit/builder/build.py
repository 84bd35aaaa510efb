"""Carries a plan out: lint it, write it beside the target, lint that, put it into place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from repokit.builder.execution import staging
from repokit.builder.execution.execute import check_sources, execute, sources_of
from repokit.builder.execution.journal import Journal
from repokit.builder.execution.locking import lock
from repokit.builder.execution.reservation import for_tensors
from repokit.builder.execution.tasks import journals, refuse_running
from repokit.builder.execution.writing import explained
from repokit.builder.preview import Preview
from repokit.errors import ExecutorLost
from repokit.formats.urls import Place, is_url
from repokit.operations import DeleteFile
from repokit.repo.directory import Directory
from repokit.schema.manifest import MANIFEST_NAME, Manifest, ManifestFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor

    from repokit.builder.checkpoints.stored import Stored
    from repokit.builder.plan import Plan
    from repokit.repo.source import Source

Gate = Callable[["Source", str], None]  # raises Stopped where findings forbid to go on; told what it looks at
Progress = Callable[[str, int, int], None]  # stage, bytes done, bytes in all


@dataclass(frozen=True)
class Built:
    """A finished repository.

    Attributes:
        output: The directory, or its address.
        files: Every file with size and sha256, the manifest itself not among them; () with `manifest: off`.
        reused: How many of them an interrupted build had already written.
        in_place: Whether all of it was there before.
    """

    output: Place
    files: tuple[ManifestFile, ...]
    reused: int
    in_place: bool = False


def carry_out(
    plan: Plan,
    *,
    gate: Gate,
    progress: Progress = lambda _stage, _done, _total: None,
    jobs: int = 1,
    force: bool = False,
    given: Stored | None = None,
    memory: int | None = None,
    executor: Executor | str | None = None,
) -> Built:
    """Builds what a plan says.

    Args:
        plan: From `make_plan`, or read from a file.
        gate: Lints the planned and then the written repository.
        progress: Told of stages and bytes.
        jobs: Files that are written at once.
        force: Replace the output even if repokit did not build it or a person edited it.
        given: The tensors of a running program, where the plan is made of them.
        memory: Bytes that the build may take; see `execute`.
        executor: Writes the files; see `execute`.

    Raises:
        Stopped: Findings. Nothing was published.
        BuildError: Lock, disk, target. Nothing was published.
        InputError, PlanError: A source is gone, or has changed.
    """
    if not is_url(plan.output):
        _restore(Path(plan.output))
    check_sources(sources_of(plan, plan.operations), given)  # what is gone is said of itself, not by the lint
    if is_url(plan.output):
        from repokit.builder.execution import remote_target  # which is made of this module

        return remote_target.carry_out(
            plan,
            gate=gate,
            progress=progress,
            jobs=jobs,
            force=force,
            given=given,
            memory=memory,
            executor=executor,
        )
    target = Path(plan.output)
    for_tensors(plan.operations, memory)
    progress("plan", 0, plan.size)
    gate(Preview(plan), "plan")
    with lock(target):
        digest = plan.digest
        place = staging.staging_path(target, digest)
        journal = Journal(place, others=journals(staging.tasks_path(target, digest)))
        try:
            reused = _begun(plan, digest, journal, force=force)
        except OSError as error:
            raise explained(error, plan.output, plan.size) from None
        try:
            _prepare(place, target, resumable=bool(reused))
            files = execute(
                plan,
                place,
                journal,
                jobs=jobs,
                advance=Meter(progress, plan.size),
                given=given,
                memory=memory,
                executor=executor,
            )
            built = put_into_place(plan, place, files, gate=gate, progress=progress)
        except Exception as error:  # what is left of a failed build is of no use; an interrupted one is gone on with
            if not isinstance(error, ExecutorLost):
                staging.remove(place, target)
            if isinstance(error, OSError):
                raise explained(error, plan.output, plan.size) from None
            raise
        staging.remove(staging.tasks_path(target, digest), target)  # whose files were used
    return replace(built, reused=len(reused))


def put_into_place(plan: Plan, place: Path, files: Sequence[ManifestFile], *, gate: Gate, progress: Progress) -> Built:
    """The end of a build: the manifest, the lint of what was written, and the exchange with the target.

    Args:
        plan: That was carried out.
        place: The staging directory, with every file.
        files: What it holds, sorted by path.
        gate: See carry_out.
        progress: See carry_out.

    Raises:
        Stopped: Findings. Nothing was published.
        BuildError: The target is as it was.
    """
    target = Path(plan.output)
    files = () if plan.manifest == "off" else tuple(files)
    _finish(plan, place, files)
    progress("verify", plan.size, plan.size)
    gate(Directory(place, label=plan.output), "output")
    staging.publish(place, target)
    return Built(target, files, 0)


def _restore(target: Path) -> None:
    """Undoes what a build left half done that was killed while it published, even if this one comes to nothing."""
    if staging.is_aside(target):
        with lock(target):
            staging.restore(target)


def _begun(plan: Plan, digest: str, journal: Journal, *, force: bool) -> Mapping[str, ManifestFile]:
    """What an interrupted build has finished, after the target and its disk were found fit to go on."""
    target = Path(plan.output)
    refuse_running(target)
    staging.clean(target, keep=(staging.staging_path(target, digest), staging.tasks_path(target, digest)))
    staging.check_target(target, force=force, kept=plan.kept)
    reused = journal.finished()
    staging.check_space(target, plan.size - sum(record.size for record in reused.values()))
    return reused


class Meter:
    """Adds up bytes from several threads for the progress display, which needs no exactness to the last chunk."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def __call__(self, written: int) -> None:
        self._done += written
        self._progress("write", self._done, self._total)


def _prepare(place: Path, target: Path, *, resumable: bool) -> None:
    """Makes the staging directory of a plan: new and empty, unless an interrupted build left finished files in it."""
    if place.is_symlink() or not resumable:
        staging.remove(place, target)
    place.mkdir(mode=0o700, exist_ok=True)


def _finish(plan: Plan, place: Path, files: tuple[ManifestFile, ...]) -> None:
    """Writes the manifest last, and removes what else may lie there: the journal, what was begun and not wanted."""
    wanted = {operation.path for operation in plan.operations if not isinstance(operation, DeleteFile)}
    if plan.manifest != "off":
        manifest = Manifest(created_by=f"repokit {plan.repokit}", files=files)
        staging.write_synced(place / MANIFEST_NAME, manifest.render())
    for path in list(staging.files_in(place)):
        if path not in wanted and path != MANIFEST_NAME:
            (place / path).unlink()
