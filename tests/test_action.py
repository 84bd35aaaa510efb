"""action.yml and .pre-commit-hooks.yaml, as the runner of GitHub Actions and pre-commit read them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, NamedTuple

import pytest
import yaml

from repokit.linter.examples import single

BASH = shutil.which("bash") or "bash"
Command = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A repository with one error (CFG101) and one warning (CRD201)."""
    folder = tmp_path / "models" / "a"
    folder.mkdir(parents=True)
    config = {key: value for key, value in json.loads(single()["config.json"]).items() if key != "model_type"}
    for name, content in {**single(), "config.json": json.dumps(config).encode()}.items():
        if name != "README.md":
            (folder / name).write_bytes(content)
    return folder


# ------------------------------------------------------------------------------------------------ the action


@pytest.fixture(scope="module")
def action(checkout: Path) -> dict[str, Any]:
    return yaml.safe_load((checkout / "action.yml").read_text())


def step(action: dict[str, Any], name: str) -> dict[str, Any]:
    return next(step for step in action["runs"]["steps"] if step.get("id") == name)


class Done(NamedTuple):
    """What a step of the action left."""

    code: int
    out: str
    err: str
    outputs: dict[str, str]


Act = Callable[..., Done]


@pytest.fixture
def act(action: dict[str, Any], model: Path, tmp_path: Path, environment: dict[str, str]) -> Act:
    """Runs the script of the step that lints, as the runner does, with inputs; the others have their defaults."""
    shim = tmp_path / "bin" / "repokit"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m repokit "$@"\n')
    shim.chmod(0o755)
    lint = step(action, "lint")

    def run(**inputs: str) -> Done:
        given = {name: str(entry.get("default", "")) for name, entry in action["inputs"].items()} | {
            name.replace("_", "-"): value for name, value in inputs.items()
        }
        variables = {
            name: given[found[1]] if (found := re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value)) else str(shim)
            for name, value in lint["env"].items()
        }
        output = tmp_path / "output"
        output.write_text("")
        files = {"RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(output), "GITHUB_WORKSPACE": str(tmp_path)}
        done = subprocess.run(
            [BASH, "--noprofile", "--norc", "-eo", "pipefail", "-c", lint["run"]],
            cwd=tmp_path,
            env={**environment, "GITHUB_STEP_SUMMARY": "", **variables, **files},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        pairs = (line.partition("=") for line in output.read_text().splitlines())
        return Done(done.returncode, done.stdout, done.stderr, {key: value for key, _, value in pairs})

    return run


def test_no_script_of_the_action_has_an_input_in_it(action: dict[str, Any]) -> None:
    assert not [step for step in action["runs"]["steps"] if "${{" in step.get("run", "")]


def test_every_input_reaches_a_step(action: dict[str, Any]) -> None:
    steps = json.dumps(action["runs"]["steps"])
    assert [name for name in action["inputs"] if f"inputs.{name} " not in steps] == []


def test_the_action_annotates_and_ends_as_lint_does(act: Act) -> None:
    done = act(target="models/a")
    assert (done.code, done.outputs["exit-code"]) == (1, "1")
    assert "::error file=models/a/config.json," in done.out


def test_the_action_leaves_a_sarif_file(act: Act) -> None:
    log = json.loads(Path(act(target="models/a").outputs["sarif"]).read_text())
    assert log["runs"][0]["results"][0]["ruleId"] == "CFG101"


def test_the_action_takes_rules_and_a_severity(act: Act) -> None:
    done = act(target="models/a", select="CRD201,CFG101", ignore="CFG101", fail_on="warning")
    assert (done.code, "CRD201" in done.out, "CFG101" in done.out) == (1, True, False)


def test_the_action_takes_a_baseline(act: Act, command: Command) -> None:
    assert command("lint", "models/a", "--write-baseline=known.json").returncode == 0
    assert act(target="models/a", baseline="known.json").code == 0


def test_the_action_reads_values_where_it_is_asked_to(act: Act) -> None:
    done = act(target="models/a", deep="true", fail_on="never")
    assert done.code == 0, done.err


def test_a_target_that_is_not_there_is_2_without_a_sarif_file(act: Act) -> None:
    done = act(target="nowhere")
    assert (done.code, done.outputs) == (2, {"exit-code": "2"})


HOSTILE = """--fix "; touch pwned; ' $(touch pwned) `touch pwned` * ${IFS}"""


def test_an_input_is_neither_script_nor_flag(act: Act, tmp_path: Path) -> None:
    (tmp_path / "bin" / "repokit").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    names = ("select", "extend_select", "ignore", "fail_on", "baseline", "deep", "target", "hf_token")
    done = act(**dict.fromkeys(names, HOSTILE))
    flags = ("select", "extend-select", "ignore", "fail-on", "baseline")
    assert done.out.splitlines()[3:] == [*(f"--{flag}={HOSTILE}" for flag in flags), "--", HOSTILE]
    assert not (tmp_path / "pwned").exists()


def test_an_input_is_the_value_of_its_flag(act: Act) -> None:
    done = act(target="models/a", select="--fix")
    assert (done.code, "no rule is called '--fix'" in done.err) == (2, True)


def test_the_action_installs_itself_or_the_version_that_is_asked_for(action: dict[str, Any], tmp_path: Path) -> None:
    """With a `python3` that writes down what it is asked to do."""
    fake = tmp_path / "bin" / "python3"
    fake.parent.mkdir()
    fake.write_text(
        '#!/bin/sh\nif [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi\necho "$@" >>"$CALLS"\n'
    )
    fake.chmod(0o755)
    asked = []
    for version in ("", "0.1.0", "1; touch pwned"):
        environment = {
            "PATH": f"{fake.parent}{os.pathsep}{os.environ['PATH']}",
            "CALLS": str(tmp_path / "calls"),
            "VERSION": version,
            "RUNNER_TEMP": str(tmp_path),
            "GITHUB_ACTION_PATH": "/action",
            "GITHUB_OUTPUT": str(tmp_path / "output"),
        }
        subprocess.run([BASH, "-c", step(action, "install")["run"]], cwd=tmp_path, env=environment, check=True)
        asked.append((tmp_path / "calls").read_text().splitlines()[-1].split("--disable-pip-version-check ")[1])
    assert asked == ["/action", "repokit==0.1.0", "repokit==1; touch pwned"]
    assert f"repokit={tmp_path}/repokit-venv/bin/repokit" in (tmp_path / "output").read_text()


# ------------------------------------------------------------------------------------------------ the hooks


@pytest.fixture(scope="module")
def hooks(checkout: Path) -> dict[str, dict[str, Any]]:
    return {hook["id"]: hook for hook in yaml.safe_load((checkout / ".pre-commit-hooks.yaml").read_text())}


def test_a_hook_lints_and_a_hook_fixes(hooks: dict[str, dict[str, Any]]) -> None:
    entries = {name: hook["entry"] for name, hook in hooks.items()}
    assert entries == {"repokit-lint": "repokit lint", "repokit-lint-fix": "repokit lint --fix"}


@pytest.mark.parametrize("name", ["repokit-lint", "repokit-lint-fix"])
def test_a_hook_runs(hooks: dict[str, dict[str, Any]], name: str, model: Path, command: Command) -> None:
    assert command(*hooks[name]["entry"].split()[1:], model, "--select=CRD201").returncode == 0


@pytest.mark.parametrize(
    ("path", "runs"),
    [
        ("config.json", True),
        ("m/model.safetensors", True),
        ("LICENSE", True),
        (".gitattributes", True),
        (".eval_results/x.yaml", True),
        ("src/main.rs", False),
        ("NOLICENSE", False),
    ],
)
def test_a_hook_runs_where_a_file_of_a_model_changes(
    hooks: dict[str, dict[str, Any]], path: str, *, runs: bool
) -> None:
    assert all(bool(re.search(hook["files"], path)) is runs for hook in hooks.values())
