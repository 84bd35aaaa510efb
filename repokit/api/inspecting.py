"""inspect: what a repository is, on one screen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from repokit.api.reading import open_repository, read_of

if TYPE_CHECKING:
    from repokit.api.reading import Progress, Read
    from repokit.repo.inspection import Inspection


@dataclass(frozen=True)
class Inspected:
    """An inspection, and what was read of the Hub for it: None for a directory."""

    inspection: Inspection
    read: Read | None = None


def inspected(
    target: str | Path, *, tensors: str | None = None, token: str | None = None, progress: Progress | None = None
) -> Inspected:
    """`inspect`, with what it cost."""
    from repokit.repo.inspection import inspect as look_at

    with open_repository(target, token=token, progress=progress) as repository:
        return Inspected(look_at(repository, tensors), read_of(repository))


def inspect(target: str | Path, *, tensors: str | None = None, token: str | None = None) -> Inspection:
    """What a directory, or a revision on the Hub, is: kind, weights, tokens, template, license. Reads no tensor.

    Args:
        target: See `open_repository`.
        tensors: Which tensors to list: a glob over names, or over the ends of names that follow a dot.
        token: For the Hub, instead of HF_TOKEN or a login.

    Raises:
        MissingInput, UsageError: There is no such target.
        RevisionNotFound, NotAuthorized, HubUnreachable: The Hub does not give it.
    """
    return inspected(target, tensors=tensors, token=token).inspection
