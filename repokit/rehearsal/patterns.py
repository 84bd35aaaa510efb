"""What `.gitattributes` and `.gitignore` say about a path, as far as the Hub asks them."""

from __future__ import annotations

import re
from functools import cache

# The model template of the Hub, as six public repositories carry it.
_LARGE = (
    "*.7z", "*.arrow", "*.bin", "*.bz2", "*.ckpt", "*.ftz", "*.gz", "*.h5", "*.joblib", "*.lfs.*", "*.mlmodel",
    "*.model", "*.msgpack", "*.npy", "*.npz", "*.onnx", "*.ot", "*.parquet", "*.pb", "*.pickle", "*.pkl", "*.pt",
    "*.pth", "*.rar", "*.safetensors", "saved_model/**/*", "*.tar.*", "*.tar", "*.tflite", "*.tgz", "*.wasm", "*.xz",
    "*.zip", "*.zst", "*tfevents*",
)  # fmt: skip
GITATTRIBUTES = "".join(f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in _LARGE)


def is_large(path: str, gitattributes: str) -> bool:
    """Whether the attributes send `path` to large file storage. The last pattern that matches decides."""
    decided = False
    for line in gitattributes.splitlines():
        pattern, *attributes = line.split() or ["#"]
        if pattern.startswith("#") or not matches(pattern, path):
            continue
        for attribute in attributes:
            if attribute == "filter=lfs":
                decided = True
            elif attribute in {"-filter", "!filter"} or attribute.startswith("filter="):
                decided = False
    return decided


def is_ignored(path: str, gitignore: str) -> bool:
    """Whether the ignore file names `path` or a folder above it."""
    parts = path.split("/")
    above = ["/".join(parts[: end + 1]) for end in range(len(parts) - 1)]
    return any(_ignored(folder, gitignore, is_folder=True) for folder in above) or _ignored(
        path, gitignore, is_folder=False
    )


def _ignored(path: str, gitignore: str, *, is_folder: bool) -> bool:
    decided = False
    for line in gitignore.splitlines():
        pattern = line.rstrip()
        if not pattern or pattern.startswith("#"):
            continue
        negated = pattern.startswith("!")
        pattern = pattern.removeprefix("!").removeprefix("\\")
        if pattern.endswith("/") and not is_folder:
            continue
        if matches(pattern.rstrip("/"), path):
            decided = not negated
    return decided


def matches(pattern: str, path: str) -> bool:
    """Git's wildmatch: a pattern without a slash matches a name at any depth, any other one the whole path."""
    if "/" not in pattern:
        return _compiled(pattern).fullmatch(path.rpartition("/")[2]) is not None
    return _compiled(pattern.removeprefix("/")).fullmatch(path) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """gitignore(5): `*` and `?` stop at a slash; `**/`, `/**/` and a last `/**` cross it."""
    expression = ""
    at = 0
    while at < len(pattern):
        for sign, meaning in (("**/", "(?:.*/)?"), ("/**", "/.*"), ("*", "[^/]*"), ("?", "[^/]")):
            if pattern.startswith(sign, at) and (sign != "/**" or at + 3 == len(pattern)):
                expression += meaning
                at += len(sign)
                break
        else:
            expression += re.escape(pattern[at])
            at += 1
    return re.compile(expression, re.DOTALL)
