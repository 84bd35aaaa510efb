"""Fixes in rounds: lint, apply what rules propose, lint again, until nothing more is proposed.

Nothing is written. A fix stands only if the lint after it bears it out: its finding is gone, and no error or warning
speaks that did not before, unless a fix of that one follows at once. What does not stand is left out, and named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from repokit.errors import InputError
from repokit.formats.json_edit import NoSuchPlaceError
from repokit.linter.editing import Claim, applied, claims, collide
from repokit.linter.finding import Finding, Report, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.proposals import BUG, proposal
from repokit.linter.recorded import Recorder
from repokit.linter.rules import RULES
from repokit.printable import printable
from repokit.repo.overlay import Overlay, RefusedEditError

if TYPE_CHECKING:
    from repokit.linter.rule import Rule
    from repokit.repo.repository import Repository

MOST_ROUNDS: Final = 10  # a fix lays another defect bare once or twice; more often, rules undo what others do

Check = Callable[["Repository"], Report]
_Key = tuple[str, str, str | None, str]  # code, path, place, title


@dataclass(frozen=True, slots=True)
class Fixed:
    """A finding that is gone, and what was done about it."""

    finding: Finding
    title: str
    safety: Safety


@dataclass(frozen=True, slots=True)
class Dropped:
    """A fix that was proposed and is not part of the result, and why."""

    finding: Finding
    title: str
    why: str


@dataclass(frozen=True)
class Fixing:
    """What fixing a repository comes to.

    Attributes:
        before: The report on the repository as it is.
        after: The report on it as it will be.
        view: The repository as it will be.
        overlay: The same, as a Source.
        fixed: In the order in which they were applied.
        dropped: Fixes that were proposed and not applied.
        finished: False where fixes were still proposed after the last round.
    """

    before: Report
    after: Report
    view: Repository
    overlay: Overlay
    fixed: tuple[Fixed, ...]
    dropped: tuple[Dropped, ...]
    finished: bool = True


def fix(repository: Repository, check: Check, *, unsafe: bool = False, rules: Iterable[Rule] = RULES) -> Fixing:
    """Works out what a repository is once its findings are fixed, as far as rules can.

    Args:
        repository: As it is.
        check: Lints a view: with the selection that decides which findings count. Only those are fixed.
        unsafe: Also fixes that choose between two readings, or discard what cannot be had again.
        rules: The table; tests pass their own.
    """
    run = _Run(repository, check, {rule.code: rule for rule in rules}, unsafe=unsafe)
    before, batch = run.state.report, run.batch()
    for _ in range(MOST_ROUNDS):
        if not batch:
            break
        run.judge(batch)
        batch = run.batch()
    fixed, dropped = tuple(run.fixed), tuple(run.dropped.values())
    end = run.state
    return Fixing(before, end.report, end.view, end.overlay, fixed, dropped, finished=not batch)


@dataclass(frozen=True)
class _Candidate:
    """A fix, and every finding for which it was proposed."""

    findings: tuple[Finding, ...]
    fix: Fix
    safety: Safety
    claims: frozenset[Claim]

    @property
    def key(self) -> _Key:
        first = self.findings[0]
        return first.code, first.path, first.place, self.fix.title


@dataclass(frozen=True)
class _State:
    """A repository between rounds: what it is, the view of that, and the report on the view."""

    overlay: Overlay
    view: Repository
    report: Report


@dataclass(frozen=True)
class _Refusal:
    """Why fixes cannot be applied, or do not do what they were meant to."""

    why: str


@dataclass
class _Run:
    """What was done so far. `tried` holds the fixes that do not go from here."""

    repository: Repository
    check: Check
    rules: dict[str, Rule]
    unsafe: bool = field(kw_only=True)
    fixed: list[Fixed] = field(default_factory=list)
    dropped: dict[_Key, Dropped] = field(default_factory=dict)
    tried: set[_Key] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.recorder = Recorder()
        self.state = _State(Overlay(self.repository.source), self.repository, self.check(self.repository))

    # ---------------------------------------------------------------- what to try

    def batch(self) -> list[_Candidate]:
        """Fixes that can be applied together, in the order of the report."""
        untried = (one for one in self._candidates(self.state, self.state.report.findings) if one.key not in self.tried)
        return list(_compatible(untried))

    def _candidates(self, state: _State, findings: Iterable[Finding]) -> list[_Candidate]:
        """Fixes of what is found; several findings with one remedy have one."""
        candidates: list[_Candidate] = []
        by_file: dict[str, list[int]] = {}
        for finding, fix in self._proposals(state, findings):
            alike = by_file.setdefault(fix.edits[0].path, [])
            same = next((number for number in alike if candidates[number].fix.edits == fix.edits), None)
            if same is None:
                alike.append(len(candidates))
                candidates.append(self._candidate(state, finding, fix))
            else:
                first = candidates[same]
                candidates[same] = replace(first, findings=(*first.findings, finding))
        return candidates

    def _candidate(self, state: _State, finding: Finding, fix: Fix) -> _Candidate:
        try:
            claimed = claims(state.overlay, fix.edits)
        except (InputError, RefusedEditError):  # it will be refused
            claimed = frozenset((edit.path, ()) for edit in fix.edits)
        return _Candidate((finding,), fix, self.rules[finding.code].fixes or Safety.UNSAFE, claimed)

    def _proposals(self, state: _State, findings: Iterable[Finding]) -> Iterator[tuple[Finding, Fix]]:
        for finding in findings:
            rule = self.rules[finding.code]
            if rule.fixes is None or (rule.fixes is Safety.UNSAFE and not self.unsafe):
                continue
            fix, bug = proposal(state.view, finding, rule)
            if bug is not None:
                self.dropped[finding.code, finding.path, finding.place, ""] = Dropped(finding, "", bug)
            if fix is not None and fix.edits:
                yield finding, fix

    # ---------------------------------------------------------------- whether it holds

    def judge(self, batch: Sequence[_Candidate]) -> None:
        """Applies fixes; where the lint afterwards does not bear them out, one half after the other."""
        after = self._tried(batch)
        why = after.why if isinstance(after, _Refusal) else self._against(batch, after)
        if isinstance(after, _State) and why is None:
            self._accept(batch, after)
        elif len(batch) > 1:
            middle = len(batch) // 2
            self.judge(batch[:middle])
            self.judge(batch[middle:])
        elif not (isinstance(after, _State) and self._went_on(batch[0], after)):
            self.tried.add(batch[0].key)
            self.dropped[batch[0].key] = Dropped(batch[0].findings[0], batch[0].fix.title, why or "")

    def _tried(self, batch: Sequence[_Candidate], state: _State | None = None) -> _State | _Refusal:
        """What these fixes make of a state; of the present one, if none is given."""
        before = (state or self.state).overlay
        overlay = before
        try:
            for candidate in batch:
                overlay = applied(overlay, candidate.fix.edits)
        except (InputError, RefusedEditError, NoSuchPlaceError) as error:
            return _Refusal(printable(error) + BUG)
        if overlay.changed == before.changed:
            return _Refusal("it changes nothing" + BUG)
        overlay = self.recorder.recorded(overlay)
        view = self.repository.over(overlay, overlay.changed.keys())
        return _State(overlay, view, self.check(view))

    def _against(self, batch: Sequence[_Candidate], after: _State) -> str | None:
        """What speaks against what fixes have come to; None where nothing does."""
        meant = [finding for candidate in batch for finding in candidate.findings]
        before = self.state.report
        return still_said(before, after.report, meant) or newly_said(before, after.report)

    def _went_on(self, candidate: _Candidate, after: _State) -> bool:
        """Whether a fix that lays a defect bare holds together with the fix of that one, and was applied with it."""
        known = set(self.state.report.findings)
        bare = (finding for finding in after.report.findings if finding not in known)
        more = list(_compatible(self._candidates(after, bare)))
        further = self._tried(more, after) if more else None
        if not isinstance(further, _State) or self._against([candidate], further):
            return False
        self._accept([candidate, *more], further)
        return True

    def _accept(self, batch: Sequence[_Candidate], after: _State) -> None:
        self.fixed += [Fixed(finding, one.fix.title, one.safety) for one in batch for finding in one.findings]
        self.state = after
        self.tried.clear()  # what did not go before may go now
        for candidate in batch:
            self.dropped.pop(candidate.key, None)


def _compatible(candidates: Iterable[_Candidate]) -> Iterator[_Candidate]:
    """Those of which none changes what another one of them changes or rests on; the first of two that do."""
    taken: dict[str, set[tuple[str, ...]]] = {}  # by file
    for candidate in candidates:
        if not any(collide(claim, taken) for claim in candidate.claims):
            for path, place in candidate.claims:
                taken.setdefault(path, set()).add(place)
            yield candidate


def still_said(before: Report, after: Report, meant: Collection[Finding]) -> str | None:
    """Which of the findings that were to be silenced is still there; None if none is.

    Their number is looked at too: a place in an array moves when an item before it goes.
    """
    left = {replace(finding, fixable=None, hint=None) for finding in after.findings}
    for finding in meant:
        if replace(finding, fixable=None, hint=None) in left:
            return f"{finding.code} still speaks of {printable(finding.path)}{BUG}"
    had, have = _number(before.findings), _number(after.findings)
    for (code, path), number in _number(meant).items():
        if have[code, path] > had[code, path] - number:
            return f"{code} still speaks of {printable(path)}{BUG}"
    return None


def newly_said(before: Report, after: Report) -> str | None:
    """Which error or warning was not there before; None if none is new.

    A rule that could not run before, because a file did not parse, says nothing new when it runs.
    """
    unheard = {*before.coverage.not_checked, *before.coverage.broken}
    if broken := sorted(after.coverage.broken.keys() - unheard):
        return f"{broken[0]} fails afterwards"
    stopping = set(before.coverage.not_checked.values())  # a file that did not parse before may stop more rules now
    for code, why in sorted(after.coverage.not_checked.items()):
        if code not in unheard and why not in stopping:
            return printable(f"{code} cannot run afterwards: {why}")
    had, loud = before.at_least(Severity.WARNING), after.at_least(Severity.WARNING)
    for weighed in (_number, _names):
        limits = weighed(had)
        for (code, path), number in weighed(loud).items():
            if number > limits[code, path] and code not in unheard:
                message = next(found.message for found in loud if (found.code, found.path) == (code, path))
                return printable(f"{code} says afterwards: {path} {message}")
    return None


def _number(findings: Iterable[Finding]) -> Counter[tuple[str, str]]:
    """How many findings a rule has about a file."""
    return Counter((finding.code, finding.path) for finding in findings)


def _names(findings: Iterable[Finding]) -> Counter[tuple[str, str]]:
    """Of how many things they speak: one finding stands for 300 tensors."""
    total: Counter[tuple[str, str]] = Counter()
    for finding in findings:
        total[finding.code, finding.path] += len(finding.names)
    return total
