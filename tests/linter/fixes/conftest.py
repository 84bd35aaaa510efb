"""What one rule's fixes make of a repository."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from repokit.formats.safetensors import Header, read_header
from repokit.linter.editing import applied
from repokit.linter.examples import BASES, Change, Example
from repokit.linter.rule import Rule
from repokit.linter.rules import RULES
from repokit.repo.overlay import Overlay
from repokit.repo.repository import Repository
from repokit.repo.worker import Worker

MOST = 20  # fixes in a row


@dataclass(frozen=True)
class Mended:
    """A repository once a rule has nothing more to fix.

    Attributes:
        titles: Of the fixes, in their order.
        overlay: The repository.
    """

    titles: tuple[str, ...]
    overlay: Overlay

    def bytes(self, path: str) -> bytes:
        return self.overlay.read(path)

    def text(self, path: str) -> str:
        return self.bytes(path).decode()

    def json(self, path: str) -> Any:
        return json.loads(self.bytes(path))

    def header(self, path: str) -> Header:
        size = self.overlay.entries()[path].size
        return read_header(lambda offset, length: self.overlay.read(path, offset, length), size, path)

    def names(self, path: str) -> set[str]:
        return {tensor.name for tensor in self.header(path).tensors}

    @property
    def changed(self) -> set[str]:
        return set(self.overlay.changed)


Mend = Callable[..., Mended]


def rule_of(code: str) -> Rule:
    return next(rule for rule in RULES if rule.code == code)


@pytest.fixture
def mend(worker: Worker) -> Mend:
    """Applies the fixes of one rule until it proposes none."""

    def run(code: str, change: Mapping[str, Change], base: str = "single") -> Mended:
        assert base in BASES
        rule, overlay, titles = rule_of(code), Overlay(Example("", change, base).source()), []
        for _ in range(MOST):
            repository = Repository(overlay)
            repository._worker = worker
            fixes = (rule.fix(repository, finding) for finding in rule.check(repository))
            if (fix := next((one for one in fixes if one is not None), None)) is None:
                return Mended(tuple(titles), overlay)
            titles.append(fix.title)
            overlay = applied(overlay, fix.edits)
        pytest.fail(f"{code} does not come to an end: {titles}")

    return run
