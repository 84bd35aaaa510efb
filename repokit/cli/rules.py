"""repokit rules."""

from __future__ import annotations

from typing import Annotated

import typer

from repokit.cli.console import Console, Format, chosen
from repokit.cli.options import FormatOption, JsonOption, QuietOption


def rules(
    rule: Annotated[str | None, typer.Argument(help="A code or a name; all rules without one.")] = None,
    format_: FormatOption = Format.AUTO,
    json_: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List the rules, or show one: what, why, examples, how to ignore it."""
    from repokit.linter import explain

    console = Console(chosen(format_, json_=json_, quiet=quiet))
    wanted = explain.find(rule) if rule else explain.everything()
    match console.format:
        case Format.JSON:
            console.data(explain.as_json(wanted))
        case Format.QUIET:
            console.data("\n".join(entry.code for entry in wanted))
        case _:
            console.data(explain.page(wanted[0]) if rule else explain.table(wanted))
