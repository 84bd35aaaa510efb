"""A directory against repokit-manifest.json: every file by size and sha256, and what the manifest does not name."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pydantic import ValidationError

from repokit.errors import LimitExceeded, MalformedFile, MissingInput
from repokit.formats.strict_json import loads
from repokit.printable import count, printable, size
from repokit.repo.directory import Directory
from repokit.repo.source import Kind
from repokit.schema.manifest import MANIFEST_NAME, Manifest
from repokit.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from repokit.repo.source import Entry
    from repokit.schema.manifest import ManifestFile

# As in the builder: larger ones leave a core's cache between the read and the hash.
_CHUNK: Final = 1024 * 1024

# 100,000 files, which is what the Hub takes, with long names.
_LARGEST: Final = 64 * 1024 * 1024

# What the Hub adds to every repository: in a download, not in a build.
_OF_THE_HUB: Final = ".gitattributes"

Fault = Literal["missing", "changed", "added", "unreadable"]


@dataclass(frozen=True)
class Difference:
    """One file that is not as it was built.

    Attributes:
        path: Relative to the directory.
        fault: `unreadable` files may be as built; nobody knows.
        what: In words, to stand behind the path.
    """

    path: str
    fault: Fault
    what: str


@dataclass(frozen=True)
class FilesReport:
    """What became of the files of a manifest.

    Attributes:
        directory: As the user calls it.
        files: That the manifest names.
        size: Of all of them together, in bytes, as built.
        differences: Sorted by path.
    """

    directory: str
    files: int
    size: int
    differences: tuple[Difference, ...]

    @property
    def exit_code(self) -> int:
        """1 where a file differs, 2 where one could not be read, 0 where all are as built."""
        faults = {difference.fault for difference in self.differences}
        return 0 if not faults else 2 if faults == {"unreadable"} else 1

    def of(self, fault: Fault) -> tuple[str, ...]:
        """The paths with this fault."""
        return tuple(difference.path for difference in self.differences if difference.fault == fault)


def check_files(
    directory: Path,
    *,
    label: str | None = None,
    manifest: Path | None = None,
    jobs: int = 2,
    progress: Callable[[str, int, int], None] = lambda _stage, _done, _total: None,
) -> FilesReport:
    """Holds the files of a directory against its manifest. Memory does not grow with the files.

    Args:
        directory: A built directory, a copy or a download of one: a snapshot of the Hub's cache, which is links, too.
        label: How the user calls it.
        manifest: Another file than the one in the directory.
        jobs: Files that are read at once.
        progress: Told of bytes that were hashed, from any thread.

    Raises:
        MissingInput: There is no such directory, or no manifest.
        MalformedFile: The manifest is not one.
    """
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise MissingInput(what, path=printable(label or directory), hint="name a directory that repokit built")
    source = Directory(directory, label=label)
    listed = _manifest(source, manifest)
    present = source.entries()
    found = [difference for file in listed.files if (difference := _by_listing(file, present.get(file.path)))]
    settled = {difference.path for difference in found}
    found += _hashed(directory, [file for file in listed.files if file.path not in settled], jobs, progress)
    found += _added(listed, present)
    total = sum(file.size for file in listed.files)
    return FilesReport(source.label, len(listed.files), total, tuple(sorted(found, key=lambda found: found.path)))


# ---------------------------------------------------------------- the manifest


def _manifest(source: Directory, named: Path | None) -> Manifest:
    path = MANIFEST_NAME if named is None else str(named)
    try:
        return Manifest.model_validate(loads(_content(source, named), path))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = "".join(f"/{printable(part)}" for part in first["loc"]) or None
        what = f"is not a manifest of this version: {printable(first['msg'].removeprefix('Value error, '))}"
        hint = "take the manifest of the build itself, or build again"
        raise MalformedFile(what, path=path, place=place, hint=hint) from None


def _content(source: Directory, named: Path | None) -> bytes:
    if named is not None:
        try:
            if (found := named.stat().st_size) > _LARGEST:
                raise LimitExceeded(f"has {size(found)}, more than any manifest", path=str(named))
            return named.read_bytes()
        except OSError as error:
            raise MissingInput(f"cannot be read: {error.strerror}", path=str(named)) from None
    entry = source.entries().get(MANIFEST_NAME)
    if entry is None:
        raise MissingInput(
            f"has no {MANIFEST_NAME}, so that nothing says what was built",
            path=source.label,
            why="only a build writes one; a push leaves it out, unless the recipe says `manifest: publish`",
            hint="name the manifest of the build: --manifest BUILT/" + MANIFEST_NAME,
        )
    if entry.size > _LARGEST:
        raise LimitExceeded(f"has {size(entry.size)}, more than any manifest", path=MANIFEST_NAME)
    return source.read(MANIFEST_NAME)


# ---------------------------------------------------------------- the files


def _by_listing(file: ManifestFile, entry: Entry | None) -> Difference | None:
    """What is known without reading the file."""
    if entry is None:
        return Difference(file.path, "missing", "is missing")
    if entry.kind is Kind.BROKEN_LINK:
        return Difference(file.path, "missing", f"is missing: a {entry.kind}")
    if entry.kind is not Kind.FILE:
        return Difference(file.path, "changed", f"is not a file any more: a {entry.kind}")
    if entry.size != file.size:
        what = f"has {count(entry.size, 'byte')} instead of {file.size:,}"
        return Difference(file.path, "changed", what)
    return None


def _added(manifest: Manifest, present: Mapping[str, Entry]) -> Iterator[Difference]:
    names = {file.path for file in manifest.files} | {MANIFEST_NAME, _OF_THE_HUB}
    return (Difference(path, "added", "is not in the manifest") for path in present if path not in names)


def _hashed(
    root: Path, files: Sequence[ManifestFile], jobs: int, progress: Callable[[str, int, int], None]
) -> list[Difference]:
    """Reads the files, largest first, so that the last one is short."""
    hasher = _Hasher(root, sum(file.size for file in files), progress)
    executor = Threads(max_workers=max(1, jobs), thread_name_prefix="repokit")
    try:
        by_size = sorted(files, key=lambda file: -file.size)
        return [found for found in executor.map(hasher, by_size) if found is not None]
    finally:
        hasher.stopped.set()  # Ctrl-C in the main thread: the others stop at their next chunk
        executor.shutdown(cancel_futures=True)


class _Hasher:
    """Compares files with their records; used from several threads."""

    def __init__(self, root: Path, total: int, progress: Callable[[str, int, int], None]) -> None:
        self._root = root
        self._total = total
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()
        self.stopped = threading.Event()

    def __call__(self, file: ManifestFile) -> Difference | None:
        try:
            digest = self._sha256(self._root / file.path)
        except OSError as error:
            return Difference(file.path, "unreadable", f"cannot be read: {printable(error.strerror)}")
        if digest == file.sha256:
            return None
        return Difference(file.path, "changed", "has other content: its sha256 is another")

    def _sha256(self, path: Path) -> str:
        # O_NONBLOCK: a pipe put in the place of a file since the listing must not hang us.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        digest = hashlib.sha256()
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(0, "not a regular file")
            buffer = memoryview(bytearray(_CHUNK))
            while (length := stream.readinto(buffer)) and not self.stopped.is_set():
                digest.update(buffer[:length])
                self._advance(length)
        return digest.hexdigest()

    def _advance(self, length: int) -> None:
        with self._lock:
            self._done += length
            self._progress("hash", self._done, self._total)
