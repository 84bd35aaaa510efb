"""Runs the rules. A rule that cannot run is not a rule that found nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from repokit.errors import InputError, UnsupportedSource
from repokit.linter.finding import Coverage, Expectation, Finding, Report, Waived
from repokit.linter.rule import Reads
from repokit.linter.rules import RULES
from repokit.linter.selection import Selection
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import date

    from repokit.linter.rule import Rule
    from repokit.repo.repository import Repository


def lint(
    repository: Repository,
    selection: Selection | None = None,
    *,
    rules: Collection[Rule] = RULES,
    deep: bool = False,
    today: date | None = None,
) -> Report:
    """Runs every selected rule over a repository.

    Args:
        repository: What to look at.
        selection: Which rules, which findings.
        rules: The table; tests pass their own.
        deep: Also the rules that read tensor values.
        today: For ignores that expire; the current day in UTC by default.

    Raises:
        InputError: The repository cannot be listed.
    """
    chosen = selection or Selection()
    day = today or datetime.now(UTC).date()
    _ = repository.files  # what cannot be listed cannot be judged: this error ends the run
    repository.deep = deep
    findings: list[Finding] = []
    waived: list[Waived] = []
    checked: list[str] = []
    not_checked: dict[str, str] = {}
    broken: dict[str, str] = {}
    unread: dict[str, str] = {}
    for rule in rules:
        if not chosen.wants(rule, day) or (rule.reads is Reads.TENSORS and not deep):
            continue
        try:
            # One by one: what a rule found before it met a file that it cannot read is still true.
            for finding in rule.check(repository):
                if waiver := chosen.waiver_of(finding, day):
                    waived.append(Waived(finding, waiver.reason))
                else:
                    findings.append(finding)
        except InputError as error:
            not_checked[rule.code] = str(error)
            if not isinstance(error, UnsupportedSource):  # what this version does not read is coverage, not failure
                unread[error.path or ""] = str(error)
        except Exception as error:  # noqa: BLE001 - a bug in one rule must not hide what the others find
            broken[rule.code] = printable(f"{type(error).__name__}: {error}")
        else:
            checked.append(rule.code)
    quiet = [rule for rule in rules if chosen.silences(rule, day) and (deep or rule.reads is not Reads.TENSORS)]
    silenced = {rule: _silenced(rule, repository, chosen, day) for rule in quiet}
    waived += [entry for found in silenced.values() for entry in found or ()]
    ran = [rule for rule in rules if rule.code in checked or silenced.get(rule) is not None]
    findings.sort(key=lambda finding: (-finding.severity, finding.path, finding.code, finding.place or ""))
    for finding in findings:
        unread.pop(finding.path, None)
    coverage = Coverage(
        tuple(checked),
        not_checked,
        unknown_values(repository),
        broken,
        tuple(unread.values()),
        expectation(repository),
    )
    return Report(
        repository.source.label,
        tuple(findings),
        coverage,
        waived=tuple(waived),
        expired=tuple(f"the waiver of {entry} expired on {entry.until}" for entry in chosen.expired(day)),
        unused=tuple(f"the waiver of {entry} silenced nothing" for entry in chosen.unused(waived, ran, day)),
    )


def _silenced(rule: Rule, repository: Repository, selection: Selection, day: date) -> list[Waived] | None:
    """What a rule finds of which nothing counts; None where something stops it, which is no news either."""
    try:
        found = [(finding, selection.waiver_of(finding, day)) for finding in rule.check(repository)]
    except Exception:  # noqa: BLE001 - one waives a rule with a bug to go on without it
        return None
    return [Waived(finding, waiver.reason) for finding, waiver in found if waiver is not None]


def expectation(repository: Repository) -> Expectation | None:
    """The architecture that the weights were held against."""
    from repokit.linter.rules.expected_tensors import judgement

    try:
        judged = judgement(repository)
    except InputError:
        return None
    if judged is None:
        return None
    return Expectation(judged.skeleton.architecture, str(judged.skeleton.evidence), judged.skeleton.origin)


def unknown_values(repository: Repository) -> tuple[str, ...]:
    """What a repository has that this version does not judge. Never an error: it may be newer than we are."""
    unknown = _unknown_type(repository)
    unheld = () if unknown else (*_unheld_weights(repository), *_unheld_adapter(repository))
    return (*unknown, *_unread_weights(repository), *unheld)


def _unread_weights(repository: Repository) -> tuple[str, ...]:
    """Pickled weights: what they name is looked at, their tensors are not held against anything."""
    pickled = repository.pickles.weights
    try:
        if not pickled or repository.weights.files or repository.gguf.paths:
            return ()
    except InputError:
        return ()
    shown = printable(pickled[0], 60)
    return (f"the tensors in {shown}: pickled weights are not held against config.json and the tokenizer",)


def _unheld_weights(repository: Repository) -> tuple[str, ...]:
    """Weights of an architecture of which this version does not know every tensor."""
    from repokit.linter.rules.expected_tensors import uncovered

    try:
        why = uncovered(repository)
    except InputError:
        return ()
    return () if why is None else (f"the tensors are not held against config.json: {why}",)


def _unheld_adapter(repository: Repository) -> tuple[str, ...]:
    """An adapter whose base is at hand and not known to this version."""
    from repokit.linter.rules.expected_adapter import uncovered

    try:
        why = uncovered(repository)
    except InputError:
        return ()
    return () if why is None else (f"the adapter is not held against its base: {why}",)


def _unknown_type(repository: Repository) -> tuple[str, ...]:
    from repokit.resources import data

    try:
        config = repository.config
    except InputError:
        return ()
    if config is None or config.model_type is None or "auto_map" in config:
        return ()
    known = data("model_types")
    if config.model_type in known["model_types"]:
        return ()
    shown = printable(config.model_type, 60)
    return (f"model_type {shown!r}: not among those of {known['source']}; checks by architecture did not run",)
