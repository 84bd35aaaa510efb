"""The baseline: what is recognised, what is counted, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from repokit.errors import MalformedFile, MissingInput, UsageError
from repokit.linter import baseline
from repokit.linter.baseline import Known
from repokit.linter.finding import Coverage, Finding, Report, Severity
from repokit.schema.baseline import Baseline

MISSING = Finding("IDX101", "missing-shard", Severity.ERROR, "a.index.json", "names 2", place="/weight_map/x")
CARD = Finding("CRD101", "odd-card", Severity.WARNING, "README.md", "is odd", place="line 3")


def report(*findings: Finding, checked: tuple[str, ...] = ("IDX101", "CRD101")) -> Report:
    return Report("m", findings, Coverage(checked))


def written(folder: Path, *findings: Finding) -> Path:
    path = folder / "baseline.json"
    path.write_text(baseline.render(baseline.of(findings)), encoding="utf-8")
    return path


# ---------------------------------------------------------------- what is recognised


@pytest.mark.parametrize("changed", [{"message": "names 3"}, {"why": "x"}, {"names": ("y",)}, {"hint": "z"}])
def test_another_wording_is_the_same_finding(changed: dict[str, Any]) -> None:
    assert baseline.fingerprint(replace(MISSING, **changed)) == baseline.fingerprint(MISSING)


@pytest.mark.parametrize("place", ["line 4", "line 4 column 2", "header, line 1", "byte 1,024", None])
def test_another_line_is_the_same_finding(place: str | None) -> None:
    assert baseline.fingerprint(replace(CARD, place=place)) == baseline.fingerprint(CARD)


@pytest.mark.parametrize("changed", [{"code": "IDX102"}, {"path": "b"}, {"place": "/weight_map/y"}, {"place": None}])
def test_another_code_path_or_place_is_another_finding(changed: dict[str, Any]) -> None:
    assert baseline.fingerprint(replace(MISSING, **changed)) != baseline.fingerprint(MISSING)


def test_parts_do_not_run_together() -> None:
    assert Known("IDX101", "a", "b").fingerprint != Known("IDX101", "ab", "").fingerprint


def test_a_fingerprint_stays_the_same_from_version_to_version() -> None:
    # Baselines that were written before would otherwise hold nothing that is found.
    assert baseline.fingerprint(MISSING) == "e845454510af3a206a1fd2c77d7c4335baf0387267cf494a6dc10f7c6238cacd"


# ---------------------------------------------------------------- what is counted


def test_what_is_known_does_not_count() -> None:
    found, _ = baseline.apply(report(MISSING, CARD), baseline.of([MISSING]))
    assert (found.findings, found.known) == ((CARD,), (MISSING,))


def test_the_exit_code_is_that_of_new_findings() -> None:
    found, _ = baseline.apply(report(MISSING), baseline.of([MISSING]))
    assert (report(MISSING).exit_code(), found.exit_code()) == (1, 0)


def test_one_more_of_a_kind_is_new() -> None:
    found, _ = baseline.apply(report(MISSING, MISSING, MISSING), baseline.of([MISSING, MISSING]))
    assert (len(found.findings), len(found.known)) == (1, 2)


def test_what_is_gone_is_stale() -> None:
    _, stale = baseline.apply(report(CARD), baseline.of([MISSING, CARD]))
    assert stale == (Known.of(MISSING),)


def test_fewer_of_a_kind_are_stale() -> None:
    _, stale = baseline.apply(report(MISSING), baseline.of([MISSING, MISSING]))
    assert stale == (Known.of(MISSING),)


def test_what_was_not_checked_is_not_stale() -> None:
    _, stale = baseline.apply(report(checked=("CRD101",)), baseline.of([MISSING]))
    assert stale == ()


def test_coverage_stays_as_it_is() -> None:
    unread = Report("m", (MISSING,), Coverage(("IDX101",), unread=("a",)))
    found, _ = baseline.apply(unread, baseline.of([MISSING]))
    assert found.exit_code() == 2


def test_a_new_baseline_keeps_what_an_older_one_says_of_rules_that_did_not_run() -> None:
    old = baseline.of([MISSING, CARD])
    assert baseline.merged(old, report(checked=("CRD101",))) == baseline.of([MISSING])


def test_a_new_baseline_replaces_what_was_found_before_it_stopped() -> None:
    old = {Known.of(MISSING): 5}
    assert baseline.merged(old, report(MISSING, checked=())) == baseline.of([MISSING])


# ---------------------------------------------------------------- the file


def test_the_file_is_sorted_whatever_the_order_of_the_findings() -> None:
    assert baseline.render(baseline.of([MISSING, CARD])) == baseline.render(baseline.of([CARD, MISSING]))


def test_the_file_names_what_it_knows() -> None:
    entries = json.loads(baseline.render(baseline.of([MISSING, CARD, CARD])))["findings"]
    assert entries == [
        {"fingerprint": baseline.fingerprint(CARD), "code": "CRD101", "path": "README.md", "count": 2},
        {
            "fingerprint": baseline.fingerprint(MISSING),
            "code": "IDX101",
            "path": "a.index.json",
            "place": "/weight_map/x",
            "count": 1,
        },
    ]


def test_the_file_keeps_its_schema() -> None:
    Baseline.model_validate(json.loads(baseline.render(baseline.of([MISSING, CARD]))))


TEXTS = st.text(st.characters(exclude_categories=()), max_size=30)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.builds(lambda path, place: replace(MISSING, path=path, place=place), TEXTS, TEXTS)))
def test_what_was_written_is_read(findings: list[Finding]) -> None:
    text = baseline.render(baseline.of(findings))
    assert baseline._parsed(text.encode(), "b.json") == baseline.of(findings)


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="cannot be read"):
        baseline.read(tmp_path / "baseline.json")


def entry(**changed: Any) -> dict[str, Any]:
    return {"fingerprint": baseline.fingerprint(CARD), "code": "CRD101", "path": "README.md", **changed}


def document(*entries: Any, **changed: Any) -> dict[str, Any]:
    return {"format": "repokit-baseline", "version": 1, "findings": list(entries), **changed}


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("{", "line 1 column 2"),
        ('{"format": "repokit-baseline",\n<<<<<<< ours\n', "line 2 column 1"),
        (json.dumps(document(version=2)), "/version"),
        (json.dumps(document(findings={})), "/findings"),
        (json.dumps(document(entry(count=0))), "/findings/0/count"),
        (json.dumps(document(entry(), entry(count="1"))), "/findings/1/count"),
        (json.dumps(document(entry(code="x"))), "/findings/0/code"),
        (json.dumps(document(entry(reason="x"))), "/findings/0/reason"),
        (json.dumps(document("x")), "/findings/0"),
        (json.dumps(document(entry(path="other"))), "/findings/0"),
        (json.dumps(document(entry(), entry())), "/findings/1"),
    ],
)
def test_a_malformed_baseline_is_refused_with_its_place(tmp_path: Path, content: str, place: str) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(content)
    with pytest.raises(MalformedFile) as caught:
        baseline.read(path)
    assert (caught.value.path, caught.value.place) == (str(path), place)


def test_an_entry_without_a_place_or_a_count_is_one_of_the_file() -> None:
    assert baseline._parsed(json.dumps(document(entry())).encode(), "b") == baseline.of([CARD])


@pytest.mark.parametrize("content", ["{}", "[]", "not JSON", "", '{"format": "other"}'])
def test_another_file_is_not_overwritten(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(UsageError, match="is not overwritten"):
        baseline.to_replace(path)


def test_a_baseline_is_overwritten(tmp_path: Path) -> None:
    assert baseline.to_replace(written(tmp_path, CARD)) == baseline.of([CARD])


def test_a_new_file_replaces_nothing(tmp_path: Path) -> None:
    assert baseline.to_replace(tmp_path / "baseline.json") == {}
