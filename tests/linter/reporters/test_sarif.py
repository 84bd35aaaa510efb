"""SARIF 2.1.0: what the schema of OASIS asks for, and what GitHub makes alerts of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import jsonschema
from hypothesis import given, settings, strategies as st

from repokit.linter import baseline
from repokit.linter.finding import Coverage, Finding, Report, Severity
from repokit.linter.reporters import sarif
from repokit.linter.reporters.context import Context
from repokit.linter.rules import RULES

SCHEMA = json.loads(Path(__file__).with_name("sarif-schema-2.1.0.json").read_bytes())
VALIDATOR = jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.FormatChecker())


def log(report: Report, context: Context | None = None, locate: Any = lambda _: None) -> dict[str, Any]:
    return json.loads(sarif.render(report, locate, context or Context()))


def run(report: Report, context: Context | None = None, locate: Any = lambda _: None) -> dict[str, Any]:
    return log(report, context, locate)["runs"][0]


def test_the_schema_would_refuse_another_document() -> None:
    assert not VALIDATOR.is_valid({"version": "2.1.0", "runs": [{}]})


def test_a_report_is_what_the_schema_says(report: Report) -> None:
    VALIDATOR.validate(log(report, locate=lambda _: (3, 7)))


def test_an_empty_report_is_what_the_schema_says() -> None:
    VALIDATOR.validate(log(Report("m", (), Coverage())))


def test_hostile_text_is_what_the_schema_says(hostile: Report) -> None:
    VALIDATOR.validate(log(hostile))


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_categories=()), min_size=1))
def test_any_path_is_a_relative_reference(path: str) -> None:
    finding = Finding("IDX101", "x", Severity.ERROR, path, "is odd")
    document = log(Report("m", (finding,), Coverage()))
    VALIDATOR.validate(document)
    uri = document["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.isascii()
    assert ":" not in uri.partition("/")[0]
    assert not uri.startswith("/")


def test_a_path_is_percent_encoded_utf8() -> None:
    finding = Finding("IDX101", "x", Severity.ERROR, "a b/ü#?:.json", "is odd")
    [result] = run(Report("m", (finding,), Coverage()))["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "a%20b/%C3%BC%23%3F%3A.json"


def test_a_name_that_is_no_utf8_keeps_its_bytes() -> None:
    finding = Finding("IDX101", "x", Severity.ERROR, "caf\udce9.txt", "is odd")
    [result] = run(Report("m", (finding,), Coverage()))["results"]
    assert unquote_to_bytes(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]) == b"caf\xe9.txt"


def test_paths_are_those_of_the_checkout(report: Report) -> None:
    [result, *_] = run(report, Context("models/a"))["results"]
    artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": "models/a/model.safetensors.index.json", "uriBaseId": "%SRCROOT%"}


def test_what_is_not_in_the_checkout_has_no_base(report: Report) -> None:
    [result, *_] = run(report, Context(None))["results"]
    artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": "model.safetensors.index.json"}


def test_line_and_column_are_a_region(report: Report) -> None:
    [result, *_] = run(report, locate=lambda _: (3, 7))["results"]
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 3, "startColumn": 7}


def test_without_a_line_it_stands_at_the_top(report: Report) -> None:
    [result, *_] = run(report)["results"]
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 1}


def test_a_tensor_is_a_logical_location(report: Report) -> None:
    result = run(report)["results"][2]
    assert result["locations"][0]["logicalLocations"] == [{"fullyQualifiedName": "lm_head.weight", "kind": "member"}]


def test_a_line_is_no_logical_location(report: Report) -> None:
    assert "logicalLocations" not in run(report)["results"][1]["locations"][0]


def test_severities_are_levels(report: Report) -> None:
    assert [result["level"] for result in run(report)["results"]] == ["error", "warning", "note"]


def test_a_result_points_at_its_rule(report: Report) -> None:
    found = run(report)
    rules = found["tool"]["driver"]["rules"]
    assert [rules[result["ruleIndex"]]["id"] for result in found["results"]] == ["IDX101", "CRD101", "WGT301"]


def test_a_rule_says_what_its_page_says(report: Report) -> None:
    rule = next(rule for rule in RULES if rule.code == "IDX101")
    described = run(report)["tool"]["driver"]["rules"][0]
    assert described["shortDescription"]["text"] == rule.summary
    assert rule.why in described["fullDescription"]["text"]


def test_every_rule_makes_a_log_that_the_schema_takes() -> None:
    findings = tuple(rule.finding("a", "is odd") for rule in RULES)
    VALIDATOR.validate(log(Report("m", findings, Coverage())))


def test_fingerprints_are_those_of_the_baseline(report: Report, finding: Finding) -> None:
    [result, *_] = run(report)["results"]
    assert result["partialFingerprints"]["repokitFinding/v1"] == baseline.fingerprint(finding)


def test_equal_findings_are_told_apart_by_number(finding: Finding) -> None:
    results = run(Report("m", (finding, finding), Coverage()))["results"]
    hashes = [result["partialFingerprints"]["primaryLocationLineHash"] for result in results]
    assert [text.partition(":")[2] for text in hashes] == ["1", "2"]


def test_gaps_are_notifications(report: Report) -> None:
    [invocation] = run(report)["invocations"]
    levels = {
        note["message"]["text"].partition(":")[0]: note["level"] for note in invocation["toolExecutionNotifications"]
    }
    assert levels == {"internal error": "error", "not checked": "warning", "not known to this version": "note"}


def test_what_could_not_be_checked_is_no_success(report: Report) -> None:
    assert run(report)["invocations"][0]["executionSuccessful"] is False


def test_findings_are_a_success_with_exit_code_1(finding: Finding) -> None:
    [invocation] = run(Report("m", (finding,), Coverage(("IDX101",))))["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (True, 1)


def test_the_exit_code_goes_by_what_fails(finding: Finding) -> None:
    [invocation] = run(Report("m", (finding,), Coverage(("IDX101",))), Context(fail_on=None))["invocations"]
    assert invocation["exitCode"] == 0


def test_an_expired_waiver_is_a_notification_of_the_configuration(report: Report) -> None:
    [invocation] = run(replace(report, expired=("the waiver of CRD expired",)))["invocations"]
    [note] = invocation["toolConfigurationNotifications"]
    assert note["message"]["text"] == "the waiver of CRD expired"


def test_what_is_waived_or_known_is_counted_and_no_result(report: Report) -> None:
    found = run(replace(report, findings=()))
    assert (found["results"], found["properties"]["waived"], found["properties"]["known"]) == ([], 1, 1)


def test_no_more_results_than_github_keeps_and_the_rest_is_told(finding: Finding) -> None:
    found = run(Report("m", (finding,) * (sarif.MOST + 3), Coverage()))
    [note] = found["invocations"][0]["toolExecutionNotifications"]
    assert (len(found["results"]), note["message"]["text"][:18]) == (sarif.MOST, "3 results left out")


def test_no_text_is_markdown(report: Report) -> None:
    assert '"markdown"' not in sarif.render(report, lambda _: None, Context())


def test_what_looks_like_a_link_is_none() -> None:
    finding = Finding("IDX101", "x", Severity.ERROR, "a", "names [click](http://example.com)")
    [result] = run(Report("m", (finding,), Coverage()))["results"]
    assert r"\[click\](http" in result["message"]["text"]


def test_braces_are_doubled_as_the_standard_asks() -> None:
    finding = Finding("IDX101", "x", Severity.ERROR, "a", "has {0}")
    [result] = run(Report("m", (finding,), Coverage()))["results"]
    assert result["message"]["text"] == "a has {{0}}"


def test_no_command_of_the_runner_is_in_it(hostile: Report) -> None:
    assert "##[" not in sarif.render(hostile, lambda _: None, Context())
