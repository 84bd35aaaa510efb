"""Which rules run, and which findings count."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from repokit.errors import UsageError
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from repokit.linter.finding import Finding, Waived
    from repokit.linter.rule import Rule


@dataclass(frozen=True, slots=True)
class Ignore:
    """A waiver: what is not to be reported, why, and until when.

    Attributes:
        code: A code, the prefix of a family (`CRD`) or a rule's name.
        reason: For the next reader. Without one, and without `paths`, the rules do not even run.
        until: The last day on which it holds; None for ever.
        paths: Glob of the files for which it holds; None for all.
    """

    code: str
    reason: str = ""
    until: date | None = None
    paths: str | None = None

    @property
    def deselects(self) -> bool:
        """Whether its rules do not run. What a waiver with a reason silences is counted, and so has to be found."""
        return not self.reason and self.paths is None

    def holds(self, today: date) -> bool:
        """Whether it has not expired."""
        return self.until is None or today <= self.until

    def covers(self, finding: Finding) -> bool:
        """Whether it silences a finding, on a day on which it holds."""
        return (self.paths is None or fnmatch(finding.path, self.paths)) and matches(finding, self.code)

    def __str__(self) -> str:
        """`CRD104`, `CRD104 on *.md`."""
        code = printable(self.code, 60)
        return code if self.paths is None else f"{code} on {printable(self.paths, 60)}"


@dataclass(frozen=True, slots=True)
class Selection:
    """Rules by code, prefix or name.

    Attributes:
        select: Only these; empty for all that are not in preview.
        ignore: Not these.
        per_file: Glob of paths to codes that are not reported there.
        extend_select: These as well, in preview or not.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[Ignore, ...] = ()
    per_file: Mapping[str, tuple[str, ...]] | None = None
    extend_select: tuple[str, ...] = ()

    @property
    def waivers(self) -> tuple[Ignore, ...]:
        """Every ignore, those of single files included."""
        per_file = (self.per_file or {}).items()
        return (*self.ignore, *(Ignore(word, paths=pattern) for pattern, words in per_file for word in words))

    def narrowed(
        self, select: tuple[str, ...] = (), extend_select: tuple[str, ...] = (), ignore: tuple[Ignore, ...] = ()
    ) -> Selection:
        """This selection as the command line changes it: `select` stands for all that was selected before."""
        before = () if select else self.extend_select
        return Selection(select or self.select, (*self.ignore, *ignore), self.per_file, (*before, *extend_select))

    def wants(self, rule: Rule, today: date) -> bool:
        """Whether a rule runs, and its findings count where no waiver speaks against it."""
        if any(entry.paths is None and matches(rule, entry.code) for entry in self.ignore if entry.holds(today)):
            return False
        return self._selects(rule)

    def silences(self, rule: Rule, today: date) -> bool:
        """Whether a rule that is not wanted runs all the same, to count what its waiver silences."""
        at_work = [entry for entry in self.ignore if entry.holds(today) and matches(rule, entry.code)]
        return self._selects(rule) and not self.wants(rule, today) and not any(entry.deselects for entry in at_work)

    def _selects(self, rule: Rule) -> bool:
        if any(matches(rule, word) for word in self.extend_select):
            return True
        if self.select:
            return any(matches(rule, word) for word in self.select)
        return not rule.preview

    def waiver_of(self, finding: Finding, today: date) -> Ignore | None:
        """The first waiver that silences a finding."""
        return next((entry for entry in self.waivers if entry.holds(today) and entry.covers(finding)), None)

    def keeps(self, finding: Finding, today: date | None = None) -> bool:
        """Whether a finding of a rule that ran is reported."""
        return self.waiver_of(finding, today or datetime.now(UTC).date()) is None

    def expired(self, today: date) -> tuple[Ignore, ...]:
        """Waivers that hold no longer."""
        return tuple(entry for entry in self.ignore if not entry.holds(today))

    def unused(self, waived: Iterable[Waived], ran: Iterable[Rule], today: date) -> tuple[Ignore, ...]:
        """Waivers that silenced nothing, although a rule of theirs ran; those that have expired are not among them."""
        silenced, rules = [entry.finding for entry in waived], list(ran)
        return tuple(
            entry
            for entry in self.waivers
            if entry.holds(today)
            and any(matches(rule, entry.code) for rule in rules)
            and not any(entry.covers(finding) for finding in silenced)
        )

    def validate(self, rules: Iterable[Rule]) -> None:
        """Refuses words that match no rule: a mistyped ignore would otherwise ignore nothing, in silence.

        Raises:
            UsageError: With the nearest name.
        """
        known = list(rules)
        for word in (*self.select, *self.extend_select, *(entry.code for entry in self.waivers)):
            if not any(matches(rule, word) for rule in known):
                names = [name for rule in known for name in (rule.code, rule.name)]
                near = difflib.get_close_matches(word, names, n=1)
                hint = f"did you mean {near[0]}? `repokit rules` lists them all" if near else "run `repokit rules`"
                raise UsageError(f"no rule is called {printable(word)!r}", hint=hint)


def matches(subject: Rule | Finding, word: str) -> bool:
    """A name, a code, or the beginning of one that is at least its family: `C` would be two families at once."""
    return word == subject.name or (len(word) >= len("IDX") and subject.code.startswith(word.upper()))
