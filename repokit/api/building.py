"""init, plan and build."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from repokit.api.lint_settings import selection_of
from repokit.api.linting import Gate
from repokit.api.recipes import RECIPE, read_recipe
from repokit.api.skeletons import live

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from repokit.builder.build import Built, Progress
    from repokit.builder.draft import Draft
    from repokit.builder.plan import Plan
    from repokit.builder.stored import Stored
    from repokit.schema.recipe import Recipe


def init(checkpoint: str | Path, *, recipe_folder: Path | None = None, base: str | Path | None = None) -> Draft:
    """What `repokit init` would write for a checkpoint; nothing is written.

    Args:
        checkpoint: A directory or a file of weights.
        recipe_folder: Where the recipe will lie; the current folder by default.
        base: A local copy of the base model: what the checkpoint lacks is taken from there.

    Raises:
        InputError: It is not a checkpoint that this version builds from.
    """
    from repokit.builder.draft import draft

    return draft(Path(checkpoint), recipe_folder=recipe_folder or Path.cwd(), base=None if base is None else Path(base))


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
        output: Another output directory than the recipe's, relative to the current directory.
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
        recipe = recipe.model_copy(update={"output": str(Path(output).absolute())})
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

    Raises:
        RepokitError: The recipe, as `plan` raises it.
        Stopped: Findings at error level. Nothing was published.
        BuildError: Lock, disk, target. Nothing was published.
    """
    from repokit.builder.build import carry_out

    plan_ = _planned(what, tensors)
    return carry_out(
        plan_,
        gate=gate or Gate(selection_of(plan_.lint)),
        progress=progress or (lambda _stage, _done, _total: None),
        jobs=jobs,
        force=force,
        given=_given(tensors),
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
    from repokit.builder.memory_weights import MemoryWeights

    return MemoryWeights(tensors)


def read_plan(path: str | Path) -> Plan:
    """A plan that `repokit build --plan` wrote.

    Raises:
        PlanError: It is not one, or of another version.
    """
    from repokit.builder.plan import Plan

    return Plan.read(Path(path))


def check_plan(plan_: Plan, gate: Gate | None = None, *, force: bool = False) -> None:
    """What a build would check before it writes: the output, and the repository that the plan describes.

    Raises:
        TargetRefused: The output is not repokit's to replace; `force` would replace it.
        Stopped: Findings at error level.
    """
    from repokit.builder.preview import Preview
    from repokit.builder.staging import check_target

    check_target(Path(plan_.output), force=force, kept=plan_.kept)

    (gate or Gate(selection_of(plan_.lint)))(Preview(plan_), "plan")
