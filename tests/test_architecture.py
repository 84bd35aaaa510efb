"""The import contracts of pyproject.toml hold, and they bite: a planted import is named."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("importlinter", reason="import-linter is not installed")

Contracts = Callable[[], "subprocess.CompletedProcess[str]"]

_PROGRAM = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"


@pytest.fixture
def copy(tmp_path: Path, checkout: Path) -> Path:
    """A copy of the package and its contracts, for planting imports in."""
    ignored = shutil.ignore_patterns("data", "__pycache__")
    shutil.copytree(checkout / "repokit", tmp_path / "repokit", ignore=ignored)
    shutil.copy(checkout / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.fixture
def contracts(copy: Path, environment: dict[str, str]) -> Contracts:
    """Checks the contracts on the copy."""

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            cwd=copy,
            env={**environment, "PYTHONPATH": str(copy), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_contracts_hold(contracts: Contracts) -> None:
    done = contracts()
    assert done.returncode == 0, done.stdout


# What is planted, where, and what the answer must name.
PLANTED = [
    ("formats/safetensors.py", "import torch", "repokit.formats.safetensors -> torch"),
    ("linter/engine.py", "def late():\n    import transformers", "repokit.linter.engine -> transformers"),
    ("repo/weights.py", "import numpy", "repokit.repo.weights -> numpy"),
    ("builder/build.py", "import huggingface_hub", "repokit.builder.build -> huggingface_hub"),
    ("builder/execution/uploads.py", "import fsspec", "repokit.builder.execution.uploads -> fsspec"),
    ("repo/chat_template.py", "import jinja2", "repokit.repo.chat_template -> jinja2"),
    ("api/linting.py", "import typer", "repokit.api.linting -> typer"),
    ("formats/paths.py", "import repokit.repo.source", "repokit.formats.paths -> repokit.repo.source"),
    ("architectures/live.py", "import transformers", "repokit.architectures.live -> transformers"),
    (
        "architectures/member.py",
        "import repokit.formats.paths",
        "repokit.architectures.member -> repokit.formats.paths",
    ),
    (
        "linter/engine.py",
        "import repokit.architectures.deriver",
        "repokit.linter.engine -> repokit.architectures.deriver",
    ),
    ("builder/build.py", "import repokit.linter.engine", "repokit.builder.build -> repokit.linter.engine"),
    ("repo/source.py", "import repokit.builder", "repokit.repo.source -> repokit.builder"),
]


@pytest.mark.parametrize(("module", "line", "named"), PLANTED, ids=[named for *_, named in PLANTED])
def test_a_planted_import_is_named(copy: Path, contracts: Contracts, module: str, line: str, named: str) -> None:
    planted = copy / "repokit" / module
    planted.write_text(f"{planted.read_text(encoding='utf-8')}\n{line}\n", encoding="utf-8")
    done = contracts()
    assert (done.returncode, named in done.stdout) == (1, True), done.stdout


def test_a_new_package_needs_a_layer(copy: Path, contracts: Contracts) -> None:
    (copy / "repokit" / "extras").mkdir()
    (copy / "repokit" / "extras" / "__init__.py").touch()
    done = contracts()
    assert (done.returncode, "extras" in done.stdout) == (1, True), done.stdout


def test_every_module_is_under_the_contracts(checkout: Path) -> None:
    """A folder without __init__.py is not part of the package, and what is not part of it is not checked."""
    modules = (path for path in (checkout / "repokit").rglob("*.py") if "data" not in path.parts)
    assert [path for path in modules if not (path.parent / "__init__.py").exists()] == []


FORBIDDEN_NAMES = {"utils", "util", "helpers", "common", "manager", "base", "misc"}


def test_no_module_has_a_name_that_says_nothing(checkout: Path) -> None:
    names = {path.stem if path.is_file() else path.name for path in (checkout / "repokit").rglob("*")}
    assert names & FORBIDDEN_NAMES == set()


def test_no_top_level_module_hides_the_standard_library(checkout: Path) -> None:
    names = {path.stem for path in (checkout / "repokit").iterdir()} - {"__init__", "__main__"}
    assert names & sys.stdlib_module_names == set()
