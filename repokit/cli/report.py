"""The findings of a gate, beside what a build or a push was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repokit.printable import count

if TYPE_CHECKING:
    from repokit.api import Gate
    from repokit.cli.console import Console


def show_report(gate: Gate, console: Console) -> None:
    """One line where there is nothing to do, else the report; on stderr, because it is not what was asked for."""
    from repokit.linter.finding import Severity
    from repokit.linter.reporters import text

    if gate.last is None:
        return
    report = gate.last.report
    if report.at_least(Severity.WARNING):
        console.say(text.render(report, gate.last.locate, console.style_message).rstrip("\n"))
        return
    notes = report.count(Severity.NOTE)
    found = f"{count(notes, 'note')}" if notes else "clean"
    console.stage("lint", f"{found}, {count(len(report.coverage.checked), 'rule')} checked")
