"""Commands of GitHub Actions, which become annotations of a pull request at file and line.

The runner keeps ten annotations of each level a step and drops the rest, so the worst come first; the lines themselves
stay in the log.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from repokit.linter.finding import Severity
from repokit.linter.reporters.context import counted, gaps, inert, lines_of
from repokit.printable import count, printable, some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repokit.errors import RepokitError
    from repokit.linter.finding import Finding, Report
    from repokit.linter.places import Locate
    from repokit.linter.reporters.context import Context

SHOWN: Final = 10  # of each level and step: docs.github.com, "About workflow commands", limits

_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render(report: Report, locate: Locate, context: Context) -> str:
    """One command a finding, worst first, and a last line for whoever reads the log."""
    lines = [_annotation(finding, locate, context) for finding in report.findings]
    lines += _of_gaps(report)
    beyond = _beyond(Counter(_LEVELS[finding.severity] for finding in report.findings))
    checked = count(len(report.coverage.checked), "rule")
    verdict = f"repokit: {printable(report.target)}: {counted(report)} ({checked} checked){beyond}"
    return "\n".join([*lines, inert(verdict)]) + "\n"


def failure(error: RepokitError) -> str:
    """The annotation of what kept the run from happening at all."""
    parts = [printable(error, 1000), *(printable(text, 500) for text in (error.why, error.hint) if text)]
    return _command("error", "\n".join(parts), {"title": "repokit: could not run"})


def _annotation(finding: Finding, locate: Locate, context: Context) -> str:
    properties: dict[str, str] = {}
    if context.folder is not None:  # what is not in the checkout has no file to stand beside
        properties["file"] = printable(context.path(finding), 4096)
        line, column = locate(finding) or (None, None)
        if line is not None:
            properties["line"] = str(line)
        if column is not None:
            properties["col"] = str(column)
    properties["title"] = f"{finding.code} {finding.name}"
    return _command(_LEVELS[finding.severity], "\n".join(lines_of(finding)), properties)


def _of_gaps(report: Report) -> Iterator[str]:
    """Unread is never clean: what was not judged is an annotation too."""
    levels = {"internal error": "error", "not checked": "warning"}
    for word, reason, codes in gaps(report.coverage):
        which = f" ({some(codes, limit=8)})" if codes else ""
        yield _command(levels.get(word, "notice"), f"{reason}{which}", {"title": f"repokit: {word}"})


def _beyond(levels: Counter[str]) -> str:
    hidden = [count(number - SHOWN, level) for level, number in levels.items() if number > SHOWN]
    return f"; GitHub shows {SHOWN} annotations of a level: {', '.join(hidden)} only in this log" if hidden else ""


def _command(name: str, message: str, properties: dict[str, str]) -> str:
    listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{name} {listed}::{_data(message)}"


def _data(text: str) -> str:
    """As escapeData of actions/toolkit, packages/core/src/command.ts."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """As escapeProperty of the same file."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
