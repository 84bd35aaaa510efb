"""What a rule says, and the report that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from repokit.linter.fix import Safety


class Severity(IntEnum):
    """How bad it is. Ordered: `severity >= Severity.WARNING`."""

    NOTE = 1  # reader X of version Y differs; portability
    WARNING = 2  # it bites some users
    ERROR = 3  # it breaks, or lies about the weights

    @property
    def word(self) -> str:
        """As reports spell it: `error`."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect at one place.

    Attributes:
        code: `IDX101`.
        name: `missing-shard`.
        severity: Always the rule's.
        path: The file, relative to the repository.
        message: What is wrong there, in words that follow the path: "names shards that are not in the repository".
        place: Where in the file: a JSON Pointer, a tensor name, `line 3`; None for the whole file.
        why: Which reader breaks, or who is bitten.
        names: All that the message speaks of: 300 missing tensors are one finding with 300 names.
        hint: What to do next, where the rule knows.
        fixable: What kind of fix its rule has for it; None where it has none, or nobody asked (see proposals.marked).
    """

    code: str
    name: str
    severity: Severity
    path: str
    message: str
    place: str | None = None
    why: str = ""
    names: tuple[str, ...] = ()
    hint: str | None = None
    fixable: Safety | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """Which tensors the weights were held against.

    Attributes:
        architecture: The class.
        evidence: `verified` or `partial`.
        source: Where it is known from: data of some day, or the transformers that is installed.
    """

    architecture: str
    evidence: str
    source: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was looked at. Unread is never clean.

    Attributes:
        checked: Codes of the rules that ran to their end.
        not_checked: Code to reason, for the rules that could not.
        unknown: What this version has not heard of, and therefore did not judge: "model_type 'frobnicate'".
        broken: Code to exception, for rules that have a bug.
        unread: What could not be read or parsed although no finding says so: the answer is not known.
        skeleton: The architecture that the weights were held against; None where they were not.
    """

    checked: tuple[str, ...] = ()
    not_checked: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    skeleton: Expectation | None = None


@dataclass(frozen=True, slots=True)
class Waived:
    """A finding that somebody decided not to hear of, and why; the reason is "" where none was given."""

    finding: Finding
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of one target, worst first, and what they rest on.

    Attributes:
        target: As it was asked for.
        findings: Those that count.
        coverage: What was looked at.
        waived: Those that a waiver silenced.
        known: Those that the baseline holds.
        expired: Waivers that hold no longer, in words.
        unused: Waivers that silenced nothing although their rules ran, in words.
    """

    target: str
    findings: tuple[Finding, ...]
    coverage: Coverage
    waived: tuple[Waived, ...] = ()
    known: tuple[Finding, ...] = ()
    expired: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    def at_least(self, severity: Severity) -> tuple[Finding, ...]:
        """The findings that are at or above a severity."""
        return tuple(finding for finding in self.findings if finding.severity >= severity)

    def count(self, severity: Severity) -> int:
        """How many findings have exactly this severity."""
        return sum(finding.severity is severity for finding in self.findings)

    def exit_code(self, fail_on: Severity | None = Severity.ERROR) -> int:
        """1 with findings at or above `fail_on` (None: never), else 2 where something could not be checked, else 0."""
        if fail_on is not None and self.at_least(fail_on):
            return 1
        return 2 if self.coverage.broken or self.coverage.unread else 0
