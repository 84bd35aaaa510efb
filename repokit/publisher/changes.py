"""What a push would do: the built directory against the tree of a revision. Pure: no disk, no network.

A push makes the revision's tree equal the directory. A file on the Hub that is not in the directory is deleted: a stale
shard, a superseded index or an old tokenizer beside new weights is what breaks repositories. The exception is
`.gitattributes`, which the Hub itself puts there and needs; it is replaced where the directory has one, never deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

KEPT: Final = frozenset({".gitattributes"})


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of the built directory.

    Attributes:
        path: In the repository, with `/`.
        git_oid: The git blob id that the file has if the Hub stores it as a regular file.
    """

    path: str
    size: int
    sha256: str
    git_oid: str


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a revision, as the Hub lists it.

    Attributes:
        sha256: Of a large file (LFS or xet); None of a regular one, which the Hub names by `git_oid` only.
        git_oid: The git blob id: of the content of a regular file, of the pointer to a large one.
    """

    path: str
    size: int
    sha256: str | None
    git_oid: str

    def holds(self, file: LocalFile) -> bool:
        """Whether the content is that of `file`, by size and by the hash that the Hub has of it."""
        same_hash = self.git_oid == file.git_oid if self.sha256 is None else self.sha256 == file.sha256
        return self.size == file.size and same_hash


@dataclass(frozen=True, slots=True)
class Changes:
    """The difference between a directory and a revision, every part in the order of paths.

    Attributes:
        added: Not on the Hub.
        changed: On the Hub with other content.
        unchanged: On the Hub with this content; nothing is sent.
        deleted: On the Hub and not in the directory.
        kept: On the Hub, not in the directory, and not the push's to delete.
        parent: The commit that the revision was compared at; None where the repository does not exist yet.
    """

    added: tuple[LocalFile, ...]
    changed: tuple[LocalFile, ...]
    unchanged: tuple[LocalFile, ...]
    deleted: tuple[RemoteFile, ...]
    kept: tuple[RemoteFile, ...]
    parent: str | None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not (self.added or self.changed or self.deleted)

    @property
    def uploads(self) -> tuple[LocalFile, ...]:
        """What is sent: everything added or changed."""
        return tuple(sorted((*self.added, *self.changed), key=lambda file: file.path))

    @property
    def upload_size(self) -> int:
        """In bytes, at most: the Hub may hold some of the content already."""
        return sum(file.size for file in self.uploads)


def changes(
    local: Iterable[LocalFile],
    remote: Iterable[RemoteFile],
    *,
    parent: str | None,
    keep: Collection[str] = KEPT,
) -> Changes:
    """Compares a directory with the tree at `parent`; `keep` names what is never deleted."""
    here = {file.path: file for file in local}
    there = {file.path: file for file in remote}
    common = sorted(here.keys() & there.keys())
    gone = sorted(there.keys() - here.keys())
    return Changes(
        added=tuple(here[path] for path in sorted(here.keys() - there.keys())),
        changed=tuple(here[path] for path in common if not there[path].holds(here[path])),
        unchanged=tuple(here[path] for path in common if there[path].holds(here[path])),
        deleted=tuple(there[path] for path in gone if path not in keep),
        kept=tuple(there[path] for path in gone if path in keep),
        parent=parent,
    )
