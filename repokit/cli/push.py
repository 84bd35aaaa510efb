"""repokit push."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from repokit.cli.console import Console, Format, chosen
from repokit.cli.files import directory_of
from repokit.cli.options import FormatOption, JsonOption, QuietOption, YesOption
from repokit.cli.report import show_report
from repokit.cli.variants import VariantOption, are_several, each, retyped
from repokit.errors import UsageError
from repokit.printable import count, printable, size

if TYPE_CHECKING:
    from repokit.api import PushRequest
    from repokit.publisher.changes import Changes
    from repokit.publisher.push import PushResult


def push(
    directory: Annotated[
        str | None, typer.Argument(help="A finished repository; what the recipe's variant builds, with --variant.")
    ] = None,
    repo_id: Annotated[str | None, typer.Argument(help="org/name; the recipe's by default.")] = None,
    revision: Annotated[
        str | None,
        typer.Option("--revision", help="An existing branch or refs/pr/N; the recipe's, then main by default."),
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Create the repository if it does not exist.")] = False,
    create_branch: Annotated[
        bool, typer.Option("--create-branch", help="Create the branch if it does not exist.")
    ] = False,
    create_pr: Annotated[
        bool, typer.Option("--create-pr", help="Propose the commit in a new pull request against main.")
    ] = False,
    private: Annotated[
        bool | None, typer.Option("--private/--no-private", help="Visibility of a repository that is created.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="A tag for the new commit. Tags are never moved.")] = None,
    commit_message: Annotated[str | None, typer.Option("--commit-message", help="Of the one commit.")] = None,
    token: Annotated[str | None, typer.Option("--token", help="Instead of HF_TOKEN or `hf auth login`.")] = None,
    recipe: Annotated[
        Path | None,
        typer.Option("--recipe", help="Where repo and push settings are read from."),
    ] = None,
    variant: VariantOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change; upload nothing.")] = False,
    yes: YesOption = False,
    format_: FormatOption = Format.AUTO,
    json_: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Push a finished repository: lint, one commit on exactly one branch or pull request, verified, then tagged."""
    from repokit import api

    output_format = chosen(format_, json_=json_, quiet=quiet)
    console = Console(output_format)

    def request_for(place: Path) -> PushRequest:
        return api.push_request(
            place,
            repo_id,
            recipe=recipe,
            revision=revision,
            tag=tag,
            private=private,
            message=commit_message,
            create_pr=create_pr,
        )

    options = _Options(create, create_branch, token, dry_run, yes)
    if not variant:
        if directory is None:
            raise UsageError("names no directory", hint="repokit push DIRECTORY, or --variant NAME of the recipe")
        _one(request_for(directory_of(directory, "push")), options, console)
        return
    if directory is not None:
        hint = "leave out the directory, or --variant"
        raise UsageError("--variant says which directory is pushed, and another one is named", hint=hint)
    wanted = api.chosen_recipes(recipe or api.RECIPE, variant)
    # All of them, so that what is missing is known before anything is published.
    requests = {one.variant: request_for((recipe or Path()).parent / one.recipe.output) for one in wanted}
    if not are_several(variant):
        _one(requests[wanted[0].variant], options, console)
        return
    flags = {
        "--recipe": recipe,
        "--revision": revision,
        "--create": create,
        "--create-branch": create_branch,
        "--create-pr": create_pr,
        "--private": private is True,
        "--no-private": private is False,
        "--tag": tag,
        "--commit-message": commit_message,
        "--dry-run": dry_run,
        "--yes": yes,
    }  # the token is a secret: it is typed again
    each(
        wanted,
        lambda one, console: _one(requests[one.variant], options, console),
        format_=output_format,
        verb=retyped("repokit push", flags),
        done="would be pushed" if dry_run else "pushed",
        undone="not planned" if dry_run else "not pushed",
        go_on=False,
    )


@dataclass(frozen=True)
class _Options:
    """What was typed beside the request."""

    create: bool
    create_branch: bool
    token: str | None
    dry_run: bool
    yes: bool


def _one(request: PushRequest, options: _Options, console: Console) -> None:
    from repokit import api

    if request.skipped:
        console.warn(f"{request.skipped} builds another directory: its repo, push and lint settings were not asked")
    if request.untagged:
        console.warn(f"the recipe's tag {printable(request.untagged)} is not made: a pull request is not tagged")
    console.stage("target", f"{printable(request.repo_id)} at {printable(request.revision)}")
    gate = api.Gate(request.selection)
    try:
        with console.progress("push") as progress:
            result = api.push(
                request,
                create=options.create,
                create_branch=options.create_branch,
                token=options.token,
                dry_run=options.dry_run,
                gate=gate,
                announce=lambda sentence: console.say(f"  {sentence}"),
                approve=lambda changes: _approve(changes, console, dry_run=options.dry_run, yes=options.yes),
                progress=progress,
            )
    except (api.Stopped, api.InternalError):
        show_report(gate, console)
        raise
    _show(result, console)


def _approve(changes: Changes, console: Console, *, dry_run: bool, yes: bool) -> None:
    """Shows what the push changes, and asks before it deletes anything."""
    for sign, files in (("+", changes.added), ("~", changes.changed), ("-", changes.deleted)):
        for file in files:
            console.say(f"  {sign} {printable(file.path)}  {size(file.size)}")
    if changes.unchanged:
        console.say(f"  = {count(len(changes.unchanged), 'file')} unchanged")
    if dry_run or yes or not changes.deleted:
        return
    question = f"delete {count(len(changes.deleted), 'file')} from the revision?"
    if not console.confirm(question):
        raise UsageError(
            f"the push would {question.removesuffix('?')}, and nobody said yes",
            why="a push makes the revision equal the directory",
            hint="look with --dry-run, then pass --yes",
        )


def _show(result: PushResult, console: Console) -> None:
    for note in result.notes:
        console.warn(note)
    request = result.pull_request
    console.result(
        _would(result) if result.dry_run else _done(result),
        {
            "repo": result.repo_id,
            "revision": result.revision,
            "commit": result.commit,
            "parent": result.parent,
            "tag": result.tag,
            "url": result.url,
            "pull_request": {"number": request.number, "url": request.url} if request else None,
            "dry_run": result.dry_run,
            "creates": sorted(result.creates),
            "added": [file.path for file in result.changes.added],
            "changed": [file.path for file in result.changes.changed],
            "deleted": [file.path for file in result.changes.deleted],
            "verified": result.verified_files,
        },
        quiet=result.url,
    )


def _would(result: PushResult) -> str:
    sent = sum(file.size for file in (*result.changes.added, *result.changes.changed))
    created = f", creating {_created(result)}" if result.creates else ""
    place = f"{result.repo_id} at {printable(result.revision)}"
    return f"would push {size(sent)} to {place}{created}{_tagged(result)}; nothing was touched"


def _done(result: PushResult) -> str:
    created = f"created {_created(result)}\n" if result.creates else ""
    done = "nothing to push, already at commit" if result.commit == result.parent else "commit"
    at = f" on {result.pull_request.revision}" if result.pull_request else ""
    verified = count(result.verified_files, "file")
    return f"{created}{done} {(result.commit or '')[:7]}{at}, {verified} verified{_tagged(result)}\n{result.url}"


def _created(result: PushResult) -> str:
    return f"the {' and the '.join(sorted(result.creates))}"


def _tagged(result: PushResult) -> str:
    return f", tag {printable(result.tag)}" if result.tag else ""
