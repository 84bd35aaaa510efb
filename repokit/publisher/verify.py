"""Whether a revision is what a directory says, by path, size and hash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repokit.errors import VerificationFailed
from repokit.printable import some
from repokit.publisher.changes import KEPT, changes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repokit.publisher.changes import Changes, LocalFile, RemoteFile


def check_tree(target: str, local: Iterable[LocalFile], remote: Iterable[RemoteFile]) -> None:
    """Passes if the trees are equal, `.gitattributes` aside.

    Raises:
        VerificationFailed: They are not.
    """
    found = changes(local, remote, parent=None, keep=KEPT)
    if not found.is_empty:
        raise VerificationFailed(
            f"{target} is not the directory: {difference(found)}",
            why="whoever downloads it gets other files than were checked",
            hint="do not tag it; push again, and look at the differences with --dry-run",
        )


def difference(found: Changes) -> str:
    """`missing: a, b; other content: c; too many: d`."""
    parts = (
        ("missing", [file.path for file in found.added]),
        ("other content", [file.path for file in found.changed]),
        ("too many", [file.path for file in found.deleted]),
    )
    return "; ".join(f"{label}: {some(paths)}" for label, paths in parts if paths)
