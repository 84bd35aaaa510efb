"""The built directory as a list of files, and their hashes.

Files are listed before the gate looks at them and hashed after it, and a file that is not the same at both times stops
the push: what is published is what was linted.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final

from repokit.errors import MissingInput, PublishError
from repokit.printable import printable, some
from repokit.publisher.changes import LocalFile
from repokit.repo.source import NOT_CONTENT
from repokit.schema.manifest import MANIFEST_NAME
from repokit.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

_CHUNK: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A regular file, and how to tell whether it is still the same one.

    Attributes:
        identity: Inode, size, and the time of the last change in nanoseconds.
    """

    path: str
    place: Path
    size: int
    identity: tuple[int, ...]


def listed(directory: Path, *, with_manifest: bool = False) -> list[ListedFile]:
    """What of `directory` is published, in the order of paths.

    Left out: what the linter does not look at either (repo/source.py NOT_CONTENT), and repokit's manifest unless
    `with_manifest`.

    Raises:
        MissingInput: There is no such directory, or nothing in it.
        PublishError: A link or a device: the Hub stores content, and what a link leads to may lie anywhere.
    """
    if not directory.is_dir():
        raise MissingInput("is not a directory", path=str(directory), hint="repokit build makes one")
    root = directory.resolve()
    files = sorted(_walk(root, "", with_manifest=with_manifest), key=lambda file: file.path)
    if not files:
        raise MissingInput("holds no file to publish", path=str(directory), hint="repokit build fills it")
    return files


def _walk(folder: Path, prefix: str, *, with_manifest: bool) -> Iterator[ListedFile]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path = prefix + entry.name
        if entry.name in NOT_CONTENT or (path == MANIFEST_NAME and not with_manifest):
            continue
        _check_name(path)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(folder / entry.name, f"{path}/", with_manifest=with_manifest)
        else:
            yield _file(path, folder / entry.name)


def _file(path: str, place: Path) -> ListedFile:
    status = place.lstat()
    if not stat.S_ISREG(status.st_mode):
        kind = "a link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
        raise PublishError(
            f"is {kind}",
            path=path,
            why="the Hub stores content; what a link or a device leads to may lie outside the directory",
            hint=f"replace it by the file itself: cp -rL {printable(place.parent)} COPY",
        )
    return ListedFile(path, place, status.st_size, _identity(status))


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _check_name(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise PublishError("has a name that is not UTF-8", path=path, why="the Hub cannot store it") from None


def hashed(files: Sequence[ListedFile], report: Callable[[int, int], None]) -> list[LocalFile]:
    """The files with the two hashes that the Hub may have of them, in one reading of each.

    Args:
        files: As `listed` found them.
        report: Called with the bytes read so far and in all.

    Raises:
        PublishError: Files are not the ones that were listed.
    """
    meter = _Meter(sum(file.size for file in files), report)
    # hashlib lets go of the interpreter: two threads keep two cores busy, more would only compete for the disk.
    with Threads(max_workers=2) as executor:
        found = list(executor.map(lambda file: _hashed(file, meter), files))
    refuse_changed([file.path for file, local in zip(files, found, strict=True) if local is None])
    return [local for local in found if local is not None]


def has_changed(file: ListedFile) -> bool:
    """Whether the file is not the one that was listed any more."""
    try:
        return _identity(file.place.lstat()) != file.identity
    except OSError:
        return True


def refuse_changed(paths: Sequence[str]) -> None:
    """Stops the push if any path is named.

    Raises:
        PublishError: There is one.
    """
    if paths:
        raise PublishError(
            f"changed since the check: {some(list(paths))}",
            why="what would be published is not what was linted",
            hint="let whatever writes to the directory finish, then run the same command again",
        )


def _hashed(file: ListedFile, meter: _Meter) -> LocalFile | None:
    sha256 = hashlib.sha256()
    git = hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)
    try:
        with file.place.open("rb") as stream:
            if _identity(os.fstat(stream.fileno())) != file.identity:
                return None
            while chunk := stream.read(_CHUNK):
                sha256.update(chunk)
                git.update(chunk)
                meter.add(len(chunk))
            unchanged = _identity(os.fstat(stream.fileno())) == file.identity
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MissingInput(f"cannot be read: {error.strerror}", path=file.path) from error
    return LocalFile(file.path, file.size, sha256.hexdigest(), git.hexdigest()) if unchanged else None


class _Meter:
    """Counts bytes from several threads."""

    def __init__(self, total: int, report: Callable[[int, int], None]) -> None:
        self._done = 0
        self._total = total
        self._report = report
        self._lock = Lock()

    def add(self, size: int) -> None:
        with self._lock:
            self._done += size
            self._report(self._done, self._total)
