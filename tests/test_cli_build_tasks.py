"""`repokit build --task`, `--finalize`, `--memory` and `--executor` as they are typed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from repokit import cli
from repokit.builder.execution import executors

Run = Callable[..., "subprocess.CompletedProcess[str]"]

RECIPE = """
version: 1
source: run/checkpoint-200
output: out
license: {id: apache-2.0}
weights: {max_shard_size: 20KB}
lint: {ignore: [{code: FIL, reason: "shards of 20 kB"}, {code: IDX, reason: "the same"}]}
"""


@pytest.fixture
def recipe(checkpoint: Path, tmp_path: Path) -> Path:
    """repokit.yaml beside the demo's checkpoint."""
    (tmp_path / "repokit.yaml").write_text(RECIPE, encoding="utf-8")
    return tmp_path


@pytest.fixture
def planned(command: Run, recipe: Path) -> Path:
    """plan.json beside it."""
    done = command("build", "--plan", "plan.json")
    assert done.returncode == 0, done.stderr
    return recipe


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def hidden(root: Path) -> list[str]:
    return [path.name for path in root.iterdir() if path.name.startswith(".out")]


def test_tasks_from_other_folders_give_the_bytes_of_one_build(command: Run, planned: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for number in (3, 1, 2):
        done = command("build", "--apply", planned / "plan.json", "--task", f"{number}/3", cwd=elsewhere)
        assert done.returncode == 0, done.stderr
    done = command("build", "--apply", planned / "plan.json", "--finalize", cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    assert hidden(planned) == []
    (planned / "out").rename(planned / "tasks")
    assert command("build", "--apply", "plan.json").returncode == 0
    assert contents(planned / "tasks") == contents(planned / "out")


def test_a_task_says_what_it_did_and_what_is_left(command: Run, planned: Path) -> None:
    done = command("build", "--apply", "plan.json", "--task", "2/3")
    first, second = done.stdout.splitlines()
    assert first.startswith("task 2/3: ")
    assert second == "next: tasks 1/3, 3/3, then repokit build --apply plan.json --finalize"


def test_the_last_task_says_that_it_is(command: Run, planned: Path) -> None:
    done = command("build", "--apply", "plan.json", "--task", "1/1")
    assert done.stdout.splitlines()[1] == "next: repokit build --apply plan.json --finalize"


def test_a_task_as_json(command: Run, planned: Path) -> None:
    done = command("build", "--apply", "plan.json", "--task", "1/2", "--json")
    found = json.loads(done.stdout)
    assert (found["task"], found["of"], found["reused"], found["waiting"]) == (1, 2, 0, [2])
    assert found["files"]


def test_a_task_in_one_word(command: Run, planned: Path) -> None:
    assert command("build", "--apply", "plan.json", "--task", "1/2", "-q").stdout == "1/2\n"


def test_a_task_again_says_that_nothing_was_left_to_do(command: Run, planned: Path) -> None:
    command("build", "--apply", "plan.json", "--task", "1/1")
    done = command("build", "--apply", "plan.json", "--task", "1/1")
    assert done.returncode == 0
    assert "that it had written before" in done.stderr


def test_what_is_in_place_already_is_said_so(command: Run, planned: Path) -> None:
    command("build", "--apply", "plan.json", "--task", "1/1")
    command("build", "--apply", "plan.json", "--finalize")
    again = command("build", "--apply", "plan.json", "--finalize")
    task = command("build", "--apply", "plan.json", "--task", "1/1")
    assert (again.returncode, task.returncode, hidden(planned)) == (0, 0, [])
    assert again.stdout.startswith("in place already: ")
    assert task.stdout.endswith("out is in place already\n")


def test_what_is_missing_comes_with_the_command(command: Run, planned: Path) -> None:
    command("build", "--apply", "plan.json", "--task", "1/2")
    done = command("build", "--apply", "plan.json", "--finalize")
    assert done.returncode == 2
    lines = [line.strip() for line in done.stderr.splitlines()]
    assert "why  task 2/2 has not finished, or wrote where this machine does not see it" in lines
    assert "next repokit build --apply plan.json --task 2/2" in lines


def test_what_the_tasks_wrote_is_linted_before_it_is_put_in_place(command: Run, planned: Path) -> None:
    command("build", "--apply", "plan.json", "--task", "1/1")
    shard = next(planned.glob(".out.repokit-*/model-00001-*"))
    shard.write_bytes(b"\xff" * shard.stat().st_size)
    done = command("build", "--apply", "plan.json", "--finalize")
    assert (done.returncode, (planned / "out").exists()) == (2, False)
    assert f"{shard.name}: claims a header of" in done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--task", "1/2"], "--task goes with --apply alone"),
        (["--finalize"], "--finalize goes with --apply alone"),
        (["--plan", "p", "--task", "1/2"], "--task goes with --apply alone"),
        (["--apply", "plan.json", "--task", "1/2", "--dry-run"], "--task goes with --apply alone"),
        (["--apply", "plan.json", "--task", "1/2", "--finalize"], "--task writes a part"),
        (["--apply", "plan.json", "--task", "1/2", "--load-check"], "--load-check goes with --finalize"),
        (["--apply", "plan.json", "--task", "3/2"], "there is no task 3/2"),
        (["--apply", "plan.json", "--task", "0/2"], "there is no task 0/2"),
        (["--apply", "plan.json", "--task", "two"], "--task two is not K/N"),
        (["--memory", "8 apples"], "--memory 8 apples is no size"),
        (["--memory", "8MB"], "--memory 8.0 MB is less than the 300.0 MB"),
        (["--executor", "local"], "--executor local is not dask://HOST:PORT"),
    ],
)
def test_flags_that_do_not_go_together(command: Run, recipe: Path, flags: list[str], message: str) -> None:
    done = command("build", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"error: {message}" in done.stderr
    assert "next " in done.stderr
    assert hidden(recipe) == []


def test_memory_is_checked_where_the_plan_is_made(command: Run, recipe: Path) -> None:
    assert command("build", "--plan", "other.json", "--memory", "8MB").returncode == 2
    assert not (recipe / "other.json").exists()


def test_a_build_within_a_memory(command: Run, recipe: Path) -> None:
    assert command("build", "--memory", "1.5GB", "--jobs", "4").returncode == 0


def test_a_plan_that_is_made_again_with_other_sources_is_another_one(command: Run, planned: Path) -> None:
    command("build", "--apply", "plan.json", "--task", "1/1")
    (planned / "repokit.yaml").write_text(RECIPE.replace("20KB", "30KB"), encoding="utf-8")
    command("build", "--plan", "plan.json")
    done = command("build", "--apply", "plan.json", "--finalize")
    assert done.returncode == 2
    assert "had another plan, which was made again since" in done.stderr


@pytest.mark.dask
def test_a_cluster_that_is_not_there_is_three_lines(
    planned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: dask asks again for as long as it may."""
    pytest.importorskip("distributed")
    monkeypatch.setattr(executors, "_TIMEOUT", 1)
    assert cli.run(["build", "--apply", str(planned / "plan.json"), "--executor", "dask://127.0.0.1:9"]) == 2
    said = capsys.readouterr().err
    assert "\nerror: no dask scheduler answers at dask://127.0.0.1:9" in said
    assert "Traceback" not in said
