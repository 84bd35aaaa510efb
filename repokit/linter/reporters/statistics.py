"""Counts by rule, for whoever starts with many findings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repokit.linter.fix import Safety

if TYPE_CHECKING:
    from repokit.linter.finding import Finding, Report, Severity


@dataclass(frozen=True, slots=True)
class Count:
    """What one rule found.

    Attributes:
        code: Of the rule.
        name: Of the rule.
        severity: Of the rule.
        findings: Those that count.
        waived: Those that a waiver silenced.
        known: Those that the baseline holds.
        fixable: Those that `--fix` takes away.
        unsafe: Those that it takes away with `--unsafe-fixes` alone.
    """

    code: str
    name: str
    severity: Severity
    findings: int
    waived: int
    known: int
    fixable: int
    unsafe: int


def counts(report: Report) -> tuple[Count, ...]:
    """By rule, the worst and the most frequent first."""
    counted = Counter(finding.code for finding in report.findings)
    waived = Counter(entry.finding.code for entry in report.waived)
    known = Counter(finding.code for finding in report.known)
    fixes = Counter((finding.code, finding.fixable) for finding in report.findings)
    rules: dict[str, Finding] = {}
    for finding in (*report.findings, *(entry.finding for entry in report.waived), *report.known):
        rules.setdefault(finding.code, finding)
    found = [
        Count(
            code,
            one.name,
            one.severity,
            counted[code],
            waived[code],
            known[code],
            fixes[code, Safety.SAFE],
            fixes[code, Safety.UNSAFE],
        )
        for code, one in rules.items()
    ]
    return tuple(sorted(found, key=lambda entry: (-entry.severity, -entry.findings, entry.code)))


def render(report: Report) -> str:
    """A line a rule: code, severity, name, how many; "" where nothing was found."""
    rows = counts(report)
    width = max((len(row.name) for row in rows), default=0)
    return "".join(f"{_line(row, width)}\n" for row in rows)


def _line(row: Count, width: int) -> str:
    numbers = {"fixable": row.fixable, "unsafely fixable": row.unsafe, "waived": row.waived, "known": row.known}
    beside = [f"{number:,} {word}" for word, number in numbers.items() if number]
    shown = f"{row.code}  {row.severity.word:<7}  {row.name:<{width}}  {row.findings:>6,}"
    return f"{shown}  {', '.join(beside)}".rstrip()
