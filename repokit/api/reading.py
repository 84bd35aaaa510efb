"""A target on the command line becomes a repository."""

from __future__ import annotations

from pathlib import Path

from repokit.errors import MissingInput, UsageError
from repokit.printable import printable
from repokit.repo.directory import Directory
from repokit.repo.repository import Repository


def open_repository(target: str | Path) -> Repository:
    """The repository in a directory. Close it, or use it as a context manager.

    Raises:
        MissingInput: There is no such directory.
        UsageError: The target is something that this version does not read.
    """
    path = Path(target)
    if path.is_dir():
        return Repository(Directory(path, label=str(target)))
    if path.is_file():
        hint = f"name its directory: {path.parent}"
        raise UsageError(f"{printable(target)} is a file; a repository is a directory", hint=hint)
    text = str(target)
    if text.startswith(("hf://", "https://")) or (text.count("/") == 1 and not text.startswith((".", "/", "~"))):
        hint = f"hf download {printable(text)} --local-dir DIR, then repokit lint DIR"
        raise UsageError(f"{printable(text)} is not a directory; this version reads directories only", hint=hint)
    raise MissingInput("does not exist", path=text, hint="name a directory")
