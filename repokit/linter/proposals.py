"""What rules propose for what they found: which findings have a fix, and what it is called."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from repokit.errors import InputError
from repokit.linter.rules import RULES
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repokit.linter.finding import Finding, Report
    from repokit.linter.fix import Fix
    from repokit.linter.rule import Rule
    from repokit.repo.repository import Repository

BUG: Final = "; this is a bug in repokit, please report it"


def marked(repository: Repository, report: Report, rules: Iterable[Rule] = RULES) -> Report:
    """The report with every finding saying whether its rule has a fix for it."""
    known = {rule.code: rule for rule in rules}
    findings = (_marked(repository, finding, known.get(finding.code)) for finding in report.findings)
    return replace(report, findings=tuple(findings))


def _marked(repository: Repository, finding: Finding, rule: Rule | None) -> Finding:
    fix = None if rule is None else proposal(repository, finding, rule)[0]
    if rule is None or fix is None or not fix.edits:
        return finding
    return replace(finding, fixable=rule.fixes, hint=fix.title)  # what will be done, where repokit does it


def proposal(repository: Repository, finding: Finding, rule: Rule) -> tuple[Fix | None, str | None]:
    """What a rule proposes for a finding, and its exception if it has a bug."""
    if rule.fixes is None:
        return None, None
    try:
        return rule.fix(repository, finding), None
    except InputError:  # it needs a file that does not parse: only a person can
        return None, None
    except Exception as error:  # noqa: BLE001 - a bug in one rule must not keep the others from their work
        return None, printable(f"the rule failed: {type(error).__name__}: {error}") + BUG
