"""The JSON report: schemas/report.schema.json is its contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repokit.linter.baseline import fingerprint
from repokit.linter.finding import Severity
from repokit.linter.reporters import statistics
from repokit.linter.reporters.context import by_reason, inert_json
from repokit.printable import printable
from repokit.schema import report as schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from repokit.linter.finding import Expectation, Finding, Report, Waived
    from repokit.linter.fixing import Fixed
    from repokit.linter.places import Locate


def render(report: Report, locate: Locate, *, with_statistics: bool = False, fixed: Iterable[Fixed] = ()) -> str:
    """The report as one JSON document, with a line end; with what was fixed before."""
    coverage = report.coverage
    document = schema.Report(
        target=printable(report.target, 4096),
        findings=tuple(_finding(finding, locate) for finding in report.findings),
        coverage=schema.ReportCoverage(
            checked=coverage.checked,
            not_checked=_by_reason(coverage.not_checked),
            broken=_by_reason(coverage.broken),
            unknown_to_this_version=tuple(printable(value, 4096) for value in coverage.unknown),
            skeleton=_expectation(coverage.skeleton),
        ),
        summary=schema.ReportSummary(
            errors=report.count(Severity.ERROR),
            warnings=report.count(Severity.WARNING),
            notes=report.count(Severity.NOTE),
            waived=len(report.waived),
            known=len(report.known),
        ),
        fixed=tuple(_fixed(one) for one in fixed),
        waived=tuple(_waived(entry) for entry in report.waived),
        statistics=_statistics(report) if with_statistics else None,
    )
    return inert_json(document.model_dump_json(indent=2) + "\n")


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
        fixable=None if finding.fixable is None else finding.fixable.value,
        fingerprint=fingerprint(finding),
    )


def _fixed(one: Fixed) -> schema.ReportFixed:
    return schema.ReportFixed(
        code=one.finding.code,
        path=printable(one.finding.path, 4096),
        message=printable(one.finding.message, 4096),
        title=printable(one.title, 4096),
        safety=one.safety.value,
    )


def _waived(waived: Waived) -> schema.ReportWaived:
    finding = waived.finding
    return schema.ReportWaived(
        code=finding.code,
        path=printable(finding.path, 4096),
        message=printable(finding.message, 4096),
        reason=printable(waived.reason, 4096),
    )


def _statistics(report: Report) -> tuple[schema.ReportStatistic, ...]:
    return tuple(
        schema.ReportStatistic(
            code=entry.code,
            name=entry.name,
            severity=entry.severity.word,
            findings=entry.findings,
            waived=entry.waived,
            known=entry.known,
            fixable=entry.fixable,
            fixable_unsafely=entry.unsafe,
        )
        for entry in statistics.counts(report)
    )


def _expectation(known: Expectation | None) -> schema.ReportSkeleton | None:
    if known is None:
        return None
    architecture = printable(known.architecture, 4096)
    return schema.ReportSkeleton(architecture=architecture, evidence=known.evidence, source=known.source)


def _by_reason(codes: Mapping[str, str]) -> tuple[schema.NotChecked, ...]:
    return tuple(
        schema.NotChecked(codes=tuple(sorted(group)), reason=printable(why, 4096))
        for why, group in by_reason(codes).items()
    )
