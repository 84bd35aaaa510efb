"""Which files of a build are finished: one JSON line each, written after the file is on the disk.

A build has one journal; of a build in tasks each task has its own, since they run on several machines.
"""

from __future__ import annotations

import os
import threading
from stat import S_ISREG
from typing import TYPE_CHECKING, BinaryIO, Final

from repokit.schema.manifest import ManifestFile

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

NAME: Final = ".repokit-journal"


class Journal:
    """The journal of one staging directory. Safe to append to from several threads."""

    def __init__(self, staging: Path, own: Path | None = None, others: Collection[Path] = ()) -> None:
        """Opens nothing.

        Args:
            staging: The directory with the files.
            own: The file that is written to; NAME in that directory by default.
            others: Journals of the same directory that are read too.
        """
        self._staging = staging
        self._path = own or staging / NAME
        self._others = others
        self._torn = True
        self._lock = threading.Lock()

    def finished(self) -> dict[str, ManifestFile]:
        """Files that are whole: journalled, and still there with the recorded size."""
        found: dict[str, ManifestFile] = {}
        for path in (*self._others, self._path):
            for line in _lines(path):
                try:
                    record = ManifestFile.model_validate_json(line)
                    whole = _size(self._staging / record.path) == record.size
                except (OSError, ValueError):  # the line that was being written when the build was killed
                    continue
                if whole:
                    found[record.path] = record
        return found

    def append(self, record: ManifestFile) -> None:
        """Records a file that has been written and synced."""
        line = record.model_dump_json().encode() + b"\n"
        with self._lock, self._path.open("a+b") as stream:
            stream.write(b"\n" + line if self._torn and not _ended(stream) else line)
            self._torn = False
            stream.flush()
            os.fsync(stream.fileno())

    def remove(self) -> None:
        """The build is whole: nothing is left to resume."""
        self._path.unlink(missing_ok=True)


def _ended(stream: BinaryIO) -> bool:
    """Whether the last line is whole: a build that was killed may have left half of one."""
    end = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, end - 1))
    return stream.read(1) in {b"", b"\n"}


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except OSError:
        return []


def _size(path: Path) -> int | None:
    """Bytes of a regular file, as its server knows them: a network file system may say what it knew a minute ago."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return status.st_size if S_ISREG(status.st_mode) else None
