"""repokit schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from repokit.cli.console import Console, Format, chosen
from repokit.cli.options import FormatOption, JsonOption, QuietOption

app = typer.Typer(
    help="The JSON Schemas of the files in a repository, of the recipe and of the reports.", rich_markup_mode=None
)


@app.callback()
def _group() -> None:
    """Keeps `export` a command of its own: typer would fold a single one into the group."""


@app.command("export")
def export(
    folder: Annotated[Path, typer.Argument(help="Where to write them.")] = Path("schemas"),
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 where one is stale.")] = False,
    format_: FormatOption = Format.AUTO,
    json_: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write the JSON Schemas."""
    from repokit.schema import export as schemas

    console = Console(chosen(format_, json_=json_, quiet=quiet))
    stale = schemas.stale(folder)
    if not check:
        schemas.write(folder)
    verb = "stale" if check else "wrote"
    text = f"{verb}: {', '.join(stale)}" if stale else f"{folder} is up to date"
    console.result(text, {"folder": str(folder), "stale": stale}, quiet="\n".join(stale))
    raise typer.Exit(1 if check and stale else 0)
