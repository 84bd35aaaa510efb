"""A line of a revision's tree, and whether bytes are those that it names."""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

_BLOB_ID: Final = re.compile(r"[0-9a-f]{40}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")  # no address can carry one
_LONGEST_PATH: Final = 4096  # characters; PATH_MAX of the systems that a file has to be downloaded to
_LARGEST: Final = 2**63 - 1  # bytes


class RemoteFile(NamedTuple):
    """One line of a tree.

    Attributes:
        size: Of the content, in bytes.
        blob_id: What git calls it: of the content, or of the pointer to a large file.
        sha256: Of a large file's content; None of a file that git itself holds.
    """

    path: str
    size: int
    blob_id: str
    sha256: str | None = None

    def holds(self, content: bytes) -> bool:
        """Whether a content is the one that is named: by sha256 of a large file, by git's own id of another."""
        if self.sha256 is not None:
            return hashlib.sha256(content).hexdigest() == self.sha256
        blob = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
        blob.update(content)
        return blob.hexdigest() == self.blob_id


def remote_file(entry: object) -> RemoteFile | None:
    """The file that an entry of a tree describes; None where no Hub would describe one so."""
    match entry:
        case {"path": str(path), "size": int(size), "oid": str(blob_id), **rest}:
            lfs = rest.get("lfs")
            sha256 = lfs.get("oid") if isinstance(lfs, dict) else None
            file = RemoteFile(path, size, blob_id, sha256)
            return file if _is_sound(file, large=bool(lfs)) else None
    return None


def _is_sound(file: RemoteFile, *, large: bool) -> bool:
    named = _BLOB_ID.fullmatch(file.blob_id) is not None and not isinstance(file.size, bool)
    hashed = isinstance(file.sha256, str) and _SHA256.fullmatch(file.sha256) is not None
    return named and hashed is large and 0 <= file.size <= _LARGEST and _is_path(file.path)


def _is_path(path: str) -> bool:
    """Whether git can have a file of this path: `..` in an address would lead out of the repository."""
    if len(path) > _LONGEST_PATH or "\0" in path or _SURROGATE.search(path):
        return False
    return not any(part in {"", ".", ".."} for part in path.split("/"))


def is_folder(entry: object) -> bool:
    return isinstance(entry, dict) and entry.get("type") == "directory"
