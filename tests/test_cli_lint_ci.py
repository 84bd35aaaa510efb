"""`repokit lint` in CI: formats and files, selection, waivers, the baseline."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest

from repokit import cli
from repokit.linter.examples import single
from repokit.schema.report import Report


class Answer(NamedTuple):
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str


Run = Callable[..., Answer]
FORMATS = ["text", "json", "sarif", "github", "junit", "markdown"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, in `tmp_path`, outside of every CI system."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith(("REPOKIT_", "NO_COLOR", "GITHUB_", "CI_")):
            monkeypatch.delenv(name)

    def answer(*arguments: str | Path) -> Answer:
        capfd.readouterr()
        code = cli.run(["lint", *map(str, arguments)])
        return Answer(code, *capfd.readouterr())

    return answer


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A repository with one error (CFG101) and one warning (CRD201)."""
    folder = tmp_path / "models" / "a"
    folder.mkdir(parents=True)
    for name, content in single().items():
        (folder / name).write_bytes(content)
    config = json.loads((folder / "config.json").read_bytes())
    del config["model_type"]
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "README.md").unlink()
    return folder


def codes(answer: Answer) -> list[str]:
    return [finding["code"] for finding in json.loads(answer.out)["findings"]]


def test_the_repository_of_these_tests_has_what_they_say(model: Path, run: Run) -> None:
    answer = run(model, "--json")
    assert (answer.code, {"CFG101", "CRD201"} <= set(codes(answer))) == (1, True)


# ------------------------------------------------------------------------------------------------ formats


BEGINNINGS = {
    "text": "config.json",
    "json": "{",
    "sarif": "{",
    "github": "::error ",
    "junit": "<?xml",
    "markdown": "<!--",
}


@pytest.mark.parametrize("name", FORMATS)
def test_stdout_carries_the_format_that_is_asked_for(model: Path, run: Run, name: str) -> None:
    answer = run(model, "--format", name)
    assert (answer.code, answer.out[: len(BEGINNINGS[name])]) == (1, BEGINNINGS[name])


@pytest.mark.parametrize("name", FORMATS)
def test_the_environment_chooses_a_format_too(
    model: Path, run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("REPOKIT_FORMAT", name)
    assert run(model).out.startswith(BEGINNINGS[name])


def test_a_flag_wins_over_the_environment(model: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPOKIT_FORMAT", "sarif")
    assert run(model, "--format", "junit").out.startswith("<?xml")


def test_other_commands_do_not_know_the_formats(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["rules", "--format", "sarif"]) == 2


def test_another_command_shrugs_at_a_format_of_lint(
    run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REPOKIT_FORMAT", "sarif")
    assert cli.run(["rules", "IDX101"]) == 0


def test_reports_are_written_beside_the_one_on_stdout(model: Path, run: Run, tmp_path: Path) -> None:
    flags = [f"--report={name}={tmp_path / name}.out" for name in FORMATS]
    answer = run(model, *flags)
    assert answer.code == 1
    for name in FORMATS:
        assert (tmp_path / f"{name}.out").read_text().startswith(BEGINNINGS[name])


def test_a_report_in_a_file_is_that_of_stdout(model: Path, run: Run, tmp_path: Path) -> None:
    answer = run(model, "--format=junit", "--report=junit=x.xml")
    assert (tmp_path / "x.xml").read_text() == answer.out


@pytest.mark.parametrize(
    "flags", [["sarif"], ["sarif="], ["toml=x"], ["quiet=x"], ["auto=x"], ["sarif=x", "--report=json=x"]]
)
def test_a_report_that_cannot_be_is_refused_before_anything_is_read(run: Run, flags: list[str]) -> None:
    answer = run("nowhere", f"--report={flags[0]}", *flags[1:])
    assert (answer.code, "nowhere" in answer.err) == (2, False)


def test_a_report_into_a_folder_that_is_not_there_is_no_bug(model: Path, run: Run) -> None:
    answer = run(model, "--report=sarif=absent/x.sarif")
    assert answer.code == 2
    assert "cannot be written" in answer.err


def test_paths_are_those_of_the_current_folder(model: Path, run: Run) -> None:
    assert "file=models/a/config.json," in run(model, "--format=github").out


@pytest.mark.parametrize("variable", ["GITHUB_WORKSPACE", "CI_PROJECT_DIR"])
def test_paths_are_those_of_the_checkout(model: Path, run: Run, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, str(model.parent))
    assert "file=a/config.json," in run(model, "--format=github").out


def test_a_target_outside_of_the_checkout_has_no_annotated_files(
    model: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(model / "elsewhere"))
    assert "file=" not in run(model, "--format=github").out


def test_the_summary_of_a_job_is_added_to(
    model: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    run(model, "--format=github")
    assert summary.read_text().startswith("before\n<!-- repokit -->\n\n### repokit: ")


def test_other_formats_leave_the_summary_alone(
    model: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    run(model, "--format=text")
    assert not (tmp_path / "summary.md").exists()


def test_a_summary_that_cannot_be_written_fails_nothing(
    model: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "absent" / "summary.md"))
    answer = run(model, "--format=github", "--fail-on=never")
    assert (answer.code, "the summary of the job is not written" in answer.err) == (0, True)


def test_a_failure_of_junit_goes_by_fail_on(model: Path, run: Run) -> None:
    def failed(*flags: str) -> set[str]:
        root = ET.fromstring(run(model, "--format=junit", *flags).out)  # noqa: S314 - our own
        return {case.attrib["name"][:6] for case in root.iter("testcase") if case.find("failure") is not None}

    assert ["CRD201" in failed(*flags) for flags in ([], ["--fail-on=warning"])] == [False, True]
    assert failed("--fail-on=never") == set()


def test_lines_are_in_the_report(model: Path, run: Run) -> None:
    (model / "tokenizer_config.json").write_text('{\n  "a": 1,\n}')
    assert "file=models/a/tokenizer_config.json,line=3,col=1," in run(model, "--format=github").out


def test_what_cannot_be_linted_is_an_annotation(run: Run) -> None:
    answer = run("no\nwhere", "--format=github")
    assert answer.code == 2
    assert answer.out.startswith("::error title=repokit%3A could not run::no\\x0awhere: does not exist%0A")


# ------------------------------------------------------------------------------------------------ statistics


def test_statistics_stand_for_the_findings(model: Path, run: Run) -> None:
    lines = run(model, "--statistics").out.splitlines()
    assert [line.split()[:4] for line in lines if line.startswith("CFG101")] == [
        ["CFG101", "error", "missing-model-type", "1"]
    ]


def test_statistics_stand_beside_the_findings_in_json(model: Path, run: Run) -> None:
    report = Report.model_validate_json(run(model, "--statistics", "--json").out)
    assert {entry.code for entry in report.statistics or ()} == {finding.code for finding in report.findings}


@pytest.mark.parametrize("name", ["sarif", "github", "junit", "markdown", "quiet"])
def test_statistics_need_a_format_with_a_place_for_them(model: Path, run: Run, name: str) -> None:
    assert run(model, "--statistics", "--format", name).code == 2


# ------------------------------------------------------------------------------------------------ selection


def test_a_rule_is_ignored_for_some_files(model: Path, run: Run) -> None:
    assert "CRD201" not in codes(run(model, "--per-file-ignore", "*.md:CRD201", "--json"))
    assert "CRD201" in codes(run(model, "--per-file-ignore", "*.json:CRD201", "--json"))


def test_several_rules_are_ignored_for_some_files(model: Path, run: Run) -> None:
    found = codes(run(model, "--per-file-ignore=*:CRD,missing-model-type", "--json"))
    assert not {"CRD201", "CFG101"} & set(found)


@pytest.mark.parametrize("value", ["CRD201", ":CRD201", "*.md:", "*.md: , "])
def test_an_ignore_for_files_has_two_parts(model: Path, run: Run, value: str) -> None:
    answer = run(model, f"--per-file-ignore={value}")
    assert (answer.code, "GLOB:CODE" in answer.err) == (2, True)


def test_what_is_selected_can_be_extended(model: Path, run: Run) -> None:
    assert set(codes(run(model, "--select=CFG101", "--extend-select=CRD2", "--json"))) == {"CFG101", "CRD201"}


def settings(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.repokit.lint]\n{text}\n")


def test_settings_extend_what_is_selected(model: Path, run: Run, tmp_path: Path) -> None:
    settings(tmp_path, 'select = ["CFG101"]\nextend_select = ["CRD201"]')
    assert set(codes(run(model, "--json"))) == {"CFG101", "CRD201"}


def test_settings_say_what_fails(model: Path, run: Run, tmp_path: Path) -> None:
    settings(tmp_path, 'fail_on = "never"')
    assert (run(model).code, run(model, "--fail-on=error").code) == (0, 1)


def test_settings_may_say_that_a_warning_fails(model: Path, run: Run, tmp_path: Path) -> None:
    settings(tmp_path, 'fail_on = "warning"')
    assert run(model, "--select=CRD201").code == 1


WAIVER = '{code = "CFG101", reason = "not ours"'


def test_a_waiver_is_counted(model: Path, run: Run, tmp_path: Path) -> None:
    settings(tmp_path, f"ignore = [{WAIVER}}}]")
    answer = run(model, "--select=CFG101,CRD201")
    assert (answer.code, "1 warning, 1 waived (" in answer.out) == (0, True)


def test_an_ignore_of_the_command_line_is_no_waiver(model: Path, run: Run) -> None:
    assert "waived" not in run(model, "--ignore=CFG101").out


def test_a_waiver_that_ended_is_told_and_holds_no_longer(model: Path, run: Run, tmp_path: Path) -> None:
    settings(tmp_path, f'ignore = [{WAIVER}, until = "2020-01"}}]')
    answer = run(model, "--json")
    assert "CFG101" in codes(answer)
    assert "warning: the waiver of CFG101 expired on 2020-01-31" in answer.err


def test_a_waiver_that_silences_nothing_is_told(model: Path, run: Run, tmp_path: Path) -> None:
    settings(tmp_path, 'ignore = [{code = "IDX101", reason = "of another time"}]')
    assert "the waiver of IDX101 silenced nothing" in run(model).err


def test_a_waiver_of_files_has_its_reason_and_its_end(model: Path, run: Run, tmp_path: Path) -> None:
    entries = '{code = "CRD201", reason = "no card here"}, {code = "CFG101", reason = "gone", until = "2020-01-01"}'
    settings(tmp_path, f'per_file = {{"*" = [{entries}]}}')
    answer = run(model, "--select=CFG101,CRD201", "--json")
    report = Report.model_validate_json(answer.out)
    assert [finding.code for finding in report.findings] == ["CFG101"]
    assert [(waived.code, waived.reason) for waived in report.waived] == [("CRD201", "no card here")]
    assert "the waiver of CFG101 on * expired on 2020-01-01" in answer.err


def test_a_waiver_of_files_needs_its_reason_where_it_is_written_out(model: Path, run: Run, tmp_path: Path) -> None:
    settings(tmp_path, 'per_file = {"*" = [{code = "CRD201"}]}')
    answer = run(model)
    assert (answer.code, "reason" in answer.err) == (2, True)


def test_a_recipe_takes_the_same_settings(model: Path, run: Run, tmp_path: Path) -> None:
    waiver = "per_file: {'*.json': [{code: CFG101, reason: not ours}, CFG102]}, fail_on: warning"
    recipe = f"version: 1\nsource: ./elsewhere\noutput: ./models/a\nlint: {{select: [CFG101, CRD201], {waiver}}}\n"
    (tmp_path / "repokit.yaml").write_text(recipe)
    answer = run(model, "--json")
    assert (answer.code, codes(answer)) == (1, ["CRD201"])


# ------------------------------------------------------------------------------------------------ baseline


def test_what_is_known_does_not_fail(model: Path, run: Run) -> None:
    written = run(model, "--write-baseline=known.json")
    assert (written.code, "findings written to known.json" in written.err) == (0, True)
    known = run(model, "--baseline=known.json")
    assert (known.code, " in the baseline (" in known.out) == (0, True)


def test_what_is_new_fails_and_is_shown_alone(model: Path, run: Run) -> None:
    run(model, "--write-baseline=known.json")
    (model / "generation_config.json").write_text("{")
    answer = run(model, "--baseline=known.json", "--select=FIL101,CFG101,CRD201", "--json")
    assert (answer.code, codes(answer)) == (1, ["FIL101"])


def test_what_is_gone_is_told(model: Path, run: Run) -> None:
    run(model, "--write-baseline=known.json")
    (model / "README.md").write_text("---\nlicense: mit\n---\n# A model\n")
    answer = run(model, "--baseline=known.json")
    assert "no longer found: CRD201 README.md" in answer.err


def test_settings_name_the_baseline(model: Path, run: Run, tmp_path: Path) -> None:
    settings(tmp_path, 'baseline = "known.json"')
    run(model, "--write-baseline=known.json")
    assert run(model).code == 0


def test_a_baseline_that_is_not_there_is_an_error(model: Path, run: Run) -> None:
    answer = run(model, "--baseline=known.json")
    assert (answer.code, "--write-baseline" in answer.err) == (2, True)


def test_a_baseline_that_is_broken_is_an_error_with_its_place(model: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "known.json").write_text('{"format": "repokit-baseline", "version": 1, "findings": [{}]}')
    answer = run(model, "--baseline=known.json")
    assert (answer.code, "known.json: /findings/0" in answer.err) == (2, True)


def test_another_file_is_not_overwritten_with_a_baseline(model: Path, run: Run) -> None:
    before = (model / "config.json").read_bytes()
    assert run(model, "--write-baseline", model / "config.json").code == 2
    assert (model / "config.json").read_bytes() == before


def test_a_baseline_is_the_same_each_time(model: Path, run: Run, tmp_path: Path) -> None:
    run(model, "--write-baseline=a.json")
    run(model, "--write-baseline=b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_a_baseline_of_some_rules_keeps_what_it_says_of_others(model: Path, run: Run, tmp_path: Path) -> None:
    run(model, "--write-baseline=known.json")
    before = (tmp_path / "known.json").read_bytes()
    run(model, "--write-baseline=known.json", "--select=CFG")
    assert (tmp_path / "known.json").read_bytes() == before


def test_a_build_tells_of_a_waiver_that_ended(
    checkpoint: Path, run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe = "version: 1\nsource: ./run/checkpoint-200\noutput: ./out\nlicense: {id: apache-2.0}\n"
    waiver = "lint: {ignore: [{code: CRD201, reason: of another time, until: 2020-01}]}\n"
    (tmp_path / "repokit.yaml").write_text(recipe + waiver)
    assert cli.run(["build"]) == 0
    assert "the waiver of CRD201 expired on 2020-01-31" in capfd.readouterr().err
