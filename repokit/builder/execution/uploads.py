"""Files that are written behind an address: hashed on the way, there as a whole once they are finished."""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING, Final

from repokit.repo.remote_files import WITH_FOLDERS, opened, writing

if TYPE_CHECKING:
    from collections.abc import Callable

    from repokit.formats.urls import Url

# Parts of an upload. S3 takes 10,000 of them, each of 5 MiB at least; Google's are multiples of 256 KiB.
_PART: Final = 8 * 1024 * 1024
_PARTS: Final = 9_000


def _tell_nobody(_written: int) -> None:
    """Of a small file."""


class Uploaded:
    """What writing._Output is on a disk. Nothing is copied or shared there without being read here."""

    def __init__(
        self, url: Url, size: int, *, hashed: bool = False, advance: Callable[[int], None] = _tell_nobody
    ) -> None:
        """Opens it.

        Args:
            url: What to write.
            size: Bytes that it will have.
            hashed: Whether its SHA-256 is wanted.
            advance: Told of every written chunk.

        Raises:
            BuildError: The file system refused.
        """
        self._url = url
        self._hash = hashlib.sha256() if hashed else None
        self._advance = advance
        self._finished = False
        self.written = 0
        system, path = opened(url)
        block = _PART * -(-max(size, 1) // (_PART * _PARTS))
        with writing(url):
            if url.protocol in WITH_FOLDERS:
                system.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._stream = system.open(path, "wb", block_size=block)

    def write(self, content: bytes | memoryview) -> None:
        view = memoryview(content)
        if self._hash is not None:
            self._hash.update(view)
        with writing(self._url):
            self._stream.write(view)
        self.written += len(view)
        self._advance(len(view))

    def copied_from(self, _source: int, _offset: int, _length: int) -> int:
        """Nothing: no kernel copies to another machine."""
        return 0

    def cloned_from(self, _source: int, _length: int) -> bool:
        """No: nothing is shared with another machine."""
        return False

    def finish(self) -> None:
        """It is in the store when this returns."""
        with writing(self._url):
            self._stream.close()
        self._finished = True

    def close(self) -> None:
        """Gives it up where it is not finished. To close would publish what there is: fsspec knows no other end."""
        if self._finished:
            return
        with contextlib.suppress(Exception):
            self._stream.discard()
        with contextlib.suppress(Exception):
            self._stream.closed = True
        with contextlib.suppress(Exception):
            self._stream.close()

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest() if self._hash is not None else "0" * 64


def write(url: Url, content: bytes) -> None:
    """Writes a small file.

    Raises:
        BuildError: The file system refused.
    """
    upload = Uploaded(url, len(content))
    try:
        upload.write(content)
        upload.finish()
    finally:
        upload.close()


def remove(url: Url) -> None:
    """Removes a file, if it is there.

    Raises:
        BuildError: The file system refused.
    """
    system, path = opened(url)
    with writing(url, "removed"), contextlib.suppress(FileNotFoundError):
        system.rm_file(path)
