"""What a command loads: `--help` and `lint DIR` must answer before anything heavy is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from repokit.cli import app

Loaded = Callable[..., set[str]]

# Runs a command in its own process, then says which top-level modules it has loaded.
_PROGRAM = """
import json, os, sys
from repokit.cli import run
stdout, sys.stdout = sys.stdout, open(os.devnull, "w")
code = run(sys.argv[1:])
loaded = sorted({name.partition(".")[0] for name in sys.modules})
json.dump({"code": code, "loaded": loaded}, stdout)
"""

HEAVY = {"torch", "transformers", "huggingface_hub", "numpy", "tokenizers", "safetensors"}
COMMANDS = [
    (),
    *((info.name,) for info in app.registered_commands),
    *((info.name,) for info in app.registered_groups),
    *((group.name, info.name) for group in app.registered_groups for info in group.typer_instance.registered_commands),
]


@pytest.fixture
def loaded(environment: dict[str, str], tmp_path: Path) -> Loaded:
    """The top-level modules that a command has loaded when it ends."""

    def run(*arguments: str) -> set[str]:
        command = [sys.executable, "-c", _PROGRAM, *arguments]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout)
        assert answer["code"] in {0, 1}, done.stderr
        return set(answer["loaded"])

    return run


def test_commands_are_those_of_the_readme() -> None:
    named = {"init", "inspect", "build", "lint", "push", "verify", "rules", "schema", "demo"}
    assert {words[0] for words in COMMANDS if words} == named


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_the_first_words_load_no_schema_either(flag: str, loaded: Loaded) -> None:
    assert loaded(flag).isdisjoint(HEAVY | {"pydantic", "jinja2", "yaml", "rich"})


# With its 0.29, typer itself takes pydantic to read a command's parameters, so that this is not asked of their help.
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_loads_nothing_heavy(words: tuple[str, ...], loaded: Loaded) -> None:
    assert loaded(*words, "--help").isdisjoint(HEAVY | {"jinja2", "yaml"})


def test_lint_loads_nothing_heavy(checkpoint: Path, loaded: Loaded) -> None:
    assert loaded("lint", str(checkpoint)).isdisjoint(HEAVY)


def test_inspect_loads_nothing_heavy(checkpoint: Path, loaded: Loaded) -> None:
    assert loaded("inspect", str(checkpoint)).isdisjoint(HEAVY)


def test_lint_json_loads_nothing_heavy(checkpoint: Path, loaded: Loaded) -> None:
    assert loaded("lint", str(checkpoint), "--json").isdisjoint(HEAVY)


def test_rules_load_nothing_heavy(loaded: Loaded) -> None:
    assert loaded("rules").isdisjoint(HEAVY)


def test_importing_the_package_loads_only_its_version(environment: dict[str, str]) -> None:
    program = "import sys; before = set(sys.modules); import repokit; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if name.startswith("repokit")} == {"repokit", "repokit.version"}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_says_what_a_command_does(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    from repokit.cli import run

    code = run([*words, "--help"])
    usage, _, summary, *_ = capsys.readouterr().out.splitlines()
    assert (code, usage.split()[0], bool(summary.strip())) == (0, "Usage:", True)
