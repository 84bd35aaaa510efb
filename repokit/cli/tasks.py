"""repokit build --apply FILE --task K/N: one share of a plan, for job arrays."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from repokit.errors import UsageError
from repokit.printable import count, printable, size, some

if TYPE_CHECKING:
    from repokit.builder.execution.task_builds import Written
    from repokit.cli.console import Console

TaskOption = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="K/N",
        help="With --apply: write only the files of task K of N, counted from 1; tasks share the disk, in any order.",
    ),
]
FinalizeOption = Annotated[
    bool, typer.Option("--finalize", help="With --apply: put in place what all tasks have written.")
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory", metavar="SIZE", help="What a build may take, such as 8GB; by default as little as it can."
    ),
]
ExecutorOption = Annotated[
    str | None,
    typer.Option("--executor", metavar="ADDRESS", help="Let a cluster write the files: dask://HOST:PORT."),
]


def check_flags(
    apply: Path | None, task: str | None, executor: str | None, *, finalize: bool, writes: bool, load_check: bool
) -> None:
    """Refuses flags that do not go together.

    Args:
        apply: As typed.
        task: As typed.
        executor: As typed.
        finalize: As typed.
        writes: Whether anything is written: neither --dry-run nor --plan.
        load_check: As typed.
    """
    if task is not None and finalize:
        hint = "finalize when all tasks are done"
        raise UsageError("--task writes a part, --finalize puts all parts in place", hint=hint)
    if (task is not None or finalize) and (apply is None or not writes):
        flag = "--task" if task is not None else "--finalize"
        hint = f"repokit build --plan plan.json, then repokit build --apply plan.json {flag}{' K/N' if task else ''}"
        raise UsageError(f"{flag} goes with --apply alone: all tasks carry out one plan", hint=hint)
    if task is not None and load_check:
        raise UsageError("--load-check goes with --finalize: a task writes a part of a model", hint="leave it out here")
    if task is not None:
        from repokit.builder.execution.tasks import Task

        Task.parsed(task)
    if executor is not None:
        from repokit.builder.execution.executors import check_address

        check_address(executor)


def bytes_of(memory: str | None) -> int | None:
    """What `--memory` says.

    Raises:
        UsageError: It is no size.
    """
    if memory is None:
        return None
    from repokit.schema.recipe import parse_size

    try:
        return parse_size(memory)
    except ValueError as error:
        raise UsageError(f"--memory {printable(memory)} {error}", hint="--memory 8GB") from None


def write_task(
    path: Path, task: str, console: Console, *, jobs: int, force: bool, memory: int | None, executor: str | None
) -> None:
    """Carries out one task of the plan in a file, and says what is left to do."""
    from repokit import api

    plan = api.read_plan(path)
    with console.progress("build") as progress:
        written = api.write_task(
            plan, task, progress=progress, jobs=jobs, force=force, memory=memory, executor=executor
        )
    if written.reused and not written.in_place:
        console.stage("reused", f"{count(written.reused, 'file')} that it had written before")
    share = f"{len(written.paths):,} of {count(len(plan.operations), 'file')}, {size(written.size)}"
    told = f"{share}\nnext: {_next(path, written)}"
    if written.in_place:
        told = f"nothing to do: {printable(plan.output)} is in place already"
    console.result(
        f"task {written.task}: {told}",
        {
            "output": plan.output,
            "task": written.task.number,
            "of": written.task.of,
            "files": list(written.paths),
            "bytes": written.size,
            "reused": written.reused,
            "waiting": [waiting.number for waiting in written.waiting],
        },
        quiet=str(written.task),
    )


def _next(path: Path, written: Written) -> str:
    if not written.waiting:
        return f"{command(path)} --finalize"
    waiting = [str(task) for task in written.waiting]
    return f"{'task' if len(waiting) == 1 else 'tasks'} {some(waiting, 8)}, then {command(path)} --finalize"


def command(path: Path) -> str:
    """What carries out the plan in a file."""
    return f"repokit build --apply {shlex.quote(printable(path))}"
