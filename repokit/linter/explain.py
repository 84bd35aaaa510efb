"""What a rule says to people: its line in the table, its JSON, and how it is found by a word; its page is page.py."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from repokit.errors import UsageError
from repokit.linter.example_changes import changes
from repokit.linter.incidents import incidents
from repokit.linter.rules import RULES
from repokit.printable import printable

if TYPE_CHECKING:
    from repokit.linter.examples import Example
    from repokit.linter.rule import Rule

_FAMILY: Final = len("IDX")  # letters


def everything() -> tuple[Rule, ...]:
    """Every rule, by code."""
    return tuple(sorted(RULES, key=lambda rule: rule.code))


def named(word: str) -> Rule | None:
    """The rule with this code or name."""
    return next((rule for rule in RULES if word.upper() == rule.code or word.lower() == rule.name), None)


def find(word: str) -> tuple[Rule, ...]:
    """The rule with this code or name, alone in a tuple; or those whose codes begin so, as in `IDX` and `IDX1`.

    Raises:
        UsageError: There is none; with the nearest name.
    """
    if (rule := named(word)) is not None:
        return (rule,)
    if len(word) >= _FAMILY and (begun := tuple(rule for rule in everything() if rule.code.startswith(word.upper()))):
        return begun
    near = difflib.get_close_matches(word, [name for rule in RULES for name in (rule.code, rule.name)], n=1)
    hint = f"did you mean {near[0]}?" if near else "run `repokit rules`"
    raise UsageError(f"no rule is called {printable(word)!r}", hint=hint)


def family(letters: str) -> tuple[Rule, ...]:
    """The rules of a family, by code.

    Raises:
        UsageError: There is no such family; with those that there are.
    """
    if found := tuple(rule for rule in everything() if rule.code[:_FAMILY] == letters.upper()):
        return found
    families = sorted({rule.code[:_FAMILY] for rule in RULES})
    raise UsageError(f"no family of rules is called {printable(letters)!r}", hint=f"there are {', '.join(families)}")


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
        "fixes": rule.fixes,
        "bad": [example.title for example in rule.bad],
        "good": [example.title for example in rule.good],
        "examples": {
            "bad": [_example(example) for example in rule.bad],
            "good": [_example(example) for example in rule.good],
        },
        "incidents": [{"thread": incident.thread, "what": incident.what} for incident in incidents(rule.code)],
    }


def _example(example: Example) -> dict[str, Any]:
    return {
        "title": example.title,
        "base": example.base,
        "changes": list(changes(example)),
        "also": list(example.also),
    }
