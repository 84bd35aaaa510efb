"""`repokit lint ADAPTER --base FOLDER` as it is typed, and the folder that the adapter itself names."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from repokit import api
from repokit.linter.examples import lora, single

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """A LoRA of a two-layer llama."""
    folder = tmp_path / "adapters" / "french"
    folder.mkdir(parents=True)
    for path, content in lora().items():
        (folder / path).write_bytes(content)
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The config of a llama of three layers."""
    folder = tmp_path / "adapters" / "base"
    folder.mkdir(parents=True)
    config = {**json.loads(single()["config.json"]), "num_hidden_layers": 3}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def names(adapter: Path, base: str) -> None:
    """Lets an adapter name another base."""
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "base_model_name_or_path": base}))


def codes(adapter: Path, **options: Path) -> list[str]:
    found = api.lint(adapter, selection=api.Selection(("ADP1",)), **options).report.findings
    return [finding.code for finding in found if finding.code != "ADP101"]


def test_the_base_that_is_given_counts(adapter: Path, base: Path) -> None:
    assert codes(adapter, base=base) == ["ADP118"]


def test_no_base_is_looked_for_by_its_id(adapter: Path, base: Path) -> None:
    names(adapter, "adapters/base")
    assert codes(adapter) == []


def test_a_folder_that_the_adapter_names_counts(adapter: Path, base: Path) -> None:
    names(adapter, str(base))
    assert codes(adapter) == ["ADP118"]


def test_a_folder_is_named_from_where_the_adapter_lies(adapter: Path, base: Path) -> None:
    names(adapter, "../base")
    assert codes(adapter) == ["ADP118"]


@pytest.mark.parametrize(
    "path", ["//host/share/base", "\\\\host\\share\\base", "../gone", "../ba\0se", "/" + "x" * 5000]
)
def test_a_path_that_leads_nowhere_is_no_base(adapter: Path, base: Path, path: str) -> None:
    names(adapter, path)
    assert codes(adapter) == []


def test_the_command_says_where_the_base_is_from(command: Run, adapter: Path, base: Path) -> None:
    found = command("lint", adapter, "--base", base)
    assert (found.returncode, "ADP118" in found.stdout) == (1, True)
    assert str(base) in found.stderr


def test_a_base_that_is_not_there_is_an_error(command: Run, adapter: Path) -> None:
    found = command("lint", adapter, "--base", "gone")
    assert (found.returncode, found.stdout) == (2, "")
    assert "gone/config.json: does not exist" in found.stderr
