"""repokit build."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from repokit.cli.console import Console, Format, chosen
from repokit.cli.files import write
from repokit.cli.options import FormatOption, JsonOption, LiveOption, QuietOption
from repokit.cli.report import show_report
from repokit.cli.verify import show_loaded
from repokit.printable import count, printable, size, some

if TYPE_CHECKING:
    from repokit.api import Gate
    from repokit.builder.plan import Plan
    from repokit.schema.recipe import Recipe


def build(
    recipe: Annotated[Path, typer.Argument(help="The recipe.")] = Path("repokit.yaml"),
    output: Annotated[str | None, typer.Option("--output", "-o", help="Another output than the recipe's.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and lint it.")] = False,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", help="Write the plan to this file instead of carrying it out.")
    ] = None,
    apply: Annotated[Path | None, typer.Option("--apply", help="Carry out a plan that --plan wrote.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Files that are written at once.")] = 2,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="A file of the output, edited or added by you, to carry over.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an output that repokit did not build, or that was edited.")
    ] = False,
    load_check: Annotated[
        bool, typer.Option("--load-check", help="Load what was written with transformers before it is put in place.")
    ] = False,
    live_skeleton: LiveOption = False,
    format_: FormatOption = Format.AUTO,
    json_: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Build a repository from a recipe: plan, lint the plan, write beside the output, lint that, put it in place."""
    from repokit import api
    from repokit.errors import UsageError

    console = Console(chosen(format_, json_=json_, quiet=quiet))
    if apply is not None and (plan_file is not None or keep or output is not None):
        raise UsageError("--apply goes with none of --plan, --keep and --output", hint="make another plan")
    if load_check and (dry_run or plan_file is not None):
        hint = "build with --load-check, or repokit verify --load what was built"
        raise UsageError("--load-check goes with neither --dry-run nor --plan: nothing is written", hint=hint)
    wanted = None if apply is not None else api.read_recipe(recipe)
    if wanted is None:
        plan = api.read_plan(apply or Path())
    else:
        plan = api.plan(
            wanted,
            folder=recipe.parent,
            output=output,
            kept=keep or (),
            name=str(recipe),
            live_skeleton=live_skeleton,
        )
    if load_check:
        gate: Gate = _gate(plan, wanted, recipe, jobs, live_skeleton=live_skeleton)
    else:
        gate = api.Gate(api.selection_of(plan.lint), live_skeleton=live_skeleton)
    gate.recipe = wanted
    _show(plan, console)
    if dry_run or plan_file is not None:
        _only_plan(plan, gate, plan_file, console, force=force)
        return
    try:
        with console.progress("build") as progress:
            built = api.build(plan, gate=gate, progress=progress, jobs=jobs, force=force)
    except (api.Stopped, api.InternalError):
        show_report(gate, console)
        show_loaded(gate, console)
        raise
    show_report(gate, console)
    show_loaded(gate, console)
    if built.reused:
        console.stage("reused", f"{count(built.reused, 'file')} of an interrupted build")
    total = sum(file.size for file in built.files) or plan.size
    number = len(built.files) or len(plan.operations)
    where = printable(plan.output)
    push = f"repokit push {where}{_recipe_flag(apply, recipe, output)}"
    console.result(
        f"built {where}: {count(number, 'file')}, {size(total)}\nnext: {push}",
        {
            "output": plan.output,
            "files": [file.model_dump() for file in built.files],
            "bytes": total,
            "reused": built.reused,
            "warnings": list(plan.warnings),
        },
        quiet=plan.output,
    )


def _show(plan: Plan, console: Console) -> None:
    """The plan in a few lines: what becomes of the weights, what stays behind."""
    summary = plan.summary
    weights = f"{size(summary.weight_bytes)} in {count(summary.shards, 'file')}"
    console.stage("plan", f"{count(summary.tensors, 'tensor')}, {summary.parameters:,} parameters, {weights}")
    if summary.cast:
        kept = f"; {count(summary.kept, 'tensor')} kept as stored" if summary.kept else ""
        saved = f"{size(summary.source_bytes)} become {size(summary.weight_bytes)}"
        console.stage("cast", f"{count(summary.cast, 'tensor')}: {saved}{kept}")
    if summary.renamed:
        repairs = f"; {' and '.join(map(printable, summary.repairs))}" if summary.repairs else ""
        told = f"{count(summary.renamed, 'tensor')}: another name than in the source, one to one"
        console.stage("rename", f"{told}{repairs}")
    if summary.tied:
        console.stage("tie", f"{some(summary.tied)}: the embedding byte for byte, which is stored once")
    if summary.dropped:
        console.stage("drop", some(summary.dropped))
    if plan.left_out:
        left = [file.path for file in plan.left_out]
        total = sum(file.size for file in plan.left_out)
        console.stage("left out", f"{some(left)} ({size(total)})" if total else some(left))
    for warning in plan.warnings:
        console.warn(warning)


def _gate(plan: Plan, wanted: Recipe | None, recipe: Path, jobs: int, *, live_skeleton: bool) -> Gate:
    """Lints and loads; an adapter on the base that the recipe says is at hand."""
    from repokit import api

    base = wanted.base.path if wanted is not None and wanted.base is not None else None
    folder = recipe.parent
    return api.LoadGate(
        api.selection_of(plan.lint),
        base=None if base is None else folder / base,
        threads=jobs,
        live_skeleton=live_skeleton,
    )


def _recipe_flag(apply: Path | None, recipe: Path, output: str | None) -> str:
    """What `push` must be told to find the recipe again: it looks at ./repokit.yaml, for the output named there."""
    return "" if apply is not None or (str(recipe) == "repokit.yaml" and output is None) else f" --recipe {recipe}"


def _only_plan(plan: Plan, gate: Gate, path: Path | None, console: Console, *, force: bool) -> None:
    """Lints the plan, prints its operations and, with `--plan`, writes it."""
    from repokit import api

    try:
        api.check_plan(plan, gate, force=force)
    except (api.Stopped, api.InternalError):
        show_report(gate, console)
        raise
    show_report(gate, console)
    if path is not None:
        write(path, plan.anywhere().model_dump_json())
    paths = [operation.path for operation in plan.operations]
    lines = [f"{operation.op:<12} {printable(operation.path)}" for operation in plan.operations]
    after = f"wrote the plan to {path}; next: repokit build --apply {path}" if path else "nothing was written"
    console.result(
        "\n".join([*lines, after]),
        {"output": plan.output, "plan": None if path is None else str(path), "files": paths},
        quiet=plan.output if path is None else str(path),
    )
