"""`.eval_results/*.yaml`: scores on benchmarks, which the Hub shows on the model's page and on the leaderboards.

Source: hub-docs docs/hub/eval-results.md and eval_results.yaml; huggingface_hub 2.4 _eval_results.py, which cannot read
a result without `task_id`. The documents disagree on scales (20.90 and 0.412 in one page), so no value is judged.
"""

from __future__ import annotations

import datetime as dt

from pydantic import Field, RootModel

from repokit.schema.document import Document

# Files of this folder, at the top of a repository, with the ending .yaml.
FOLDER = ".eval_results/"


class BenchmarkTask(Document):
    """Which leaderboard the result belongs to."""

    id: str = Field(description="Id of the benchmark's dataset on the Hub.")
    task_id: str = Field(description="The task, as the dataset's eval.yaml names it.")
    revision: str | None = Field(None, description="Commit of the dataset.")


class ResultSource(Document):
    """Where the result can be looked up."""

    url: str = Field(description="Link to logs, a paper, a Space, ...")
    name: str | None = Field(None, description="Text of the link.")
    user: str | None = Field(None, description="User of the Hub who says so.")
    org: str | None = Field(None, description="Organisation of the Hub that says so.")


class BenchmarkResult(Document):
    """One score."""

    dataset: BenchmarkTask = Field(description="Which leaderboard it belongs to.")
    value: float | str = Field(description="The score, on the scale of the leaderboard.")
    verify_token: str | None = Field(
        None, alias="verifyToken", description="Signature of a run that the Hub made: the result counts as verified."
    )
    date: str | dt.datetime | dt.date | None = Field(
        None, description="When it was run, ISO 8601; the time of the commit where null."
    )
    source: ResultSource | None = Field(None, description="Where the result can be looked up.")
    evaluation_framework: str | None = Field(None, description="The framework, as the dataset's eval.yaml names it.")
    notes: str | None = Field(None, description="How it was run: `With tools`.")


class EvalResults(RootModel[list[BenchmarkResult]]):
    """One file: a list of scores."""
