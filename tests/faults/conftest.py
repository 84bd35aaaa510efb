"""What the whole table of rules says about a repository in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from repokit.linter.engine import lint
from repokit.linter.examples import Example
from repokit.linter.finding import Report
from repokit.repo.repository import Repository
from repokit.repo.worker import Worker


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    """One worker for all of them: starting one takes longer than most rules."""
    with Worker() as shared:
        yield shared


@pytest.fixture(scope="session")
def report_of(worker: Worker) -> Callable[[Example], Report]:
    """The report over an example, worked out once for all tests that ask."""
    known: dict[int, Report] = {}

    def report(example: Example) -> Report:
        if id(example) not in known:
            repository = Repository(example.source())
            repository._worker = worker
            known[id(example)] = lint(repository)
        return known[id(example)]

    return report
