"""Whether a revision is what a directory says, by path, size and hash."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repokit.errors import VerificationFailed
from repokit.printable import printable, some
from repokit.publisher.changes import KEPT, changes
from repokit.publisher.hub_client import HubClient
from repokit.publisher.local_tree import hashed, listed
from repokit.publisher.retrying import Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from repokit.publisher.changes import Changes, LocalFile, RemoteFile


@dataclass(frozen=True, slots=True)
class Verified:
    """A revision whose tree equals a directory.

    Attributes:
        commit: What the revision was when it was compared.
        files: How many files were compared.
    """

    repo_id: str
    commit: str
    files: int


def verify(
    directory: Path,
    repo_id: str,
    *,
    revision: str = "main",
    endpoint: str | None = None,
    token: str | None = None,
    publish_manifest: bool = False,
    listener: Callable[[str, int, int], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Verified:
    """Compares a directory with a revision on the Hub; reads no weights from there.

    Args:
        directory: What was pushed.
        repo_id: `org/name`.
        revision: A branch, tag, pull request or commit.
        endpoint: Of the Hub; None: HF_ENDPOINT, or the Hub of Hugging Face.
        token: None: HF_TOKEN or a login.
        publish_manifest: Whether repokit's manifest was pushed too.
        listener: Called with a stage (`hash`), and how much of it is done, of how much.
        sleep: Waits between tries.

    Raises:
        VerificationFailed: They differ; the first paths are named.
        PublishError: The revision cannot be read.
    """
    client = HubClient(repo_id, endpoint=endpoint, token=token)
    patience = Patience(sleep)
    report = listener or (lambda *_: None)
    local = hashed(listed(directory, with_manifest=publish_manifest), lambda done, total: report("hash", done, total))
    commit = patience.persist(lambda: client.head(revision))
    check_tree(f"{repo_id}@{printable(revision)}", local, patience.persist(lambda: client.tree(commit)))
    return Verified(repo_id, commit, len(local))


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
