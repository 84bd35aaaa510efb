"""repokit init."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from repokit.cli.console import Console, Format, chosen
from repokit.cli.files import write
from repokit.cli.options import FormatOption, JsonOption, QuietOption
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repokit.builder.checkpoints.training_run import Nested


def init(
    checkpoint: Annotated[
        str,
        typer.Argument(
            help="A checkpoint: a directory or a file of weights; or the output directory of a run; or its address, "
            "such as s3://bucket/run."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The recipe to write.")] = Path("repokit.yaml"),
    base: Annotated[
        str | None, typer.Option("--base", help="A copy of the base model, for what the checkpoint lacks.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing recipe.")] = False,
    format_: FormatOption = Format.AUTO,
    json_: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Look at a checkpoint and write a commented repokit.yaml. Reads headers only."""
    from repokit import api
    from repokit.errors import UsageError

    console = Console(chosen(format_, json_=json_, quiet=quiet))
    if output.exists() and not force:
        raise UsageError(f"{output} exists", why="what you wrote in it would be lost", hint="pass --force, or -o OTHER")
    draft = api.init(checkpoint, recipe_folder=output.parent, base=base)
    taken = next((nested for nested in draft.nested if nested.path == draft.source.name), None)
    if taken is not None:
        console.say(f"  source        {printable(taken.path)}, {_which(taken, draft.nested)}")
    for line in draft.found:
        console.say(f"  {line}")
    for nested in draft.nested:
        if nested is taken:
            continue
        metric = f"  {printable(nested.metric)}" if nested.metric else ""
        console.say(f"  also there    {nested.path}{metric}{'  (best)' if nested.best else ''}")
    write(output, draft.text)
    *others, last = draft.missing
    todo = f"{', '.join(others)} and {last}" if others else last
    build = "repokit build" if str(output) == "repokit.yaml" else f"repokit build {printable(output)}"
    console.result(
        f"wrote {output}: it needs {todo} from you; then {build}",
        {"recipe": str(output), "source": str(draft.source), "needs": list(draft.missing), "found": list(draft.found)},
        quiet=str(output),
    )


def _which(taken: Nested, nested: Sequence[Nested]) -> str:
    """Why a checkpoint of a run was taken; they are in the order of their steps."""
    metric = f" ({printable(taken.metric)})" if taken.metric else ""
    if len(nested) == 1:
        return f"the only one{metric}"
    return f"{'the best' if taken.best else 'the last'} of {len(nested):,}{metric}"
