"""Carries a plan out: lint it, write it beside the target, lint that, put it into place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from repokit.builder import staging
from repokit.builder.execute import execute, explained
from repokit.builder.journal import Journal
from repokit.builder.locking import lock
from repokit.builder.preview import Preview
from repokit.operations import DeleteFile
from repokit.repo.directory import Directory
from repokit.schema.manifest import MANIFEST_NAME, Manifest, ManifestFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from repokit.builder.plan import Plan
    from repokit.builder.stored import Stored
    from repokit.repo.source import Source

Gate = Callable[["Source", str], None]  # raises Stopped where findings forbid to go on; told what it looks at
Progress = Callable[[str, int, int], None]  # stage, bytes done, bytes in all


@dataclass(frozen=True)
class Built:
    """A finished repository.

    Attributes:
        output: The directory.
        files: Every file with size and sha256, the manifest itself not among them; () with `manifest: off`.
        reused: How many of them an interrupted build had already written.
    """

    output: Path
    files: tuple[ManifestFile, ...]
    reused: int


def carry_out(
    plan: Plan,
    *,
    gate: Gate,
    progress: Progress = lambda _stage, _done, _total: None,
    jobs: int = 1,
    force: bool = False,
    given: Stored | None = None,
) -> Built:
    """Builds what a plan says.

    Args:
        plan: From `make_plan`, or read from a file.
        gate: Lints the planned and then the written repository.
        progress: Told of stages and bytes.
        jobs: Files that are written at once.
        force: Replace the output even if repokit did not build it or a person edited it.
        given: The tensors of a running program, where the plan is made of them.

    Raises:
        Stopped: Findings. Nothing was published.
        BuildError: Lock, disk, target. Nothing was published.
    """
    target = Path(plan.output)
    progress("plan", 0, plan.size)
    gate(Preview(plan), "plan")
    with lock(target):
        place = staging.staging_path(target, plan.digest)
        journal = Journal(place)
        try:
            reused = _begun(plan, place, journal, force=force)
        except OSError as error:
            raise explained(error, plan.output, plan.size) from None
        try:
            _prepare(place, target, resumable=bool(reused))
            files = execute(plan, place, journal, jobs=jobs, advance=_Meter(progress, plan.size), given=given)
            _finish(plan, place, journal, files)
            progress("verify", plan.size, plan.size)
            gate(Directory(place, label=plan.output), "output")
            staging.publish(place, target)
        except Exception as error:  # what is left of a failed build is of no use; an interrupted one is gone on with
            staging.remove(place, target)
            if isinstance(error, OSError):
                raise explained(error, plan.output, plan.size) from None
            raise
    return Built(target, tuple(files), len(reused))


def _begun(plan: Plan, place: Path, journal: Journal, *, force: bool) -> Mapping[str, ManifestFile]:
    """What an interrupted build has finished, after the target and its disk were found fit to go on."""
    target = Path(plan.output)
    staging.clean(target, keep=place)
    staging.check_target(target, force=force, kept=plan.kept)
    reused = journal.finished()
    staging.check_space(target, plan.size - sum(record.size for record in reused.values()))
    return reused


class _Meter:
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


def _finish(plan: Plan, place: Path, journal: Journal, files: Sequence[ManifestFile]) -> None:
    """Writes the manifest last, ends the journal, and removes what else may lie there."""
    wanted = {operation.path for operation in plan.operations if not isinstance(operation, DeleteFile)}
    if plan.manifest != "off":
        manifest = Manifest(created_by=f"repokit {plan.repokit}", files=tuple(files))
        staging.write_synced(place / MANIFEST_NAME, manifest.render())
    journal.remove()
    for path in list(staging.files_in(place)):
        if path not in wanted and path != MANIFEST_NAME:
            (place / path).unlink()
