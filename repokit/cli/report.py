"""What stands beside that which was asked for: the findings of a gate, and what was read of the Hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repokit.printable import count, printable, size

if TYPE_CHECKING:
    from repokit.api import Gate
    from repokit.api.reading import Read
    from repokit.cli.console import Console
    from repokit.linter.finding import Expectation


def show_report(gate: Gate, console: Console) -> None:
    """One line where there is nothing to do, else the report; on stderr, because it is not what was asked for."""
    from repokit.linter.finding import Severity
    from repokit.linter.reporters import text

    if gate.last is None:
        return
    report = gate.last.report
    for expired in report.expired:
        console.warn(expired)
    if report.at_least(Severity.WARNING):
        console.say(text.render(report, gate.last.locate, console.style_message).rstrip("\n"))
        return
    notes = report.count(Severity.NOTE)
    found = f"{count(notes, 'note')}" if notes else "clean"
    console.stage("lint", f"{found}, {count(len(report.coverage.checked), 'rule')} checked")


def known_from(skeleton: Expectation | None) -> str:
    """Which tensors the weights were held against, in a line."""
    if skeleton is None:
        return "none: see what is not known to this version"
    return f"{printable(skeleton.architecture, 100)}, {skeleton.evidence}, {skeleton.source}"


def show_read(read: Read | None, console: Console) -> None:
    """One line on stderr: which commit it was, and what it cost."""
    if read is not None:
        if read.asked != read.repo_id:
            console.warn(f"{printable(read.asked)} is called {printable(read.repo_id)} now")
        cost = f"{count(read.requests, 'request')}, {size(read.bytes)}"
        console.stage("read", f"commit {read.commit[:12]} of {printable(read.repo_id)}: {cost}")
