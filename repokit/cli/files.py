"""Writing what a command was asked to write."""

from __future__ import annotations

import os
from pathlib import Path

from repokit.errors import UsageError
from repokit.formats.urls import is_url, shown
from repokit.printable import printable


def directory_of(text: str, verb: str) -> Path:
    """What was typed, as the path of a directory.

    Raises:
        UsageError: It is an address, which a path would mangle.
    """
    if is_url(text):
        hint = f"download it, then: repokit {verb} DIRECTORY"
        raise UsageError(f"{verb} takes a directory, and {printable(shown(text))} is an address", hint=hint)
    return Path(text)


def write(path: Path, text: str) -> None:
    """Writes a file through another one beside it: whoever reads it sees the old or the new one, whole.

    Raises:
        UsageError: The folder is not there, or may not be written to.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        if temporary.parent.is_dir():
            temporary.unlink(missing_ok=True)
        raise UsageError(f"{printable(path)} cannot be written: {error.strerror}", hint="name another file") from None
