"""What a reporter knows beside the report, and what several of them say in the same words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from repokit.linter.finding import Severity
from repokit.printable import count, printable, some

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repokit.linter.finding import Coverage, Finding, Report


@dataclass(frozen=True, slots=True)
class Context:
    """Where the target lies, and what counts as a failure.

    Attributes:
        folder: Of the target in the checkout, with forward slashes; "" for its root, None where it lies elsewhere.
        fail_on: From which severity on a finding is a failure; None: never.
    """

    folder: str | None = ""
    fail_on: Severity | None = Severity.ERROR

    def path(self, finding: Finding) -> str:
        """The finding's file as the checkout names it; as the repository does where there is no checkout."""
        return f"{self.folder}/{finding.path}" if self.folder else finding.path

    def fails(self, finding: Finding) -> bool:
        """Whether the finding makes the run fail."""
        return self.fail_on is not None and finding.severity >= self.fail_on


def folder_in(root: Path, target: Path) -> str | None:
    """Where a directory lies below the root of a checkout: `models/a`, "" for the root; None where it does not."""
    try:
        folder = target.resolve().relative_to(root.resolve()).as_posix()
    except (OSError, RuntimeError, ValueError):  # links in a circle are a RuntimeError in Python 3.11
        return None
    return "" if folder == "." else folder


def worded(finding: Finding, limit: int = 400) -> str:
    """The message, behind the key that it speaks of where it does not name it: a line alone does not say which."""
    place = finding.place or ""
    is_key = place.startswith("/") and place.rpartition("/")[2] not in finding.message
    return printable(f"{place} {finding.message}" if is_key else finding.message, limit)


def lines_of(finding: Finding) -> list[str]:
    """The finding in words, a line each: what, which, why, what to do."""
    place = f" ({printable(finding.place, 400)})" if finding.place else ""
    lines = [f"{printable(finding.path, 400)}{place} {printable(finding.message, 1000)}"]
    if len(finding.names) > 1:
        lines.append(f"Names: {some(finding.names, limit=5)}")
    if finding.why:
        lines.append(f"Why: {printable(finding.why, 1000)}")
    if finding.hint:
        lines.append(f"Fix: {printable(finding.hint, 1000)}")
    return lines


def counted(report: Report) -> str:
    """`2 errors, 1 note, 3 waived`, or `clean`."""
    parts = [
        count(number, severity.word)
        for severity in sorted(Severity, reverse=True)
        if (number := report.count(severity))
    ]
    return ", ".join([*(parts or ["clean"]), *silenced(report)])


def silenced(report: Report) -> list[str]:
    """How many findings were found and do not count, and why."""
    waived, known = len(report.waived), len(report.known)
    return [*([f"{waived:,} waived"] if waived else []), *([f"{known:,} in the baseline"] if known else [])]


def gaps(coverage: Coverage) -> list[tuple[str, str, tuple[str, ...]]]:
    """What was not judged: a word for it, the reason, the rules that it keeps from speaking."""
    return [
        *(
            ("internal error", f"rule {code} failed: {printable(error, 400)}", (code,))
            for code, error in coverage.broken.items()
        ),
        *(("not checked", printable(why, 400), codes) for why, codes in by_reason(coverage.not_checked).items()),
        *(("not known to this version", printable(value, 400), ()) for value in coverage.unknown),
    ]


def by_reason(codes: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Rules that stopped at the same thing, together."""
    reasons: dict[str, tuple[str, ...]] = {}
    for code, reason in sorted(codes.items()):
        reasons[reason] = (*reasons.get(reason, ()), code)
    return reasons


def inert_json(document: str) -> str:
    """The same document, without what that runner would obey: `##[` can only stand inside of a string."""
    return document.replace("##[", "##\\u005b")


def inert(line: str) -> str:
    """A line of a log in which the runner of GitHub Actions finds no command of its own.

    It obeys lines that begin with `::`, and `##[` wherever it stands (actions/runner, src/Runner.Common/
    ActionCommand.cs): a file could be named so.
    """
    return (f"./{line}" if line.lstrip().startswith("::") else line).replace("##[", "##\\x5b")
