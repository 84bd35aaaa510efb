"""Real files from public repositories, where REPOKIT_CORPUS points at them: no rule may break."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from repokit.linter.engine import lint
from repokit.repo.directory import Directory
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

CORPUS = os.environ.get("REPOKIT_CORPUS")
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(CORPUS is None, reason="REPOKIT_CORPUS does not point at a folder of real repositories"),
]
KINDS = ("generation_config.json", "tokenizer_config.json", "adapter_config.json", "preprocessor_config.json")


def repositories() -> list[Path]:
    return sorted(path for path in Path(CORPUS or os.devnull).glob("**/model_repos/*") if path.is_dir())


def configs() -> Iterator[tuple[Path, str]]:
    """Files that are a config by the end of their name, wherever they lie."""
    for path in sorted(Path(CORPUS or os.devnull).glob("**/*config*.json")):
        kind = next((kind for kind in KINDS if path.name.endswith(kind)), "config.json")
        yield path, kind


@pytest.mark.parametrize("folder", repositories(), ids=lambda folder: folder.name)
def test_no_rule_breaks_over_a_real_repository(folder: Path) -> None:
    with Repository(Directory(folder)) as repository:
        assert lint(repository).coverage.broken == {}


def test_no_rule_breaks_over_real_configs() -> None:
    broken: dict[str, object] = {}
    for path, kind in configs():
        with Repository(Memory({kind: path.read_bytes()})) as repository:
            if found := lint(repository).coverage.broken:
                broken[str(path)] = found
    assert broken == {}
