"""A pickled checkpoint on the command line, from `init` to a repository that lints clean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from repokit.linter.examples import tensors_of
from repokit.linter.examples_torch import called, torch_file

Command = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def pickled(checkpoint: Path) -> Path:
    """The demo's checkpoint with its weights in a pickle."""
    stored = checkpoint / "model.safetensors"
    (checkpoint / "pytorch_model.bin").write_bytes(torch_file(tensors_of(stored.read_bytes())))
    stored.unlink()
    return checkpoint


def test_a_pickle_becomes_a_repository(pickled: Path, command: Command, tmp_path: Path) -> None:
    assert command("init", pickled).returncode == 0
    recipe = tmp_path / "repokit.yaml"
    recipe.write_text(recipe.read_text().replace("  id: null  ", "  id: apache-2.0  ", 1))
    built = command("build")
    assert built.returncode == 0, built.stderr
    assert command("lint", tmp_path / "dist" / "run").returncode == 0


def test_a_pickle_that_runs_code_ends_with_what_it_names(pickled: Path, command: Command, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    attack = torch_file({"w": ("F32", (2, 2))}, called("os", "system", f"touch {canary}"))
    (pickled / "pytorch_model.bin").write_bytes(attack)
    answers = [command(verb, pickled) for verb in ("init", "lint", "inspect")]
    assert [answer.returncode for answer in answers[:2]] == [2, 1]
    assert all("os.system" in answer.stdout + answer.stderr for answer in answers[:2])
    assert not canary.exists()
