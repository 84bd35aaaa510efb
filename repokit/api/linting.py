"""lint, and the gate with which a build and a push lint."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from repokit.api.bases import CONFIG, give_base
from repokit.api.fixing import Fixes, Mended, at_work, known_files, mend
from repokit.api.identities import identity_in, identity_of
from repokit.api.reading import Read, address_of, open_repository, read_of
from repokit.api.skeletons import live
from repokit.errors import InputError, InternalError, MissingInput, Stopped, UsageError
from repokit.linter.finding import Finding, Report, Severity
from repokit.linter.selection import Selection
from repokit.printable import count, printable, some
from repokit.repo.directory import Directory
from repokit.repo.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from repokit.api.reading import Progress
    from repokit.linter.in_place import Stamp
    from repokit.linter.places import Locate
    from repokit.repo.source import Source
    from repokit.schema.recipe import Recipe


# Files of most repositories that the limited child process is asked about.
TRIED: Final = ("tokenizer.json", "chat_template.jinja")


@dataclass(frozen=True)
class Linted:
    """A report, and what its reporters need to find lines in the files it speaks of.

    Attributes:
        read: What was read of the Hub; None for a directory.
        base: Where the config of an adapter's base model is from, or why it is not known; None without an adapter.
        mended: What was fixed, or would be; the report is then on what remains. None where no fixes were asked for.
    """

    report: Report
    locate: Locate
    read: Read | None = None
    base: str | None = None
    mended: Mended | None = None


def lint(
    target: str | Path,
    *,
    selection: Selection | None = None,
    token: str | None = None,
    progress: Progress | None = None,
    live_skeleton: bool = False,
    base: str | Path | None = None,
    deep: bool = False,
    jobs: int = 2,
    fixes: Fixes | None = None,
) -> Linted:
    """Checks a directory, or a revision on the Hub without its weights; see `open_repository`.

    Args:
        target: See `open_repository`.
        selection: Which rules, which findings.
        token: For the Hub.
        progress: Told of stages.
        live_skeleton: Ask the installed transformers which tensors a class has that the data does not cover.
        base: The folder of the base model of an adapter, against which it is held; None: the folder that the adapter
            names, where it is here, or the config.json beside the adapter. With `deep` a full model is held against
            its values.
        deep: Also read the values of every tensor, of a directory.
        jobs: Threads that read them.
        fixes: Fix what rules can fix, in a directory, or say what would change; None: neither.

    Raises:
        BuildError: A file that is to be fixed is a link, was changed meanwhile, or cannot be written.
        MissingInput, UsageError: The target, or a rule that the selection names, does not exist; or the extra `load`
            is not installed, which a live skeleton needs; or the values are to be read of a revision on the Hub.
        RevisionNotFound, NotAuthorized, HubUnreachable: The Hub does not give it.
    """
    derive = live() if live_skeleton else None
    if deep:
        _check_local(target)
    with at_work(target, fixes), open_repository(target, token=token, progress=progress) as repository:
        known = known_files(repository, fixes)
        repository.live, repository.jobs, repository.progress = derive, jobs, progress
        if not repository.holds_model:
            what = "holds no model: no config.json and no weights at its top"
            raise MissingInput(what, path=str(target), hint="name the directory, or the revision, of one model")
        origin = give_base(repository, base)
        repository.identity = identity_of(target)
        linted = _looked(repository, selection or Selection(), deep=deep, fixes=fixes, known=known)
        return replace(linted, read=read_of(repository), base=origin)


def _looked(
    repository: Repository, selection: Selection, *, deep: bool, fixes: Fixes | None, known: Mapping[str, Stamp]
) -> Linted:
    """What is found, or what remains of it once it is fixed."""
    # What rules can fix is said of a directory alone: nothing else can be written to.
    fixable = isinstance(repository.source, Directory)
    if fixes is None:
        return _lint(repository, selection, deep=deep, fixable=fixable)
    return mend(repository, lambda view: _lint(view, selection, deep=deep, fixable=fixable), fixes, known)


def _check_local(target: str | Path) -> None:
    """Refuses to read values over a network: that would be a download of all of the weights.

    Raises:
        UsageError: The target is a revision on the Hub.
    """
    if (address := address_of(target)) is not None:
        revision = "" if address.revision is None else f" --revision {printable(address.revision)}"
        folder = address.repo_id.rpartition("/")[2]
        hint = f"hf download {address.repo_id}{revision} --local-dir {folder} && repokit lint {folder} --deep"
        raise UsageError("--deep reads every value, and would download all of the weights", hint=hint)


def _lint(repository: Repository, selection: Selection, *, deep: bool = False, fixable: bool = False) -> Linted:
    if not selection.select and any(repository.has(path) for path in TRIED):
        repository.worker.warm()  # it imports beside the rules
    from repokit.linter import engine
    from repokit.linter.places import locator
    from repokit.linter.proposals import marked
    from repokit.linter.rule import Reads
    from repokit.linter.rules import RULES

    selection.validate(RULES)
    day = datetime.now(UTC).date()
    wanted = [rule for rule in RULES if selection.wants(rule, day)]
    if not wanted:
        raise UsageError("no rule is left to check", hint="select and ignore exclude each other")
    if not deep and all(rule.reads is Reads.TENSORS for rule in wanted):
        raise UsageError("the rules that are selected read values of tensors", hint="add --deep")
    report = engine.lint(repository, selection, deep=deep)
    if fixable:
        report = marked(repository, report)
    find = locator(repository)
    lines = {finding: find(finding) for finding in report.findings}
    return Linted(report, lines.get)


def _with_values_of_base(repository: Repository, selection: Selection, report: Report) -> Report:
    """A report with what the values of a base tell. The first one that differs ends the reading: most do at once."""
    from repokit.linter import engine
    from repokit.linter.rules.stored_values import UnchangedModel

    found = engine.lint(repository, selection, rules=[UnchangedModel()], deep=True)
    repository.deep = False
    coverage = replace(
        report.coverage,
        checked=(*report.coverage.checked, *found.coverage.checked),
        not_checked={**report.coverage.not_checked, **found.coverage.not_checked},
        broken={**report.coverage.broken, **found.coverage.broken},
    )
    findings, waived = (*report.findings, *found.findings), (*report.waived, *found.waived)
    return replace(report, findings=findings, waived=waived, coverage=coverage)


class Gate:
    """Lints on behalf of a build or a push and stops it at errors; keeps the last report for the screen."""

    def __init__(
        self, selection: Selection, fail_on: Severity = Severity.ERROR, *, live_skeleton: bool = False
    ) -> None:
        """A gate for several looks at one repository; see `lint` for live_skeleton.

        Raises:
            UsageError: What a live skeleton needs is not installed.
        """
        self.selection = selection
        self.fail_on = fail_on
        self.live = live() if live_skeleton else None
        self.recipe: Recipe | None = None  # what is being built, where the caller has it
        self.base: str | Path | None = None  # the folder of what it was made from, where it is at hand
        self.last: Linted | None = None

    def __call__(self, source: Source, stage: str) -> None:
        with Repository(source) as repository:
            repository.live = self.live
            repository.identity = None if self.recipe is None else identity_in(self.recipe)
            if self.base is not None and (Path(self.base) / CONFIG).is_file():
                give_base(repository, self.base)
            self.last = _lint(repository, self.selection)
            if stage == "output" and repository.base_model is not None:
                self.last = replace(
                    self.last, report=_with_values_of_base(repository, self.selection, self.last.report)
                )
        report = self.last.report
        if stopping := report.at_least(self.fail_on):
            raise self._stopped(stopping, stage)
        for code, error in report.coverage.broken.items():
            hint = f"report it; until then lint.ignore in the recipe can name {code}"
            raise InternalError(f"rule {code} failed: {error}", why="this is a bug in repokit", hint=hint)
        for what in report.coverage.unread:
            raise InputError(f"could not be checked: {what}", why="what was not read may be broken")

    @staticmethod
    def _stopped(findings: Collection[Finding], stage: str) -> Stopped:
        codes = some(sorted({finding.code for finding in findings}), 5)
        errors = f"{count(len(findings), 'error')} ({codes})"
        what = {
            "plan": f"the repository would have {errors}; nothing was written",
            "output": f"the written repository has {errors}; nothing was published",
        }.get(stage, f"the repository has {errors}; nothing was pushed")
        return Stopped(
            what,
            hint="fix the source or the recipe; lint.ignore waives a rule, with a reason",
            findings=tuple(findings),
        )
