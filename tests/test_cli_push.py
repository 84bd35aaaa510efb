"""`repokit push` as it is typed: against a Hub on this machine, in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from repokit.linter.examples import single
from repokit.rehearsal import Hub

if TYPE_CHECKING:
    import subprocess

Push = Callable[..., "subprocess.CompletedProcess[str]"]
REPO = "rehearsal/model"

RECIPE = """
version: 1
repo: rehearsal/model
source: ./checkpoint
output: ./dist
push: {tag: v1.0}
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with Hub(tmp_path / "hub", {"hf_rehearsal": "rehearsal", "hf_stranger": "stranger"}) as running:
        yield running
    assert running.failures == []


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """A repository without a finding above a note."""
    directory = tmp_path / "dist"
    directory.mkdir()
    for path, content in single().items():
        (directory / path).write_bytes(content)
    return directory


@pytest.fixture
def push(command, hub: Hub, dist: Path, tmp_path: Path) -> Push:
    def run(*arguments: str, token: str = "hf_rehearsal", xet: bool = False) -> subprocess.CompletedProcess[str]:
        return command(
            "push",
            dist,
            *arguments,
            HF_ENDPOINT=hub.endpoint,
            HF_TOKEN=token,
            HF_HOME=str(tmp_path / "home"),
            HF_HUB_DISABLE_XET="0" if xet else "1",
            HF_HUB_DISABLE_TELEMETRY="1",
        )

    return run


def files(hub: Hub) -> set[str]:
    from huggingface_hub import HfApi

    return set(HfApi(endpoint=hub.endpoint, token=hub.token).list_repo_files(REPO)) - {".gitattributes"}


@pytest.mark.parametrize("xet", [False, True])
def test_a_new_repository(push, hub, dist, xet):
    done = push(REPO, "--create", "--tag", "v1.0", xet=xet)
    assert done.returncode == 0, done.stderr
    assert f"{hub.endpoint}/{REPO}/tree/v1.0" in done.stdout
    assert files(hub) == {path.name for path in dist.iterdir()}
    assert any("/xet-write-token/" in path for _, path in hub.requests) is xet


@pytest.mark.parametrize(
    ("flags", "told"),
    [([], "public, unless its organization makes new ones private"), (["--private"], "private")],
    ids=["left open", "private"],
)
def test_who_will_read_a_new_repository_is_said_before(push, flags, told):
    done = push(REPO, "--create", "--dry-run", *flags)
    assert f"creates the repository {REPO}: {told}" in done.stderr


def test_a_dry_run_touches_nothing(push, hub):
    done = push(REPO, "--create", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "nothing was touched" in done.stdout
    assert all(method in {"GET", "HEAD"} or "validate-yaml" in path for method, path in hub.requests)


def test_a_repository_that_is_absent_names_the_flag_that_creates_it(push):
    done = push(REPO)
    assert done.returncode == 2
    assert "--create" in done.stderr


def test_a_branch_that_is_absent_names_the_flag_that_creates_it(push):
    push(REPO, "--create")
    done = push(REPO, "--revision", "experiment")
    assert done.returncode == 2
    assert "--create-branch" in done.stderr


def test_findings_stop_a_push_and_are_shown(push, hub, dist):
    (dist / "optimizer.pt").write_bytes(b"PK\x03\x04")
    done = push(REPO, "--create")
    assert done.returncode == 1
    assert "FIL201" in done.stderr
    assert hub.requests == []


def test_files_are_not_deleted_unless_somebody_says_yes(push, hub, dist):
    push(REPO, "--create")
    (dist / "LICENSE").unlink()
    done = push(REPO)
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert "LICENSE" in files(hub)


def test_with_yes_the_revision_becomes_the_directory(push, hub, dist):
    push(REPO, "--create")
    (dist / "LICENSE").unlink()
    done = push(REPO, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["deleted"] == ["LICENSE"]
    assert files(hub) == {path.name for path in dist.iterdir()}


def test_the_recipe_of_the_directory_says_where_to(push, tmp_path):
    (tmp_path / "repokit.yaml").write_text(RECIPE)
    done = push("--create", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["repo"], result["tag"]) == (REPO, "v1.0")


def test_the_recipe_of_another_directory_is_not_asked(push, tmp_path):
    (tmp_path / "repokit.yaml").write_text(RECIPE.replace("./dist", "./other"))
    done = push("--create")
    assert done.returncode == 2
    assert "which repository" in done.stderr


def test_a_wrong_token_is_said_and_not_shown(push):
    push(REPO, "--create")
    done = push(REPO, token="hf_" + "wrong" * 7)
    assert done.returncode == 2
    assert "token" in done.stderr
    assert "wrongwrong" not in done.stderr


def test_quiet_prints_the_address_alone(push, hub):
    done = push(REPO, "--create", "-q")
    assert done.stdout.startswith(f"{hub.endpoint}/{REPO}/tree/")
    assert done.stdout.count("\n") == 1


def test_a_recipe_that_was_named_is_asked_whatever_it_builds(push, tmp_path):
    (tmp_path / "other.yaml").write_text(RECIPE.replace("./dist", "./other"))
    done = push("--create", "--recipe", "other.yaml", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tag"] == "v1.0"


def test_a_recipe_that_is_not_asked_is_said(push, tmp_path):
    (tmp_path / "repokit.yaml").write_text(RECIPE.replace("./dist", "./other"))
    done = push(REPO, "--create")
    assert done.returncode == 0, done.stderr
    assert "were not asked" in done.stderr


def test_the_commit_says_what_the_recipe_wants(push, hub, tmp_path):
    from huggingface_hub import HfApi

    message = "push: {commit_message: Release, commit_description: After 200 steps.}"
    (tmp_path / "repokit.yaml").write_text(RECIPE.replace("push: {tag: v1.0}", message))
    assert push("--create").returncode == 0
    commit = HfApi(endpoint=hub.endpoint, token=hub.token).list_repo_commits(REPO)[0]
    assert (commit.title, commit.message) == ("Release", "After 200 steps.")


# Pull requests


@pytest.fixture
def changed(publish, dist):
    """A published repository, and something to propose to it."""
    publish(REPO, {path.name: path.read_bytes() for path in dist.iterdir()})
    (dist / "notes.txt").write_text("newer")


def test_a_pull_request_is_opened_and_named(push, hub, changed):
    done = push(REPO, "--create-pr", "--commit-message", "Notes")
    assert done.returncode == 0, done.stderr
    assert "opens a pull request against main" in done.stderr
    assert "created the pull request" in done.stdout
    assert "on refs/pr/1" in done.stdout
    assert f"{hub.endpoint}/{REPO}/discussions/1" in done.stdout
    assert "notes.txt" not in files(hub)


def test_a_pull_request_for_programs(push, hub, changed):
    url = f"{hub.endpoint}/{REPO}/discussions/1"
    result = json.loads(push(REPO, "--create-pr", "--json", token="hf_stranger").stdout)
    assert result["pull_request"] == {"number": 1, "url": url}
    assert (result["revision"], result["creates"], result["added"]) == ("refs/pr/1", ["pull request"], ["notes.txt"])


def test_a_push_without_a_pull_request_for_programs(push):
    assert json.loads(push(REPO, "--create", "--json").stdout)["pull_request"] is None


def test_a_pull_request_is_added_to(push, hub, changed, dist):
    push(REPO, "--create-pr")
    (dist / "more.txt").write_text("more")
    result = json.loads(push(REPO, "--revision", "refs/pr/1", "--json").stdout)
    assert (result["pull_request"]["number"], result["added"]) == (1, ["more.txt"])


def test_the_same_twice_is_one_pull_request(push, hub, changed):
    push(REPO, "--create-pr")
    done = push(REPO, "--create-pr")
    assert "nothing to push, already at commit" in done.stdout
    assert "on refs/pr/1" in done.stdout


def test_a_dry_run_says_that_it_would_open_one(push, changed):
    done = push(REPO, "--create-pr", "--dry-run")
    assert "creating the pull request" in done.stdout


def test_the_tag_of_a_recipe_is_not_given_to_a_pull_request(push, hub, changed, tmp_path):
    (tmp_path / "repokit.yaml").write_text(RECIPE)
    done = push("--create-pr", "--json")
    assert done.returncode == 0, done.stderr
    assert "v1.0 is not made" in done.stderr
    assert json.loads(done.stdout)["tag"] is None


def test_a_tag_that_was_typed_is_refused(push, hub, changed):
    done = push(REPO, "--create-pr", "--tag", "v1.0")
    assert (done.returncode, "is not tagged" in done.stderr) == (2, True)


def test_a_pull_request_against_another_branch_is_refused(push, changed):
    done = push(REPO, "--create-pr", "--revision", "next")
    assert (done.returncode, "against main only" in done.stderr) == (2, True)
