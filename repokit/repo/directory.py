"""A repository in a folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from repokit.errors import LimitExceeded, MissingInput
from repokit.printable import printable
from repokit.repo.source import NOT_CONTENT, Entry, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_FILES: Final = 100_000  # the Hub's own limit (hub-docs storage-limits.md)
MAX_DEPTH: Final = 32


class Directory:
    """A Source over a folder. Links are followed inside the folder and inside a Hub cache, never elsewhere."""

    def __init__(self, root: Path, label: str | None = None) -> None:
        self.root = root
        self.label = label or str(root)
        self._allowed = _allowed_roots(root)
        self._entries: dict[str, Entry] | None = None

    def entries(self) -> Mapping[str, Entry]:
        """Lists the folder at the first call and keeps the answer.

        Raises:
            MissingInput: The folder is not there or cannot be read.
            LimitExceeded: More files than the Hub takes, or deeper than any repository.
        """
        if self._entries is None:
            self._entries = dict(sorted(self._walk()))
        return self._entries

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        entry = self.entries().get(path)
        if entry is None or entry.kind is not Kind.FILE:
            raise MissingInput("cannot be read" if entry else "is not in the repository", path=path)
        try:
            return _read_range(self.root / path, offset, length)
        except OSError as error:
            raise MissingInput(f"cannot be read: {error.strerror}", path=path) from None

    def _walk(self) -> list[tuple[str, Entry]]:
        found: list[tuple[str, Entry]] = []
        pending = [("", 0)]
        while pending:
            folder, depth = pending.pop()
            if depth > MAX_DEPTH:
                raise LimitExceeded(f"is nested deeper than {MAX_DEPTH} folders", path=folder)
            for item in self._scan(folder):
                path = f"{folder}{item.name}"
                if item.is_dir(follow_symlinks=False):
                    if item.name not in NOT_CONTENT:
                        pending.append((path + "/", depth + 1))
                elif (entry := self._entry(item)) is not None:
                    found.append((path, entry))
            if len(found) > MAX_FILES:
                raise LimitExceeded(f"has more than {MAX_FILES:,} files, which the Hub does not take", path=self.label)
        return found

    def _scan(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.root / folder) as items:
                return list(items)
        except OSError as error:
            what = f"cannot be listed: {error.strerror}"
            raise MissingInput(what, path=printable(folder or self.label), hint="check the path and its mode") from None

    def _entry(self, item: os.DirEntry[str]) -> Entry | None:
        if item.is_symlink():
            return self._followed(item)
        status = item.stat(follow_symlinks=False)
        return Entry(status.st_size, Kind.FILE if stat.S_ISREG(status.st_mode) else Kind.SPECIAL)

    def _followed(self, item: os.DirEntry[str]) -> Entry | None:
        target = os.path.realpath(item.path)
        try:
            status = Path(target).stat()
        except OSError:
            return Entry(0, Kind.BROKEN_LINK)
        if stat.S_ISDIR(status.st_mode) or not any(_inside(target, root) for root in self._allowed):
            return Entry(status.st_size, Kind.OUTSIDE_LINK)
        return Entry(status.st_size, Kind.FILE if stat.S_ISREG(status.st_mode) else Kind.SPECIAL)


def _allowed_roots(root: Path) -> tuple[str, ...]:
    """The folder itself, and the blobs of a Hub cache when the folder is one of its snapshots."""
    real = os.path.realpath(root)
    parts = Path(real).parts
    if len(parts) >= 3 and parts[-2] == "snapshots":
        return real, str(Path(*parts[:-2]) / "blobs")
    return (real,)


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _read_range(path: Path, offset: int, length: int | None) -> bytes:
    # O_NONBLOCK: a pipe put in the place of a file since the listing must not hang us.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "not a regular file")
        wanted = max(0, status.st_size - offset)
        wanted = wanted if length is None else min(wanted, length)
        chunks = []
        while wanted and (chunk := os.pread(descriptor, wanted, offset)):
            chunks.append(chunk)
            offset += len(chunk)
            wanted -= len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    finally:
        os.close(descriptor)
