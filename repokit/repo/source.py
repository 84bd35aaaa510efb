"""The Source protocol: where a repository lies does not matter to a rule."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

# Folders that tools keep beside the files of a repository: a clone's history, a download's cache, an environment,
# compiled code. Neither checked nor published.
NOT_CONTENT: Final = frozenset({".git", ".cache", ".venv", "__pycache__"})


class Kind(StrEnum):
    """What an entry of a repository's listing is."""

    FILE = "file"
    OUTSIDE_LINK = "link to outside of the repository"
    BROKEN_LINK = "broken link"
    SPECIAL = "device, socket or pipe"
    FOLDER = "folder"  # listed only where its name is that of a file


class Entry(NamedTuple):
    """One line of a listing.

    Attributes:
        size: Bytes; of the file that a link leads to.
        kind: Only a FILE can be read.
    """

    size: int
    kind: Kind = Kind.FILE


class Source(Protocol):
    """Lists files and reads ranges of them. Implementations are read-only and may be used from several threads."""

    @property
    def label(self) -> str:
        """How the user calls it: a path, `org/name@revision`."""

    def entries(self) -> Mapping[str, Entry]:
        """Every file by its path relative to the repository, `/` between parts, sorted. Folders are not listed."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of one file: `length` of them from `offset`, or all that are left; fewer at the end of the file.

        Raises:
            MissingInput: The file is not there or cannot be read.
        """
