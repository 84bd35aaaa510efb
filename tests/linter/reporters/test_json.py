"""JSON: the contract of schemas/report.schema.json, and what was added to it."""

from __future__ import annotations

import json
from typing import Any

from repokit.linter import baseline
from repokit.linter.finding import Finding, Report
from repokit.linter.reporters import json as reporter
from repokit.schema import report as schema


def document(report: Report, **options: Any) -> dict[str, Any]:
    return json.loads(reporter.render(report, lambda _: None, **options))


def test_it_keeps_its_contract(report: Report) -> None:
    schema.Report.model_validate_json(reporter.render(report, lambda _: None, with_statistics=True))


def test_hostile_text_keeps_it_too(hostile: Report) -> None:
    schema.Report.model_validate_json(reporter.render(hostile, lambda _: None, with_statistics=True))


def test_what_is_silenced_is_in_its_own_counts(report: Report) -> None:
    assert document(report)["summary"] == {"errors": 1, "warnings": 1, "notes": 1, "waived": 1, "known": 1}


def test_what_is_waived_is_listed_with_its_reason(report: Report) -> None:
    assert document(report)["waived"] == [
        {"code": "CRD101", "path": "README.md", "message": "is odd", "reason": "by hand"}
    ]


def test_a_finding_has_the_fingerprint_of_the_baseline(report: Report, finding: Finding) -> None:
    assert document(report)["findings"][0]["fingerprint"] == baseline.fingerprint(finding)


def test_statistics_are_there_where_they_are_asked_for(report: Report) -> None:
    assert document(report)["statistics"] is None
    assert document(report, with_statistics=True)["statistics"][1] == {
        "code": "CRD101",
        "name": "odd-card",
        "severity": "warning",
        "findings": 1,
        "waived": 1,
        "known": 0,
        "fixable": 0,
        "fixable_unsafely": 0,
    }


def test_no_command_of_a_runner_is_in_it(hostile: Report) -> None:
    assert "##[" not in reporter.render(hostile, lambda _: None)
