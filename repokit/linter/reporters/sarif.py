"""SARIF 2.1.0 (docs.oasis-open.org/sarif/sarif/v2.1.0), for code scanning.

Written by hand: the library for it is of 2019. Text is plain, never Markdown, because it holds names out of a
repository. What is waived or known is counted and left out: GitHub opens an alert for a suppressed result too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from repokit.linter.baseline import fingerprint, symbolic
from repokit.linter.finding import Severity
from repokit.linter.reporters.context import gaps, inert_json, lines_of
from repokit.linter.rules import RULES
from repokit.printable import count, printable
from repokit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repokit.linter.finding import Finding, Report
    from repokit.linter.places import Locate
    from repokit.linter.reporters.context import Context
    from repokit.linter.rule import Rule

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
MOST: Final = 5_000  # results that GitHub keeps of a run (docs.github.com, "SARIF results exceed limits")

_ROOT: Final = "%SRCROOT%"
_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
# What GitHub calls the severity of a rule that is not about security.
_PROBLEM: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "recommendation"}
_LINK: Final = re.compile(r"[\\\[\]]")

_Object = dict[str, Any]


def render(report: Report, locate: Locate, context: Context) -> str:
    """The report as a SARIF log of one run."""
    shown = report.findings[:MOST]
    table = {rule.code: rule for rule in RULES}
    rules = list(dict.fromkeys(finding.code for finding in shown))
    seen: Counter[str] = Counter()
    run = {
        "tool": {"driver": _driver([_rule(code, table.get(code), shown) for code in rules])},
        "invocations": [_invocation(report, context)],
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The root of the checkout."}}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, rules, locate, context, seen) for finding in shown],
        "properties": {
            "target": printable(report.target, 4096),
            "waived": len(report.waived),
            "known": len(report.known),
            "rulesChecked": len(report.coverage.checked),
        },
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return inert_json(json.dumps(log, indent=2, ensure_ascii=False) + "\n")


def _driver(rules: list[_Object]) -> _Object:
    return {"name": "repokit", "version": __version__, "semanticVersion": __version__, "rules": rules}


def _rule(code: str, rule: Rule | None, findings: tuple[Finding, ...]) -> _Object:
    """Those that speak: all of them would make 200 kB of every log."""
    finding = next(finding for finding in findings if finding.code == code)
    summary, why = (rule.summary, rule.why) if rule else (finding.name, finding.why)
    page = f"`repokit rules {code}` shows examples, and how to waive it."
    return {
        "id": code,
        "name": finding.name,
        "shortDescription": {"text": _message(summary)},
        "fullDescription": {"text": _message(f"{summary} {why}")},
        "help": {"text": _message(f"{summary}\n\n{why}\n\n{page}")},
        "defaultConfiguration": {"level": _LEVELS[finding.severity]},
        "properties": {"tags": ["model repository", code[:3]], "problem.severity": _PROBLEM[finding.severity]},
    }


def _result(finding: Finding, rules: list[str], locate: Locate, context: Context, seen: Counter[str]) -> _Object:
    identity = fingerprint(finding)
    seen[identity] += 1
    return {
        "ruleId": finding.code,
        "ruleIndex": rules.index(finding.code),
        "level": _LEVELS[finding.severity],
        "message": {"text": _message("\n".join(lines_of(finding)))},
        "locations": [_location(finding, locate, context)],
        "partialFingerprints": {
            "repokitFinding/v1": identity,
            # The only one that GitHub compares. Its own is a hash of the line, which an edit of the line changes.
            "primaryLocationLineHash": f"{identity[:16]}:{seen[identity]}",
        },
    }


def _location(finding: Finding, locate: Locate, context: Context) -> _Object:
    line, column = locate(finding) or (None, None)
    # A binary file has no lines; GitHub shows no result without one (sarif-sdk's rule GH1003), so it stands at the top.
    region = {"startLine": line or 1, **({"startColumn": column} if column else {})}
    artifact: _Object = {"uri": _uri(context.path(finding))}
    if context.folder is not None:
        artifact["uriBaseId"] = _ROOT
    found: _Object = {"physicalLocation": {"artifactLocation": artifact, "region": region}}
    if place := symbolic(finding):
        found["logicalLocations"] = [{"fullyQualifiedName": place, "kind": "member"}]
    return found


def _uri(path: str) -> str:
    """Relative, with everything but letters, digits and `-._~/` percent-encoded; names that are no UTF-8 by bytes."""
    encoded = quote(path.encode("utf-8", "surrogateescape" if _from_bytes(path) else "backslashreplace"), safe="/")
    return f"./{encoded}" if encoded.startswith("/") else encoded


def _from_bytes(path: str) -> bool:
    """Whether every lone surrogate stands for a byte of a name that is no UTF-8 (PEP 383)."""
    return all(0xDC80 <= ord(character) <= 0xDCFF for character in path if 0xD800 <= ord(character) <= 0xDFFF)


def _invocation(report: Report, context: Context) -> _Object:
    coverage = report.coverage
    return {
        "executionSuccessful": not (coverage.broken or coverage.unread),
        "exitCode": report.exit_code(context.fail_on),
        "toolExecutionNotifications": list(_notifications(report)),
        "toolConfigurationNotifications": [_notification("warning", text) for text in report.expired],
    }


def _notifications(report: Report) -> Iterator[_Object]:
    """Unread is never clean: what was not judged, and what there was no room for."""
    levels = {"internal error": "error", "not checked": "warning"}
    for word, reason, codes in gaps(report.coverage):
        which = f" ({', '.join(codes)})" if codes else ""
        yield _notification(levels.get(word, "note"), f"{word}: {reason}{which}")
    if (left := len(report.findings) - MOST) > 0:
        yield _notification("warning", f"{count(left, 'result')} left out: a run may have {MOST:,}")


def _notification(level: str, text: str) -> _Object:
    return {"level": level, "message": {"text": _message(printable(text, 4096))}}


def _message(text: str) -> str:
    """Plain text of SARIF: braces are doubled (section 3.11.5), and what looks like a link is none (3.11.6)."""
    plain = text.replace("{", "{{").replace("}", "}}")
    return _LINK.sub(r"\\\g<0>", plain) if "](" in plain else plain
