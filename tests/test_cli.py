"""The command line as people and scripts meet it: exit codes, formats, errors. `push` and `demo` have their own tests."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, NamedTuple

import pytest

from repokit import cli

Command = Callable[..., "CompletedProcess[str]"]


class Answer(NamedTuple):
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Answer]

RECIPE = """\
version: 1
source: ./run/checkpoint-200
output: ./dist/demo
license: {id: apache-2.0}
weights: {dtype: bfloat16}
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, in `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith(("REPOKIT_", "NO_COLOR")):
            monkeypatch.delenv(name)

    def answer(*arguments: str | Path) -> Answer:
        capfd.readouterr()
        code = cli.run(list(map(str, arguments)))
        return Answer(code, *capfd.readouterr())

    return answer


@pytest.fixture
def recipe(checkpoint: Path, tmp_path: Path) -> Path:
    """A recipe beside the checkpoint that it names."""
    assert checkpoint.is_dir()
    path = tmp_path / "repokit.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


@pytest.fixture
def finished(recipe: Path, run: Run) -> Path:
    """A directory that `repokit build` made."""
    assert run("build").code == 0
    return recipe.parent / "dist" / "demo"


def broken(repository: Path) -> Path:
    """The same repository with the tail of its weights cut off."""
    weights = repository / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    return repository


# ------------------------------------------------------------------------------------------------ exit codes


def test_init_is_done_with_0(checkpoint: Path, run: Run) -> None:
    assert run("init", checkpoint).code == 0


def test_build_is_done_with_0(recipe: Path, run: Run) -> None:
    assert run("build", recipe).code == 0


def test_lint_of_a_clean_repository_is_0(finished: Path, run: Run) -> None:
    assert run("lint", finished).code == 0


def test_lint_with_an_error_finding_is_1(finished: Path, run: Run) -> None:
    assert run("lint", broken(finished)).code == 1


def test_lint_that_never_fails_is_0(finished: Path, run: Run) -> None:
    assert run("lint", broken(finished), "--fail-on", "never").code == 0


def test_lint_fails_on_the_severity_that_is_asked_for(finished: Path, run: Run) -> None:
    """A dtype that the weights do not have is a warning."""
    config = json.loads((finished / "config.json").read_bytes())
    (finished / "config.json").write_text(json.dumps({**config, "dtype": "float32"}), encoding="utf-8")
    assert [run("lint", finished, "--fail-on", level).code for level in ("error", "warning")] == [0, 1]


def test_build_without_a_license_is_1(recipe: Path, run: Run) -> None:
    recipe.write_text(RECIPE.replace("{id: apache-2.0}", "{id: null}"), encoding="utf-8")
    assert run("build", recipe).code == 1


def test_stale_schemas_are_1(tmp_path: Path, run: Run) -> None:
    run("schema", "export", tmp_path)
    (tmp_path / "recipe.schema.json").write_text("{}", encoding="utf-8")
    assert run("schema", "export", tmp_path, "--check").code == 1


CANNOT_RUN = {
    "no verb": [],
    "unknown verb": ["lnit"],
    "unknown flag": ["lint", "--fix-everything"],
    "unknown word for a flag": ["lint", ".", "--fail-on", "everything"],
    "too many arguments": ["lint", ".", "elsewhere"],
    "no such directory": ["lint", "not-here"],
    "a file": ["lint", "repokit.yaml"],
    "a repository on the Hub": ["lint", "org/name"],
    "no such rule": ["lint", ".", "--select", "IDX999"],
    "no such rule to show": ["rules", "missing-sharp"],
    "no such checkpoint": ["init", "not-here"],
    "a recipe that is there": ["init", "run/checkpoint-200"],
    "no such recipe": ["build", "not-here.yaml"],
    "flags that do not go together": ["build", "--plan", "p.json", "--apply", "q.json"],
    "no such plan": ["build", "--apply", "not-here.json"],
}


@pytest.mark.parametrize("arguments", CANNOT_RUN.values(), ids=CANNOT_RUN.keys())
def test_what_cannot_run_is_2(arguments: list[str], recipe: Path, run: Run) -> None:
    assert recipe.exists()
    assert run(*arguments).code == 2


def test_a_mistyped_key_of_the_recipe_is_2(recipe: Path, run: Run) -> None:
    recipe.write_text(RECIPE + "weigths: {dtype: bfloat16}\n", encoding="utf-8")
    assert run("build", recipe).code == 2


def test_a_target_that_is_not_repokits_is_2(recipe: Path, run: Run) -> None:
    (recipe.parent / "dist" / "demo").mkdir(parents=True)
    (recipe.parent / "dist" / "demo" / "thesis.txt").write_text("three years of work", encoding="utf-8")
    assert run("build", recipe).code == 2


def test_ctrl_c_is_130(recipe: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("repokit.api.build", interrupted)
    assert run("build", recipe).code == 130


# ------------------------------------------------------------------------------------------------ errors


def lines_of(answer: Answer) -> list[str]:
    return [line.split()[0].rstrip(":") for line in answer.err.splitlines() if line]


def test_an_error_is_what_why_and_next(recipe: Path, run: Run) -> None:
    recipe.write_text(RECIPE.replace("{id: apache-2.0}", "{id: null}"), encoding="utf-8")
    assert lines_of(run("build", recipe)) == ["error", "why", "next"]


ERRORS = [["lint", "not-here"], ["init", "not-here"], ["build", "not-here.yaml"], ["rules", "not-a-rule"]]


@pytest.mark.parametrize("arguments", ERRORS, ids=" ".join)
def test_an_error_says_what_to_do_next(arguments: list[str], run: Run) -> None:
    said = lines_of(run(*arguments))
    assert (said[0], said[-1], "Traceback" in said) == ("error", "next", False)


def test_an_error_leaves_stdout_empty(run: Run) -> None:
    assert run("lint", "not-here").out == ""


def test_a_mistyped_key_gets_a_suggestion(recipe: Path, run: Run) -> None:
    recipe.write_text(RECIPE + "weigths: {dtype: bfloat16}\n", encoding="utf-8")
    assert "weights" in run("build", recipe).err


def test_escape_sequences_of_a_file_name_do_not_reach_the_terminal(tmp_path: Path, run: Run) -> None:
    name = "\x1b[2Jgone"
    (tmp_path / name).mkdir()
    (tmp_path / name / "model.safetensors").write_bytes(b"\x00")
    answer = run("lint", tmp_path / name)
    assert "\x1b" not in answer.out + answer.err


@pytest.fixture
def bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in repokit, wherever lint leads."""

    def fails(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("repokit.api.lint", fails)


@pytest.mark.usefixtures("bug")
def test_an_internal_error_is_2_and_says_that_it_is_one(run: Run) -> None:
    answer = run("lint", ".")
    assert (answer.code, "internal error: ZeroDivisionError: by zero" in answer.err) == (2, True)


@pytest.mark.usefixtures("bug")
def test_an_internal_error_shows_no_traceback(run: Run) -> None:
    assert "Traceback" not in run("lint", ".").err


@pytest.mark.usefixtures("bug")
def test_with_debug_an_internal_error_is_raised(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPOKIT_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run("lint", ".")


@pytest.mark.usefixtures("recipe")
def test_a_bug_in_a_rule_is_2_beside_the_findings_of_the_others(
    finished: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from repokit.linter.rules.weights import EmptyTensor

    def fails(_rule: object, _repository: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(EmptyTensor, "check", fails)
    answer = run("lint", finished)
    assert (answer.code, "rule WGT101 failed: ZeroDivisionError: by zero" in answer.out) == (2, True)


def test_a_usage_error_says_so_on_stderr(run: Run) -> None:
    answer = run("lint", "--fix-everything")
    assert (answer.out, "--fix-everything" in answer.err) == ("", True)


# ------------------------------------------------------------------------------------------------ formats


def test_init_as_json(checkpoint: Path, run: Run) -> None:
    assert run("init", checkpoint, "--json").document["needs"] == ["repo", "license.id"]


def test_build_as_json(recipe: Path, run: Run) -> None:
    document = run("build", recipe, "--json").document
    assert {file["path"] for file in document["files"]} >= {"model.safetensors", "README.md", "LICENSE", "config.json"}


def test_a_dry_run_as_json(recipe: Path, run: Run) -> None:
    document = run("build", recipe, "--dry-run", "--json").document
    assert ("model.safetensors" in document["files"], (recipe.parent / "dist").exists()) == (True, False)


def test_lint_as_json_keeps_its_contract(finished: Path, run: Run) -> None:
    from repokit.schema.report import Report

    report = Report.model_validate_json(run("lint", broken(finished), "--json").out)
    assert (report.summary.errors, report.findings[0].path) == (1, "model.safetensors")


def test_rules_as_json(run: Run) -> None:
    assert {"code", "name", "severity", "summary", "why"} <= run("rules", "--json").document[0].keys()


def test_one_rule_as_json(run: Run) -> None:
    assert [rule["name"] for rule in run("rules", "IDX101", "--json").document] == ["missing-shard"]


def test_schema_export_as_json(tmp_path: Path, run: Run) -> None:
    document = run("schema", "export", tmp_path / "new", "--json").document
    assert (document["folder"], "recipe.schema.json" in document["stale"]) == (str(tmp_path / "new"), True)


QUIET = {
    "init": (["init", "run/checkpoint-200", "-o", "other.yaml"], "other.yaml\n"),
    "build": (["build"], None),
    "rules": (["rules", "missing-shard"], "IDX101\n"),
    "lint": (["lint", "run/checkpoint-200", "--select", "FIL101"], ""),
}


@pytest.mark.parametrize(("arguments", "value"), QUIET.values(), ids=QUIET.keys())
def test_quiet_prints_the_one_value_that_a_script_needs(
    arguments: list[str], value: str | None, recipe: Path, run: Run
) -> None:
    answer = run(*arguments, "-q")
    expected = f"{recipe.parent / 'dist' / 'demo'}\n" if value is None else value
    assert (answer.out.replace("dist/demo", expected.strip()) if value is None else answer.out) == expected


def test_quiet_says_nothing_beside_it(recipe: Path, run: Run) -> None:
    assert run("build", recipe, "-q").err == ""


def test_format_from_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPOKIT_FORMAT", "json")
    assert run("rules", "IDX101").document[0]["code"] == "IDX101"


def test_a_flag_wins_over_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPOKIT_FORMAT", "json")
    assert run("rules", "IDX101", "-q").out == "IDX101\n"


def test_an_unknown_format_in_the_environment_is_text(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPOKIT_FORMAT", "papyrus")
    assert run("rules", "IDX101").out.startswith("IDX101 missing-shard")


def test_messages_go_to_stderr(recipe: Path, run: Run) -> None:
    answer = run("build", recipe)
    assert ("built" in answer.out, "plan" in answer.err, "plan" in answer.out) == (True, True, False)


# ------------------------------------------------------------------------------------------------ as a process


def test_version(command: Command) -> None:
    import repokit

    assert command("--version").stdout == f"repokit {repokit.__version__}\n"


def test_a_reader_that_went_away_is_no_error(environment: dict[str, str]) -> None:
    """`repokit rules | head -1`: the pipe is closed before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "repokit", "rules"]
    done = subprocess.run(command, env=environment, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_names_of_files_are_escaped_in_every_format(command: Command, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a\x1b[2J.json").write_text("{")
    for flags in ([], ["--json"], ["-q"]):
        assert "\x1b" not in command("lint", "model", *flags).stdout


@pytest.fixture
def on_terminal(environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Runs a command with a terminal as its stdout and stderr."""
    main, other = pty.openpty()

    def run(*arguments: str | Path, **variables: str) -> str:
        subprocess.run(
            [sys.executable, "-m", "repokit", *map(str, arguments)],
            cwd=tmp_path,
            env={**environment, "TERM": "xterm", **variables},
            stdin=subprocess.DEVNULL,
            stdout=other,
            stderr=other,
            check=False,
        )
        return os.read(main, 1 << 16).decode()

    yield run
    os.close(main)
    os.close(other)


def test_a_terminal_gets_colours(checkpoint: Path, on_terminal: Callable[..., str]) -> None:
    assert "\x1b[" in on_terminal("lint", checkpoint)


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
def test_no_colours_where_they_are_not_wanted(
    variables: dict[str, str], checkpoint: Path, on_terminal: Callable[..., str]
) -> None:
    assert "\x1b[" not in on_terminal("lint", checkpoint, **variables)


def test_no_colours_in_a_pipe(checkpoint: Path, command: Command) -> None:
    done = command("lint", checkpoint)
    assert "\x1b[" not in done.stdout + done.stderr


BUILD = """
version: 1
source: ./run/checkpoint-200
output: ./out
license: {id: apache-2.0}
"""


def test_a_plan_is_carried_out_from_any_folder(command: Command, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "repokit.yaml").write_text(BUILD)
    assert command("build", "--plan", "plan.json").returncode == 0
    (tmp_path / "elsewhere").mkdir()
    done = command("build", "--apply", tmp_path / "plan.json", "-q", cwd=tmp_path / "elsewhere")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_a_plan_carries_the_waivers_of_its_recipe(command: Command, checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "generation_config.json").write_text('{"eos_token_id": 100000}')
    waivers = ", ".join(f"{{code: {code}, reason: a test}}" for code in ("GEN", "TOK", "TPL"))
    (tmp_path / "repokit.yaml").write_text(BUILD)
    assert command("build", "--plan", "plan.json").returncode == 1
    (tmp_path / "repokit.yaml").write_text(f"{BUILD}lint: {{ignore: [{waivers}]}}\n")
    assert command("build", "--plan", "plan.json").returncode == 0
    assert command("build", "--apply", "plan.json").returncode == 0


def test_a_plan_carries_what_is_kept(command: Command, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "repokit.yaml").write_text(BUILD)
    command("build")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    assert command("build", "--plan", "plan.json", "--keep", "notes.txt").returncode == 0
    done = command("build", "--apply", "plan.json")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("flags", [["init", "run/checkpoint-200", "-o"], ["build", "--plan"]])
def test_a_file_that_cannot_be_written_is_no_bug(command: Command, checkpoint: Path, tmp_path: Path, flags) -> None:
    (tmp_path / "repokit.yaml").write_text(BUILD)
    done = command(*flags, "absent/file")
    assert done.returncode == 2
    assert "cannot be written" in done.stderr


def test_what_was_kept_once_stays_a_person_s(command: Command, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "repokit.yaml").write_text(BUILD)
    command("build")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    assert command("build", "--keep", "notes.txt").returncode == 0
    done = command("build")
    assert done.returncode == 2
    assert "notes.txt" in done.stderr
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("flag", ["--dry-run", "--plan=plan.json"])
def test_a_plan_looks_at_the_output_too(command: Command, checkpoint: Path, tmp_path: Path, flag: str) -> None:
    (tmp_path / "repokit.yaml").write_text(BUILD)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    done = command("build", flag)
    assert done.returncode == 2
    assert "was not built by repokit" in done.stderr


def test_messages_name_the_recipe_that_was_read(command: Command, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(BUILD.replace("license: {id: apache-2.0}", ""))
    assert "mine.yaml" in command("build", "mine.yaml").stderr


def test_the_next_command_of_a_build_finds_its_recipe(command: Command, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(BUILD)
    assert "repokit push out --recipe mine.yaml" in command("build", "mine.yaml").stdout


def test_a_directory_without_a_model_is_not_clean(command: Command, tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"x")
    done = command("lint")
    assert done.returncode == 2
    assert "holds no model" in done.stderr


def test_a_selection_of_no_rules_is_not_clean(command: Command, checkpoint: Path) -> None:
    assert command("lint", checkpoint, "--select", "IDX", "--ignore", "IDX").returncode == 2


WAIVED = "lint: {ignore: [{code: FIL201, reason: a test}]}\n"


def test_lint_knows_the_waivers_of_the_recipe_that_builds_the_directory(
    command: Command, checkpoint: Path, tmp_path: Path
) -> None:
    assert command("lint", checkpoint).returncode == 1
    (tmp_path / "repokit.yaml").write_text(f"version: 1\nsource: ./elsewhere\noutput: ./run/checkpoint-200\n{WAIVED}")
    done = command("lint", checkpoint)
    assert done.returncode == 0, done.stdout
    assert "repokit.yaml, 1 waiver" in done.stderr


def test_lint_does_not_ask_the_recipe_of_another_directory(command: Command, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "repokit.yaml").write_text(BUILD + WAIVED)
    assert command("lint", checkpoint).returncode == 1


def test_lint_knows_the_waivers_of_pyproject(command: Command, checkpoint: Path, tmp_path: Path) -> None:
    settings = '[tool.repokit.lint]\nignore = [{code = "FIL201", reason = "a test"}]\n'
    (tmp_path / "pyproject.toml").write_text(settings)
    assert command("lint", checkpoint).returncode == 0


def test_a_pyproject_of_another_tool_says_nothing(command: Command, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n')
    done = command("lint", checkpoint)
    assert done.returncode == 1
    assert "settings" not in done.stderr


def test_an_error_is_a_document_for_a_program(run: Run) -> None:
    answer = run("lint", "nowhere", "--json")
    assert (answer.code, answer.document["error"]["kind"]) == (2, "MissingInput")


def test_a_stopped_build_is_a_document_too(recipe: Path, run: Run, checkpoint: Path) -> None:
    broken(checkpoint)
    assert run("build", "--format=json").document["error"]["path"].endswith("model.safetensors")


def test_init_says_which_checkpoint_of_a_run_it_took(command, checkpoint):
    done = command("init", checkpoint.parent)
    assert f"  source        {checkpoint.name}, the only one" in done.stderr
    assert "also there" not in done.stderr
