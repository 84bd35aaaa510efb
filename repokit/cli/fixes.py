"""What `lint --fix` did, and what `lint --diff` would change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from repokit.cli.console import Format
from repokit.printable import count, printable

if TYPE_CHECKING:
    from repokit.api import Linted, Mended
    from repokit.cli.console import Console


def show_fixed(linted: Linted, console: Console) -> None:
    """A line for each finding that is gone, and how many are left; on stderr, because the report is what was asked."""
    mended = linted.mended
    if mended is None:
        return
    _warn_of_dropped(mended, console)
    for one in mended.fixed:
        console.stage("fixed", f"{printable(one.finding.path, 400)}: {one.finding.code} {printable(one.title, 400)}")
    console.stage("fixed", f"{len(mended.fixed):,} fixed, {len(linted.report.findings):,} remaining")


def show_diff(linted: Linted, console: Console) -> int:
    """The changes on stdout.

    Returns:
        The exit code: 1 where something would change.
    """
    mended = linted.mended
    if mended is None:
        return 0
    _warn_of_dropped(mended, console)
    match console.format:
        case Format.JSON:
            console.data(_as_json(linted, mended))
        case Format.QUIET:
            for one in mended.differences:
                console.data(printable(one.path, 4096))
        case _:
            for one in mended.differences:
                console.data(one.text)
    found, files = count(len(mended.fixed), "finding"), count(len(mended.differences), "file")
    console.stage("diff", f"would fix {found} in {files}")
    return 1 if mended.differences else 0


def _as_json(linted: Linted, mended: Mended) -> str:
    document = {
        "target": printable(linted.report.target, 4096),
        "changes": [
            {"path": printable(one.path, 4096), "change": one.change, "diff": one.text} for one in mended.differences
        ],
        "fixed": [
            {
                "code": one.finding.code,
                "path": printable(one.finding.path, 4096),
                "title": printable(one.title, 4096),
                "safety": one.safety.value,
            }
            for one in mended.fixed
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=2)


def _warn_of_dropped(mended: Mended, console: Console) -> None:
    """A fix that does not do what it was meant to, or does more; nothing of it was applied."""
    if not mended.finished:
        console.warn("more can be fixed than this run did: run it again")
    for one in mended.dropped:
        console.warn(f"{one.finding.code} in {printable(one.finding.path, 200)} was not fixed: {one.why}")
