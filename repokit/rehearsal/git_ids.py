"""Git object ids, computed as git computes them, so that a clone of the same files has the same names.

Formats: git's `Documentation/gitformat-*` and "Git Internals - Git Objects"; the pointer file: git-lfs `docs/spec.md`.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FILE_MODE = "100644"
_FOLDER_MODE = "40000"


def blob_id(content: bytes) -> str:
    """The id of a file's content."""
    return _object_id("blob", content)


def pointer(sha256: str, size: int) -> bytes:
    """The text that git stores in place of a large file."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()


def tree_ids(blobs: Mapping[str, str]) -> dict[str, str]:
    """The id of every folder of a tree; the root is "".

    Args:
        blobs: The blob id of each file, by its path.
    """
    folders: dict[str, dict[str, tuple[str, str]]] = {"": {}}
    for path, oid in blobs.items():
        parent, _, name = path.rpartition("/")
        folders.setdefault(parent, {})[name] = (_FILE_MODE, oid)
        while parent:
            parent = parent.rpartition("/")[0]
            folders.setdefault(parent, {})
    ids: dict[str, str] = {}
    for folder in sorted(folders, key=_depth, reverse=True):
        ids[folder] = _tree_id(folders[folder])
        parent, _, name = folder.rpartition("/")
        if folder:
            folders[parent][name] = (_FOLDER_MODE, ids[folder])
    return ids


def commit_id(*, tree: str, parents: Sequence[str], author: str, seconds: int, message: str) -> str:
    """The id of a commit by `author`, `seconds` after 1970 in UTC."""
    who = f"{author} <{author}@users.noreply.localhost> {seconds} +0000"
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents), f"author {who}", f"committer {who}", ""]
    return _object_id("commit", "\n".join([*lines, message]).encode())


def _depth(folder: str) -> int:
    return folder.count("/") + bool(folder)


def _tree_id(entries: Mapping[str, tuple[str, str]]) -> str:
    # Git sorts a folder as if its name ended with a slash.
    ordered = sorted(entries.items(), key=lambda entry: (entry[0] + "/" * (entry[1][0] == _FOLDER_MODE)).encode())
    return _object_id(
        "tree", b"".join(f"{mode} {name}".encode() + b"\0" + bytes.fromhex(oid) for name, (mode, oid) in ordered)
    )


def _object_id(kind: str, content: bytes) -> str:
    header = f"{kind} {len(content)}\0".encode()
    return hashlib.sha1(header + content, usedforsecurity=False).hexdigest()
