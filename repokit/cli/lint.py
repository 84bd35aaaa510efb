"""repokit lint."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from repokit.cli.console import Console, Format, chosen
from repokit.cli.options import FormatOption, JsonOption, LiveOption, QuietOption, TokenOption
from repokit.cli.report import known_from, show_read
from repokit.printable import count, printable


class FailOn(StrEnum):
    """From which severity on the exit code is 1."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    NEVER = "never"


def lint(
    target: Annotated[str, typer.Argument(help="A directory, org/name[@revision], or an address on the Hub.")] = ".",
    select: Annotated[
        list[str] | None, typer.Option("--select", help="Only these rules: codes, families or names.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option("--ignore", help="Not these rules.")] = None,
    fail_on: Annotated[FailOn, typer.Option("--fail-on", help="Exit 1 from this severity on.")] = FailOn.ERROR,
    live_skeleton: LiveOption = False,
    base: Annotated[
        Path | None, typer.Option("--base", help="The folder of the base model, to hold an adapter against it.")
    ] = None,
    token: TokenOption = None,
    format_: FormatOption = Format.AUTO,
    json_: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Check a repository: index and shards, weights and config, tokenizer, chat template, card and license."""
    from repokit import api
    from repokit.linter.finding import Severity

    console = Console(chosen(format_, json_=json_, quiet=quiet))
    settings, origin = api.settings_for(target)
    if origin is not None:
        console.stage("settings", f"{origin}, {count(len(settings.ignore), 'waiver')}")
    waived = tuple(api.Ignore(word, "command line") for word in _words(ignore))
    selection = api.Selection(_words(select) or settings.select, (*settings.ignore, *waived), settings.per_file)
    with console.progress("lint") as progress:
        linted = api.lint(
            target, selection=selection, token=token, progress=progress, live_skeleton=live_skeleton, base=base
        )
    show_read(linted.read, console)
    if linted.base is not None:
        console.stage("base", printable(linted.base))
    if live_skeleton:
        console.stage("skeleton", known_from(linted.report.coverage.skeleton))
    match console.format:
        case Format.JSON:
            from repokit.linter.reporters import json  # Pydantic models, which the others do without

            console.data(json.render(linted.report, linted.locate))
        case Format.QUIET:
            for finding in linted.report.findings:
                console.data(f"{finding.code} {printable(finding.path, 4096)}")
        case _:
            from repokit.linter.reporters import text

            console.data(text.render(linted.report, linted.locate, console.style))
    threshold = None if fail_on is FailOn.NEVER else Severity[fail_on.name]
    raise typer.Exit(linted.report.exit_code(threshold))


def _words(values: list[str] | None) -> tuple[str, ...]:
    """Flags may be repeated, or carry several words with commas between them."""
    return tuple(word.strip() for value in values or () for word in value.split(",") if word.strip())
