"""README.md says what the code does: what is made from it is fresh, and what a person wrote names what is there."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from itertools import takewhile
from pathlib import Path

import pytest

from repokit.cli import app


@pytest.fixture(scope="module")
def readme(checkout: Path) -> str:
    return (checkout / "README.md").read_text(encoding="utf-8")


def test_what_is_made_from_the_code_is_fresh(checkout: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, str(checkout / ".ci" / "readme.py"), "--check"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def commands(readme: str) -> list[str]:
    """The lines of the shell blocks on the first screen."""
    return re.findall(r"```bash\n(.+)\n```", readme.partition("## Quick start")[0])


def test_the_first_screen_has_two_commands(readme: str) -> None:
    demo, tests = commands(readme)
    assert (demo.rpartition(" && ")[2], tests.rpartition(" && ")[2]) == (
        ".venv/bin/repokit demo",
        ".venv/bin/python -m pytest -n 2 --dist loadfile",
    )


def test_ci_runs_the_tests_as_the_readme_says(readme: str, checkout: Path) -> None:
    command = commands(readme)[1].rpartition(".venv/bin/python ")[2]
    assert f'"$python" {command} ' in (checkout / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1]


def test_every_verb_is_in_the_table(readme: str) -> None:
    verbs = {info.name for info in app.registered_commands} | {group.name for group in app.registered_groups}
    assert set(re.findall(r"^\| `repokit (\w+)", readme, re.MULTILINE)) == verbs


def test_environment_variables_are_those_that_the_code_reads(readme: str, checkout: Path) -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (checkout / "repokit").rglob("*.py"))
    assert set(re.findall(r"`(REPOKIT_\w+)`", readme)) == set(re.findall(r'"(REPOKIT_\w+)"', sources))


def test_layers_are_those_of_the_contract(readme: str, checkout: Path) -> None:
    contracts = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layers,) = (contract["layers"] for contract in contracts["contracts"] if contract["id"] == "layers")
    assert f"\n{' > '.join(layers)}\n" in readme


def test_the_tree_names_what_is_there(readme: str, checkout: Path) -> None:
    tree = readme.partition("```\nrepokit/\n")[2].partition("\nschemas/")[0]
    named, above = set(), ""
    for line in tree.splitlines():
        first, *others = line.split()
        names = [first.rstrip("/,"), *(word.rstrip("/") for word in takewhile(lambda word: word.endswith("/"), others))]
        inside = line.startswith("    ")
        named |= {f"{above}/{name}" if inside else name for name in names}
        above = above if inside else names[0]
    assert {"cli", "builder/gguf", "operations.py"} <= named
    assert {name for name in named if not (checkout / "repokit" / name).exists()} == set()


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_links_to_files_lead_somewhere(document: str, checkout: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (checkout / document).read_text(encoding="utf-8"))
    assert [link for link in links if not (checkout / link).exists()] == []
