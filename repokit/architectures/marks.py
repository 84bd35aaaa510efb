"""Names whose index variables are numbers that no model has, so that renames can be seen at work on templates."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from repokit.architectures.grammar import INDICES

INDEX: Final = re.compile(r"\{[" + INDICES + r"]\}")
MARK: Final = re.compile(r"70\d00000007")


def marked(template: str) -> str:
    """A name in which each index variable is a number that no model has."""
    return INDEX.sub(lambda found: f"70{INDICES.index(found[0][1])}00000007", template)


class Tie(NamedTuple):
    """A copy, by its canonical name, and its source, by the skeleton's name."""

    target: re.Pattern[str]
    source: str  # its numbers as \1, \2, ...

    @staticmethod
    def of(target: str, source: str) -> Tie:
        """From names whose indices are marks."""
        marks = list(dict.fromkeys(MARK.findall(target)))
        pattern, template = re.escape(target), source.replace("\\", "\\\\")
        for number, mark in enumerate(marks, 1):
            pattern = pattern.replace(mark, r"(\d+)", 1).replace(mark, rf"\{number}")
            template = template.replace(mark, rf"\{number}")
        return Tie(re.compile(pattern), template)

    def source_of(self, name: str) -> str | None:
        """The source of which this tensor is a copy."""
        found = self.target.fullmatch(name)
        return None if found is None else found.expand(self.source)
