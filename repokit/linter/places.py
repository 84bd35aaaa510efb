"""Line and column of a finding, looked for only when it is rendered."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from repokit.errors import InputError
from repokit.formats.strict_json import locate

if TYPE_CHECKING:
    from repokit.linter.finding import Finding
    from repokit.repo.repository import Repository

Locate = Callable[["Finding"], "tuple[int, int | None] | None"]

_LINE = re.compile(r"(?:header, )?line (\d+)(?: column (\d+))?")


def locator(repository: Repository) -> Locate:
    """A function that finds line and column (from 1; the column may be unknown) of a finding in this repository."""
    texts: dict[str, str] = {}

    def text_of(path: str) -> str:
        if path not in texts:
            texts[path] = (repository.content(path) or b"").decode()
        return texts[path]

    def find(finding: Finding) -> tuple[int, int | None] | None:
        place = finding.place or ""
        if found := _LINE.fullmatch(place):
            return int(found[1]), int(found[2]) if found[2] else None
        if not place.startswith("/") or not finding.path.endswith(".json"):
            return None
        try:
            text = text_of(finding.path)
            return locate(text, place) if text else None
        except (InputError, ValueError):
            return None

    return find
