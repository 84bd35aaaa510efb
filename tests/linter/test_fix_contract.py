"""What every rule with a fix promises, over the whole table. No rule is named here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from repokit.linter.engine import lint
from repokit.linter.examples import Example
from repokit.linter.finding import Report, Severity
from repokit.linter.fix import Safety
from repokit.linter.fixing import Fixing, fix, newly_said
from repokit.linter.rule import Rule
from repokit.linter.rules import RULES
from repokit.repo.repository import Repository
from repokit.repo.worker import Worker

FIXABLE = [rule for rule in RULES if rule.fixes is not None]
EVERY = [pytest.param(rule, id=rule.code) for rule in FIXABLE]
BAD = [pytest.param(rule, example, id=f"{rule.code}: {example.title}") for rule in FIXABLE for example in rule.bad]

Run = Callable[[Rule, Example], Fixing]


def linted(repository: Repository) -> Report:
    return lint(repository, deep=True)


def only(rule: Rule) -> Callable[[Repository], Report]:
    """Lints with the whole table, and hides from the fixing what other rules say, so that only this one's fixes run."""

    def check(repository: Repository) -> Report:
        report = linted(repository)
        rest = tuple(finding for finding in report.findings if finding.code == rule.code)
        return Report(report.target, rest, report.coverage)

    return check


@pytest.fixture(scope="module")
def fixed(worker: Worker) -> Run:
    """What fixing an example for one rule comes to; worked out once for all tests that ask."""

    @cache
    def run(rule: Rule, number: int) -> Fixing:
        repository = Repository(rule.bad[number].source())
        repository._worker = worker
        return fix(repository, only(rule), unsafe=True)

    return lambda rule, example: run(rule, rule.bad.index(example))


def opened(source: object, worker: Worker) -> Repository:
    repository = Repository(source)
    repository._worker = worker
    return repository


@pytest.mark.parametrize("rule", EVERY)
def test_the_fix_of_a_note_is_never_safe(rule: Rule) -> None:
    assert rule.severity is not Severity.NOTE or rule.fixes is Safety.UNSAFE


@pytest.mark.parametrize("rule", EVERY)
def test_a_rule_with_a_fix_fixes_one_of_its_bad_examples(rule: Rule, fixed: Run) -> None:
    assert any(fixed(rule, example).fixed for example in rule.bad)


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_every_fix_that_is_proposed_holds(rule: Rule, example: Example, fixed: Run) -> None:
    assert [(dropped.title, dropped.why) for dropped in fixed(rule, example).dropped] == []


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_a_rule_is_silent_about_what_it_fixed(rule: Rule, example: Example, fixed: Run) -> None:
    done = fixed(rule, example)
    left = {(finding.path, finding.place, finding.message) for finding in done.after.findings}
    assert left.isdisjoint((one.finding.path, one.finding.place, one.finding.message) for one in done.fixed)


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_no_rule_speaks_that_did_not_before(rule: Rule, example: Example, fixed: Run, worker: Worker) -> None:
    before, after = linted(opened(example.source(), worker)), linted(opened(fixed(rule, example).overlay, worker))
    assert newly_said(before, after) is None


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_fixes_of_all_rules_do_not_quarrel(rule: Rule, example: Example, worker: Worker) -> None:
    done = fix(opened(example.source(), worker), linted, unsafe=True)
    assert ([f"{one.finding.code} {one.title}: {one.why}" for one in done.dropped], done.finished) == ([], True)


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_a_second_run_changes_nothing(rule: Rule, example: Example, fixed: Run, worker: Worker) -> None:
    again = fix(opened(fixed(rule, example).overlay, worker), only(rule), unsafe=True)
    assert (again.overlay.changed, again.fixed) == ({}, ())


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_only_files_that_the_edits_name_differ(rule: Rule, example: Example, fixed: Run, worker: Worker) -> None:
    repository = opened(example.source(), worker)
    named = set()
    for finding in rule.check(repository):
        proposed = rule.fix(repository, finding)
        named |= {edit.path for edit in proposed.edits} if proposed else set()
    assert set(fixed(rule, example).overlay.changed) <= named


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_a_fix_is_titled_as_an_order(rule: Rule, example: Example, fixed: Run) -> None:
    titles = [one.title for one in fixed(rule, example).fixed]
    assert [title for title in titles if not title or title[0].isupper() or title.endswith(".")] == []


@pytest.mark.parametrize("rule", EVERY)
def test_good_examples_are_left_alone(rule: Rule, worker: Worker) -> None:
    changed = [
        example.title
        for example in rule.good
        if fix(opened(example.source(), worker), only(rule), unsafe=True).overlay.changed
    ]
    assert changed == []
