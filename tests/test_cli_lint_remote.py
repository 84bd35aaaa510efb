"""`repokit lint org/name@revision` as it is typed: against a Hub on this machine, in a process of its own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from repokit.linter.examples import sharded, single
from repokit.rehearsal import Answer, Hub

Run = Callable[..., "subprocess.CompletedProcess[str]"]
REPO = "rehearsal/model"


@pytest.fixture
def lint(command: Run, hub: Hub, tmp_path: Path) -> Run:
    def run(*arguments: str, verb: str = "lint", **variables: str) -> subprocess.CompletedProcess[str]:
        return command(
            verb,
            *arguments,
            **{
                "HF_ENDPOINT": hub.endpoint,
                "HF_HOME": str(tmp_path / "home"),
                "HF_HUB_DISABLE_XET": "1",
                "HF_HUB_DISABLE_TELEMETRY": "1",
                "REPOKIT_CACHE_DIR": str(tmp_path / "cache"),
                **variables,
            },
        )

    return run


def on_disk(folder: Path, files: dict[str, bytes]) -> Path:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def test_a_clean_revision(publish, lint):
    commit = publish(REPO, single())
    done = lint(f"{REPO}@main")
    assert (done.returncode, done.stdout.splitlines()[-1].startswith(f"{REPO}@main: ")) == (0, True), done.stderr
    assert re.search(rf"read +commit {commit[:12]} of {REPO}: \d+ requests, [\d.]+ kB", done.stderr)


def test_the_report_is_that_of_the_directory(publish, lint, tmp_path):
    files = {**sharded(), "trainer_state.json": b"{}", "config.json": b'{"vocab_size": "x"}'}
    publish(REPO, files)
    remote = json.loads(lint(f"{REPO}@main", "--json").stdout)
    local = json.loads(lint(str(on_disk(tmp_path / "dist", files)), "--json").stdout)
    assert len(remote["findings"]) > 1
    assert without_fixes(remote) == without_fixes(local)


def without_fixes(report: dict[str, object]) -> dict[str, object]:
    """A report as far as the kind of target leaves it alone: nothing on a Hub can be changed by `--fix`, so the
    advice of a finding that has a fix, and what is said of the fix, are those of the place."""
    findings = [{**found, "fix": "", "fixable": ""} for found in report["findings"]]
    return {**report, "target": "", "findings": findings}


def test_findings_have_their_lines_and_their_exit_code(publish, lint):
    publish(REPO, {**single(), "config.json": b'{\n  "model_type": "llama",\n  "vocab_size": "x"\n}\n'})
    done = lint(REPO)
    assert (done.returncode, "config.json:3:" in done.stdout) == (1, True)


@pytest.mark.parametrize("page", ["{}/tree/main", "{}/blob/main/config.json", "{}", "{}/discussions/1"])
def test_a_pasted_address(page, publish, hub, lint):
    from repokit.rehearsal.commits import Message
    from repokit.rehearsal.storage import Key

    publish(REPO, single())
    hub.storage.pull_request(Key("models", "rehearsal", "model"), "main", [], Message("stranger", "a change"))
    done = lint(f"{hub.endpoint}/{page.format(REPO)}")
    assert done.returncode == 0, done.stderr


def test_an_address_of_another_hub(lint, hub):
    done = lint("http://127.0.0.1:1/org/name")
    assert (done.returncode, "not the Hub that is asked" in done.stderr, hub.requests) == (2, True, [])


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_a_private_revision_with_a_token(how, publish, lint):
    publish(REPO, single(), private=True)
    done = lint(REPO, "--token", "hf_reader") if how == "flag" else lint(REPO, HF_TOKEN="hf_reader")
    assert done.returncode == 0, done.stderr


def test_a_private_revision_without_a_token(publish, lint):
    publish(REPO, single(), private=True)
    done = lint(REPO)
    assert (done.returncode, done.stdout) == (2, "")
    assert [line.split(":")[0].split()[0] for line in done.stderr.splitlines()] == ["error", "why", "next"]


def test_a_name_that_is_neither_here_nor_there(lint):
    done = lint("rehearsal/absent")
    assert (done.returncode, "there is no directory rehearsal/absent either" in done.stderr) == (2, True)


def test_a_mistyped_path_is_not_looked_up(lint, hub, tmp_path):
    on_disk(tmp_path / "dist" / "model", single())
    done = lint("dist/modell")
    assert (done.returncode, "does not exist" in done.stderr, hub.requests) == (2, True, [])


def test_what_exists_as_a_directory_is_one(lint, hub, tmp_path):
    on_disk(tmp_path / "rehearsal" / "model", single())
    assert (lint(REPO).returncode, hub.requests) == (0, [])


def test_a_repository_without_a_model_is_not_clean(publish, lint):
    publish(REPO, {"README.md": b"# Nothing\n"})
    done = lint(REPO)
    assert (done.returncode, "holds no model" in done.stderr) == (2, True)


def test_a_repository_that_was_renamed_is_read_and_its_new_name_said(publish, lint, hub):
    publish(REPO, single())

    def moved(request):
        if "/rehearsal/old" in request.path:
            return Answer(307, b"", {"Location": hub.endpoint + request.path.replace("/old", "/model")})
        return None

    hub.intercept = moved
    done = lint("rehearsal/old")
    assert (done.returncode, f"rehearsal/old is called {REPO} now" in done.stderr) == (0, True)


def test_a_second_look_costs_one_request(publish, lint, hub):
    publish(REPO, single())
    first = lint(f"{REPO}@main", "--json").stdout
    hub.requests.clear()
    assert (lint(f"{REPO}@main", "--json").stdout, len(hub.requests)) == (first, 1)


def test_offline_is_one_clear_line(publish, lint, hub):
    publish(REPO, single())
    done = lint(REPO, HF_HUB_OFFLINE="1")
    assert (done.returncode, "unset HF_HUB_OFFLINE" in done.stderr, hub.requests) == (2, True, [])


def test_a_page_in_place_of_the_hub_is_no_traceback(publish, lint, hub):
    publish(REPO, single())
    hub.intercept = lambda _: Answer(200, b"<html>Sign in</html>", {"Content-Type": "text/html"})
    done = lint(REPO)
    assert (done.returncode, done.stdout) == (2, "")
    assert "a web page came" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_recipe_that_names_the_repository_gives_its_settings(publish, lint, tmp_path):
    publish(REPO, {**single(), "trainer_state.json": b"{}"})
    recipe = {
        "version": 1,
        "repo": REPO,
        "source": "x",
        "output": "y",
        "lint": {"ignore": [{"code": "FIL201", "reason": "kept to resume"}]},
    }
    (tmp_path / "repokit.yaml").write_text(json.dumps(recipe))
    done = lint(REPO)
    assert (done.returncode, "repokit.yaml, 1 waiver" in done.stderr) == (0, True), done.stdout


def test_quiet_prints_codes_alone(publish, lint):
    publish(REPO, {**single(), "trainer_state.json": b"{}"})
    done = lint(REPO, "-q", "--select", "FIL201")
    assert (done.stdout, done.stderr) == ("FIL201 trainer_state.json\n", "")


def test_inspect_on_the_hub_says_what_it_says_here(publish, lint, tmp_path):
    publish(REPO, sharded())
    remote = lint(f"{REPO}@main", verb="inspect")
    local = lint(str(on_disk(tmp_path / "dist", sharded())), verb="inspect")
    assert remote.stdout.splitlines()[1:] == local.stdout.splitlines()[1:]
    assert f"of {REPO}:" in remote.stderr


def test_a_word_longer_than_a_name_can_be(lint):
    done = lint("y" * 400)
    assert (done.returncode, "does not exist" in done.stderr) == (2, True)


@pytest.mark.parametrize("kind", ["dataset", "space"])
def test_another_kind_of_repository_is_said_and_not_looked_up(kind, lint, hub):
    done = lint(f"{kind}s/name")
    assert (done.returncode, "not a model repository" in done.stderr, hub.requests) == (2, True, [])


def test_a_file_with_the_name_of_the_owner_is_in_nobodys_way(publish, lint, tmp_path):
    publish(REPO, single())
    (tmp_path / "rehearsal").touch()
    assert lint(REPO).returncode == 0


@pytest.fixture
def ctrl_c():
    """A shell starts what runs in its background deaf to Ctrl-C, and children inherit that: the command here is not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("part", ["/revision/", "/config.json"])
def test_ctrl_c_ends_it_while_the_hub_says_nothing(part, publish, hub, environment, tmp_path):
    publish(REPO, sharded())
    waiting, released = threading.Event(), threading.Event()
    given_up = []

    def intercept(request):
        if part in request.path:
            waiting.set()
            given_up.append(released.wait(20))

    hub.intercept = intercept
    settings = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path), "REPOKIT_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "repokit", "lint", f"{REPO}@main"]
    with subprocess.Popen(
        command, env={**environment, **settings}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert waiting.wait(20)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    released.set()
    hub.intercept = None
    assert (process.returncode, said.startswith("interrupted"), False in given_up) == (130, True, False)
