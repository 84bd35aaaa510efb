"""Where a defect was met: public threads about published repositories and the tools that wrote them."""

from __future__ import annotations

from typing import NamedTuple

from repokit.resources import data


class Incident(NamedTuple):
    """One thread.

    Attributes:
        thread: `owner/repo#123` on GitHub: an issue, a pull request or a discussion.
        what: A sentence in our words.
    """

    thread: str
    what: str


def incidents(code: str) -> tuple[Incident, ...]:
    """Those of a rule; none where no thread is known."""
    return tuple(Incident(entry["thread"], entry["what"]) for entry in data("incidents")["incidents"].get(code, ()))
