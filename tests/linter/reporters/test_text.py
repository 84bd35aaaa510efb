"""Text for people: what is found, what is silenced, what was not judged; and counts by rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from repokit.linter.finding import Coverage, Finding, Report
from repokit.linter.fix import Safety
from repokit.linter.reporters import text
from repokit.linter.reporters.context import inert


def test_the_verdict_counts_what_is_silenced(report: Report) -> None:
    assert "models/a: 1 error, 1 warning, 1 note, 1 waived, 1 in the baseline (4 rules checked)" in (
        text.render(report, lambda _: None)
    )


def test_a_clean_report_counts_it_too(report: Report) -> None:
    shown = text.render(replace(report, findings=(), coverage=Coverage()), lambda _: None)
    assert shown == "models/a: clean, 1 waived, 1 in the baseline (0 rules checked)\n"


def test_hostile_text_begins_no_command_of_a_runner(hostile: Report) -> None:
    for line in text.render(hostile, lambda _: None).splitlines():
        assert not line.lstrip().startswith("::")
        assert "##[" not in line


def test_hostile_text_stays_on_its_lines(hostile: Report) -> None:
    # Finding, names, why and hint; what was not checked, not known and broken; the verdict.
    assert len(text.render(hostile, lambda _: None).splitlines()) == 8


@pytest.mark.parametrize("line", ["::error::x", "  ::error::x", "a ##[error]x"])
def test_a_command_is_made_inert(line: str) -> None:
    assert inert(line) != line


def test_other_lines_stay_as_they_are() -> None:
    assert inert("a::b #[x] ## x") == "a::b #[x] ## x"


def test_statistics_are_a_line_a_rule(report: Report) -> None:
    lines = text.render_statistics(report).splitlines()
    assert lines[:3] == [
        "IDX101  error    missing-shard       1",
        "CRD101  warning  odd-card            1  1 waived",
        "WGT301  note     no-format           1  1 known",
    ]


def test_statistics_say_what_can_be_fixed(finding: Finding) -> None:
    report = Report("m", (replace(finding, fixable=Safety.SAFE), replace(finding, fixable=Safety.UNSAFE)), Coverage())
    assert text.render_statistics(report).splitlines()[0].endswith("2  1 fixable, 1 unsafely fixable")


def test_the_more_frequent_of_one_severity_comes_first(finding: Finding) -> None:
    other = replace(finding, code="IDX102", name="other")
    lines = text.render_statistics(Report("m", (finding, other, other), Coverage())).splitlines()
    assert [line[:6] for line in lines[:2]] == ["IDX102", "IDX101"]
