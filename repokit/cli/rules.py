"""repokit rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from repokit.cli.console import Console, Format, chosen
from repokit.cli.options import FormatOption, JsonOption, QuietOption
from repokit.errors import UsageError

if TYPE_CHECKING:
    from repokit.linter.rule import Rule


def rules(
    rule: Annotated[
        str | None, typer.Argument(help="A code or a name; or the beginning of codes, as IDX; all rules without one.")
    ] = None,
    family: Annotated[str | None, typer.Option("--family", help="The rules of a family: TOK, WGT, ...")] = None,
    format_: FormatOption = Format.AUTO,
    json_: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List the rules, or show one: what, why, where it was met, examples, how to repair and how to ignore it."""
    from repokit.linter import explain

    console = Console(chosen(format_, json_=json_, quiet=quiet))
    wanted = _wanted(rule, family)
    match console.format:
        case Format.JSON:
            console.data(explain.as_json(wanted))
        case Format.QUIET:
            console.data("\n".join(entry.code for entry in wanted))
        case _ if rule and (one := explain.named(rule)) is not None:
            from repokit.linter.page import page

            console.data(page(one, console.style))
        case _:
            console.data(explain.table(wanted))


def _wanted(word: str | None, family: str | None) -> tuple[Rule, ...]:
    from repokit.linter import explain

    if word and family:
        raise UsageError("a rule and --family do not go together", hint=f"repokit rules --family {family}")
    if family:
        return explain.family(family)
    return explain.find(word) if word else explain.everything()
