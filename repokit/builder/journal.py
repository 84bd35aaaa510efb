"""Which files of an interrupted build are finished: one JSON line each, written after the file is on the disk."""

from __future__ import annotations

import os
import threading
from stat import S_ISREG
from typing import TYPE_CHECKING, Final

from repokit.schema.manifest import ManifestFile

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = ".repokit-journal"


class Journal:
    """The journal of one staging directory. Safe to append to from several threads."""

    def __init__(self, staging: Path) -> None:
        self._staging = staging
        self._path = staging / NAME
        self._lock = threading.Lock()

    def finished(self) -> dict[str, ManifestFile]:
        """Files that are whole: journalled, and still there with the recorded size."""
        found: dict[str, ManifestFile] = {}
        try:
            lines = self._path.read_bytes().splitlines()
        except OSError:
            return found
        for line in lines:
            try:
                record = ManifestFile.model_validate_json(line)
                status = (self._staging / record.path).lstat()
                whole = S_ISREG(status.st_mode) and status.st_size == record.size
            except (OSError, ValueError):  # the line that was being written when the build was killed
                continue
            if whole:
                found[record.path] = record
        return found

    def append(self, record: ManifestFile) -> None:
        """Records a file that has been written and synced."""
        line = record.model_dump_json().encode() + b"\n"
        with self._lock, self._path.open("ab") as stream:
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())

    def remove(self) -> None:
        """The build is whole: nothing is left to resume."""
        self._path.unlink(missing_ok=True)
