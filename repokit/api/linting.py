"""lint, and the gate with which a build and a push lint."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from repokit.api.bases import give_base
from repokit.api.reading import Read, address_of, open_repository, read_of
from repokit.api.recipes import PYPROJECT, RECIPE, read_recipe, recipe_of
from repokit.api.skeletons import live
from repokit.errors import InputError, InternalError, MissingInput, Stopped, UsageError
from repokit.linter.finding import Finding, Report, Severity
from repokit.linter.selection import Ignore, Selection
from repokit.printable import count, some
from repokit.repo.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Collection

    from repokit.api.reading import Progress
    from repokit.hub.address import Address
    from repokit.linter.places import Locate
    from repokit.repo.source import Source
    from repokit.schema.recipe import Lint, Recipe


@dataclass(frozen=True)
class Linted:
    """A report, and what its reporters need to find lines in the files it speaks of.

    Attributes:
        read: What was read of the Hub; None for a directory.
        base: Where the config of an adapter's base model is from, or why it is not known; None without an adapter.
    """

    report: Report
    locate: Locate
    read: Read | None = None
    base: str | None = None


def lint(
    target: str | Path,
    *,
    selection: Selection | None = None,
    token: str | None = None,
    progress: Progress | None = None,
    live_skeleton: bool = False,
    base: str | Path | None = None,
) -> Linted:
    """Checks a directory, or a revision on the Hub without its weights; see `open_repository`.

    Args:
        target: See `open_repository`.
        selection: Which rules, which findings.
        token: For the Hub.
        progress: Told of stages.
        live_skeleton: Ask the installed transformers which tensors a class has that the data does not cover.
        base: The folder of the base model of an adapter, against which it is held; None: the folder that the adapter
            names, where it is here, or the config.json beside the adapter.

    Raises:
        MissingInput, UsageError: The target, or a rule that the selection names, does not exist; or the extra `load`
            is not installed, which a live skeleton needs.
        RevisionNotFound, NotAuthorized, HubUnreachable: The Hub does not give it.
    """
    derive = live() if live_skeleton else None
    with open_repository(target, token=token, progress=progress) as repository:
        repository.live = derive
        if not repository.holds_model:
            what = "holds no model: no config.json and no weights at its top"
            raise MissingInput(what, path=str(target), hint="name the directory, or the revision, of one model")
        origin = give_base(repository, base)
        linted = _lint(repository, selection or Selection())
        return replace(linted, read=read_of(repository), base=origin)


def _lint(repository: Repository, selection: Selection) -> Linted:
    from repokit.linter import engine
    from repokit.linter.places import locator
    from repokit.linter.rules import RULES

    selection.validate(RULES)
    day = datetime.now(UTC).date()
    if not any(selection.wants(rule, day) for rule in RULES):
        raise UsageError("no rule is left to check", hint="select and ignore exclude each other")
    report = engine.lint(repository, selection)
    find = locator(repository)
    lines = {finding: find(finding) for finding in report.findings}
    return Linted(report, lines.get)


def settings_for(target: str | Path) -> tuple[Selection, str | None]:
    """The lint settings that hold for a target, and the file that they are from: None where there are none.

    Those of ./repokit.yaml where it builds the directory or names the repository on the Hub, else
    `[tool.repokit.lint]` of ./pyproject.toml.

    Raises:
        RecipeError: One of the two is there and cannot be read.
    """
    recipe = _recipe_for(address_of(target)) or recipe_of(Path(target), None)
    if recipe is not None:
        found, origin = recipe.lint, RECIPE
    elif Path(PYPROJECT).is_file():
        from repokit.schema.recipe_file import read_lint

        found, origin = read_lint(Path(PYPROJECT)), PYPROJECT
    else:
        return Selection(), None
    return selection_of(found), origin if found.select or found.ignore or found.per_file else None


def _recipe_for(address: Address | None) -> Recipe | None:
    """The recipe that lies here, if it is the one of this repository on the Hub."""
    if address is None or not Path(RECIPE).is_file():
        return None
    recipe = read_recipe(RECIPE)
    return recipe if recipe.repo == address.repo_id else None


def selection_of(lint_settings: Lint) -> Selection:
    """The selection that a recipe asks for."""
    return Selection(
        select=lint_settings.select,
        ignore=tuple(Ignore(entry.code, entry.reason, entry.until) for entry in lint_settings.ignore),
        per_file=lint_settings.per_file,
    )


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
        self.last: Linted | None = None

    def __call__(self, source: Source, stage: str) -> None:
        with Repository(source) as repository:
            repository.live = self.live
            self.last = _lint(repository, self.selection)
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
