"""push, and the demo that rehearses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from repokit.api.lint_settings import selection_of
from repokit.api.linting import Gate
from repokit.api.recipes import RECIPE, recipe_of
from repokit.errors import MissingInput, UsageError
from repokit.linter.selection import Selection
from repokit.printable import printable
from repokit.repo.directory import Directory

if TYPE_CHECKING:
    from repokit.builder.build import Progress
    from repokit.publisher.changes import Changes
    from repokit.publisher.push import PushResult
    from repokit.rehearsal.demo import Compared


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
        create_pr: The commit is proposed in a pull request against main.
        untagged: The recipe's tag, which a pull request is not given.
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
    create_pr: bool = False
    untagged: str | None = None


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
    create_pr: bool = False,
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
        create_pr: Propose the commit in a pull request against main.

    Raises:
        UsageError: Nothing says which repository to push to.
        RecipeError: The recipe cannot be read.
        MissingInput: There is no such directory.
    """
    path = Path(directory)
    if not path.is_dir():
        raise MissingInput("is not a directory", path=str(path), hint="build one: repokit build")
    found = recipe_of(path, None if recipe is None else Path(recipe))
    wanted = repo_id or (found.repo if found else None)
    if wanted is None:
        hint = f"repokit push {printable(path)} ORG/NAME, or repo: in {printable(recipe or RECIPE)}"
        raise UsageError("nothing says which repository to push to", hint=hint)
    settings = found.push if found else None
    at = revision or (settings and settings.revision) or "main"
    recipe_tag = settings.tag if settings else None
    # What was typed is refused together with a pull request; what a recipe says for every push is only not done.
    untagged = recipe_tag if tag is None and (create_pr or at.startswith("refs/pr/")) else None
    return PushRequest(
        directory=path,
        repo_id=wanted,
        revision=at,
        tag=tag or (None if untagged else recipe_tag),
        private=settings.private if private is None and settings else private,
        message=message or (settings.commit_message if settings else None),
        description=description or (settings.commit_description if settings else None),
        publish_manifest=found is not None and found.manifest == "publish",
        selection=selection_of(found.lint) if found else Selection(),
        skipped=None if found or recipe or not Path(RECIPE).is_file() else RECIPE,
        create_pr=create_pr,
        untagged=untagged,
    )


def push(
    request: PushRequest,
    *,
    create: bool = False,
    create_branch: bool = False,
    token: str | None = None,
    dry_run: bool = False,
    gate: Gate | None = None,
    announce: Callable[[str], None] | None = None,
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
        announce: Told in a sentence what is going to be created, before anything is.
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
        create_pr=request.create_pr,
        private=request.private,
        tag=request.tag,
        commit_message=request.message,
        commit_description=request.description,
        dry_run=dry_run,
        publish_manifest=request.publish_manifest,
        gate=lambda directory: chosen(Directory(directory), "push"),
        announce=announce,
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
