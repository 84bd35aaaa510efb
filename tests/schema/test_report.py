"""The JSON report of lint."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from repokit.schema.report import Report

FINDING = {
    "code": "IDX101",
    "name": "missing-shard",
    "severity": "error",
    "path": "model.safetensors.index.json",
    "message": "names shards that are not there",
}
REPORT = {
    "version": 1,
    "target": "dist",
    "findings": [FINDING],
    "coverage": {},
    "summary": {"errors": 1, "warnings": 0, "notes": 0},
}


def test_report_survives_json():
    report = Report.model_validate(REPORT)
    assert Report.model_validate_json(report.model_dump_json()) == report


@pytest.mark.parametrize("change", [{"severity": "fatal"}, {"code": "101"}, {"line": 0}, {"extra": 1}])
def test_wrong_finding_is_refused(change):
    with pytest.raises(ValidationError):
        Report.model_validate({**REPORT, "findings": [{**FINDING, **change}]})


def test_coverage_names_what_was_not_checked():
    coverage = {
        "checked": ["IDX101"],
        "not_checked": [{"codes": ["TOK101"], "reason": "tokenizer.json does not parse"}],
    }
    report = Report.model_validate({**REPORT, "coverage": coverage})
    assert report.coverage.not_checked[0].codes == ("TOK101",)
