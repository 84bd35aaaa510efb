"""repokit-manifest.json: every file of a build with its size and sha256.

Nothing in it depends on when, where or by whom a build ran, so that equal inputs give equal bytes. `verify` holds a
directory or a revision against it, and a rebuild learns from it which files are repokit's own.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

MANIFEST_NAME = "repokit-manifest.json"


def _inside(path: str) -> str:
    """Refuses what could name a file outside the repository on any system. A manifest may come from anyone."""
    parts = path.split("/")
    if not path or "\\" in path or ":" in parts[0] or any(part in {"", ".", ".."} for part in parts):
        raise ValueError("must be a relative path inside the repository, with forward slashes")
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in path):
        raise ValueError("must have no control characters")
    return path


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ManifestFile(_Closed):
    """One file of the repository; the manifest itself is not listed."""

    path: Annotated[str, AfterValidator(_inside)] = Field(description="Relative to the repository, forward slashes.")
    size: int = Field(ge=0, description="Bytes.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Of the bytes; what the Hub calls the LFS oid.")
    origin: str = Field(description="What the content follows from: `source`, `base`, `path`, `weights`, `recipe`, ...")


class Manifest(_Closed):
    """repokit-manifest.json."""

    version: Literal[1] = Field(1, description="Of this format. Another one is refused.")
    created_by: str = Field(description="`repokit 0.1.0`.")
    files: Annotated[tuple[ManifestFile, ...], Field(strict=False)] = Field(description="Sorted by path.")

    @model_validator(mode="after")
    def _sorted(self) -> Self:
        paths = [file.path for file in self.files]
        if any(left >= right for left, right in pairwise(paths)):
            raise ValueError("must list each file once, sorted by path")
        return self

    def render(self) -> bytes:
        """The file: indent 2, a newline at the end, equal for equal manifests."""
        return (json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n").encode()
