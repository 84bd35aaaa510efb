"""The report for people: one block a finding, worst first; then one line that says what it rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from repokit.linter.finding import Severity
from repokit.linter.fix import Safety
from repokit.linter.reporters.context import by_reason, inert, silenced, worded
from repokit.printable import count, printable, some

if TYPE_CHECKING:
    from repokit.linter.finding import Coverage, Finding, Report
    from repokit.linter.places import Locate

Style = Callable[[str, str], str]  # text and what it is: `error`, `warning`, `note`, `path`, `dim`


def render(report: Report, locate: Locate, style: Style = lambda text, _kind: text) -> str:
    """The report as text with a line end; `style` colours it where the terminal can."""
    lines = [line for finding in report.findings for line in _finding(finding, locate, style)]
    return _joined(report, lines, style)


def render_statistics(report: Report, style: Style = lambda text, _kind: text) -> str:
    """The same with a line a rule instead of a block a finding."""
    from repokit.linter.reporters import statistics

    return _joined(report, statistics.render(report).splitlines(), style)


def _joined(report: Report, lines: list[str], style: Style) -> str:
    whole = [*lines, *_gaps(report.coverage, style), _verdict(report, style), *_fixable(report, style)]
    return "\n".join(map(inert, whole)) + "\n"


def _finding(finding: Finding, locate: Locate, style: Style) -> Iterator[str]:
    where, message = printable(finding.path, 400), printable(finding.message, 400)
    if place := locate(finding):
        message = worded(finding)
        where += ":" + ":".join(str(number) for number in place if number is not None)
    elif finding.place:
        where += f" {printable(finding.place)}"
    severity = finding.severity.word
    yield f"{style(where, 'path')}: {style(severity, severity)} {finding.code} {message}"
    if len(finding.names) > 1:
        yield f"    {style('names', 'dim')} {some(finding.names, limit=5)}"
    if finding.why:
        yield f"    {style('why', 'dim')}   {printable(finding.why, 400)}"
    if finding.hint or finding.fixable:
        yield f"    {style('fix', 'dim')}   {' '.join(_remedy(finding))}"


def _remedy(finding: Finding) -> Iterator[str]:
    """What to do; by which flag, where repokit can do it."""
    if finding.hint:
        yield printable(finding.hint, 400)
    if finding.fixable:
        yield "[--fix]" if finding.fixable is Safety.SAFE else "[--fix --unsafe-fixes]"


def _gaps(coverage: Coverage, style: Style) -> Iterator[str]:
    """Everything that was not judged: unread is never clean."""
    if coverage.not_checked:
        for reason, codes in by_reason(coverage.not_checked).items():
            yield f"{style('not checked', 'warning')}: {some(sorted(codes), limit=8)}, because {printable(reason, 400)}"
    for value in coverage.unknown:
        yield f"{style('not known to this version', 'note')}: {printable(value, 400)}"
    for code, error in coverage.broken.items():
        yield f"{style('internal error', 'error')}: rule {code} failed: {printable(error, 400)}; please report it"


def _fixable(report: Report, style: Style) -> Iterator[str]:
    """How much of it `--fix` takes away."""
    kinds = Counter(finding.fixable for finding in report.findings)
    safe, unsafe = kinds[Safety.SAFE], kinds[Safety.UNSAFE]
    if safe:
        more = f", {unsafe:,} more with --unsafe-fixes" if unsafe else ""
        yield style(f"{safe:,} fixable with --fix{more}", "dim")
    elif unsafe:
        yield style(f"{unsafe:,} fixable with --fix --unsafe-fixes", "dim")


def _verdict(report: Report, style: Style) -> str:
    parts = [
        style(count(number, severity.word), severity.word)
        for severity in (Severity.ERROR, Severity.WARNING, Severity.NOTE)
        if (number := report.count(severity))
    ]
    checked = count(len(report.coverage.checked), "rule")
    found = ", ".join([*(parts or [style("clean", "good")]), *silenced(report)])
    return f"{printable(report.target)}: {found} ({checked} checked)"
