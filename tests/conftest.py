"""What tests of several packages share: the checkout, and the command line as a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent

# What would change how a command behaves: the settings of whoever runs the tests.
_SETTINGS = ("HF_", "HUGGING_FACE_", "REPOKIT_", "NO_COLOR", "PYTHON")

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the checkout."""
    return CHECKOUT


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """An environment in which Python finds this checkout first, and no setting of the person who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
    return {**kept, "PYTHONPATH": str(CHECKOUT)}


@pytest.fixture
def command(tmp_path: Path, environment: dict[str, str]) -> Command:
    """Runs `repokit ARGUMENTS` in `tmp_path`, with the given variables set."""

    def run(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "repokit", *map(str, arguments)],
            cwd=tmp_path,
            env={**environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy of the checkpoint that `repokit demo` starts from: a Trainer wrote it, leftovers included."""
    shutil.copytree(CHECKOUT / "repokit" / "data" / "demo" / "trainer-output", tmp_path / "run")
    return tmp_path / "run" / "checkpoint-200"
