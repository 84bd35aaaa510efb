"""Pull requests: who proposed what, and what it takes to merge it. No HTTP here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from repokit.rehearsal.commits import Add, Delete

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.rehearsal.commits import File

Status: TypeAlias = Literal["draft", "open", "closed", "merged"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A pull request.

    Attributes:
        base: The commit that it started from.
        merged: The commit on the branch that it became; None until then.
    """

    author: str
    title: str
    description: str
    status: Status
    base: str
    merged: str | None = None


def proposed(base: Mapping[str, File], head: Mapping[str, File]) -> list[Add | Delete]:
    """What leads from one tree to the other. Deletions come first: a file may have to go for a folder of its name."""
    gone = [Delete(path) for path in base if path not in head]
    return [*gone, *(Add(path, file) for path, file in head.items() if _oid(base, path) != file.oid)]


def conflicts(base: Mapping[str, File], head: Mapping[str, File], branch: Mapping[str, File]) -> list[str]:
    """The files that both sides changed since `base`, and not to the same content."""
    paths = [operation.path for operation in proposed(base, head)]
    return sorted(path for path in paths if _oid(branch, path) not in {_oid(base, path), _oid(head, path)})


def _oid(files: Mapping[str, File], path: str) -> str | None:
    file = files.get(path)
    return None if file is None else file.oid
