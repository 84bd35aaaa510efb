"""Which files of a build are finished, where they are written behind an address: small objects beside them.

.repokit-journal/plan.json           the plan that is being carried out, and what else at the target is repokit's
.repokit-journal/DIGEST/NAME.json    a file that is whole, with its hash, and the version that its store gave it

An object cannot be appended to, so that every file has a record of its own. It is written after the file, and holds
only for the version of the file that it names.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from repokit.builder.execution import uploads
from repokit.builder.execution.journal import NAME
from repokit.errors import BuildError, LockHeld, MissingInput
from repokit.printable import printable
from repokit.repo import remote_files
from repokit.schema.manifest import ManifestFile
from repokit.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from repokit.formats.urls import Found, Url

HEAD: Final = f"{NAME}/plan.json"
_THREADS: Final = 12  # records are read by


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Head(_Frozen):
    """What is going on at a target.

    Attributes:
        digest: Of the plan.
        own: Paths at the target that are repokit's: those of an earlier build, and those that this one writes.
        ended: Whether the build has failed, or was stopped: another one may then begin.
    """

    digest: str
    own: tuple[str, ...]
    ended: bool = False


class _Record(_Frozen):
    """A file that is whole, and its version."""

    file: ManifestFile
    version: str | None


class RemoteJournal:
    """The journal of one plan at one target. Safe to append to from several threads."""

    def __init__(self, target: Url, digest: str) -> None:
        """Asks for nothing."""
        self._target = target
        self._digest = digest
        self._finished: dict[str, ManifestFile] = {}

    @staticmethod
    def is_own(path: str) -> bool:
        """Whether a path at a target belongs to a journal."""
        return path.partition("/")[0] == NAME

    @staticmethod
    def head(target: Url) -> Head | None:
        """What is going on at a target; None where nothing is.

        Raises:
            MissingInput: The file system refused.
        """
        place = target / HEAD
        try:
            return Head.model_validate_json(remote_files.read(place))
        except ValidationError:
            return None

    def begin(self, own: Collection[str], present: Mapping[str, Found]) -> None:
        """Says at the target what is going on, and finds out what of it is done.

        Args:
            own: See Head.
            present: What lies at the target.

        Raises:
            BuildError: The file system refused.
        """
        self._write_head(Head(digest=self._digest, own=tuple(sorted(own))))
        folder = f"{NAME}/{self._digest}/"
        records = [path for path in present if path.startswith(folder)]
        with Threads(_THREADS, thread_name_prefix="repokit-journal") as pool:
            for record in pool.map(self._read, records):
                if record is None or record.file.path not in present:
                    continue
                if not present[record.file.path].differs(record.file.size, record.version):
                    self._finished[record.file.path] = record.file

    def _read(self, path: str) -> _Record | None:
        try:
            return _Record.model_validate_json(remote_files.read(self._target / path))
        except (MissingInput, ValidationError):  # half of one, on a disk
            return None

    def finished(self) -> Mapping[str, ManifestFile]:
        """Files that are whole."""
        return dict(self._finished)

    def append(self, record: ManifestFile) -> None:
        """Records a file once its store has it with the size that it must have.

        Raises:
            BuildError: It has another one, or the file system refused.
        """
        url = self._target / record.path
        found = remote_files.looked_up(url)
        if found.size != record.size:
            what = f"has {found.size} bytes in its store, and {record.size} were written"
            raise BuildError(what, path=str(url), hint="build again")
        name = hashlib.sha256(record.path.encode()).hexdigest()[:32]
        line = _Record(file=record, version=found.version).model_dump_json()
        uploads.write(self._target / f"{NAME}/{self._digest}/{name}.json", line.encode())

    def check_own(self) -> None:
        """Refuses to go on where another build has begun meanwhile. No object store has a lock.

        Raises:
            LockHeld: One has.
        """
        try:
            head = self.head(self._target)
        except MissingInput:
            head = None
        if head is None or head.digest != self._digest:
            what = "was taken over by another build while this one was writing"
            raise LockHeld(what, path=str(self._target), hint="let one build at a time write there, then build again")

    def end(self, own: Collection[str]) -> None:
        """The build has failed: what is done can be used again, and another plan may begin.

        Raises:
            BuildError: The file system refused.
        """
        self._write_head(Head(digest=self._digest, own=tuple(sorted(own)), ended=True))

    def remove(self) -> None:
        """The build is whole: nothing is left to go on with.

        Raises:
            BuildError, MissingInput: The file system refused.
        """
        left = [path for path in remote_files.listed(self._target / NAME) if f"{NAME}/{path}" != HEAD]
        with Threads(_THREADS, thread_name_prefix="repokit-journal") as pool:
            list(pool.map(lambda path: uploads.remove(self._target / NAME / path), left))
        uploads.remove(self._target / HEAD)

    def _write_head(self, head: Head) -> None:
        uploads.write(self._target / HEAD, head.model_dump_json().encode())


def running(head: Head, target: Url) -> LockHeld:
    """What it means for a build of another plan that one is going on, or was killed."""
    what = f"holds an unfinished build of another plan ({printable(head.digest, 8)})"
    why = "it may still be running: object stores have no locks"
    hint = "wait for it; if it was killed, run it again to the end, or pass --force to begin anew"
    return LockHeld(what, why=why, path=str(target), hint=hint)
