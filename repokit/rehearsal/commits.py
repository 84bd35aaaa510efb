"""Commits and the trees in them: immutable, kept as one file each under their id."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from repokit.rehearsal import git_ids
from repokit.rehearsal.objects import write_whole
from repokit.rehearsal.refusals import EntryNotFound, Unprocessable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

# Commits carry a logical clock, one second a commit from here, so that equal histories have equal ids and equal bytes.
_FIRST_SECOND = 1_577_836_800  # 2020-01-01T00:00:00Z


@dataclass(frozen=True, slots=True)
class File:
    """A file in a tree.

    Attributes:
        size: Of the content, in bytes.
        oid: The git blob id: of the content, or, of a large file, of the pointer that git holds instead.
        sha256: Of the content; the objects keep it under this name.
        large: Whether it lies in large file storage.
        xet: The xet hash of a large file that came by xet, or can be had so.
    """

    size: int
    oid: str
    sha256: str
    large: bool
    xet: str | None = None

    @property
    def pointer(self) -> bytes:
        """What git holds in place of a large file."""
        return git_ids.pointer(self.sha256, self.size)

    @property
    def pointer_size(self) -> int:
        return len(self.pointer)

    @property
    def etag(self) -> str:
        """The name of the content that clients compare: sha256 of a large file, git blob id of another."""
        return self.sha256 if self.large else self.oid


@dataclass(frozen=True, slots=True)
class Add:
    """Puts a file at `path`, whatever is there."""

    path: str
    file: File


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes the file or, `folder` being set, everything under `path`."""

    path: str
    folder: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """What is said about a commit, and by whom."""

    author: str
    title: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Commit:
    """One state of a branch.

    Attributes:
        files: The tree, by path, sorted.
        parent: The commit before; None for the first.
        depth: How many commits came before it.
    """

    files: Mapping[str, File]
    parent: str | None
    depth: int
    message: Message

    @property
    def oid(self) -> str:
        blobs = {path: file.oid for path, file in self.files.items()}
        return git_ids.commit_id(
            tree=git_ids.tree_ids(blobs)[""],
            parents=[self.parent] if self.parent else [],
            author=self.message.author,
            seconds=_FIRST_SECOND + self.depth,
            message=f"{self.message.title}\n\n{self.message.description}".strip() + "\n",
        )

    @property
    def date(self) -> str:
        """ISO 8601, as the Hub writes it."""
        minutes, second = divmod(self.depth, 60)
        hours, minute = divmod(minutes, 60)
        days, hour = divmod(hours, 24)
        # A rehearsal of more than a month of commits, 2.6 million of them, is nobody's.
        return f"2020-01-{min(1 + days, 31):02d}T{hour:02d}:{minute:02d}:{second:02d}.000Z"

    def tree_ids(self) -> dict[str, str]:
        """The git id of every folder, the root being ""."""
        return git_ids.tree_ids({path: file.oid for path, file in self.files.items()})


class Commits:
    """Every commit of every repository of the Hub, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, Commit] = {}

    def keep(self, commit: Commit) -> str:
        """Writes the commit, unless it is there, and returns its id."""
        oid = commit.oid
        if not self._path(oid).exists():
            write_whole(self._path(oid), [_encoded(commit)])
        self._read[oid] = commit
        return oid

    def __getitem__(self, oid: str) -> Commit:
        if oid not in self._read:
            self._read[oid] = _decoded(self._path(oid).read_bytes())
        return self._read[oid]

    def _path(self, oid: str) -> Path:
        return self._folder / oid[:2] / f"{oid}.json"


def regular_file(content: bytes, sha256: str) -> File:
    return File(len(content), git_ids.blob_id(content), sha256, large=False)


def large_file(sha256: str, size: int, xet: str | None = None) -> File:
    return File(size, git_ids.blob_id(git_ids.pointer(sha256, size)), sha256, large=True, xet=xet)


def applied(files: Mapping[str, File], operations: Iterable[Add | Delete]) -> dict[str, File]:
    """The tree after the operations, in their order.

    Raises:
        EntryNotFound: A file or folder to delete is not there.
        Unprocessable: A path that git or the Hub does not store, or a file where a folder is.
    """
    changed = dict(files)
    for operation in operations:
        path = checked_path(operation.path.removesuffix("/") if isinstance(operation, Delete) else operation.path)
        match operation:
            case Add(file=file):
                changed[path] = file
            case Delete(folder=folder):
                doomed = [name for name in changed if name.startswith(f"{path}/")] if folder else [path]
                if not doomed or doomed[0] not in changed:
                    raise EntryNotFound("A file with this name doesn't exist")
                for name in doomed:
                    del changed[name]
    _check_folders(changed)
    return dict(sorted(changed.items()))


def checked_path(path: str) -> str:
    """The path, if a git tree can hold it.

    Raises:
        Unprocessable: It is absolute, leaves the repository, or has a part that git refuses.
    """
    parts = path.split("/")
    if any(part in {"", ".", "..", ".git"} or len(part.encode(errors="surrogatepass")) > 255 for part in parts):
        raise Unprocessable(f"Invalid path: {path!r}")
    if any(unicodedata.category(character) in {"Cc", "Cs"} or character == "\\" for character in path):
        raise Unprocessable(f"Invalid path: {path!r}")
    return path


def _check_folders(files: Mapping[str, File]) -> None:
    for path in files:
        folder = path.rpartition("/")[0]
        while folder:
            if folder in files:
                raise Unprocessable(f"{folder!r} is a file and cannot be the folder of {path!r}")
            folder = folder.rpartition("/")[0]


def _encoded(commit: Commit) -> bytes:
    files = {path: [file.size, file.oid, file.sha256, file.large, file.xet] for path, file in commit.files.items()}
    fields = {"parent": commit.parent, "depth": commit.depth, "message": asdict(commit.message), "files": files}
    return json.dumps(fields, indent=1).encode()


def _decoded(data: bytes) -> Commit:
    fields = json.loads(data)
    files = {path: File(*values) for path, values in fields["files"].items()}
    return Commit(files, fields["parent"], fields["depth"], Message(**fields["message"]))
