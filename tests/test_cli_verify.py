"""`repokit verify` as it is typed, in a process of its own; what it loads is in tests/oracles/test_load_check.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from repokit import cli
from repokit.verifier import load_check


@pytest.fixture
def dist(command, checkpoint: Path, tmp_path: Path) -> Path:
    recipe = f"version: 1\nsource: {checkpoint}\noutput: ./dist\nlicense: {{id: apache-2.0}}\n"
    (tmp_path / "repokit.yaml").write_text(recipe)
    done = command("build")
    assert done.returncode == 0, done.stderr
    return tmp_path / "dist"


def test_what_was_built_verifies(command, dist):
    done = command("verify", "dist")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(": all as built\n")


def test_every_kind_of_difference_is_a_line(command, dist):
    (dist / "config.json").write_bytes(b"{}")
    (dist / "tokenizer.json").unlink()
    (dist / "notes\x1b.txt").touch()
    done = command("verify", "dist")
    assert done.returncode == 1
    *lines, verdict = done.stdout.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["config.json", "notes\\x1b.txt", "tokenizer.json"]
    assert verdict.endswith(": 3 differences")


def test_json_has_every_path_by_its_fault(command, dist):
    (dist / "config.json").write_bytes(b"{}")
    (dist / "notes.txt").touch()
    found = json.loads(command("verify", "dist", "--json").stdout)
    assert (found["changed"], found["added"], found["missing"]) == (["config.json"], ["notes.txt"], [])


def test_quiet_names_only_what_differs(command, dist):
    (dist / "notes.txt").touch()
    assert command("verify", "dist", "-q").stdout == "notes.txt\n"


def test_without_a_manifest_it_cannot_be_checked(command, checkpoint):
    done = command("verify", checkpoint)
    assert (done.returncode, "--manifest" in done.stderr) == (2, True)


def test_a_malformed_manifest_is_one_line(command, dist):
    (dist / "repokit-manifest.json").write_bytes(b"{")
    done = command("verify", "dist")
    assert (done.returncode, done.stderr.startswith("error: repokit-manifest.json: line 1")) == (2, True)


def test_a_copy_verifies_against_the_manifest_of_the_build(command, dist, tmp_path):
    manifest = tmp_path / "kept.json"
    (dist / "repokit-manifest.json").rename(manifest)
    assert command("verify", "dist", "--manifest", manifest).returncode == 0


@pytest.mark.parametrize("words", [("--load", "--manifest", "x"), ("--base", "x")])
def test_flags_that_do_not_go_together_are_refused(command, tmp_path, words):
    done = command("verify", tmp_path, *words)
    assert (done.returncode, "goes with" in done.stderr) == (2, True)


@pytest.fixture
def _without_the_extra(monkeypatch):
    monkeypatch.setattr(load_check, "_LIBRARIES", ("no_such_library",))


@pytest.mark.usefixtures("_without_the_extra")
def test_a_load_without_its_libraries_names_the_command(tmp_path, capsys):
    assert cli.run(["verify", str(tmp_path), "--load"]) == 2
    assert "pip install 'repokit[load]'" in capsys.readouterr().err


@pytest.mark.usefixtures("_without_the_extra")
def test_a_build_with_a_load_check_fails_before_it_writes(checkpoint, tmp_path, capsys, monkeypatch):
    recipe = f"version: 1\nsource: {checkpoint}\noutput: {tmp_path / 'dist'}\nlicense: {{id: apache-2.0}}\n"
    (tmp_path / "repokit.yaml").write_text(recipe)
    assert cli.run(["build", str(tmp_path / "repokit.yaml"), "--load-check"]) == 2
    assert "pip install 'repokit[load]'" in capsys.readouterr().err
    assert not (tmp_path / "dist").exists()


@pytest.mark.parametrize("word", ["--dry-run", "--plan=plan.json"])
def test_a_load_check_needs_something_that_was_written(command, tmp_path, word):
    done = command("build", "--load-check", word)
    assert (done.returncode, "--load-check" in done.stderr) == (2, True)


@pytest.mark.parametrize("verb", ["verify", "push"])
def test_an_address_is_no_directory(command, verb):
    done = command(verb, "s3://bucket/run")
    assert (done.returncode, f"{verb} takes a directory, and s3://bucket/run is" in done.stderr) == (2, True)
