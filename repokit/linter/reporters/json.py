"""The JSON report: schemas/report.schema.json is its contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repokit.linter.finding import Severity
from repokit.printable import printable
from repokit.schema import report as schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.linter.finding import Expectation, Finding, Report
    from repokit.linter.places import Locate


def render(report: Report, locate: Locate) -> str:
    """The report as one JSON document, with a line end."""
    coverage = report.coverage
    document = schema.Report(
        target=printable(report.target, 4096),
        findings=tuple(_finding(finding, locate) for finding in report.findings),
        coverage=schema.ReportCoverage(
            checked=coverage.checked,
            not_checked=_by_reason(coverage.not_checked),
            broken=_by_reason(coverage.broken),
            unknown_to_this_version=coverage.unknown,
            skeleton=_expectation(coverage.skeleton),
        ),
        summary=schema.ReportSummary(
            errors=report.count(Severity.ERROR),
            warnings=report.count(Severity.WARNING),
            notes=report.count(Severity.NOTE),
        ),
    )
    return document.model_dump_json(indent=2) + "\n"


def _finding(finding: Finding, locate: Locate) -> schema.ReportFinding:
    line, column = locate(finding) or (None, None)
    return schema.ReportFinding(
        code=finding.code,
        name=finding.name,
        severity=finding.severity.word,
        path=printable(finding.path, 4096),
        place=None if finding.place is None else printable(finding.place, 4096),
        line=line,
        column=column,
        message=printable(finding.message, 4096),
        why=printable(finding.why, 4096),
        names=tuple(printable(name, 4096) for name in finding.names),
        fix=None if finding.hint is None else printable(finding.hint, 4096),
    )


def _expectation(known: Expectation | None) -> schema.ReportSkeleton | None:
    if known is None:
        return None
    architecture = printable(known.architecture, 4096)
    return schema.ReportSkeleton(architecture=architecture, evidence=known.evidence, source=known.source)


def _by_reason(codes: Mapping[str, str]) -> tuple[schema.NotChecked, ...]:
    """Rules that stopped at the same thing, together."""
    reasons: dict[str, list[str]] = {}
    for code, reason in codes.items():
        reasons.setdefault(reason, []).append(code)
    return tuple(schema.NotChecked(codes=tuple(sorted(group)), reason=reason) for reason, group in reasons.items())
