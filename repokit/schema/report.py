"""What `repokit lint --format json` prints.

The contract with whatever reads it: a key may be added in version 1, none is renamed or removed, and no type changes.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ReportFinding(_Frozen):
    """One defect at one place."""

    code: str = Field(description="Three letters, three digits; never reused.", pattern=r"^[A-Z]{3}[0-9]{3}$")
    name: str = Field(description="The defect in words: `missing-shard`.")
    severity: Literal["error", "warning", "note"] = Field(
        description="error: it breaks, or lies about the weights; warning: it bites some users; note: portability."
    )
    path: str = Field(description="The file, relative to the target.")
    place: str | None = Field(None, description="Where in it: a JSON Pointer, a tensor name, a line.")
    line: int | None = Field(None, ge=1, description="From 1, where the file has lines.")
    column: int | None = Field(None, ge=1, description="From 1, in characters.")
    message: str = Field(description="What is wrong there; goes on from the path.")
    why: str = Field("", description="Which reader breaks, or who is bitten.")
    names: tuple[str, ...] = Field((), description="All that the message speaks of; it shows the first few.")
    fix: str | None = Field(None, description="The edit or the command that comes next, where the rule knows it.")
    fixable: Literal["safe", "unsafe"] | None = Field(
        None, description="Whether `--fix` takes it away: safe; with `--unsafe-fixes`: unsafe; null: only a person can."
    )
    fingerprint: str | None = Field(None, description="SHA-256 of code, path and place without lines; stays the same.")


class ReportFixed(_Frozen):
    """A finding that `--fix` took away."""

    code: str = Field(description="Of the rule.")
    path: str = Field(description="The file, relative to the target.")
    message: str = Field(description="What was wrong there; goes on from the path.")
    title: str = Field(description="What was done, as an order.")
    safety: Literal["safe", "unsafe"]


class ReportWaived(_Frozen):
    """A finding that a waiver silenced."""

    code: str = Field(description="Of the rule.")
    path: str = Field(description="The file, relative to the target.")
    message: str = Field(description="What is wrong there; goes on from the path.")
    reason: str = Field("", description="Of the waiver.")


class ReportStatistic(_Frozen):
    """What one rule found; with `--statistics`."""

    code: str
    name: str
    severity: Literal["error", "warning", "note"]
    findings: int = Field(ge=0, description="Those that count.")
    waived: int = Field(ge=0)
    known: int = Field(ge=0, description="Those that the baseline holds.")
    fixable: int = Field(ge=0, description="Those that `--fix` takes away.")
    fixable_unsafely: int = Field(ge=0, description="Those that it takes away with `--unsafe-fixes` alone.")


class NotChecked(_Frozen):
    """Rules that could not run."""

    codes: tuple[str, ...]
    reason: str


class ReportSkeleton(_Frozen):
    """Which tensors the weights were held against."""

    architecture: str = Field(description="The class that config.json names.")
    evidence: str = Field(description="verified: every tensor is known; partial: some are not.")
    source: str = Field(description="Data of this version, or what the installed transformers says.")


class ReportCoverage(_Frozen):
    """What the findings rest on. Unread is never clean."""

    checked: tuple[str, ...] = Field((), description="Codes of the rules that ran to their end.")
    not_checked: tuple[NotChecked, ...] = Field((), description="Rules that could not run, by reason.")
    broken: tuple[NotChecked, ...] = Field((), description="Rules that failed: a bug in repokit. The exit code is 2.")
    unknown_to_this_version: tuple[str, ...] = Field((), description="Newer values, which were not judged.")
    skeleton: ReportSkeleton | None = Field(None, description="null: the tensors were not held against config.json.")


class ReportSummary(_Frozen):
    """Counts of findings."""

    errors: int = Field(ge=0)
    warnings: int = Field(ge=0)
    notes: int = Field(ge=0)
    waived: int = Field(0, ge=0, description="Silenced by a waiver, and in no other count.")
    known: int = Field(0, ge=0, description="In the baseline, and in no other count.")


class Report(_Frozen):
    """The findings of one target."""

    version: Literal[1] = Field(1, description="Of this format.")
    target: str = Field(description="As it was asked for: a directory, org/name@revision.")
    findings: tuple[ReportFinding, ...] = Field(description="Worst first.")
    coverage: ReportCoverage
    summary: ReportSummary
    fixed: tuple[ReportFixed, ...] = Field((), description="What `--fix` took away; findings are what remains.")
    waived: tuple[ReportWaived, ...] = Field((), description="What a waiver silenced.")
    statistics: tuple[ReportStatistic, ...] | None = Field(None, description="By rule, worst first; null: not asked.")
