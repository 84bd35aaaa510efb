"""Which rules run, and which findings count."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from repokit.errors import UsageError
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from repokit.linter.finding import Finding
    from repokit.linter.rule import Rule


@dataclass(frozen=True, slots=True)
class Ignore:
    """A waiver: what is not to be reported, why, and until when.

    Attributes:
        code: A code, the prefix of a family (`CRD`) or a rule's name.
        reason: For the next reader.
        until: The last day on which it holds; None for ever.
    """

    code: str
    reason: str = ""
    until: date | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """Rules by code, prefix or name.

    Attributes:
        select: Only these; empty for all that are not in preview.
        ignore: Not these.
        per_file: Glob of paths to codes that are not reported there.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[Ignore, ...] = ()
    per_file: Mapping[str, tuple[str, ...]] | None = None

    def wants(self, rule: Rule, today: date) -> bool:
        """Whether a rule runs at all."""
        if any(_matches(rule, entry.code) for entry in self.ignore if entry.until is None or today <= entry.until):
            return False
        if self.select:
            return any(_matches(rule, word) for word in self.select)
        return not rule.preview

    def keeps(self, finding: Finding) -> bool:
        """Whether a finding of a rule that ran is reported at its path."""
        for pattern, words in (self.per_file or {}).items():
            if fnmatch(finding.path, pattern) and any(_matches(finding, word) for word in words):
                return False
        return True

    def validate(self, rules: Iterable[Rule]) -> None:
        """Refuses words that match no rule: a mistyped ignore would otherwise ignore nothing, in silence.

        Raises:
            UsageError: With the nearest name.
        """
        known = list(rules)
        per_file = (word for words in (self.per_file or {}).values() for word in words)
        for word in (*self.select, *(entry.code for entry in self.ignore), *per_file):
            if not any(_matches(rule, word) for rule in known):
                names = [name for rule in known for name in (rule.code, rule.name)]
                near = difflib.get_close_matches(word, names, n=1)
                hint = f"did you mean {near[0]}? `repokit rules` lists them all" if near else "run `repokit rules`"
                raise UsageError(f"no rule is called {printable(word)!r}", hint=hint)


def _matches(subject: Rule | Finding, word: str) -> bool:
    """A name, a code, or the beginning of one that is at least its family: `C` would be two families at once."""
    return word == subject.name or (len(word) >= len("IDX") and subject.code.startswith(word.upper()))
