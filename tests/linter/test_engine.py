"""The engine: what runs, what counts, and what could not be checked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import pytest

from repokit.errors import LimitExceeded
from repokit.linter.engine import lint
from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.selection import Ignore, Selection
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

TODAY = date(2026, 3, 1)


class Note(Rule):
    """Speaks.

    Always.
    """

    code = "FIL901"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.LISTING
    bad = ()

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path in repository.files:
            yield self.finding(path, "is a file")


class Alarm(Note):
    """Speaks louder.

    Always.
    """

    code = "FIL902"
    severity = Severity.ERROR


class Deep(Note):
    """Reads values.

    All of them.
    """

    code = "WGT901"
    reads = Reads.TENSORS


class Unsure(Note):
    """Is in preview.

    Still.
    """

    code = "WGT902"
    preview = True


class Limited(Note):
    """Cannot run.

    Ever.
    """

    code = "WGT903"

    def check(self, repository: Repository) -> Iterator[Finding]:
        yield from ()
        raise LimitExceeded("is larger than any real file", path=next(iter(repository.files)))


TWO = Repository(Memory({"b": b"", "a": b""}, "org/name@main"))


def codes(report: object) -> list[str]:
    return [finding.code for finding in report.findings]  # type: ignore[attr-defined]


def test_findings_come_worst_first_and_by_path() -> None:
    found = lint(TWO, rules=(Note(), Alarm())).findings
    assert [(finding.severity, finding.path) for finding in found] == [(3, "a"), (3, "b"), (1, "a"), (1, "b")]


def test_a_report_names_its_target() -> None:
    assert lint(TWO, rules=()).target == "org/name@main"


def test_a_rule_that_cannot_run_is_not_checked_and_its_reason_is_kept() -> None:
    coverage = lint(TWO, rules=(Limited(), Note())).coverage
    assert coverage.not_checked == {"WGT903": "a: is larger than any real file"}
    assert coverage.checked == ("FIL901",)


def test_rules_over_values_run_only_when_asked_for() -> None:
    assert lint(TWO, rules=(Deep(),)).coverage.checked == ()
    assert lint(TWO, rules=(Deep(),), deep=True).coverage.checked == ("WGT901",)


def test_a_preview_rule_runs_only_when_it_is_selected() -> None:
    assert lint(TWO, rules=(Unsure(),)).coverage.checked == ()
    assert lint(TWO, Selection(select=("WGT902",)), rules=(Unsure(),)).coverage.checked == ("WGT902",)


def test_an_ignored_rule_does_not_run() -> None:
    selection = Selection(ignore=(Ignore("FIL901"),))
    assert lint(TWO, selection, rules=(Note(), Alarm())).coverage.checked == ("FIL902",)


def test_an_ignore_ends_on_its_day() -> None:
    selection = Selection(ignore=(Ignore("FIL901", until=date(2026, 2, 28)),))
    assert lint(TWO, selection, rules=(Note(),), today=TODAY).coverage.checked == ("FIL901",)


def test_a_finding_can_be_kept_out_for_one_file() -> None:
    selection = Selection(per_file={"a": ("FIL901",)})
    assert [finding.path for finding in lint(TWO, selection, rules=(Note(),)).findings] == ["b"]


def test_exit_code_1_wins_over_2() -> None:
    class Broken(Alarm):
        """Breaks.

        Always.
        """

        code = "FIL903"

        def check(self, repository: Repository) -> Iterator[Finding]:
            raise KeyError(len(repository.files))

    assert lint(TWO, rules=(Broken(), Alarm())).exit_code() == 1
    assert lint(TWO, rules=(Broken(), Note())).exit_code() == 2
    assert lint(TWO, rules=(Note(),)).exit_code() == 0
    assert lint(TWO, rules=(Note(),)).exit_code(Severity.NOTE) == 1


def test_a_malformed_file_is_one_finding_and_the_rest_is_not_checked() -> None:
    report = lint(Repository(Example("", {"config.json": "{"}).source()))
    assert [finding.path for finding in report.at_least(Severity.WARNING)] == ["config.json"]
    assert "CFG101" in report.coverage.not_checked


@pytest.mark.parametrize(
    ("config", "unknown"),
    [
        ({"model_type": "llama"}, 0),
        ({"model_type": "olmo_hybrid_next"}, 1),
        ({"model_type": "chatglm", "auto_map": {"AutoModel": "org/base--modeling.Model"}}, 1),  # not held against it
    ],
)
def test_a_model_type_of_a_later_version_is_unknown_and_no_finding(config: dict[str, object], unknown: int) -> None:
    report = lint(Repository(Example("", {"config.json": config}).source()))
    assert len(report.coverage.unknown) == unknown
    assert report.at_least(Severity.ERROR) == ()


def test_a_repository_without_files_is_linted() -> None:
    report = lint(Repository(Memory({})))
    assert (report.coverage.broken, report.coverage.not_checked) == ({}, {})


class Stumbling(Note):
    """Finds something, then meets a file that it cannot read.

    Both are true.
    """

    code = "FIL904"

    def check(self, repository: Repository) -> Iterator[Finding]:
        yield self.finding("a.txt", "is wrong")
        raise LimitExceeded("is too large", path="b.txt")


def test_what_was_found_before_an_unreadable_file_is_reported():
    report = lint(Repository(Memory({"a.txt": b""})), rules=[Stumbling()], today=TODAY)
    assert [finding.path for finding in report.findings] == ["a.txt"]
    assert report.coverage.not_checked == {"FIL904": "b.txt: is too large"}


class Unlistable(Memory):
    def entries(self):
        raise LimitExceeded("is nested deeper than 32 folders")


def test_a_repository_that_cannot_be_listed_is_not_clean():
    with pytest.raises(LimitExceeded):
        lint(Repository(Unlistable({})), rules=[Note()], today=TODAY)


class Unreadable(Note):
    """Cannot open its file.

    Nobody can.
    """

    code = "FIL905"

    def check(self, repository: Repository) -> Iterator[Finding]:
        raise LimitExceeded("is too large", path="b.txt")
        yield


def test_what_could_not_be_read_and_is_no_finding_is_not_clean():
    report = lint(Repository(Memory({"b.txt": b""})), rules=[Unreadable()], today=TODAY)
    assert report.coverage.unread == ("b.txt: is too large",)
    assert report.exit_code() == 2


def test_what_could_not_be_read_and_is_a_finding_is_said_once():
    report = lint(Repository(Memory({"b.txt": b""})), rules=[Unreadable(), Alarm()], today=TODAY)
    assert report.coverage.unread == ()
    assert report.exit_code() == 1


WAIVER = Ignore("FIL902", "by hand")


def test_a_waived_finding_is_kept_with_its_reason() -> None:
    report = lint(TWO, Selection(ignore=(WAIVER,)), rules=(Note(), Alarm()))
    assert {(entry.finding.code, entry.reason) for entry in report.waived} == {("FIL902", "by hand")}
    assert {finding.code for finding in report.findings} == {"FIL901"}


def test_a_waived_rule_is_not_among_those_that_were_checked() -> None:
    assert lint(TWO, Selection(ignore=(WAIVER,)), rules=(Note(), Alarm())).coverage.checked == ("FIL901",)


def test_a_waived_rule_that_cannot_run_is_no_gap() -> None:
    report = lint(TWO, Selection(ignore=(Ignore("WGT903", "too large"),)), rules=(Limited(), Note()))
    assert (dict(report.coverage.not_checked), report.exit_code(), report.unused) == ({}, 0, ())


def test_a_waived_rule_with_a_bug_is_no_failure() -> None:
    class Buggy(Note):
        """Breaks.

        Always.
        """

        code = "FIL904"

        def check(self, repository: Repository) -> Iterator[Finding]:
            raise KeyError(len(repository.files))

    report = lint(TWO, Selection(ignore=(Ignore("FIL904", "a bug"),)), rules=(Buggy(),))
    assert (dict(report.coverage.broken), report.exit_code(), report.unused) == ({}, 0, ())


def test_a_waiver_that_ended_is_told() -> None:
    selection = Selection(ignore=(Ignore("FIL901", "for now", until=date(2026, 2, 28)),))
    report = lint(TWO, selection, rules=(Note(),), today=TODAY)
    assert report.expired == ("the waiver of FIL901 expired on 2026-02-28",)


def test_a_waiver_that_silenced_nothing_is_told() -> None:
    selection = Selection(per_file={"nowhere": ("FIL901",)})
    assert lint(TWO, selection, rules=(Note(),)).unused == ("the waiver of FIL901 on nowhere silenced nothing",)


def test_a_finding_that_is_kept_out_for_one_file_is_waived() -> None:
    report = lint(TWO, Selection(per_file={"a": ("FIL901",)}), rules=(Note(),))
    assert ([entry.finding.path for entry in report.waived], report.unused) == (["a"], ())
