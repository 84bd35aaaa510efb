"""init, plan and build."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from repokit.api.lint_settings import selection_of
from repokit.api.linting import Gate
from repokit.api.recipes import RECIPE, read_recipe
from repokit.api.skeletons import live
from repokit.formats.urls import is_url, place

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from concurrent.futures import Executor

    from repokit.builder.build import Built, Progress
    from repokit.builder.checkpoints.stored import Stored
    from repokit.builder.draft import Draft
    from repokit.builder.execution.task_builds import Written
    from repokit.builder.plan import Plan
    from repokit.schema.recipe import Recipe


def init(checkpoint: str | Path, *, recipe_folder: Path | None = None, base: str | Path | None = None) -> Draft:
    """What `repokit init` would write for a checkpoint; nothing is written.

    Args:
        checkpoint: A directory or a file of weights, or the address of one: `s3://bucket/run`.
        recipe_folder: Where the recipe will lie; the current folder by default.
        base: A copy of the base model: what the checkpoint lacks is taken from there.

    Raises:
        InputError: It is not a checkpoint that this version builds from.
    """
    from repokit.builder.draft import draft

    here = Path()
    return draft(
        place(here, str(checkpoint)),
        recipe_folder=recipe_folder or Path.cwd(),
        base=None if base is None else place(here, str(base)),
    )


def plan(
    recipe: Recipe,
    *,
    folder: str | Path = ".",
    output: str | None = None,
    kept: Collection[str] = (),
    name: str = RECIPE,
    tensors: Mapping[str, Any] | None = None,
    live_skeleton: bool = False,
) -> Plan:
    """What a build would do. Nothing is written.

    Args:
        recipe: What is wanted.
        folder: What relative paths in the recipe are relative to.
        output: Another output directory than the recipe's, relative to the current directory, or an address.
        kept: Paths in an earlier output whose edits are carried over.
        name: Of the recipe, for messages.
        tensors: The weights, by name: arrays of any library that has DLPack, numpy's interface or the buffer protocol.
            The rest comes from the source; weights that lie there are not read.
        live_skeleton: Ask the installed transformers for the names of an architecture that the data does not cover.

    Raises:
        UsageError: It is not installed.
        RepokitError: See repokit.builder.planner.make_plan.
    """
    from repokit.builder.planner import make_plan

    if output is not None:
        recipe = recipe.model_copy(update={"output": output if is_url(output) else str(Path(output).absolute())})
    return make_plan(
        recipe,
        folder=Path(folder),
        kept=kept,
        recipe_name=name,
        given=_given(tensors),
        live=live() if live_skeleton else None,
    )


def build(
    what: Plan | Recipe | str | Path,
    *,
    tensors: Mapping[str, Any] | None = None,
    gate: Gate | None = None,
    progress: Progress | None = None,
    jobs: int = 1,
    force: bool = False,
    memory: int | None = None,
    executor: Executor | str | None = None,
) -> Built:
    """Carries a plan out: lints it, writes it beside the target, lints that, puts it into place atomically.

    Args:
        what: A plan; or a recipe, or the path of one, which is planned first. Paths in a recipe are relative to the
            current folder, those in a file to the file.
        tensors: The weights, by name, where they are in memory; see `plan`. They are read one at a time.
        gate: Lints the planned and then the written repository; the default stops at errors.
        progress: Told of stages and bytes.
        jobs: Files that are written at once.
        force: Replace the output even if repokit did not build it or a person edited it.
        memory: Bytes that the build may take, 300 MB of which are its own; None: as little as its largest tensor
            allows, whatever the number of jobs.
        executor: Writes the files instead of threads of this process: `dask://HOST:PORT`, or any executor of processes,
            each of which then has the memory for itself. They must see sources and output under the same paths.

    Raises:
        RepokitError: The recipe, as `plan` raises it.
        Stopped: Findings at error level. Nothing was published.
        BuildError: Lock, disk, target. Nothing was published.
    """
    from repokit.builder.build import carry_out

    plan_ = _planned(what, tensors)
    return carry_out(
        plan_,
        gate=_with_base(gate, plan_),
        progress=progress or (lambda _stage, _done, _total: None),
        jobs=jobs,
        force=force,
        given=_given(tensors),
        memory=memory,
        executor=executor,
    )


def write_task(
    plan_: Plan,
    task: str,
    *,
    progress: Progress | None = None,
    jobs: int = 1,
    force: bool = False,
    memory: int | None = None,
    executor: Executor | str | None = None,
) -> Written:
    """Writes the files of one task of a plan, on any machine that shares the disk; `finalize` puts them into place.

    Args:
        plan_: From `read_plan`, the same for all tasks.
        task: `2/8`: the second of eight.
        progress: Told of stages and bytes.
        jobs: Files that are written at once.
        force: As of `build`.
        memory: As of `build`, for this task.
        executor: As of `build`.

    Raises:
        UsageError: There is no such task.
        BuildError: Lock, disk, target. What the task has finished stays, and is not written again.
    """
    from repokit.builder.execution import task_builds
    from repokit.builder.execution.tasks import Task

    return task_builds.write_task(
        plan_,
        Task.parsed(task),
        progress=progress or (lambda _stage, _done, _total: None),
        jobs=jobs,
        force=force,
        memory=memory,
        executor=executor,
    )


def finalize(
    plan_: Plan,
    *,
    gate: Gate | None = None,
    progress: Progress | None = None,
    force: bool = False,
    command: Callable[[str], str] = lambda task: f"repokit.write_task(plan, {task!r})",
) -> Built:
    """Puts into place what all tasks of a plan have written: lints it, then exchanges it with the target.

    Args:
        plan_: That of the tasks.
        gate: As of `build`.
        progress: Told of stages and bytes.
        force: As of `build`.
        command: What carries out a task such as `2/8`, for the message that says which are missing.

    Raises:
        Stopped: Findings at error level. Nothing was published; what the tasks wrote stays.
        BuildError: Files are missing; lock, disk, target.
    """
    from repokit.builder.execution import task_builds

    return task_builds.finalize(
        plan_,
        gate=_with_base(gate, plan_),
        progress=progress or (lambda _stage, _done, _total: None),
        force=force,
        command=command,
    )


def _planned(what: Plan | Recipe | str | Path, tensors: Mapping[str, Any] | None) -> Plan:
    from repokit.builder.plan import Plan

    if isinstance(what, Plan):
        return what
    if isinstance(what, str | Path):
        path = Path(what)
        return plan(read_recipe(path), folder=path.parent, name=str(path), tensors=tensors)
    return plan(what, tensors=tensors)


def _given(tensors: Mapping[str, Any] | None) -> Stored | None:
    if tensors is None:
        return None
    from repokit.builder.checkpoints.memory_weights import MemoryWeights

    return MemoryWeights(tensors)


def read_plan(path: str | Path) -> Plan:
    """A plan that `repokit build --plan` wrote.

    Raises:
        PlanError: It is not one, or of another version.
    """
    from repokit.builder.plan import Plan

    return Plan.read(Path(path))


def check_plan(plan_: Plan, gate: Gate | None = None, *, force: bool = False, memory: int | None = None) -> None:
    """What a build would check before it writes: the output, and the repository that the plan describes.

    Raises:
        PlanError: A tensor needs more memory than there may be.
        TargetRefused: The output is not repokit's to replace; `force` would replace it.
        Stopped: Findings at error level.
    """
    from repokit.builder.execution.remote_target import check as check_remote
    from repokit.builder.execution.reservation import for_tensors
    from repokit.builder.execution.staging import check_target
    from repokit.builder.preview import Preview

    for_tensors(plan_.operations, memory)
    if is_url(plan_.output):
        check_remote(plan_, force=force)
    else:
        check_target(Path(plan_.output), force=force, kept=plan_.kept)

    _with_base(gate, plan_)(Preview(plan_), "plan")


def _with_base(gate: Gate | None, plan_: Plan) -> Gate:
    """The gate, which also holds the result against the base that the plan was held against."""
    gate = gate or Gate(selection_of(plan_.lint))
    if isinstance(gate, Gate):  # a program may bring any function that looks at a Source
        gate.base = gate.base or plan_.summary.base
    return gate
