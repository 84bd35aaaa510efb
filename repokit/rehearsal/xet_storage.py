"""Xet storage, kept in a folder: xorbs and shards as clients sent them.

    xorbs/ab/abcdef...      chunks of files, under the hash that the client gave them
    shards/ab/abcdef...     which chunks make which file, under the sha256 of the shard
    cache/                  what hf_xet writes down while it reads them back

Nothing that a client says of a file is believed before the file was put together and hashed (`xet.py`).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from repokit.rehearsal.objects import Objects
from repokit.rehearsal.refusals import HubError
from repokit.rehearsal.xet_formats import XetFile, chunk_ends, files_in

if TYPE_CHECKING:
    from collections.abc import Iterable


class XetStorage:
    """Xorbs and shards in a folder. Many threads may use it."""

    def __init__(self, folder: Path) -> None:
        # A xet client remembers what it sent to an address. Another Hub at the same port must have another one.
        self.name = hashlib.sha256(str(folder.resolve()).encode(errors="surrogateescape")).hexdigest()[:16]
        self.cache = folder / "cache"  # of the client by which the Hub itself reads
        self._folder = folder
        self._xorbs = Objects(folder / "xorbs")
        self._shards = Objects(folder / "shards")
        self._files: dict[str, XetFile] = {}
        self._by_sha256: dict[str, XetFile] = {}
        self._lock = Lock()
        self._read_back()

    def _read_back(self) -> None:
        for path in sorted(self._folder.glob("shards/*/*")):
            self._know(files_in(path.read_bytes()))

    def xorb(self, name: str) -> Path:
        return self._xorbs.path(name)

    def add_xorb(self, name: str, content: bytes) -> bool:
        """Keeps a xorb; False if it is here already.

        Raises:
            HubError: It is none.
        """
        chunk_ends(content)
        if self._xorbs.size(name) is not None:
            return False
        self._xorbs.keep(name, content)
        return True

    def add_shard(self, content: bytes) -> None:
        """Keeps what a shard says about files.

        Raises:
            HubError: It is none, or names chunks that are not here.
        """
        files = files_in(content)
        for term in (term for file in files for term in file.terms):
            if term.end > len(self.chunk_ends(term.xorb)) or term.first >= term.end:
                raise HubError(f"The xorb {term.xorb} has no chunks {term.first} to {term.end}")
        self._shards.add(content)
        self._know(files)

    def file(self, name: str) -> XetFile | None:
        """By its xet hash."""
        return self._files.get(name)

    def file_of(self, sha256: str) -> XetFile | None:
        """The file that is said to have this sha256."""
        return self._by_sha256.get(sha256)

    def chunk_ends(self, xorb: str) -> list[int]:
        """Raises HubError where there is no such xorb."""
        if self._xorbs.size(xorb) is None:
            raise HubError(f"There is no xorb {xorb}")
        return chunk_ends(self._xorbs.read(xorb))

    def _know(self, files: Iterable[XetFile]) -> None:
        with self._lock:
            for file in files:
                self._files[file.name] = file
                if file.sha256 is not None:
                    self._by_sha256[file.sha256] = file
