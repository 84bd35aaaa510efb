"""Which relative paths may be opened, written and published."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_SCHEME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")  # https:, file:, and C:, a drive
_DEVICES: Final = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)", re.IGNORECASE)


def unsafe(path: str) -> str | None:
    """Why a path that a file names must not be followed, as a phrase ("leaves the repository"); None where it may.

    Loaders join such paths to a folder without looking (transformers `get_checkpoint_shard_files`): an index that
    names `../../etc/passwd` reads it.
    """
    if not path:
        return "is empty"
    if any(unicodedata.category(character) in {"Cc", "Cf", "Cs"} for character in path):
        return "has control characters"
    folded = unicodedata.normalize("NFKC", path)  # full-width dots and slashes, which some tools fold to the real ones
    if "\\" in folded:
        return "has a backslash, which is a separator on Windows only"
    if folded.startswith(("/", "~")) or _SCHEME.match(folded):
        return "is absolute"
    if ":" in folded:
        return "has a colon, which names a drive or a stream on Windows"
    if len(path.encode()) > 4096 or any(len(part.encode()) > 255 for part in path.split("/")):
        return "is longer than file systems take"
    if ".." in folded.split("/"):
        return "leaves the repository"
    if any(part in {"", "."} for part in path.split("/")):
        return "has an empty part"
    if any(_DEVICES.match(part) for part in path.split("/")):
        return "is a device name on Windows"
    return None


# huggingface_hub/utils/_validators.py, which mirrors the Hub's own check.
_REPO_ID: Final = re.compile(r"(?:\b[\w\-.]{1,96}\b/)?\b[\w\-.]{1,96}\b", re.ASCII)


def is_repo_id(text: str) -> bool:
    """Whether this can be a repository on the Hub: `org/name`, or `name` for the few old ones without an owner."""
    return _REPO_ID.fullmatch(text) is not None and "--" not in text and ".." not in text and not text.endswith(".git")


def is_local(text: str) -> bool:
    """Whether a value that should name something on the Hub is a path of somebody's machine."""
    if text.startswith(("/", "./", "../", "~", "file:")) or "\\" in text or re.match(r"[A-Za-z]:[/\\]", text):
        return True
    return text.count("/") > 1 and "://" not in text and "@" not in text
