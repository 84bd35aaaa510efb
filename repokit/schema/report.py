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


class Report(_Frozen):
    """The findings of one target."""

    version: Literal[1] = Field(1, description="Of this format.")
    target: str = Field(description="As it was asked for: a directory, org/name@revision.")
    findings: tuple[ReportFinding, ...] = Field(description="Worst first.")
    coverage: ReportCoverage
    summary: ReportSummary
