"""JUnit XML: what CI systems read of it."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

from hypothesis import given, settings, strategies as st

from repokit.linter.finding import Coverage, Finding, Report, Severity, Waived
from repokit.linter.reporters import junit
from repokit.linter.reporters.context import Context


def parsed(report: Report, context: Context | None = None) -> ET.Element:
    return ET.fromstring(junit.render(report, lambda _: (3, 7), context or Context()))  # noqa: S314 - our own


def cases(root: ET.Element) -> dict[str, ET.Element]:
    return {case.attrib["name"]: case for case in root.iter("testcase")}


def kinds(case: ET.Element) -> list[str]:
    return [child.tag for child in case]


INDEX = "IDX101 missing-shard: model.safetensors.index.json"


def test_what_fails_the_run_is_a_failure(report: Report) -> None:
    assert kinds(cases(parsed(report))[INDEX]) == ["failure"]


def test_a_failure_carries_message_and_text(report: Report) -> None:
    failure = cases(parsed(report))[INDEX][0]
    assert failure.attrib["message"] == "names 2 shards that are not in the repository"
    assert "Fix: upload them" in (failure.text or "")


def test_what_does_not_fail_the_run_is_output(report: Report) -> None:
    assert kinds(cases(parsed(replace(report, waived=())))["CRD101 odd-card: README.md"]) == ["system-out"]


def test_what_fails_goes_by_fail_on(report: Report) -> None:
    found = cases(parsed(replace(report, waived=()), Context(fail_on=Severity.WARNING)))
    assert kinds(found["CRD101 odd-card: README.md"]) == ["failure"]


def test_nothing_fails_where_nothing_may(report: Report) -> None:
    assert not list(parsed(report, Context(fail_on=None)).iter("failure"))


def test_a_rule_that_found_nothing_passes(report: Report) -> None:
    assert kinds(cases(parsed(report))["FIL101 malformed-file"]) == []


def test_a_rule_that_could_not_run_is_skipped_with_its_reason(report: Report) -> None:
    [skipped] = [case for name, case in cases(parsed(report)).items() if name.startswith("TOK101")]
    assert (kinds(skipped), skipped[0].text) == (["skipped"], "tokenizer.json: is too large")


def test_a_rule_with_a_bug_is_an_error(report: Report) -> None:
    [broken] = [case for name, case in cases(parsed(report)).items() if name.startswith("GEN101")]
    assert kinds(broken) == ["error"]


def test_what_is_waived_is_skipped_with_the_reason(report: Report) -> None:
    case = cases(parsed(replace(report, findings=())))["CRD101 odd-card: README.md"]
    assert case[0].attrib["message"] == "waived: by hand"


def test_what_is_known_is_skipped(report: Report) -> None:
    case = cases(parsed(replace(report, findings=())))["WGT301 no-format: model.safetensors"]
    assert case[0].attrib["message"] == "known: in the baseline"


def test_a_failure_beside_what_is_waived_is_a_failure_alone(finding: Finding) -> None:
    report = Report("m", (finding,), Coverage(("IDX101",)), (Waived(finding, "one of them"),))
    assert kinds(cases(parsed(report))[INDEX]) == ["failure"]


def test_several_findings_of_one_rule_and_file_are_one_test(finding: Finding) -> None:
    root = parsed(Report("m", (finding, replace(finding, message="is odd too")), Coverage(("IDX101",))))
    assert [case.attrib["name"] for case in root.iter("testcase")] == [INDEX]
    assert "is odd too" in root.findall(".//failure")[0].attrib["message"]


def test_names_are_unique_because_gitlab_keeps_the_first(report: Report) -> None:
    names = [(case.attrib["classname"], case.attrib["name"]) for case in parsed(report).iter("testcase")]
    assert len(names) == len(set(names))


def test_files_are_those_of_the_checkout(report: Report) -> None:
    case = cases(parsed(report, Context("models/a")))[INDEX]
    assert (case.attrib["file"], case.attrib["line"]) == ("models/a/model.safetensors.index.json", "3")


def test_a_suite_is_a_family(report: Report) -> None:
    names = [suite.attrib["name"] for suite in parsed(report).iter("testsuite")]
    assert names == ["repokit.CRD", "repokit.FIL", "repokit.GEN", "repokit.IDX", "repokit.TOK", "repokit.WGT"]


def test_counts_are_those_of_the_tests(report: Report) -> None:
    for suite in (root := parsed(report)).iter("testsuite"):
        counted = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
        tags = ("testcase", "failure", "error", "skipped")
        assert list(counted.values()) == [len(list(suite.iter(tag))) for tag in tags]
    assert root.attrib["tests"] == str(len(list(root.iter("testcase"))))


def test_hostile_text_is_xml_of_the_same_shape(hostile: Report) -> None:
    assert [suite.attrib["name"] for suite in parsed(hostile)] == ["repokit.GEN", "repokit.IDX", "repokit.TOK"]
    assert [kinds(case) for case in parsed(hostile).iter("testcase")] == [["error"], ["failure"], ["skipped"]]


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(exclude_categories=())))
def test_any_text_is_xml(text: str) -> None:
    finding = Finding("IDX101", "missing-shard", Severity.ERROR, text, text, why=text)
    assert len(list(parsed(Report(text, (finding,), Coverage())).iter("failure"))) == 1
