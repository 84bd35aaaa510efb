"""A repository in memory: what the examples of rules are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repokit.errors import MissingInput
from repokit.repo.source import Entry

if TYPE_CHECKING:
    from collections.abc import Mapping


class Memory:
    """A Source over `{path: content}`; `special` holds the entries that are no regular files."""

    def __init__(
        self, files: Mapping[str, bytes], label: str = "memory", *, special: Mapping[str, Entry] | None = None
    ) -> None:
        self.label = label
        self._files = files
        listed = {path: Entry(len(content)) for path, content in files.items()}
        self._entries = dict(sorted({**listed, **(special or {})}.items()))

    def entries(self) -> Mapping[str, Entry]:
        return self._entries

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        if path not in self._files:
            raise MissingInput("is not in the repository", path=path)
        content = self._files[path]
        return content[offset:] if length is None else content[offset : offset + length]
