"""What was read of the Hub, kept for the next time: revisions do not change, so nothing in here goes stale.

Whatever cannot be read, written or believed is as if it were not there: a cache never makes a command fail.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES: Final = 1_000_000_000
_KEPT_BYTES: Final = 800_000_000  # of the newest, once there are more than MAX_BYTES
_LARGEST: Final = 64 * 1024 * 1024  # of one entry
_CHECKSUM: Final = 32  # bytes of sha256 before every content


def default_folder() -> Path | None:
    """REPOKIT_CACHE_DIR, else the cache folder of the platform's users; None where there is no home."""
    if named := os.environ.get("REPOKIT_CACHE_DIR"):
        return Path(named)
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "repokit"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "repokit"
    return home / ".cache" / "repokit"


class Cache:
    """Contents under keys. May be used by several threads and processes at once."""

    def __init__(self, folder: Path | None, name: str = "hub") -> None:
        """A cache in `folder`, made when something is first kept; one that keeps nothing where it is None.

        Args:
            folder: What caches of repokit have in common.
            name: Of the folder of this one's own.
        """
        self._folder = None if folder is None else folder / name
        self._grown = False

    def get(self, *key: str) -> bytes | None:
        """What was kept under the key, or None."""
        if self._folder is None:
            return None
        path = self._path(key)
        try:
            stored = path.read_bytes()
        except OSError:
            return None
        with suppress(OSError):  # of a cache that may only be read
            os.utime(path)  # what is used stays longest
        content = stored[_CHECKSUM:]
        return content if hashlib.sha256(content).digest() == stored[:_CHECKSUM] else None

    def put(self, *key: str, content: bytes) -> None:
        """Keeps a content, if it can."""
        if self._folder is None or len(content) > _LARGEST:
            return
        path = self._path(key)
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        try:
            # A private repository may be among them: for nobody else to read, whatever the umask.
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            _write(temporary, hashlib.sha256(content).digest() + content)
            temporary.replace(path)
            self._grown = True
        except OSError:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def prune(self, most: int = MAX_BYTES, kept: int = _KEPT_BYTES) -> None:
        """Forgets the oldest entries down to `kept` bytes where there are more than `most`. Looks only after a put."""
        if self._folder is None or not self._grown:
            return
        self._grown = False
        entries = sorted(_entries(self._folder), reverse=True)
        if sum(length for _, length, _ in entries) <= most:
            return
        left = 0
        for _, length, path in entries:
            left += length
            if left > kept:
                with suppress(OSError):
                    path.unlink()

    def _path(self, key: tuple[str, ...]) -> Path:
        name = hashlib.sha256("\0".join(key).encode("utf-8", "surrogatepass")).hexdigest()
        assert self._folder is not None  # noqa: S101 - both callers looked
        return self._folder / name[:2] / name


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


def _entries(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """When each was last used, its bytes, and where it is."""
    for path in folder.glob("??/*"):
        with suppress(OSError):
            status = path.stat()
            yield status.st_mtime, status.st_size, path
