"""Carries a plan out behind an address: `s3://bucket/models/name`. Nothing is renamed there, and nothing is staged.

What a reader looks at first is written last: config.json, and of a sharded model its index after that. Until then
nobody takes what is there for a model; so when an earlier build is replaced, these are what is removed first. A build
that was interrupted is gone on with by the same plan: see remote_journal.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from repokit.builder.build import Built, Meter
from repokit.builder.execution import uploads
from repokit.builder.execution.execute import alone, execute
from repokit.builder.execution.remote_journal import HEAD, RemoteJournal, running
from repokit.builder.execution.reservation import for_tensors
from repokit.builder.preview import Preview
from repokit.errors import BuildError, LockHeld, RepokitError, TargetRefused
from repokit.formats.urls import Url
from repokit.operations import KEPT, CopyFile, DeleteFile, WriteText
from repokit.printable import printable, some
from repokit.repo import remote_files
from repokit.repo.overlay import Overlay
from repokit.repo.remote_directory import RemoteDirectory
from repokit.schema.manifest import MANIFEST_NAME, Manifest, ManifestFile
from repokit.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from repokit.builder.build import Gate, Progress
    from repokit.builder.checkpoints.stored import Stored
    from repokit.builder.plan import Plan
    from repokit.formats.urls import Found

_THREADS: Final = 12  # files are looked at, and removed, by
_SMALL: Final = 16 * 1024 * 1024  # files up to this are hashed to see whether a person edited them
# What loaders open first, in the order in which it is written: a set without its last one is no model to anybody.
_MARKS: Final = (
    re.compile(r"(?:.*/)?adapter_config\.json"),
    re.compile(r"config\.json"),
    re.compile(r"[^/]+\.safetensors\.index(?:\.[^/.]+)?\.json"),
)


def check(plan: Plan, *, force: bool) -> None:
    """Refuses to replace what repokit did not build, or what a person changed since.

    Raises:
        TargetRefused, LockHeld: With the files in question.
        InputError: The target cannot be read.
    """
    target = Url.parse(plan.output)
    _own(plan, target, _present(target), force=force)


def carry_out(
    plan: Plan,
    *,
    gate: Gate,
    progress: Progress,
    jobs: int = 1,
    force: bool = False,
    given: Stored | None = None,
    memory: int | None = None,
    executor: Executor | str | None = None,
) -> Built:
    """See build.carry_out.

    Raises:
        UsageError: An executor writes into directories only.
        Stopped: Findings. Nothing that is there can be taken for a model.
        BuildError: The store or the target. The same plan goes on with what was written.
    """
    target = Url.parse(plan.output)
    if executor is not None:
        raise alone(target)
    for_tensors(plan.operations, memory)
    progress("plan", 0, plan.size)
    gate(Preview(plan), "plan")
    present = _present(target)
    own = _own(plan, target, present, force=force)
    journal = RemoteJournal(target, plan.digest)
    journal.begin(own, present)
    reused = len(journal.finished())
    build = _Build(plan, target, journal, own)
    try:
        build.clear(present)
        rest = [one for one in plan.operations if _mark(one.path) is None and one.path not in plan.kept]
        meter = Meter(progress, plan.size)
        records = execute(
            plan,
            target,
            journal,
            operations=rest,
            jobs=jobs,
            advance=meter,
            given=given,
            memory=memory,
        )
        progress("verify", plan.size, plan.size)
        files = build.commit(records, gate, given)
    except BaseException as error:
        if not isinstance(error, LockHeld):  # of another build, which goes on
            with contextlib.suppress(RepokitError):
                journal.end(own)
        if isinstance(error, RepokitError) and MANIFEST_NAME in present:
            error.why = error.why or "the earlier build there cannot be loaded until a build succeeds"
        raise
    journal.remove()
    return Built(target, tuple(files), reused)


class _Build:
    """One build at its target."""

    def __init__(self, plan: Plan, target: Url, journal: RemoteJournal, own: Collection[str]) -> None:
        self._plan = plan
        self._target = target
        self._journal = journal
        self._own = own
        self._wanted = {operation.path for operation in plan.operations if not isinstance(operation, DeleteFile)}

    def clear(self, present: Collection[str]) -> None:
        """Makes an earlier build unreadable before a byte of it changes: a mixture of two would load."""
        left = {*self._plan.kept, *self._journal.finished()}  # of this plan they are there once all else is
        marks = sorted((path for path in present if _mark(path) is not None), key=_order, reverse=True)
        for path in (*marks, MANIFEST_NAME):
            if path in present and path not in left:
                uploads.remove(self._target / path)

    def commit(self, records: Sequence[ManifestFile], gate: Gate, given: Stored | None) -> list[ManifestFile]:
        """Lints what is written together with what is still to be, then writes that."""
        kept, marks = self._kept(), self._marks()
        preview = Preview(self._plan)
        pending = {mark.path: preview.read(mark.path) for mark in marks}
        files = sorted([*records, *kept, *(_record(mark, pending[mark.path]) for mark in marks)], key=_path)
        if self._plan.manifest == "off":
            files = []
        else:
            manifest = Manifest(created_by=f"repokit {self._plan.repokit}", files=tuple(files))
            pending[MANIFEST_NAME] = manifest.render()
        gate(self._written(pending), "output")
        self._journal.check_own()
        self._remove_rest()
        if MANIFEST_NAME in pending:
            uploads.write(self._target / MANIFEST_NAME, pending[MANIFEST_NAME])
        for mark in marks:
            execute(self._plan, self._target, self._journal, operations=(mark,), advance=_tell_nobody, given=given)
        self._check_all()
        return files

    def _marks(self) -> list[WriteText | CopyFile]:
        """What is written last, in order. All of it is small."""
        marks = [
            one
            for one in self._plan.operations
            if isinstance(one, WriteText | CopyFile) and _mark(one.path) is not None and one.path not in self._plan.kept
        ]
        return sorted(marks, key=lambda mark: _order(mark.path))

    def _kept(self) -> list[ManifestFile]:
        """Records of a person's files, which stay where they are."""
        operations = [one for one in self._plan.operations if isinstance(one, CopyFile) and one.origin == KEPT]
        return [
            ManifestFile(path=one.path, size=one.size, sha256=_sha256(self._target / one.path, one.size), origin=KEPT)
            for one in operations
        ]

    def _written(self, pending: Mapping[str, bytes]) -> Overlay:
        """The repository as it will be: what lies there, and what is not written yet. Leftovers are removed then."""
        directory = RemoteDirectory(self._target, label=self._plan.output, lenient=True)
        others = [path for path in directory.entries() if path not in self._wanted]
        return Overlay(directory, {**dict.fromkeys(others), **pending})

    def _remove_rest(self) -> None:
        """Removes what is not of this build: before it can be loaded, since loaders prefer one file to an index."""
        others = [
            path for path in _present(self._target) if path not in self._wanted and not RemoteJournal.is_own(path)
        ]
        rest = [path for path in others if path in self._own]
        if added := [path for path in others if path not in self._own and path != MANIFEST_NAME]:
            raise _changed(self._target, added)
        with Threads(_THREADS, thread_name_prefix="repokit-remove") as pool:
            list(pool.map(lambda path: uploads.remove(self._target / path), rest))

    def _check_all(self) -> None:
        """Holds a last listing against the plan."""
        present = _present(self._target)
        for operation in self._plan.operations:
            if isinstance(operation, DeleteFile):
                continue
            found = present.get(operation.path)
            if found is None or found.size != operation.size:
                what = "is not there as it was written: something else writes to the target"
                raise BuildError(what, path=str(self._target / operation.path), hint="build again")


def _mark(path: str) -> int | None:
    """The place of a file in the order of what is written last; None of every other file."""
    return next((place for place, pattern in enumerate(_MARKS) if pattern.fullmatch(path)), None)


def _order(path: str) -> tuple[int, str]:
    return _mark(path) or 0, path


def _path(record: ManifestFile) -> str:
    return record.path


def _tell_nobody(_written: int) -> None:
    """Of the last few kilobytes."""


def _record(operation: WriteText | CopyFile, content: bytes) -> ManifestFile:
    sha256 = hashlib.sha256(content).hexdigest()
    return ManifestFile(path=operation.path, size=operation.size, sha256=sha256, origin=operation.origin)


# ---------------------------------------------------------------- what lies there


def _present(target: Url) -> dict[str, Found]:
    return {path: remote_files.told(info) for path, info in remote_files.listed(target).items()}


def _own(plan: Plan, target: Url, present: Mapping[str, Found], *, force: bool) -> set[str]:
    """Paths at the target that are repokit's, this plan's among them, after the target was found fit to be replaced."""
    planned = {operation.path for operation in plan.operations}
    head = RemoteJournal.head(target) if HEAD in present else None
    if head is not None:
        if head.digest != plan.digest and not head.ended and not force:
            raise running(head, target)
        known = {*head.own, *planned, MANIFEST_NAME}
        _refuse_added(target, [path for path in present if path not in known], plan.kept, force=force)
        return {*head.own, *planned}
    if not force:
        _check_unchanged(target, present, plan.kept)
    return {*present, *planned}


def _refuse_added(target: Url, added: Iterable[str], kept: Collection[str], *, force: bool) -> None:
    changed = [path for path in added if path not in kept and not RemoteJournal.is_own(path)]
    if changed and not force:
        raise _changed(target, changed)


def _changed(target: Url, paths: list[str]) -> TargetRefused:
    verb = "was" if len(paths) == 1 else "were"
    what = f"{some(paths)} {verb} edited or added since repokit built it"
    hint = f"--keep {printable(paths[0])} carries a file over, --force discards what changed"
    return TargetRefused(what, why="a rebuild would lose the change", path=str(target), hint=hint)


def _check_unchanged(target: Url, present: Mapping[str, Found], kept: Collection[str]) -> None:
    files = [path for path in present if not RemoteJournal.is_own(path)]
    if not files:
        return
    manifest = _manifest(target) if MANIFEST_NAME in present else None
    if manifest is None:
        why = f"it has no {MANIFEST_NAME}; replacing it would delete files that may not be repokit's"
        hint = "choose another output, or pass --force to replace it"
        raise TargetRefused("was not built by repokit", why=why, path=str(target), hint=hint)
    listed = {file.path: file for file in manifest.files}
    added = [path for path in files if path not in listed and path != MANIFEST_NAME]
    here = [path for path in files if path in listed]
    with Threads(_THREADS, thread_name_prefix="repokit-edited") as pool:
        edited = list(pool.map(lambda path: _edited(target, listed[path], present), here))
    changed = [*(path for path, is_edited in zip(here, edited, strict=True) if is_edited), *added]
    if changed := [path for path in changed if path not in kept]:
        raise _changed(target, changed)


def _manifest(target: Url) -> Manifest | None:
    try:
        return Manifest.model_validate_json(remote_files.read(target / MANIFEST_NAME))
    except ValidationError:
        return None


def _edited(target: Url, recorded: ManifestFile, present: Mapping[str, Found]) -> bool:
    """Whether a file is another one than was built. A large one is read only where it is newer than the manifest."""
    if recorded.origin == KEPT:  # a person's, carried over by the build before: it stays theirs
        return True
    found = present[recorded.path]
    if found.size != recorded.size:
        return True
    built = present[MANIFEST_NAME].modified
    untouched = found.modified is None or built is None or found.modified <= built
    if recorded.size > _SMALL and untouched:
        return False
    return _sha256(target / recorded.path, recorded.size) != recorded.sha256


def _sha256(url: Url, size: int) -> str:
    found = hashlib.sha256()
    for offset in range(0, size, remote_files.Ranges.BLOCK):
        found.update(remote_files.read(url, offset, min(remote_files.Ranges.BLOCK, size - offset)))
    return found.hexdigest()
