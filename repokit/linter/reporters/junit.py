"""JUnit XML, which Jenkins, GitLab and Azure Pipelines show as tests.

One suite a family of rules, one test a rule that found nothing, one a rule and file where it did. GitLab shows
`classname` as the suite, compares tests between branches by `classname` and `name` and keeps the first of two that are
equal (docs.gitlab.com, "Unit test reports"), so that what one rule says of one file is one test.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from repokit.linter.reporters.context import lines_of
from repokit.linter.rules import RULES
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from repokit.linter.finding import Finding, Report
    from repokit.linter.places import Locate
    from repokit.linter.reporters.context import Context


@dataclass(slots=True)
class _Test:
    """One test case.

    Attributes:
        code: Of the rule.
        name: Unique within the report.
        file: As the checkout names it.
        line: In that file.
        outcomes: `failure`, `error`, `skipped` or `system-out`, with a heading and a text.
    """

    code: str
    name: str
    file: str | None = None
    line: int | None = None
    outcomes: list[tuple[str, str, str]] = field(default_factory=list)

    def has(self, outcome: str) -> bool:
        return any(name == outcome for name, _, _ in self.outcomes)


def render(report: Report, locate: Locate, context: Context) -> str:
    """The report as JUnit XML."""
    tests = sorted([*_of_files(report, locate, context), *_of_rules(report)], key=lambda test: (test.code, test.name))
    suites = ["".join(_suite(family, list(group))) for family, group in groupby(tests, lambda test: test.code[:3])]
    name = f"repokit lint {printable(report.target, 400)}"
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites{_attributes(name=name)}{_counts(tests)}>\n'
    return f"{head}{''.join(suites)}</testsuites>\n"


def _of_files(report: Report, locate: Locate, context: Context) -> Iterator[_Test]:
    """What was found: a failure from the severity on that fails the run, output below it, skipped where silenced."""
    said: dict[tuple[str, str], list[tuple[Finding, str, str]]] = defaultdict(list)
    for finding in report.findings:
        outcome = "failure" if context.fails(finding) else "system-out"
        said[finding.code, finding.path].append((finding, outcome, printable(finding.message, 400)))
    for waived in report.waived:
        reason = f"waived: {printable(waived.reason, 400)}" if waived.reason else "waived"
        said[waived.finding.code, waived.finding.path].append((waived.finding, "skipped", reason))
    for finding in report.known:
        said[finding.code, finding.path].append((finding, "skipped", "known: in the baseline"))
    for (code, path), entries in said.items():
        first = entries[0][0]
        line, _ = locate(first) or (None, None)
        test = _Test(code, f"{code} {first.name}: {printable(path, 400)}", printable(context.path(first), 4096), line)
        test.outcomes += [(outcome, head, "\n".join(lines_of(finding))) for finding, outcome, head in entries]
        yield test


def _of_rules(report: Report) -> Iterator[_Test]:
    """Rules that found nothing, and those that could not say."""
    coverage = report.coverage
    names = {rule.code: rule.name for rule in RULES}
    spoken = {finding.code for finding in report.findings}
    for code in sorted({*coverage.checked, *coverage.not_checked, *coverage.broken} - spoken):
        test = _Test(code, f"{code} {names.get(code, '')}".strip())
        if code in coverage.broken:
            test.outcomes.append(("error", "internal error", printable(coverage.broken[code], 400)))
        elif code in coverage.not_checked:
            test.outcomes.append(("skipped", "not checked", printable(coverage.not_checked[code], 400)))
        yield test


def _suite(family: str, tests: list[_Test]) -> Iterator[str]:
    yield f"  <testsuite{_attributes(name=f'repokit.{family}')}{_counts(tests)}>\n"
    for test in tests:
        yield from _case(test)
    yield "  </testsuite>\n"


def _case(test: _Test) -> Iterator[str]:
    where = _attributes(file=test.file, line=test.line)
    head = f"    <testcase{_attributes(classname=f'repokit.{test.code[:3]}', name=test.name, time='0')}{where}"
    # One element of a kind: a second failure of one test is no JUnit. What is skipped does not fail beside it.
    kinds = [kind for kind in ("error", "failure") if test.has(kind)] or ["skipped"] * test.has("skipped")
    inner = [_element(kind, test.outcomes) for kind in (*kinds[:1], *["system-out"] * test.has("system-out"))]
    yield f"{head}>\n{''.join(inner)}    </testcase>\n" if inner else f"{head}/>\n"


def _element(kind: str, outcomes: Iterable[tuple[str, str, str]]) -> str:
    told = [(head, text) for outcome, head, text in outcomes if outcome == kind]
    text = escape("\n\n".join(text for _, text in told))
    # Azure and Jenkins show the message, GitLab the text.
    message = "" if kind == "system-out" else _attributes(message="; ".join(head for head, _ in told))
    return f"      <{kind}{message}>{text}</{kind}>\n"


def _counts(tests: list[_Test]) -> str:
    # A test has one of the three, the first that applies, as in _case.
    failures, errors, skipped = 0, 0, 0
    for test in tests:
        if test.has("error"):
            errors += 1
        elif test.has("failure"):
            failures += 1
        elif test.has("skipped"):
            skipped += 1
    return _attributes(tests=len(tests), failures=failures, errors=errors, skipped=skipped, time="0")


def _attributes(**values: object) -> str:
    """Names and values; what no XML may hold (control characters, U+FFFE) was written as an escape by `printable`."""
    return "".join(f' {name}="{escape(str(value))}"' for name, value in values.items() if value is not None)
