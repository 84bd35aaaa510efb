"""What a rule says to people: its page, its line in the table, its JSON."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from repokit.errors import UsageError
from repokit.linter.rules import RULES
from repokit.printable import printable

if TYPE_CHECKING:
    from repokit.linter.rule import Rule


def everything() -> tuple[Rule, ...]:
    """Every rule, by code."""
    return tuple(sorted(RULES, key=lambda rule: rule.code))


def find(word: str) -> tuple[Rule, ...]:
    """The rule with this code or name, alone in a tuple.

    Raises:
        UsageError: There is none; with the nearest name.
    """
    for rule in RULES:
        if word.upper() == rule.code or word == rule.name:
            return (rule,)
    near = difflib.get_close_matches(word, [name for rule in RULES for name in (rule.code, rule.name)], n=1)
    hint = f"did you mean {near[0]}?" if near else "run `repokit rules`"
    raise UsageError(f"no rule is called {printable(word)!r}", hint=hint)


def page(rule: Rule) -> str:
    """One rule as a page: what, why, what breaks it, what does not, how to ignore it."""
    lines = [
        f"{rule.code} {rule.name} ({rule.severity.word}, since {rule.since})",
        "",
        rule.summary,
        "",
        rule.why,
        "",
        "Breaks it:",
        *(f"  - {example.title}" for example in rule.bad),
        *(["", "Does not:", *(f"  - {example.title}" for example in rule.good)] if rule.good else []),
        "",
        f"It reads {rule.reads.name.lower()}. To ignore it, with a reason, in repokit.yaml:",
        "  lint:",
        f"    ignore: [{{code: {rule.code}, reason: ...}}]",
    ]
    return "\n".join(lines) + "\n"


def table(rules: Sequence[Rule]) -> str:
    """A line a rule."""
    width = max(len(rule.name) for rule in rules)
    return "".join(f"{rule.code}  {rule.severity.word:<7}  {rule.name:<{width}}  {rule.summary}\n" for rule in rules)


def as_markdown(rules: Sequence[Rule]) -> str:
    """The table of the README."""
    rows = (f"| {rule.code} | {rule.name} | {rule.severity.word} | {rule.summary} |" for rule in rules)
    return "\n".join(["| code | name | severity | what |", "|---|---|---|---|", *rows]) + "\n"


def as_json(rules: Sequence[Rule]) -> str:
    """A list of objects, for programs."""
    return json.dumps([_document(rule) for rule in rules], indent=2, ensure_ascii=False) + "\n"


def _document(rule: Rule) -> dict[str, Any]:
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": rule.severity.word,
        "since": rule.since,
        "summary": rule.summary,
        "why": rule.why,
        "reads": rule.reads.name.lower(),
        "preview": rule.preview,
        "bad": [example.title for example in rule.bad],
        "good": [example.title for example in rule.good],
    }
