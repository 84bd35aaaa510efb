"""Markdown for a comment on a pull request or the summary of a job.

Every word that came out of a repository is written with character references for its punctuation, so that no name is
markup, a link, HTML or another column. GitHub and GitLab look for people, issues and labels in what was rendered, but
not in code: outside of it a zero-width space follows the characters with which those begin.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from repokit.linter.finding import Severity
from repokit.linter.reporters.context import counted, gaps, worded
from repokit.printable import count, printable, some

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repokit.linter.finding import Finding, Report
    from repokit.linter.places import Locate
    from repokit.linter.reporters.context import Context

MARKER: Final = "<!-- repokit -->"  # by which a bot finds the comment that it wrote before
LONGEST: Final = 60_000  # characters: GitHub takes 65,536 in a comment

_PUNCTUATION: Final = re.compile(r"[^A-Za-z0-9 ,;/()='\x80-\U0010ffff-]")
_MENTION: Final = re.compile(r"([@#!~%$&]|\bGH-)(?=\w)", re.IGNORECASE | re.ASCII)
_ZERO_WIDTH: Final = "\u200b"  # taken for a letter, and written as a reference below
_RESERVED: Final = 16_000  # for what stands around the findings: a heading and ten gaps, six characters for each shown


def render(report: Report, locate: Locate, context: Context) -> str:
    """A heading, a table of findings, and below it why each matters and what to do; as much as a comment holds."""
    rows, details, left = _fitting(report.findings, locate, context)
    parts = [MARKER, f"### repokit: {escaped(report.target, 200)}: {escaped(counted(report), 200)}"]
    if rows:
        parts.append("\n".join(["| | where | what |", "|---|---|---|", *rows]))
    if left:
        parts.append(f"… and {count(left, 'finding')} more, which no comment has room for.")
    if details:
        parts.append("\n".join(["<details><summary>Why, and what to do</summary>", "", *details, "", "</details>"]))
    parts += _gaps(report)
    parts.append(f"{count(len(report.coverage.checked), 'rule')} checked.")
    return "\n\n".join(parts) + "\n"


def _fitting(findings: tuple[Finding, ...], locate: Locate, context: Context) -> tuple[list[str], list[str], int]:
    """Rows and details of as many findings as there is room for, worst first, and how many are left."""
    rows: list[str] = []
    details: dict[str, None] = {}  # what one rule says of several files is said once
    room = LONGEST - _RESERVED
    for finding in findings:
        row, detail = _row(finding, locate, context), _detail(finding)
        room -= len(row) + len(detail) * (detail not in details) + 2
        if room < 0:
            break
        rows.append(row)
        details[detail] = None
    return rows, list(details), len(findings) - len(rows)


def _row(finding: Finding, locate: Locate, context: Context) -> str:
    numbers = [str(number) for number in locate(finding) or () if number is not None]
    where = ":".join([_code(context.path(finding), 200), *numbers])
    if finding.place and not numbers:
        where += f" {_code(finding.place, 120)}"
    names = f" ({escaped(some(finding.names, 3), 400)})" if len(finding.names) > 1 else ""
    word = f"**{finding.severity.word}**" if finding.severity is Severity.ERROR else finding.severity.word
    return f"| {word} | {where} | {finding.code} {finding.name}: {escaped(worded(finding), 400)}{names} |"


def _detail(finding: Finding) -> str:
    fix = f" *Fix:* {escaped(finding.hint, 300)}" if finding.hint else ""
    return f"- **{finding.code}** {escaped(finding.why, 400)}{fix}"


def _gaps(report: Report) -> Iterable[str]:
    for word, reason, codes in gaps(report.coverage)[:10]:
        which = f" ({some(codes, limit=8)})" if codes else ""
        yield f"*{word}:* {escaped(reason, 200)}{which}"


def _code(text: str, limit: int) -> str:
    return f"<code>{_PUNCTUATION.sub(_reference, printable(text, limit))}</code>"


def escaped(text: object, limit: int) -> str:
    """Text that is shown as it is, whatever is in it, on one line of at most `limit` characters as shown."""
    broken = _MENTION.sub(rf"\1{_ZERO_WIDTH}", printable(text, limit))
    return _PUNCTUATION.sub(_reference, broken).replace(_ZERO_WIDTH, f"&#{ord(_ZERO_WIDTH)};")


def _reference(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"
