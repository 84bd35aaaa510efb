"""Repositories of examples, and a Source that writes down what is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from repokit.linter.examples import Example
from repokit.repo.repository import Repository
from repokit.repo.source import Entry, Source
from repokit.repo.worker import Worker

Open = Callable[[Example], Repository]


@dataclass
class Recording:
    """A Source that remembers every range that is asked for: path to (offset, length)."""

    source: Source
    reads: dict[str, list[tuple[int, int | None]]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.source.label

    def entries(self) -> Mapping[str, Entry]:
        return self.source.entries()

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self.reads.setdefault(path, []).append((offset, length))
        return self.source.read(path, offset, length)


@pytest.fixture
def opened(worker: Worker) -> Open:
    """The repository of an example."""

    def open_example(example: Example) -> Repository:
        repository = Repository(example.source())
        repository._worker, repository.identity = worker, example.identity
        if example.against is not None:
            repository.base_model = Repository(Example("base", base=example.against).source())
        return repository

    return open_example


@pytest.fixture
def recorded(worker: Worker) -> Callable[[Source], tuple[Repository, Recording]]:
    """A repository over a source, and what was read of it."""

    def open_source(source: Source) -> tuple[Repository, Recording]:
        recording = Recording(source)
        repository = Repository(recording)
        repository._worker = worker
        return repository, recording

    return open_source
