"""Puts a plan together: weights, documents, card, license, and the files that are carried over."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

from repokit.builder import card, documents, license as licenses, weights
from repokit.builder.plan import LeftOut, Plan, Sources, Summary, copies, matching, ordered
from repokit.builder.sources import PUBLISHED, Checkpoint, Role, check_supported, open_checkpoint
from repokit.errors import MissingInput, RecipeError
from repokit.operations import CopyFile, WriteText
from repokit.printable import printable, some
from repokit.repo.config import CONFIG
from repokit.repo.remote_code import remote_code
from repokit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from repokit.builder.weights import PlannedWeights
    from repokit.schema.recipe import Origin, Recipe

GENERATION_CONFIG: Final = "generation_config.json"
_WRITTEN: Final = frozenset({Role.WEIGHTS, Role.CONFIG, Role.CARD, Role.LICENSE})  # not copied: planned one by one


def make_plan(
    recipe: Recipe, *, folder: Path, recipe_name: str = "repokit.yaml", kept: Collection[str] = ()
) -> Plan:
    """What a build of this recipe will do.

    Args:
        recipe: What is wanted.
        folder: What relative paths in the recipe are relative to.
        recipe_name: For messages.
        kept: Paths in an earlier output, edited or added by a person, that are carried over as they are.

    Raises:
        RecipeError, PlanError: The recipe contradicts itself or the source.
        InputError: The source cannot be read, or is one that this version does not build from.
        Stopped: The license is missing.
    """
    licenses.require_id(recipe.license, recipe=recipe_name, base=recipe.base.id)
    if recipe.kind not in {"auto", "full"}:
        what = f"kind: {recipe.kind} is not built by this version; it builds full models"
        raise RecipeError(what, path=recipe_name, place="kind", hint="`repokit lint` and `push` take such a directory")
    checkpoint = open_checkpoint(folder / recipe.source)
    check_supported(checkpoint)
    return _Planner(recipe, folder, checkpoint, kept).plan()


class _Planner:
    """One planning: what its parts share."""

    def __init__(self, recipe: Recipe, folder: Path, checkpoint: Checkpoint, kept: Collection[str]) -> None:
        self.kept = kept
        self.recipe = recipe
        self.folder = folder
        self.checkpoint = checkpoint
        self.base = folder / recipe.base.path if recipe.base.path else None
        self.sources = Sources()
        self.warnings: list[str] = []

    def plan(self) -> Plan:
        planned = weights.plan_weights(self.recipe.weights, self.checkpoint)
        carried = self._carried()
        text = licenses.find_text(
            self.recipe.license, recipe_folder=self.folder, source=self.checkpoint.root, base=self.base
        )
        if text is None and self.recipe.license.file is not None:
            self.warnings.append(self._no_license_text())
        license_file = text.name if text else None
        written = [
            *weights.operations(planned, self.checkpoint, self.sources),
            *self._documents(planned, carried),
            *copies(carried, self.sources),
            WriteText(path=card.README, content=self._card(planned, license_file), origin="recipe"),
        ]
        if text is not None:
            written.append(WriteText(path=text.name, content=text.content, origin=text.origin))
        operations = ordered([*(operation for operation in written if operation.path not in self.kept), *self._kept()])
        return Plan(
            repokit=__version__,
            output=str(self.folder / self.recipe.output),
            manifest=self.recipe.manifest,
            sources=tuple(self.sources),
            operations=operations,
            left_out=tuple(self._left_out({operation.path for operation in operations})),
            warnings=tuple(self.warnings),
            summary=_summary(planned),
        )

    def _kept(self) -> Iterator[CopyFile]:
        """Files of the output as it is now."""
        output = self.folder / self.recipe.output
        for path in self.kept:
            if not (output / path).is_file():
                raise MissingInput("is to be kept and is not in the output", path=str(output / path))
        return copies({path: (output / path, "kept") for path in self.kept}, self.sources)

    def _card(self, planned: PlannedWeights, license_file: str | None) -> bytes:
        return card.write_card(
            self.recipe,
            self.checkpoint,
            dtypes=planned.dtypes,
            parameters=planned.parameters,
            license_file=license_file,
        )

    def _documents(self, planned: PlannedWeights, carried: dict[str, tuple[Path, str]]) -> Iterator[WriteText]:
        """config.json and generation_config.json: written where something changes in them, else carried over."""
        repository = self.checkpoint.repository
        assert repository.config is not None  # noqa: S101 - check_supported refuses a checkpoint without one
        dtype = planned.cast_to if planned.cast else None
        edited = documents.edited_config(repository.config, dtype=dtype, tie=None, compat=self.recipe.compat)
        raw = None if repository.generation_config is None else repository.generation_config.raw
        merged = documents.merged_generation_config(raw, self.recipe.generation_config)
        for path, content in ((CONFIG, edited), (GENERATION_CONFIG, merged)):
            if content is not None:
                yield WriteText(path=path, content=content, origin="source, recipe")
            elif repository.has(path):
                carried[path] = (self.checkpoint.root / path, "source")

    def _carried(self) -> dict[str, tuple[Path, str]]:
        """Files taken over byte for byte, by their path in the output."""
        recipe = self.recipe
        carried: dict[str, tuple[Path, str]] = {}
        for role, origin in (
            (Role.TOKENIZER, recipe.tokenizer),
            (Role.PROCESSOR, recipe.processor),
            (Role.CHAT_TEMPLATE, recipe.chat_template),
        ):
            carried |= self._from(role, origin)
        root = self.checkpoint.root
        code = remote_code(self.checkpoint.repository)
        if code.missing:
            missing = list(code.missing)
            what = f"asks for {some(missing)} (auto_map), which the source does not have"
            why = "nobody can load the model without its code"
            hint = f"copy {printable(missing[0])} from the base model into the source"
            raise MissingInput(what, why=why, path=code.missing[missing[0]], hint=hint)
        carried |= {path: (root / path, "source") for path in code.files}
        optional = [
            path for path, role in self.checkpoint.roles.items() if path not in carried and role not in _WRITTEN
        ]
        included = matching(optional, recipe.files.include, "files.include")
        carried |= {path: (root / path, "source") for path in sorted(included)}
        excluded = recipe.files.exclude
        return {path: place for path, place in carried.items() if not any(fnmatchcase(path, glob) for glob in excluded)}

    def _from(self, role: Role, origin: Origin) -> dict[str, tuple[Path, str]]:
        """The files of one role from where the recipe wants them."""
        checkpoint = self.checkpoint
        if origin.from_ != "source":
            root = self.base if origin.from_ == "base" else self.folder / origin.from_
            if root is None:
                what = f"{role}: from base needs a local copy of the base"
                raise RecipeError(what, place="base.path", hint="hf download BASE --local-dir DIR, then base.path: DIR")
            checkpoint = open_checkpoint(root)
            if not checkpoint.files(role):
                raise MissingInput(f"has no {role} files", path=str(root))
        name = origin.from_ if origin.from_ in {"source", "base"} else "path"
        return {path: (checkpoint.root / path, name) for path in checkpoint.files(role)}

    def _left_out(self, published: set[str]) -> Iterator[LeftOut]:
        replaced = PUBLISHED - {Role.WEIGHTS}
        for path, role in self.checkpoint.roles.items():
            if path in published or role in {Role.WEIGHTS, Role.CARD}:
                continue
            reason = "excluded by the recipe" if role in replaced else str(role)
            yield LeftOut(path=path, reason=reason, size=self.checkpoint.repository.files[path].size)

    def _no_license_text(self) -> str:
        license_id = printable(self.recipe.license.id)
        base = self.recipe.base.id
        command = f"hf download {base} LICENSE --local-dir ." if base else "save it as LICENSE beside the recipe"
        return f"the text of {license_id} is not at hand: {command}, then license.file: LICENSE"


def _summary(planned: PlannedWeights) -> Summary:
    return Summary(
        tensors=len(planned.tensors),
        parameters=planned.parameters,
        weight_bytes=planned.size,
        source_bytes=sum(tensor.stored.size for tensor in planned.tensors.values()),
        shards=len(planned.shards),
        renamed=planned.renamed,
        cast=planned.cast,
        kept=planned.kept,
        dropped=planned.dropped,
        tied=planned.tied,
    )
