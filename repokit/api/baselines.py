"""The baseline: findings that are known, and do not fail the next run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from repokit.linter import baseline as baselines

if TYPE_CHECKING:
    from pathlib import Path

    from repokit.api.linting import Linted
    from repokit.linter.baseline import Baseline, Known


def read_baseline(path: Path) -> Baseline:
    """The findings that a file holds.

    Raises:
        MissingInput: There is no such file.
        MalformedFile: It is no baseline of this version.
    """
    return baselines.read(path)


def without_known(linted: Linted, known: Baseline) -> tuple[Linted, tuple[Known, ...]]:
    """What was linted without the findings that are known, and what is known and was found less often."""
    report, stale = baselines.apply(linted.report, known)
    return replace(linted, report=report), stale


def new_baseline(linted: Linted, path: Path) -> tuple[Baseline, str]:
    """The baseline of all that was found, and the text of its file; of rules that did not run the old one is kept.

    Raises:
        UsageError: What lies at the path is something else, and is not to be overwritten.
    """
    baseline = baselines.merged(baselines.to_replace(path), linted.report)
    return baseline, baselines.render(baseline)
