"""Workflow commands: what the runner of GitHub Actions makes of each line."""

from __future__ import annotations

import re

import pytest

from repokit.linter.finding import Coverage, Finding, Report, Severity
from repokit.linter.reporters import github
from repokit.linter.reporters.context import Context

# A command of actions/runner, src/Runner.Common/ActionCommand.cs: TryParseV2.
_COMMAND = re.compile(r"\s*::(?P<name>[^ :]+)(?: (?P<properties>.*?))?::(?P<data>.*)")


def unescaped(text: str, *escapes: tuple[str, str]) -> str:
    for escape, character in (*escapes, ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        text = text.replace(escape, character)
    return text


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    found = []
    for line in text.splitlines():
        if parts := _COMMAND.fullmatch(line):
            pairs = [pair.split("=", 1) for pair in (parts["properties"] or "").split(",") if pair]
            properties = {key: unescaped(value, ("%3A", ":"), ("%2C", ",")) for key, value in pairs}
            found.append((parts["name"], properties, unescaped(parts["data"])))
    return found


def rendered(report: Report, context: Context | None = None, place: tuple[int, int | None] | None = None) -> str:
    return github.render(report, lambda _: place, context or Context())


def test_a_finding_is_an_annotation_at_file_and_line(report: Report) -> None:
    name, properties, message = commands(rendered(report, Context("models/a"), (3, 7)))[0]
    assert (name, properties) == (
        "error",
        {
            "file": "models/a/model.safetensors.index.json",
            "line": "3",
            "col": "7",
            "title": "IDX101 missing-shard",
        },
    )
    assert "names 2 shards that are not in the repository" in message


def test_the_message_says_why_and_what_to_do(report: Report) -> None:
    _, _, message = commands(rendered(report))[0]
    assert message.splitlines()[-2:] == ["Why: Loading fails half way through.", "Fix: upload them"]


def test_severities_are_levels_worst_first(report: Report) -> None:
    assert [name for name, *_ in commands(rendered(report))][:3] == ["error", "warning", "notice"]


def test_an_unknown_column_is_left_out(report: Report) -> None:
    assert "col" not in commands(rendered(report, place=(3, None)))[0][1]


def test_what_is_not_in_the_checkout_has_no_file(report: Report) -> None:
    assert "file" not in commands(rendered(report, Context(None), (3, 7)))[0][1]


def test_gaps_are_annotations(report: Report) -> None:
    told = [(name, properties["title"]) for name, properties, _ in commands(rendered(report))[3:]]
    assert told == [
        ("error", "repokit: internal error"),
        ("warning", "repokit: not checked"),
        ("notice", "repokit: not known to this version"),
    ]


def test_the_last_line_counts_and_is_no_command(report: Report) -> None:
    last = rendered(report).splitlines()[-1]
    assert last == ("repokit: models/a: 1 error, 1 warning, 1 note, 1 waived, 1 in the baseline (4 rules checked)")


def test_the_last_line_tells_what_github_does_not_show(finding: Finding) -> None:
    last = rendered(Report("m", (finding,) * 12, Coverage())).splitlines()[-1]
    assert last.endswith("; GitHub shows 10 annotations of a level: 2 errors only in this log")


def test_ten_of_a_level_are_all_shown(finding: Finding) -> None:
    assert "GitHub shows" not in rendered(Report("m", (finding,) * 10, Coverage()))


def test_hostile_text_adds_no_command(hostile: Report) -> None:
    assert len(commands(rendered(hostile))) == len(rendered(hostile).splitlines()) - 1 == 4


def test_hostile_text_keeps_the_properties(hostile: Report) -> None:
    assert list(commands(rendered(hostile, place=(1, 2)))[0][1]) == ["file", "line", "col", "title"]


def test_hostile_text_names_no_older_command_outside_of_a_message(hostile: Report) -> None:
    assert "##[" not in rendered(hostile).splitlines()[-1]


@pytest.mark.parametrize("text", ["100%", "a%0Ab", "a,b:c", "%25"])
def test_escapes_are_undone_by_the_runner(text: str) -> None:
    finding = Finding("IDX101", "missing-shard", Severity.ERROR, text, text)
    [(_, properties, message)] = commands(rendered(Report("m", (finding,), Coverage())))
    assert (properties["file"], message) == (text, f"{text} {text}")
