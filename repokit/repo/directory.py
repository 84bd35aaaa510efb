"""A repository in a folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.errors import LimitExceeded, MissingInput
from repokit.printable import printable
from repokit.repo.source import NOT_CONTENT, Entry, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_FILES: Final = 100_000  # the Hub's own limit (hub-docs storage-limits.md)
MAX_DEPTH: Final = 32
MAX_BELOW: Final = 10_000  # files that one folder of a checkpoint may hold and still be looked at
OF_FILES: Final = (".gguf", ".json", ".safetensors")  # no one calls a folder so on purpose


class Leniency(NamedTuple):
    """What a checkpoint may have that no repository has: links to another disk, folders full of logs.

    Attributes:
        outside: Whether a link of this path may lead out of the folder and is read all the same.
        unneeded: Whether a folder at the top, `wandb/`, may be passed over where it cannot be listed.
    """

    outside: Callable[[str], bool]
    unneeded: Callable[[str], bool]


class Directory:
    """A Source over a folder. Links are followed inside the folder and inside a Hub cache, else as leniency says.

    Attributes:
        root: The folder.
        label: How the user calls it.
        unlisted: With leniency, folders at the top that were passed over, and why; known once entries are.
        outside: With leniency, links that lead out of the folder; known once entries are.
    """

    def __init__(self, root: Path, label: str | None = None, *, leniency: Leniency | None = None) -> None:
        self.root = root
        self.label = label or str(root)
        self.unlisted: dict[str, str] = {}
        self.outside: set[str] = set()
        self._leniency = leniency
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
        self._check_file(path)
        try:
            return _read_range(self.root / path, offset, length)
        except OSError as error:
            raise MissingInput(f"cannot be read: {error.strerror}", path=path) from None

    def descriptor(self, path: str) -> int:
        """An open file, for whoever reads ranges into a buffer of their own; they close it.

        Raises:
            MissingInput: The file is not there or cannot be read.
        """
        self._check_file(path)
        try:
            return _opened(self.root / path)
        except OSError as error:
            raise MissingInput(f"cannot be read: {error.strerror}", path=path) from None

    def _check_file(self, path: str) -> None:
        entry = self.entries().get(path)
        if entry is None:
            raise MissingInput("is not in the repository", path=path)
        if entry.kind is not Kind.FILE:
            raise MissingInput(self.described(path), path=path)

    def described(self, path: str) -> str:
        """What an entry that is no file is, and where it leads: `is a broken link (to /data/gone.bin)`."""
        kind = self.entries()[path].kind
        try:
            leads_to = printable((self.root / path).readlink())
        except OSError:
            return f"is a {kind}"
        return f"is a {'link to a folder' if (self.root / path).is_dir() else kind} (to {leads_to})"

    def _walk(self) -> list[tuple[str, Entry]]:
        found, folders = self._level("", MAX_FILES)
        for folder in folders:
            found += self._below(folder)
            if len(found) > MAX_FILES:
                raise self._too_many()
        return found

    def _below(self, folder: str) -> list[tuple[str, Entry]]:
        """Every file below a folder at the top; none of one that is passed over."""
        if self._leniency is None:
            return self._tree(folder, MAX_FILES)
        try:
            return self._tree(folder, MAX_BELOW)
        except LimitExceeded as error:
            self.unlisted[folder] = error.what
        except MissingInput as error:
            if not self._leniency.unneeded(folder):
                raise
            self.unlisted[folder] = error.what
        return []

    def _tree(self, top: str, most: int) -> list[tuple[str, Entry]]:
        found: list[tuple[str, Entry]] = []
        pending = [(top, 1)]
        while pending:
            folder, depth = pending.pop()
            if depth > MAX_DEPTH:
                raise LimitExceeded(f"is nested deeper than {MAX_DEPTH} folders", path=folder)
            files, folders = self._level(folder, most)
            found += files
            if len(found) > most:
                raise self._too_many() if most == MAX_FILES else LimitExceeded(_more_than(most), path=folder)
            pending += [(below, depth + 1) for below in folders]
        return found

    def _level(self, folder: str, most: int) -> tuple[list[tuple[str, Entry]], list[str]]:
        """The files in one folder, and the folders in it."""
        files: list[tuple[str, Entry]] = []
        folders: list[str] = []
        for item in self._scan(folder, most):
            path = f"{folder}{item.name}"
            if item.is_dir(follow_symlinks=False):
                if item.name not in NOT_CONTENT:
                    folders.append(path + "/")
                if item.name.endswith(OF_FILES):
                    files.append((path, Entry(0, Kind.FOLDER)))
            elif (entry := self._entry(item, path)) is not None:
                files.append((path, entry))
        return files, folders

    def _scan(self, folder: str, most: int) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.root / folder) as items:
                found = list(islice(items, most + 1))
        except OSError as error:
            what = f"cannot be listed: {error.strerror}"
            raise MissingInput(what, path=printable(folder or self.label), hint="check the path and its mode") from None
        if len(found) > most:
            raise self._too_many() if most == MAX_FILES else LimitExceeded(_more_than(most), path=folder)
        return found

    def _too_many(self) -> LimitExceeded:
        return LimitExceeded(f"{_more_than(MAX_FILES)}, which the Hub does not take", path=self.label)

    def _entry(self, item: os.DirEntry[str], path: str) -> Entry | None:
        if item.is_symlink():
            return self._followed(item, path)
        try:
            status = item.stat(follow_symlinks=False)
        except FileNotFoundError:  # a training rotates its checkpoints while we look
            return None
        except OSError as error:
            raise MissingInput(f"cannot be read: {error.strerror}", path=path) from None
        return Entry(status.st_size, Kind.FILE if stat.S_ISREG(status.st_mode) else Kind.SPECIAL)

    def _followed(self, item: os.DirEntry[str], path: str) -> Entry | None:
        target = os.path.realpath(item.path)
        try:
            status = Path(target).stat()
        except OSError:
            return Entry(0, Kind.BROKEN_LINK)
        if stat.S_ISDIR(status.st_mode):
            return Entry(status.st_size, Kind.OUTSIDE_LINK)
        if not any(_inside(target, root) for root in self._allowed):
            if self._leniency is None or not self._leniency.outside(path):
                return Entry(status.st_size, Kind.OUTSIDE_LINK)
            self.outside.add(path)
        return Entry(status.st_size, Kind.FILE if stat.S_ISREG(status.st_mode) else Kind.SPECIAL)


def _allowed_roots(root: Path) -> tuple[str, ...]:
    """The folder itself, and the blobs of a Hub cache when the folder is one of its snapshots."""
    real = os.path.realpath(root)
    parts = Path(real).parts
    if len(parts) >= 3 and parts[-2] == "snapshots":
        return real, str(Path(*parts[:-2]) / "blobs")
    return (real,)


def _more_than(files: int) -> str:
    return f"has more than {files:,} files"


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _read_range(path: Path, offset: int, length: int | None) -> bytes:
    descriptor = _opened(path)
    try:
        wanted = max(0, os.fstat(descriptor).st_size - offset)
        wanted = wanted if length is None else min(wanted, length)
        chunks = []
        while wanted and (chunk := os.pread(descriptor, wanted, offset)):
            chunks.append(chunk)
            offset += len(chunk)
            wanted -= len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    # O_NONBLOCK: a pipe put in the place of a file since the listing must not hang us.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "not a regular file")
    return descriptor
