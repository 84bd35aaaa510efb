"""The bytes of every file ever uploaded, each under the sha256 of its content."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from repokit.rehearsal.refusals import Unprocessable

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Objects:
    """A folder of immutable files: `ab/abcdef...`. Many threads may use it: a file appears whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, sha256: str) -> Path:
        """Where the object lies, or would lie.

        Raises:
            Unprocessable: Not a sha256; nothing else may become part of a path here.
        """
        if not _SHA256.fullmatch(sha256):
            raise Unprocessable(f"{sha256!r} is not a sha256 in lower-case hexadecimal")
        return self._folder / sha256[:2] / sha256

    def size(self, sha256: str) -> int | None:
        """In bytes; None where the object is not there."""
        try:
            return self.path(sha256).stat().st_size
        except FileNotFoundError:
            return None

    def read(self, sha256: str) -> bytes:
        return self.path(sha256).read_bytes()

    def add(self, content: bytes) -> str:
        """Stores bytes that are at hand and returns their sha256."""
        sha256 = hashlib.sha256(content).hexdigest()
        if self.size(sha256) is None:
            self.keep(sha256, content)
        return sha256

    def keep(self, name: str, content: bytes) -> None:
        """Stores bytes under a name of the form of a sha256 that somebody else gave them."""
        write_whole(self.path(name), [content])

    def receive(self, sha256: str, size: int, chunks: Iterable[bytes]) -> None:
        """Stores an upload, if it is what it was announced as.

        Raises:
            Unprocessable: Other bytes, or another number of them. Nothing is kept.
        """
        target = self.path(sha256)
        digest = hashlib.sha256()
        received = 0

        def counted() -> Iterable[bytes]:
            nonlocal received
            for chunk in chunks:
                digest.update(chunk)
                received += len(chunk)
                yield chunk
            if received != size:
                raise Unprocessable(f"{received} bytes arrived for {sha256}, {size} were announced")
            if digest.hexdigest() != sha256:
                raise Unprocessable(f"the bytes that arrived for {sha256} have the sha256 {digest.hexdigest()}")

        write_whole(target, counted())


def write_whole(target: Path, chunks: Iterable[bytes]) -> None:
    """Writes a file that no reader ever sees half-written; an error in `chunks` leaves no trace."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
