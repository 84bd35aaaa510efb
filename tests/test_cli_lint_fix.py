"""`repokit lint --fix`, `--unsafe-fixes` and `--diff` as people and scripts meet them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from repokit import cli
from repokit.linter.examples import DELETE, Example
from repokit.schema.manifest import Manifest, ManifestFile

INDEX = "model.safetensors.index.json"
LEAK = {"_name_or_path": "/home/alice/run"}
DEFECTS: dict[str, Any] = {"config.json": LEAK, INDEX: {"metadata": {"total_size": 1}}}


class Answer(NamedTuple):
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Answer]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs `repokit lint` in this process, in `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith(("REPOKIT_", "NO_COLOR")):
            monkeypatch.delenv(name)

    def answer(*arguments: str | Path) -> Answer:
        capfd.readouterr()
        code = cli.run(["lint", *map(str, arguments)])
        return Answer(code, *capfd.readouterr())

    return answer


def laid(root: Path, change: dict[str, Any]) -> Path:
    """A sharded repository with a change in it, in a folder."""
    root.mkdir()
    for path, content in Example("", change, "sharded").files().items():
        (root / path).write_bytes(content)
    return root


@pytest.fixture
def defective(tmp_path: Path) -> Path:
    """Two defects that can be fixed."""
    return laid(tmp_path / "model", DEFECTS)


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


# ---------------------------------------------------------------- --fix


def test_what_is_fixed_is_said_on_stderr(run: Run, defective: Path) -> None:
    told = run(defective, "--fix").err
    assert "fixed    config.json: SEC201 remove _name_or_path\n" in told
    assert f"fixed    {INDEX}: IDX203 set `total_size` to 9888\n" in told
    assert "fixed    2 fixed, 1 remaining\n" in told  # a note


def test_the_report_is_on_what_remains(run: Run, defective: Path) -> None:
    out = run(defective, "--fix").out
    assert "SEC201" not in out
    assert "IDX203" not in out


def test_nothing_but_the_defects_is_changed(run: Run, defective: Path) -> None:
    run(defective, "--fix")
    assert contents(defective) == Example("", base="sharded").files()


def test_a_second_fix_changes_nothing(run: Run, defective: Path) -> None:
    run(defective, "--fix")
    stamps = {path: path.stat().st_mtime_ns for path in defective.iterdir()}
    told = run(defective, "--fix").err
    assert "0 fixed" in told
    assert {path: path.stat().st_mtime_ns for path in defective.iterdir()} == stamps


def test_without_the_flag_nothing_is_changed(run: Run, defective: Path) -> None:
    before = contents(defective)
    run(defective, "--unsafe-fixes")
    assert contents(defective) == before


def test_the_exit_code_is_that_of_what_remains(run: Run, defective: Path) -> None:
    assert run(defective, "--fail-on", "warning").code == 1
    assert run(defective, "--fix", "--fail-on", "warning").code == 0


def test_what_only_a_person_can_fix_still_fails(run: Run, tmp_path: Path) -> None:
    folder = laid(tmp_path / "model", {"config.json": {**LEAK, "vocab_size": 7}})
    answer = run(folder, "--fix")
    assert (answer.code, "1 fixed" in answer.err) == (1, True)


def test_only_what_is_selected_is_fixed(run: Run, defective: Path) -> None:
    run(defective, "--select", "IDX203", "--fix")
    assert LEAK["_name_or_path"] in (defective / "config.json").read_text(encoding="utf-8")


def test_what_is_ignored_is_not_fixed(run: Run, defective: Path) -> None:
    run(defective, "--ignore", "SEC201", "--fix")
    assert LEAK["_name_or_path"] in (defective / "config.json").read_text(encoding="utf-8")


def test_a_revision_on_the_hub_is_to_be_downloaded(run: Run) -> None:
    answer = run("org/name@v1", "--fix")
    assert answer.code == 2
    assert "hf download org/name --revision v1 --local-dir name && repokit lint name --fix" in answer.err


def test_a_file_behind_a_link_is_not_touched(run: Run, defective: Path) -> None:
    blob = defective / "blob"
    (defective / INDEX).replace(blob)
    (defective / INDEX).symlink_to(blob)
    config = (defective / "config.json").read_bytes()
    answer = run(defective, "--fix")
    assert (answer.code, (defective / "config.json").read_bytes()) == (2, config)


def test_a_manifest_goes_on_being_true(run: Run, defective: Path) -> None:
    files = [
        ManifestFile(path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest(), origin="source")
        for path, content in sorted(contents(defective).items())
    ]
    manifest = defective / "repokit-manifest.json"
    manifest.write_bytes(Manifest(created_by="repokit 0", files=tuple(files)).render())
    run(defective, "--fix")
    assert cli.run(["verify", str(defective)]) == 0


def test_an_empty_target_is_not_the_current_directory(run: Run, defective: Path, monkeypatch) -> None:
    monkeypatch.chdir(defective)
    before = contents(defective)
    assert (cli.run(["lint", "", "--fix"]), contents(defective)) == (2, before)


# ---------------------------------------------------------------- --diff


def test_a_diff_changes_nothing(run: Run, defective: Path) -> None:
    before = contents(defective)
    run(defective, "--diff")
    assert contents(defective) == before


def test_a_diff_wins_over_a_fix(run: Run, defective: Path) -> None:
    before = contents(defective)
    run(defective, "--fix", "--diff")
    assert contents(defective) == before


def test_a_diff_is_all_of_stdout(run: Run, defective: Path) -> None:
    out = run(defective, "--diff").out
    assert out.startswith("--- a/config.json\n+++ b/config.json\n@@ ")
    assert '-  "_name_or_path": "/home/alice/run"' in out
    assert '-    "total_size": 1\n+    "total_size": 9888\n' in out


def test_a_diff_fails_where_something_would_change(run: Run, defective: Path) -> None:
    assert run(defective, "--diff").code == 1


def test_a_diff_of_nothing_is_empty_and_good(run: Run, tmp_path: Path) -> None:
    answer = run(laid(tmp_path / "model", {}), "--diff")
    assert (answer.code, answer.out) == (0, "")


def test_a_diff_is_what_a_fix_then_does(run: Run, defective: Path) -> None:
    (defective / "config.json").write_text('{"a": 1,\n "_name_or_path": "/home/x/y"}', encoding="utf-8")
    answer = run(defective, "--diff", "--json", "--select", "SEC201")
    assert answer.document["changes"] == [
        {
            "path": "config.json",
            "change": "edited",
            "diff": '--- a/config.json\n+++ b/config.json\n@@ -1,2 +1 @@\n-{"a": 1,\n- "_name_or_path": "/home/x/y"}\n'
            '\\ No newline at end of file\n+{"a": 1}\n\\ No newline at end of file\n',
        }
    ]
    assert [one["title"] for one in answer.document["fixed"]] == ["remove _name_or_path"]


def test_a_quiet_diff_is_paths(run: Run, defective: Path) -> None:
    assert run(defective, "--diff", "-q").out == f"config.json\n{INDEX}\n"


# ---------------------------------------------------------------- reports


def test_a_report_counts_what_can_be_fixed(run: Run, defective: Path) -> None:
    assert run(defective).out.endswith("\n2 fixable with --fix\n")


def test_a_report_says_it_at_the_finding(run: Run, defective: Path) -> None:
    assert "    fix   remove _name_or_path [--fix]\n" in run(defective).out


def test_a_clean_report_speaks_of_no_fixes(run: Run, tmp_path: Path) -> None:
    assert "fixable" not in run(laid(tmp_path / "model", {})).out


def test_json_says_which_findings_can_be_fixed(run: Run, tmp_path: Path) -> None:
    folder = laid(tmp_path / "model", {"config.json": {**LEAK, "vocab_size": 7}})
    fixable = {finding["code"]: finding["fixable"] for finding in run(folder, "--json").document["findings"]}
    assert fixable["SEC201"] == "safe"
    assert set(fixable.values()) > {"safe"}


def test_json_lists_what_was_fixed(run: Run, defective: Path) -> None:
    fixed = run(defective, "--fix", "--json").document["fixed"]
    assert [(one["code"], one["safety"]) for one in fixed] == [("SEC201", "safe"), ("IDX203", "safe")]


def test_json_lists_nothing_where_nothing_was_asked(run: Run, tmp_path: Path) -> None:
    folder = laid(tmp_path / "model", {INDEX: {"metadata": {"total_size": DELETE}}})
    assert run(folder, "--json").document["fixed"] == []
