"""Reports for the reporters: harmless ones, and ones whose every word was chosen by an attacker."""

from __future__ import annotations

import pytest

from repokit.linter.finding import Coverage, Finding, Report, Severity, Waived
from repokit.linter.reporters.context import Context

# What a file, a tensor or a token can be called. Each would be obeyed by one of the readers of a report.
HOSTILE = [
    "a\nb",
    "::error file=x::forged",
    "##[error]forged",
    "x%0A::warning::forged",
    "|pipe|`tick`|",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</code></td><h1>",
    "[click](javascript:alert(1))",
    "![i](http://example.com/x.png)",
    "@octocat #1 GH-1 !1 ~bug",
    "https://example.com www.example.com me@example.com",
    "{0} {{x}}",
    "]]>",
    "&lt;&#64;",
    '" onload="x',
    "\x00\x1b[2J\x7f\x85",
    "\u202egnp\u200b\ufeff\ufffe\uffff",
    "\udce9\ud800",
    "\\](x) \\",
    "-->",
    "***",
    "\u2028\u2029",
]


@pytest.fixture
def finding() -> Finding:
    return Finding(
        "IDX101",
        "missing-shard",
        Severity.ERROR,
        "model.safetensors.index.json",
        "names 2 shards that are not in the repository",
        place="/weight_map/lm_head.weight",
        why="Loading fails half way through.",
        names=("a.safetensors", "b.safetensors"),
        hint="upload them",
    )


@pytest.fixture
def report(finding: Finding) -> Report:
    """An error, a warning and a note, a waived and a known finding, and three kinds of gaps."""
    warning = Finding("CRD101", "odd-card", Severity.WARNING, "README.md", "is odd", place="line 3")
    note = Finding("WGT301", "no-format", Severity.NOTE, "model.safetensors", "has no format", place="lm_head.weight")
    coverage = Coverage(
        checked=("IDX101", "CRD101", "WGT301", "FIL101"),
        not_checked={"TOK101": "tokenizer.json: is too large", "TOK102": "tokenizer.json: is too large"},
        unknown=("model_type 'new'",),
        broken={"GEN101": "KeyError: 'x'"},
        unread=("tokenizer.json: is too large",),
    )
    return Report("models/a", (finding, warning, note), coverage, (Waived(warning, "by hand"),), (note,))


def hostile_report(text: str) -> Report:
    """A report in which one text stands wherever a repository has a say."""
    finding = Finding(
        "IDX101", "missing-shard", Severity.ERROR, text, text, place=text, why=text, names=(text, text), hint=text
    )
    coverage = Coverage(("IDX101",), {"TOK101": text}, (text,), {"GEN101": text}, (text,))
    return Report(text, (finding,), coverage, (Waived(finding, text),), (finding,), (text,), (text,))


@pytest.fixture(params=HOSTILE, ids=ascii)
def hostile(request: pytest.FixtureRequest) -> Report:
    return hostile_report(request.param)


@pytest.fixture
def context() -> Context:
    return Context()


def nowhere(_: Finding) -> None:
    """Knows no line."""
