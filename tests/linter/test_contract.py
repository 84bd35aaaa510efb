"""What every rule promises, over the whole table. No rule is named here."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest

from repokit.errors import InputError
from repokit.formats.safetensors import FIRST_READ, header_bytes, in_file_order
from repokit.formats.tensors import TensorInfo
from repokit.linter import rules as package
from repokit.linter.engine import lint
from repokit.linter.examples import BASES, Example
from repokit.linter.finding import Finding, Report, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules import RULES
from repokit.repo.repository import Repository
from repokit.repo.source import Entry, Source

NOTES = Path(__file__).with_name("expected_notes.json")
FAMILIES = ("FIL", "CFG", "GEN", "TOK", "TPL", "PRC", "WGT", "IDX", "ADP", "QNT", "GGF", "CRD", "LIC", "SEC")
WEIGHTS = re.compile(r"\.(?:safetensors|bin|pt|pth|ckpt|gguf|onnx|h5|msgpack)$")

BAD = [pytest.param(rule, example, id=f"{rule.code}: {example.title}") for rule in RULES for example in rule.bad]
GOOD = [pytest.param(rule, example, id=f"{rule.code}: {example.title}") for rule in RULES for example in rule.good]
BASE = [pytest.param(Example("base", base=base), id=base) for base in BASES]
EVERY = [pytest.param(rule, id=rule.code) for rule in RULES]


ReportOf = Callable[[Example], Report]


def loud(report: Report) -> dict[str, list[str]]:
    """Code to messages, errors and warnings only."""
    found: dict[str, list[str]] = {}
    for finding in report.at_least(Severity.WARNING):
        found.setdefault(finding.code, []).append(f"{finding.path}: {finding.message}")
    return found


def notes(report: Report) -> list[str]:
    return sorted({finding.code for finding in report.findings if finding.severity is Severity.NOTE})


# ---------------------------------------------------------------- examples


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_a_bad_example_breaks_its_rule(rule: Rule, example: Example, opened: Callable[[Example], Repository]) -> None:
    assert list(rule.check(opened(example)))


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_a_bad_example_breaks_no_other_rule(rule: Rule, example: Example, report_of: ReportOf) -> None:
    said = loud(report_of(example))
    assert {code: messages for code, messages in said.items() if code not in {rule.code, *example.also}} == {}


@pytest.mark.parametrize(("rule", "example"), [param for param in BAD if param.values[0].reads is Reads.TENSORS])
def test_a_bad_value_breaks_no_other_rule_over_values(rule: Rule, example: Example, deep_report_of: ReportOf) -> None:
    report = deep_report_of(example)
    said = {code: messages for code, messages in loud(report).items() if code not in {rule.code, *example.also}}
    assert (said, dict(report.coverage.broken)) == ({}, {})


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_also_names_only_rules_that_break(rule: Rule, example: Example, report_of: ReportOf) -> None:
    assert set(example.also) <= {finding.code for finding in report_of(example).findings}


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_no_rule_crashes_over_a_bad_example(rule: Rule, example: Example, report_of: ReportOf) -> None:
    assert report_of(example).coverage.broken == {}


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_a_finding_is_about_a_file_of_the_example(
    rule: Rule, example: Example, opened: Callable[[Example], Repository]
) -> None:
    repository = opened(example)
    known = {*repository.files, *example.change}
    assert [finding.path for finding in rule.check(repository) if finding.path not in known] == []


@pytest.mark.parametrize(("rule", "example"), GOOD)
def test_a_good_example_is_clean(rule: Rule, example: Example, report_of: ReportOf) -> None:
    report = report_of(example)
    assert (loud(report), dict(report.coverage.broken)) == ({}, {})


@pytest.mark.parametrize(("rule", "example"), GOOD)
def test_the_values_of_a_good_example_are_clean(rule: Rule, example: Example, deep_report_of: ReportOf) -> None:
    report = deep_report_of(example)
    assert (loud(report), dict(report.coverage.broken)) == ({}, {})


@pytest.mark.parametrize(("rule", "example"), GOOD)
def test_a_good_example_does_not_break_its_rule(
    rule: Rule, example: Example, opened: Callable[[Example], Repository]
) -> None:
    assert list(rule.check(opened(example))) == []


@pytest.mark.parametrize("example", BASE)
def test_the_values_of_a_base_are_clean_and_wholly_checked(example: Example, deep_report_of: ReportOf) -> None:
    report = deep_report_of(example)
    coverage = report.coverage
    assert (loud(report), dict(coverage.not_checked), dict(coverage.broken)) == ({}, {}, {})


@pytest.mark.parametrize("example", BASE)
def test_a_base_is_clean_and_wholly_checked(example: Example, report_of: ReportOf) -> None:
    report = report_of(example)
    coverage = report.coverage
    assert (loud(report), dict(coverage.not_checked), coverage.unknown, dict(coverage.broken)) == ({}, {}, (), {})


def test_notes_of_clean_repositories_are_the_committed_ones(report_of: ReportOf) -> None:
    """For every base its notes; for a good example only where they differ from those of its base."""
    spoken = {param.id: notes(report_of(param.values[0])) for param in BASE}
    for rule in RULES:
        for example in rule.good:
            if (found := notes(report_of(example))) != spoken[example.base]:
                spoken[f"{rule.code}: {example.title}"] = found
    assert spoken == json.loads(NOTES.read_text(encoding="utf-8"))


# ---------------------------------------------------------------- identity


@pytest.mark.parametrize("rule", EVERY)
def test_a_code_is_well_formed(rule: Rule) -> None:
    assert re.fullmatch(r"[A-Z]{3}[0-9]{3}", rule.code)
    assert rule.code[:3] in FAMILIES


@pytest.mark.parametrize("rule", EVERY)
def test_a_name_states_the_defect(rule: Rule) -> None:
    assert re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)+", rule.name)
    assert not rule.name.startswith(("check-", "no-", "valid-"))


@pytest.mark.parametrize("rule", EVERY)
def test_a_docstring_says_what_and_why(rule: Rule) -> None:
    assert rule.summary.endswith(".")
    assert rule.why.endswith(".")


@pytest.mark.parametrize("rule", EVERY)
def test_a_rule_is_graded_and_dated(rule: Rule) -> None:
    assert isinstance(rule.severity, Severity)
    assert isinstance(rule.reads, Reads)
    assert re.fullmatch(r"[0-9]+\.[0-9]+", rule.since)


@pytest.mark.parametrize("rule", EVERY)
def test_a_rule_shows_both_sides(rule: Rule) -> None:
    assert rule.bad
    assert rule.good


def test_codes_and_names_are_unique() -> None:
    assert len({rule.code for rule in RULES}) == len({rule.name for rule in RULES}) == len(RULES)


def test_titles_of_one_rule_are_unique() -> None:
    titles = [
        f"{rule.code} {kind}: {example.title}"
        for rule in RULES
        for kind in ("bad", "good")
        for example in getattr(rule, kind)
    ]
    assert len(set(titles)) == len(titles)


def test_families_stand_together_in_their_order() -> None:
    order = [family for family, _ in groupby(rule.code[:3] for rule in RULES)]
    assert order == sorted(order, key=FAMILIES.index)


def test_every_rule_is_in_the_table() -> None:
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    defined = {
        kind for kind in subclasses(Rule) if kind.__module__.startswith(package.__name__) and "code" in vars(kind)
    }
    assert defined == {type(rule) for rule in RULES if "code" in vars(type(rule))}


def subclasses(kind: type) -> Iterator[type]:
    for below in kind.__subclasses__():
        yield below
        yield from subclasses(below)


# ---------------------------------------------------------------- how much a rule reads


@pytest.mark.parametrize(("rule", "example"), [*BAD, *GOOD])
def test_a_rule_reads_no_more_than_it_declares(
    rule: Rule, example: Example, recorded: Callable[[Source], tuple[Repository, object]]
) -> None:
    repository, recording = recorded(example.source())
    list(rule.check(repository))
    reads = recording.reads
    if rule.reads is Reads.LISTING:
        assert reads == {}
    elif rule.reads is Reads.TEXT:
        assert {path: ranges for path, ranges in reads.items() if WEIGHTS.search(path) and ranges != [(0, 64)]} == {}


class Vast:
    """A single-file repository whose weights have gigabytes of data, all of it zero and none of it stored."""

    label = "vast"

    def __init__(self) -> None:
        self.files = dict(BASES["single"]())
        rows = 200_000
        shapes = {"model.embed_tokens.weight": (rows, 4096), "lm_head.weight": (rows, 4096)}
        placed = in_file_order(TensorInfo(name, "BF16", shape, 0, 0) for name, shape in shapes.items())
        self.header = header_bytes(placed, {"format": "pt"})
        self.size = len(self.header) + placed[-1].end
        self.furthest = 0

    def entries(self) -> dict[str, Entry]:
        listed = {path: Entry(len(content)) for path, content in self.files.items()}
        return dict(sorted({**listed, "model.safetensors": Entry(self.size)}.items()))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        if path != "model.safetensors":
            return self.files[path][offset:] if length is None else self.files[path][offset : offset + length]
        end = self.size if length is None else min(self.size, offset + length)
        self.furthest = max(self.furthest, end)
        assert self.furthest <= FIRST_READ, "reads tensor data"
        return self.header.ljust(end, b"\0")[offset:end]


@pytest.mark.parametrize("rule", [param for param in EVERY if param.values[0].reads < Reads.TENSORS])
def test_a_rule_leaves_tensor_data_alone(rule: Rule, recorded: Callable[[Source], tuple[Repository, object]]) -> None:
    vast = Vast()
    repository, _ = recorded(vast)
    try:
        list(rule.check(repository))
    except InputError:
        pytest.fail("the repository is well formed")
    assert vast.furthest <= FIRST_READ


def test_reading_tensor_data_would_be_noticed() -> None:
    with pytest.raises(AssertionError, match="reads tensor data"):
        Repository(Vast()).source.read("model.safetensors", 0)


# ---------------------------------------------------------------- a bug in a rule


class Planted(Rule):
    """A rule with a bug.

    It divides by zero.
    """

    code = "FIL999"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.LISTING
    bad = ()

    def check(self, repository: Repository) -> Iterator[Finding]:
        yield self.finding("config.json", f"{1 / (len(repository.files) - len(repository.files))}")


def test_a_planted_bug_is_reported_and_hides_nothing(opened: Callable[[Example], Repository]) -> None:
    example = RULES[0].bad[0]
    with_bug = lint(opened(example), rules=(Planted(), *RULES))
    assert "ZeroDivisionError" in with_bug.coverage.broken["FIL999"]
    assert with_bug.findings == lint(opened(example)).findings
    assert with_bug.exit_code(None) == 2
