"""init, build, lint and push for Python: composes the packages below. The command line calls this."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from repokit.errors import InputError, InternalError, MissingInput, Stopped, UsageError
from repokit.linter.finding import Finding, Report, Severity
from repokit.linter.selection import Ignore, Selection
from repokit.printable import count, printable
from repokit.repo.directory import Directory
from repokit.repo.repository import Repository

if TYPE_CHECKING:
    from repokit.builder.build import Built, Progress
    from repokit.builder.draft import Draft
    from repokit.builder.plan import Plan
    from repokit.linter.places import Locate
    from repokit.publisher.changes import Changes
    from repokit.publisher.push import PushResult
    from repokit.rehearsal.demo import Compared
    from repokit.repo.source import Source
    from repokit.schema.recipe import Lint, Recipe

__all__ = [
    "Gate",
    "Ignore",
    "InternalError",
    "Linted",
    "PushRequest",
    "Selection",
    "Severity",
    "Stopped",
    "build",
    "check_plan",
    "demo",
    "init",
    "lint",
    "open_repository",
    "plan",
    "push",
    "push_request",
    "read_plan",
    "read_recipe",
    "selection_of",
    "settings_for",
]

RECIPE = "repokit.yaml"
PYPROJECT = "pyproject.toml"


def open_repository(target: str | Path) -> Repository:
    """The repository in a directory. Close it, or use it as a context manager.

    Raises:
        MissingInput: There is no such directory.
        UsageError: The target is something that this version does not read.
    """
    path = Path(target)
    if path.is_dir():
        return Repository(Directory(path, label=str(target)))
    if path.is_file():
        hint = f"name its directory: {path.parent}"
        raise UsageError(f"{printable(target)} is a file; a repository is a directory", hint=hint)
    text = str(target)
    if text.startswith(("hf://", "https://")) or (text.count("/") == 1 and not text.startswith((".", "/", "~"))):
        hint = f"hf download {printable(text)} --local-dir DIR, then repokit lint DIR"
        raise UsageError(f"{printable(text)} is not a directory; this version reads directories only", hint=hint)
    raise MissingInput("does not exist", path=text, hint="name a directory")


@dataclass(frozen=True)
class Linted:
    """A report, and what its reporters need to find lines in the files it speaks of."""

    report: Report
    locate: Locate


def lint(target: str | Path, *, selection: Selection | None = None) -> Linted:
    """Checks a directory.

    Raises:
        MissingInput, UsageError: The target, or a rule that the selection names, does not exist.
    """
    with open_repository(target) as repository:
        if not repository.holds_model:
            what = "holds no model: no config.json and no weights at its top"
            raise MissingInput(what, path=str(target), hint="name the directory of one repository")
        return _lint(repository, selection or Selection())


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
    """The lint settings that hold for a directory, and the file that they are from: None where there are none.

    Those of ./repokit.yaml where it builds the directory, else `[tool.repokit.lint]` of ./pyproject.toml.

    Raises:
        RecipeError: One of the two is there and cannot be read.
    """
    if (recipe := _recipe_of(Path(target), None)) is not None:
        found, origin = recipe.lint, RECIPE
    elif Path(PYPROJECT).is_file():
        from repokit.schema.recipe_file import read_lint

        found, origin = read_lint(Path(PYPROJECT)), PYPROJECT
    else:
        return Selection(), None
    return selection_of(found), origin if found.select or found.ignore or found.per_file else None


def selection_of(lint_settings: Lint) -> Selection:
    """The selection that a recipe asks for."""
    return Selection(
        select=lint_settings.select,
        ignore=tuple(Ignore(entry.code, entry.reason, entry.until) for entry in lint_settings.ignore),
        per_file=lint_settings.per_file,
    )


class Gate:
    """Lints on behalf of a build or a push and stops it at errors; keeps the last report for the screen."""

    def __init__(self, selection: Selection, fail_on: Severity = Severity.ERROR) -> None:
        self.selection = selection
        self.fail_on = fail_on
        self.last: Linted | None = None

    def __call__(self, source: Source, stage: str) -> None:
        with Repository(source) as repository:
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
        errors = count(len(findings), "error")
        what = {
            "plan": f"the repository would have {errors}; nothing was written",
            "output": f"the written repository has {errors}; nothing was published",
        }.get(stage, f"the repository has {errors}; nothing was pushed")
        return Stopped(what, hint="fix the source or the recipe; lint.ignore waives a rule, with a reason")


def init(checkpoint: str | Path, *, recipe_folder: Path | None = None) -> Draft:
    """What `repokit init` would write for a checkpoint; nothing is written.

    Raises:
        InputError: It is not a checkpoint that this version builds from.
    """
    from repokit.builder.draft import draft

    return draft(Path(checkpoint), recipe_folder=recipe_folder or Path.cwd())


def read_recipe(path: str | Path = RECIPE) -> Recipe:
    """The recipe in a file.

    Raises:
        RecipeError: It cannot be read, or is not a recipe.
    """
    from repokit.schema.recipe import load_recipe

    return load_recipe(Path(path))


def plan(
    recipe: Recipe,
    *,
    folder: str | Path = ".",
    output: str | None = None,
    kept: Collection[str] = (),
    name: str = RECIPE,
) -> Plan:
    """What a build would do. Nothing is written.

    Args:
        recipe: What is wanted.
        folder: What relative paths in the recipe are relative to.
        output: Another output directory than the recipe's, relative to the current directory.
        kept: Paths in an earlier output whose edits are carried over.
        name: Of the recipe, for messages.

    Raises:
        RepokitError: See repokit.builder.planner.make_plan.
    """
    from repokit.builder.planner import make_plan

    if output is not None:
        recipe = recipe.model_copy(update={"output": str(Path(output).absolute())})
    return make_plan(recipe, folder=Path(folder), kept=kept, recipe_name=name)


def build(
    plan_: Plan,
    *,
    gate: Gate | None = None,
    progress: Progress | None = None,
    jobs: int = 1,
    force: bool = False,
) -> Built:
    """Carries a plan out: lints it, writes it beside the target, lints that, puts it into place atomically.

    Raises:
        Stopped: Findings at error level. Nothing was published.
        BuildError: Lock, disk, target. Nothing was published.
    """
    from repokit.builder.build import carry_out

    return carry_out(
        plan_,
        gate=gate or Gate(selection_of(plan_.lint)),
        progress=progress or (lambda _stage, _done, _total: None),
        jobs=jobs,
        force=force,
    )


def read_plan(path: str | Path) -> Plan:
    """A plan that `repokit build --plan` wrote.

    Raises:
        PlanError: It is not one, or of another version.
    """
    from repokit.builder.plan import Plan

    return Plan.read(Path(path))


def check_plan(plan_: Plan, gate: Gate | None = None, *, force: bool = False) -> None:
    """What a build would check before it writes: the output, and the repository that the plan describes.

    Raises:
        TargetRefused: The output is not repokit's to replace; `force` would replace it.
        Stopped: Findings at error level.
    """
    from repokit.builder.preview import Preview
    from repokit.builder.staging import check_target

    check_target(Path(plan_.output), force=force, kept=plan_.kept)

    (gate or Gate(selection_of(plan_.lint)))(Preview(plan_), "plan")


@dataclass(frozen=True)
class PushRequest:
    """What is to be pushed and where: the command line first, then the recipe, then the usual.

    Attributes:
        directory: A finished repository.
        repo_id: `org/name`.
        revision: A branch, or refs/pr/N.
        tag: For the new commit; None for none.
        private: Of a repository that is created; None leaves it to the Hub's default.
        message: Of the commit; None counts what changed.
        description: What follows the message.
        publish_manifest: Whether repokit-manifest.json is pushed too.
        selection: Of the gate.
        skipped: The recipe that lies here and was not asked, because it builds another directory.
    """

    directory: Path
    repo_id: str
    revision: str
    tag: str | None
    private: bool | None
    message: str | None
    description: str | None
    publish_manifest: bool
    selection: Selection
    skipped: str | None = None


def push_request(
    directory: str | Path,
    repo_id: str | None = None,
    *,
    recipe: str | Path | None = None,
    revision: str | None = None,
    tag: str | None = None,
    private: bool | None = None,
    message: str | None = None,
    description: str | None = None,
) -> PushRequest:
    """Fills in from the recipe what the caller leaves open.

    Args:
        directory: A finished repository.
        repo_id: `org/name`.
        recipe: Where to look. Without one, repokit.yaml of the current folder is asked if it builds this directory.
        revision: A branch, or refs/pr/N.
        tag: For the new commit.
        private: Of a repository that is created.
        message: Of the commit.
        description: What follows the message.

    Raises:
        UsageError: Nothing says which repository to push to.
        RecipeError: The recipe cannot be read.
        MissingInput: There is no such directory.
    """
    path = Path(directory)
    if not path.is_dir():
        raise MissingInput("is not a directory", path=str(path), hint="build one: repokit build")
    found = _recipe_of(path, None if recipe is None else Path(recipe))
    wanted = repo_id or (found.repo if found else None)
    if wanted is None:
        hint = f"repokit push {printable(path)} ORG/NAME, or repo: in {printable(recipe or RECIPE)}"
        raise UsageError("nothing says which repository to push to", hint=hint)
    settings = found.push if found else None
    return PushRequest(
        directory=path,
        repo_id=wanted,
        revision=revision or (settings and settings.revision) or "main",
        tag=tag or (settings.tag if settings else None),
        private=settings.private if private is None and settings else private,
        message=message or (settings.commit_message if settings else None),
        description=description or (settings.commit_description if settings else None),
        publish_manifest=found is not None and found.manifest == "publish",
        selection=selection_of(found.lint) if found else Selection(),
        skipped=None if found or recipe or not Path(RECIPE).is_file() else RECIPE,
    )


def _recipe_of(directory: Path, named: Path | None) -> Recipe | None:
    """The recipe that was named, else the one that lies here if it is this directory's.

    Another one's settings would push to the wrong place.
    """
    recipe = named or Path(RECIPE)
    if named is None and not recipe.is_file():
        return None
    found = read_recipe(recipe)
    return found if named or (recipe.parent / found.output).resolve() == directory.resolve() else None


def push(
    request: PushRequest,
    *,
    create: bool = False,
    create_branch: bool = False,
    token: str | None = None,
    dry_run: bool = False,
    gate: Gate | None = None,
    approve: Callable[[Changes], None] | None = None,
    progress: Progress | None = None,
) -> PushResult:
    """Makes a revision equal a directory, in one commit; verifies it, then tags it.

    Args:
        request: From `push_request`.
        create: Create the repository if it does not exist.
        create_branch: Create the branch if it does not exist.
        token: Instead of HF_TOKEN or a login.
        dry_run: Work out what would change, and touch nothing on the Hub.
        gate: Lints the directory; the default stops at errors.
        approve: Looks at the changes before anything is uploaded, and raises to stop.
        progress: Told of stages and bytes.

    Raises:
        Stopped: Findings at error level. Nothing was pushed.
        PublishError: See its kinds in repokit.errors.
    """
    from repokit.publisher.push import push as publish

    chosen = gate or Gate(request.selection)
    return publish(
        request.directory,
        request.repo_id,
        revision=request.revision,
        token=token,
        create=create,
        create_branch=create_branch,
        private=request.private,
        tag=request.tag,
        commit_message=request.message,
        commit_description=request.description,
        dry_run=dry_run,
        publish_manifest=request.publish_manifest,
        gate=lambda directory: chosen(Directory(directory), "push"),
        approve=approve,
        listener=progress,
    )


def demo(workspace: str | Path, show: Callable[[str], None]) -> Compared:
    """`repokit demo` in an empty directory; `show` is told of every step.

    Raises:
        VerificationFailed: What came back from the Hub is not what was built.
    """
    from repokit.rehearsal.demo import run

    return run(Path(workspace), show)
