"""repokit build."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from repokit.cli.console import Console, Format, chosen
from repokit.cli.files import write
from repokit.cli.options import FormatOption, JsonOption, LiveOption, QuietOption
from repokit.cli.report import show_report
from repokit.cli.tasks import (
    ExecutorOption,
    FinalizeOption,
    MemoryOption,
    TaskOption,
    bytes_of,
    check_flags,
    command,
    write_task,
)
from repokit.cli.variants import VariantOption, are_several, each, retyped
from repokit.cli.verify import show_loaded
from repokit.formats.urls import is_url
from repokit.printable import count, printable, size, some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repokit.api import Gate, Wanted
    from repokit.builder.build import Built, Progress
    from repokit.builder.plan import Plan, Summary
    from repokit.schema.recipe import Recipe

_JOBS: Final = 2


def build(
    recipe: Annotated[Path, typer.Argument(help="The recipe.")] = Path("repokit.yaml"),
    output: Annotated[str | None, typer.Option("--output", "-o", help="Another output than the recipe's.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and lint it.")] = False,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", help="Write the plan to this file instead of carrying it out.")
    ] = None,
    apply: Annotated[Path | None, typer.Option("--apply", help="Carry out a plan that --plan wrote.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Files that are written at once.")] = _JOBS,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="A file of the output, edited or added by you, to carry over.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an output that repokit did not build, or that was edited.")
    ] = False,
    load_check: Annotated[
        bool, typer.Option("--load-check", help="Load what was written with transformers before it is put in place.")
    ] = False,
    variant: VariantOption = None,
    task: TaskOption = None,
    finalize: FinalizeOption = False,
    memory: MemoryOption = None,
    executor: ExecutorOption = None,
    live_skeleton: LiveOption = False,
    format_: FormatOption = Format.AUTO,
    json_: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Build a repository from a recipe: plan, lint the plan, write beside the output, lint that, put it in place."""
    from repokit import api
    from repokit.errors import UsageError

    # Files are what is worked on at once. The threads that numpy's library has for one product would wait for the
    # others by spinning: a merge takes three times the processor time (measured, two jobs on two cores).
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    output_format = chosen(format_, json_=json_, quiet=quiet)
    console = Console(output_format)
    if apply is not None and (plan_file is not None or keep or output is not None or variant):
        raise UsageError("--apply goes with none of --plan, --keep, --output and --variant", hint="make another plan")
    if load_check and (dry_run or plan_file is not None):
        hint = "build with --load-check, or repokit verify --load what was built"
        raise UsageError("--load-check goes with neither --dry-run nor --plan: nothing is written", hint=hint)
    writes = not dry_run and plan_file is None
    check_flags(apply, task, executor, finalize=finalize, writes=writes, load_check=load_check)
    limit = bytes_of(memory)
    options = _Options(
        recipe,
        output,
        dry_run,
        plan_file,
        apply,
        jobs,
        tuple(keep or ()),
        force,
        load_check,
        live_skeleton,
        finalize=finalize,
        memory=limit,
        executor=executor,
    )
    if apply is not None and task is not None:
        write_task(apply, task, console, jobs=jobs, force=force, memory=limit, executor=executor)
        return
    if apply is not None:
        _one(None, options, console)
        return
    wanted = api.chosen_recipes(recipe, variant or ())
    if not are_several(variant):
        _one(wanted[0], options, console)
        return
    if plan_file is not None or keep or output is not None:
        hint = "build them one by one: --variant NAME"
        raise UsageError("several variants go with none of --plan, --keep and --output", hint=hint)
    flags = {
        "--dry-run": dry_run,
        "--jobs": None if jobs == _JOBS else jobs,
        "--force": force,
        "--load-check": load_check,
        "--memory": memory,
        "--executor": executor,
        "--live-skeleton": live_skeleton,
    }
    named = "" if str(recipe) == api.RECIPE else f" {shlex.quote(printable(recipe))}"
    done = "planned" if dry_run else "built"
    each(
        wanted,
        lambda variant, console: _one(variant, options, console),
        format_=output_format,
        verb=retyped(f"repokit build{named}", flags),
        done=done,
        go_on=True,
    )


@dataclass(frozen=True)
class _Options:
    """What was typed."""

    recipe: Path
    output: str | None
    dry_run: bool
    plan_file: Path | None
    apply: Path | None
    jobs: int
    keep: tuple[str, ...]
    force: bool
    load_check: bool
    live_skeleton: bool
    finalize: bool
    memory: int | None
    executor: str | None


def _one(chosen: Wanted | None, options: _Options, console: Console) -> None:
    """Plans and builds one repository; without a recipe the one of the plan that --apply names."""
    from repokit import api

    wanted = None if chosen is None else chosen.recipe
    if chosen is None:
        plan = api.read_plan(options.apply or Path())
    else:
        chosen.check_needs()
        plan = api.plan(
            chosen.recipe,
            folder=options.recipe.parent,
            output=options.output,
            kept=options.keep,
            name=str(options.recipe),
            live_skeleton=options.live_skeleton,
        )
    if options.load_check:
        gate: Gate = _gate(plan, wanted, options.recipe, options.jobs, live_skeleton=options.live_skeleton)
    else:
        gate = api.Gate(api.selection_of(plan.lint), live_skeleton=options.live_skeleton)
    gate.recipe = wanted
    _show(plan, console)
    if options.dry_run or options.plan_file is not None:
        _only_plan(plan, gate, options.plan_file, console, force=options.force, memory=options.memory)
        return
    try:
        with console.progress("build") as progress:
            built = _built(plan, gate, progress, options)
    except (api.Stopped, api.InternalError):
        show_report(gate, console)
        show_loaded(gate, console)
        raise
    show_report(gate, console)
    show_loaded(gate, console)
    _tell(plan, built, options, console)


def _built(plan: Plan, gate: Gate, progress: Progress, options: _Options) -> Built:
    from repokit import api

    if options.finalize and options.apply is not None:
        again = command(options.apply)
        return api.finalize(
            plan,
            gate=gate,
            progress=progress,
            force=options.force,
            command=lambda task: f"{again} --task {task}",
        )
    return api.build(
        plan,
        gate=gate,
        progress=progress,
        jobs=options.jobs,
        force=options.force,
        memory=options.memory,
        executor=options.executor,
    )


def _tell(plan: Plan, built: Built, options: _Options, console: Console) -> None:
    """What was built, and how it is pushed."""
    if built.reused:
        console.stage("reused", f"{count(built.reused, 'file')} of an interrupted build")
    total = sum(file.size for file in built.files) or plan.size
    number = len(built.files) or len(plan.operations)
    where = printable(plan.output)
    push = f"repokit push {where}{_recipe_flag(options.apply, options.recipe, options.output)}"
    after = f"repokit lint {where}" if is_url(plan.output) else push
    console.result(
        f"{'in place already:' if built.in_place else 'built'} {where}: {count(number, 'file')}, {size(total)}\n"
        f"next: {after}",
        {
            "output": plan.output,
            "files": [file.model_dump() for file in built.files],
            "bytes": total,
            "reused": built.reused,
            "warnings": list(plan.warnings),
            **_against_base(plan),
        },
        quiet=plan.output,
    )


def _show(plan: Plan, console: Console) -> None:
    """The plan in a few lines: what becomes of the weights, what stays behind."""
    summary = plan.summary
    weights = f"{size(summary.weight_bytes)} in {count(summary.shards, 'file')}"
    console.stage("plan", f"{count(summary.tensors, 'tensor')}, {summary.parameters:,} parameters, {weights}")
    for name, told in (*_names_and_dtypes(summary), *_other_changes(summary)):
        console.stage(name, told)
    if plan.left_out:
        left = [file.path for file in plan.left_out]
        total = sum(file.size for file in plan.left_out)
        console.stage("left out", f"{some(left)} ({size(total)})" if total else some(left))
    for warning in plan.warnings:
        console.warn(warning)


def _names_and_dtypes(summary: Summary) -> Iterator[tuple[str, str]]:
    if summary.adapters:
        yield "merge", f"{count(summary.merged, 'tensor')}: {', '.join(map(printable, summary.adapters))}"
    if summary.quantized is not None:
        yield "method", f"{summary.quantized}; copied as it is"
    if summary.cast:
        kept = f"; {count(summary.kept, 'tensor')} kept as stored" if summary.kept else ""
        saved = f"{size(summary.source_bytes)} become {size(summary.weight_bytes)}"
        dtypes = f"{summary.casts}, " if summary.casts else ""
        yield "cast", f"{count(summary.cast, 'tensor')}: {dtypes}{saved}{kept}"
    if summary.renamed:
        repairs = f"; {' and '.join(map(printable, summary.repairs))}" if summary.repairs else ""
        told = f"{count(summary.renamed, 'tensor')}: another name than in the source, one to one"
        yield "rename", f"{told}{repairs}"


def _other_changes(summary: Summary) -> Iterator[tuple[str, str]]:
    if summary.tied:
        yield "tie", f"{some(summary.tied)}: the embedding byte for byte, which is stored once"
    if summary.untied:
        yield "untie", f"{some(summary.untied)}: a copy of the embedding, a tensor of its own"
    if summary.vocabulary is not None:
        before, after = summary.vocabulary
        rows = "rows of zeros are added" if after > before else "rows are cut off"
        told = f"{before:,} become {after:,}: {abs(after - before):,} {rows}"
        yield "rows", f"{told}, in {some(summary.resized)}"
    if summary.views:
        yield "copy", f"{count(summary.views, 'view')}: their elements are written side by side"
    if summary.dropped:
        yield "drop", some(summary.dropped)
    if summary.base is not None and summary.changed:
        yield "base", f"changed against {printable(summary.base)}: {'; '.join(summary.changed)}"
    if summary.base is not None and summary.held and not (summary.changed or summary.lost):
        yield "base", f"nothing is lost against {printable(summary.base)}: {summary.held} as there"


def _gate(plan: Plan, wanted: Recipe | None, recipe: Path, jobs: int, *, live_skeleton: bool) -> Gate:
    """Lints and loads; an adapter on the base that the recipe says is at hand."""
    from repokit import api

    base = wanted.base.path if wanted is not None and wanted.base is not None else None
    folder = recipe.parent
    return api.LoadGate(
        api.selection_of(plan.lint),
        base=None if base is None or is_url(base) else folder / base,
        threads=jobs,
        live_skeleton=live_skeleton,
    )


def _against_base(plan: Plan) -> dict[str, object]:
    """What was lost and changed, for a program; nothing where there was no base to hold it against."""
    summary = plan.summary
    found = {"path": summary.base, "lost": list(summary.lost), "changed": list(summary.changed)}
    return {} if summary.base is None else {"against_base": found}


def _recipe_flag(apply: Path | None, recipe: Path, output: str | None) -> str:
    """What `push` must be told to find the recipe again: it looks at ./repokit.yaml, for the output named there."""
    return "" if apply is not None or (str(recipe) == "repokit.yaml" and output is None) else f" --recipe {recipe}"


def _only_plan(plan: Plan, gate: Gate, path: Path | None, console: Console, *, force: bool, memory: int | None) -> None:
    """Lints the plan, prints its operations and, with `--plan`, writes it."""
    from repokit import api

    try:
        api.check_plan(plan, gate, force=force, memory=memory)
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
        {
            "output": plan.output,
            "plan": None if path is None else str(path),
            "files": paths,
            "warnings": list(plan.warnings),
            **_against_base(plan),
        },
        quiet=plan.output if path is None else str(path),
    )
