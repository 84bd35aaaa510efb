"""What a person has said of a model before it was built, or its address has: facts that no file of it states."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

# `7b`, `0.5B`, `8x7b`, `270m`; `E4B`, `A3B` are other things than the number of parameters.
_SIZE: Final = re.compile(
    r"(?<![\w.])(?:(?P<times>\d{1,3})x)?(?P<number>\d{1,4}(?:\.\d{1,3})?)(?P<unit>[mbt])(?![a-z0-9])", re.IGNORECASE
)
_UNITS: Final = {"m": 10**6, "b": 10**9, "t": 10**12}


@dataclass(frozen=True, slots=True)
class Identity:
    """The model in words.

    Attributes:
        repo: Its repository on the Hub: `org/name`.
        name: For people: `Llama 3.1 8B SQL`.
        family: What it belongs to: `Llama 3.1`.
        variant: What tells it from its siblings: `8b-instruct`.
        origin: Where this is from: `repokit.yaml`, or the repository's address.
    """

    repo: str | None = None
    name: str | None = None
    family: str | None = None
    variant: str | None = None
    origin: str = "repokit.yaml"


class Size(NamedTuple):
    """A number of parameters in a name.

    Attributes:
        text: As it is spelled: `8x7b`.
        parameters: What it says.
    """

    text: str
    parameters: int


def sizes(text: str) -> list[Size]:
    """Every number of parameters in a name: `Example 7B` has one, `30B-A3B` one, `8x7b` one of 56 billion."""
    found = []
    for match in _SIZE.finditer(text):
        number = float(match["number"]) * _UNITS[match["unit"].lower()] * int(match["times"] or 1)
        found.append(Size(match[0], round(number)))
    return found
