"""Fixes of a directory, on behalf of lint: worked out, then written or only shown."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from repokit.api.reading import address_of, remote
from repokit.errors import UsageError
from repokit.printable import printable
from repokit.repo.directory import Directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from repokit.api.linting import Linted
    from repokit.linter.difference import Difference
    from repokit.linter.finding import Report
    from repokit.linter.fixing import Dropped, Fixed
    from repokit.linter.in_place import Stamp
    from repokit.repo.repository import Repository


@dataclass(frozen=True, slots=True)
class Fixes:
    """Which fixes are wanted, and what is to become of them.

    Attributes:
        unsafe: Also those that choose between two readings, or discard what cannot be had again.
        write: Change the directory; else only say what would change.
    """

    unsafe: bool = False
    write: bool = True


@dataclass(frozen=True)
class Mended:
    """What was fixed, or would be.

    Attributes:
        fixed: Findings that are gone, each with what was done.
        dropped: Fixes that did not do what they were meant to, or would make another rule speak, and are left out.
        finished: False where more could be fixed in another run.
        differences: Of every file that changes; only where nothing was written.
    """

    fixed: tuple[Fixed, ...]
    dropped: tuple[Dropped, ...]
    finished: bool = True
    differences: tuple[Difference, ...] = ()


@contextmanager
def at_work(target: str | Path, fixes: Fixes | None) -> Iterator[None]:
    """Keeps other fixes away from a directory that is to be changed.

    Raises:
        UsageError: The target is a revision on the Hub.
        LockHeld: Another process fixes it.
    """
    if fixes is not None and (address := address_of(target)) is not None:
        revision = "" if address.revision is None else f" --revision {printable(address.revision)}"
        folder = address.repo_id.rpartition("/")[2]
        hint = f"hf download {address.repo_id}{revision} --local-dir {folder} && repokit lint {folder} --fix"
        raise UsageError("fixes are made in a directory, and the target is on the Hub", hint=hint)
    if fixes is not None and remote(target) is not None:
        raise UsageError("fixes are made in a directory, and the target is an address", hint="copy it here first")
    if fixes is None or not fixes.write or not Path(target).is_dir():
        yield
        return
    from repokit.linter.in_place import clean, locked

    with locked(Path(target)):
        clean(Path(target))
        yield


def known_files(repository: Repository, fixes: Fixes | None) -> Mapping[str, Stamp]:
    """By what a change of each file would be noticed; taken before the first of them is read."""
    if fixes is None or not fixes.write or not isinstance(repository.source, Directory):
        return {}
    from repokit.linter.in_place import stamps

    return stamps(repository.source.root, list(repository.files))


def mend(
    repository: Repository, look: Callable[[Repository], Linted], fixes: Fixes, known: Mapping[str, Stamp]
) -> Linted:
    """Fixes what rules can fix, in the directory if that is wanted. The report is on what remains.

    Args:
        repository: Over a directory.
        look: Lints a view.
        fixes: Which ones, and whether they are written.
        known: Of `known_files`.

    Raises:
        BuildError: A file is a link, was changed meanwhile, or cannot be written; the directory is as it was.
            Or a file could not be deleted, which the message says.
    """
    from repokit.linter.fixing import fix

    assert isinstance(repository.source, Directory)  # noqa: S101 - at_work refuses what is none
    looks: dict[int, Linted] = {}

    def check(view: Repository) -> Report:
        linted = look(view)
        looks[id(linted.report)] = linted
        return linted.report

    found = fix(repository, check, unsafe=fixes.unsafe)
    mended = Mended(found.fixed, found.dropped, found.finished)
    if not fixes.write:
        from repokit.linter.difference import differences

        mended = replace(mended, differences=tuple(differences(found.overlay)))
    elif found.overlay.changed:
        from repokit.linter import in_place

        planned = in_place.changes(found.overlay, known)
        in_place.check(repository.source.root, planned)
        in_place.execute(repository.source.root, planned)
    return replace(looks[id(found.after)], mended=mended)
