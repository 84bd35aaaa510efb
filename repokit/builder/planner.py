"""Puts a plan together: weights, documents, card, license, and the files that are carried over.

`Planner` plans a full model. What is different of the other kinds (kinds.py) is overridden in a module of each.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from repokit.builder import card, documents, license as licenses, weights
from repokit.builder.against_base import compared
from repokit.builder.checkpoints.layouts import check_supported
from repokit.builder.checkpoints.sources import Checkpoint, Role, open_checkpoint
from repokit.builder.inputs import check_inputs, check_output
from repokit.builder.kinds import Kind, kind_of
from repokit.builder.plan import LeftOut, Plan, Sources, Summary, copies, matching, ordered
from repokit.builder.vocabulary import Resizing, refuse_for
from repokit.errors import MissingInput, RecipeError
from repokit.formats.tensors import byte_size
from repokit.formats.urls import Place, Url, place
from repokit.operations import KEPT, CopyFile, WriteShard, WriteText
from repokit.printable import printable, some
from repokit.repo.config import CONFIG
from repokit.repo.remote_code import remote_code
from repokit.repo.remote_files import is_file
from repokit.schema.manifest import MANIFEST_NAME
from repokit.schema.recipe import Origin
from repokit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from repokit.architectures.live import Live
    from repokit.builder.checkpoints.stored import Stored
    from repokit.builder.license import LicenseText
    from repokit.builder.weights import PlannedWeights
    from repokit.repo.repository import Repository
    from repokit.schema.recipe import Recipe

GENERATION_CONFIG: Final = "generation_config.json"
_WRITTEN: Final = frozenset({Role.WEIGHTS, Role.CONFIG, Role.CARD, Role.LICENSE})  # not copied: planned one by one
_SOURCE: Final = Origin()
# Why a file is left out whose like is published.
_INSTEAD: Final = {
    Role.WEIGHTS: "weights that the model does not use",
    Role.TOKENIZER: "taken from elsewhere",
    Role.PROCESSOR: "taken from elsewhere",
    Role.CHAT_TEMPLATE: "taken from elsewhere",
    Role.LICENSE: "another license text is published",
}


def make_plan(
    recipe: Recipe,
    *,
    folder: Path,
    recipe_name: str = "repokit.yaml",
    kept: Collection[str] = (),
    given: Stored | None = None,
    live: Live | None = None,
) -> Plan:
    """What a build of this recipe will do.

    Args:
        recipe: What is wanted.
        folder: What relative paths in the recipe are relative to.
        recipe_name: For messages.
        kept: Paths in an earlier output, edited or added by a person, that are carried over as they are.
        given: The tensors of a running program; weights that lie in the source are then not read.
        live: Says which tensors an architecture has that the data does not cover.

    Raises:
        RecipeError, PlanError: The recipe contradicts itself or the source.
        InputError: The source cannot be read, or is one that this version does not build from.
        Stopped: The license is missing.
    """
    licenses.require_id(recipe.license, recipe=recipe_name, base=recipe.base.id)
    check_inputs(recipe, folder, recipe_name)
    checkpoint = open_checkpoint(place(folder, recipe.source), given)
    checkpoint.dtype = recipe.weights.dtype
    check_output(recipe, folder, checkpoint.root, recipe_name)
    planner = _planner_of(recipe, checkpoint)(recipe, folder, checkpoint, kept, live)
    planner.check()
    plan, base = planner.plan(), planner.base
    return plan if base is None else compared(plan, base.repository, kind_of(recipe, checkpoint), str(base.root))


def _planner_of(recipe: Recipe, checkpoint: Checkpoint) -> type[Planner]:
    kind = kind_of(recipe, checkpoint)
    if kind is not Kind.FULL:
        refuse_for(recipe, kind)
    if recipe.merge.adapters and kind is not Kind.FULL:
        what = f"adapters are merged into a full model, and what is built is {kind}"
        raise RecipeError(what, place="merge.adapters", hint="kind: full, and base.path where the source is an adapter")
    match kind:
        case Kind.FULL:
            from repokit.builder.merging.planner import MergePlanner, is_merge  # which is made of this module

            return MergePlanner if is_merge(recipe, checkpoint) else Planner
        case Kind.QUANTIZED:
            from repokit.builder.quantized.repository import QuantizedPlanner  # which is made of this module

            return QuantizedPlanner
        case Kind.ADAPTER:
            from repokit.builder.adapters.repository import AdapterPlanner  # the same

            return AdapterPlanner
        case Kind.GGUF:
            from repokit.builder.gguf.repository import GgufPlanner  # the same

            return GgufPlanner


class Planner:
    """One planning: what its parts share. The public methods are what a kind may do in its own way."""

    def __init__(
        self, recipe: Recipe, folder: Path, checkpoint: Checkpoint, kept: Collection[str], live: Live | None
    ) -> None:
        self.kept = kept
        self.live = live
        self.recipe = recipe
        self.folder = folder
        self.checkpoint = checkpoint
        self.base = open_checkpoint(place(folder, recipe.base.path)) if recipe.base.path else None
        self.sources = Sources()
        self.warnings: list[str] = []
        if recipe.config.from_ != "source":
            checkpoint.described_by = self.origin(recipe.config, Role.CONFIG)[0].repository
        checkpoint.architectures = recipe.config.architectures

    def check(self) -> None:
        """Refuses a source that nothing of this kind is built from.

        Raises:
            InputError: With what it is and what to do instead.
        """
        check_supported(self.checkpoint)

    def weights(self) -> PlannedWeights:
        """The tensors of the output."""
        resizing = self._resizing()
        if resizing is not None:
            self.warnings.extend(resizing.notes)
        return weights.plan_weights(self.recipe.weights, self.checkpoint, self.live, resizing=resizing)

    def _resizing(self) -> Resizing | None:
        """To the vocabulary that the recipe asks for, with the tokenizer and the ids that are published."""
        wanted = self.recipe.weights.vocabulary
        if wanted is None:
            return None
        described, origin = self.origin(self.recipe.config, Role.CONFIG)
        generation = self.generating(described, origin)[0].repository.generation_config
        return Resizing(
            wanted,
            self.checkpoint.config,
            self.live,
            tokens=self.origin(self.recipe.tokenizer, Role.TOKENIZER)[0].repository,
            generation={**({} if generation is None else generation.raw), **self.recipe.generation_config},
        )

    def written(self, planned: PlannedWeights) -> Iterator[WriteShard | WriteText | CopyFile]:
        """The files of weights, with their index."""
        return weights.operations(planned, self.checkpoint, self.sources)

    def plan(self) -> Plan:
        """All of it."""
        planned = self.weights()
        self.warnings.extend(self.checkpoint.weights.notes)
        self.warnings.extend(card.dead_links(self.recipe))
        carried = self.carried()
        documents_ = list(self.documents(planned, carried))
        excluded = matching([*self.checkpoint.roles, *carried], self.recipe.files.exclude, "files.exclude")
        published = {path: place for path, place in carried.items() if path not in excluded}
        text = self._license_text(excluded)
        beside: list[WriteText | CopyFile] = [
            *(document for document in documents_ if document.path not in excluded),
            *copies(published, self.sources),
            self.card(planned, published, text.name if text else None),
            *([WriteText(path=text.name, content=text.content, origin=text.origin)] if text else []),
        ]
        written: list[WriteShard | WriteText | CopyFile] = [
            *self.written(planned),
            *beside,
        ]
        operations = ordered([*(operation for operation in written if operation.path not in self.kept), *self._kept()])
        return Plan(
            repokit=__version__,
            output=str(place(self.folder, self.recipe.output)),
            manifest=self.recipe.manifest,
            sources=tuple(self.sources),
            operations=operations,
            left_out=tuple(self.left_out({operation.path for operation in operations}, excluded)),
            warnings=tuple(self.warnings),
            lint=self.recipe.lint,
            summary=self.summary(planned),
        )

    def summary(self, planned: PlannedWeights) -> Summary:
        """What becomes of the weights, in numbers."""
        return _summary(planned)

    def _kept(self) -> Iterator[CopyFile]:
        """Files of the output as it is now."""
        output = place(self.folder, self.recipe.output)
        for path in self.kept:
            found = output / path
            if not (is_file(found) if isinstance(found, Url) else found.is_file()):
                raise MissingInput("is to be kept and is not in the output", path=str(output / path))
        return copies({path: (output / path, KEPT) for path in self.kept}, self.sources)

    def card(self, planned: PlannedWeights, published: Collection[str], license_file: str | None) -> WriteText:
        """README.md."""
        self.warnings.extend(card.unused(self.recipe, self.checkpoint))
        return self.written_card(planned, published, license_file)

    def written_card(
        self,
        planned: PlannedWeights,
        published: Collection[str],
        license_file: str | None,
        *,
        merged_from: Sequence[str] = (),
        existing: bytes | None = None,
    ) -> WriteText:
        """The card of a full model; see card.write_card."""
        content = card.write_card(
            self.recipe,
            self.checkpoint,
            published=published,
            dtypes=planned.dtypes,
            parameters=planned.parameters,
            license_file=license_file,
            merged_from=merged_from,
            existing=existing,
        )
        return WriteText(path=card.README, content=content, origin="recipe")

    def documents(self, planned: PlannedWeights, carried: dict[str, tuple[Place, str]]) -> Iterator[WriteText]:
        """config.json and generation_config.json: written where something changes in them, else carried over."""
        described, origin = self.origin(self.recipe.config, Role.CONFIG)
        config = described.repository.config
        assert config is not None  # noqa: S101 - check_supported refuses a checkpoint without one
        edited = documents.edited_config(
            config,
            dtype=planned.wanted_dtype,
            compat=self.recipe.compat,
            architectures=self.recipe.config.architectures,
            vocab_size=None if planned.vocabulary is None else planned.vocabulary[1],
            unties=planned.unties,
        )
        generates, whose = self.generating(described, origin)
        found = generates.repository.generation_config
        merged = documents.merged_generation_config(None if found is None else found.raw, self.recipe.generation_config)
        for path, content, checkpoint, name in (
            (CONFIG, edited, described, origin),
            (GENERATION_CONFIG, merged, generates, whose),
        ):
            if content is not None:
                yield WriteText(path=path, content=content, origin=f"{name}, recipe")
            elif checkpoint.repository.has(path):
                carried[path] = (checkpoint.place(path), name)

    def generating(self, described: Checkpoint, origin: str) -> tuple[Checkpoint, str]:
        """Where generation_config.json comes from, and what that is called.

        Args:
            described: Where config.json comes from.
            origin: What that is called.
        """
        # Of a checkpoint that is weights alone it comes with config.json.
        own = origin == "source" or self.checkpoint.repository.has(GENERATION_CONFIG)
        return (self.checkpoint, "source") if own else (described, origin)

    def carried(self) -> dict[str, tuple[Place, str]]:
        """Files taken over byte for byte, by their path in the output."""
        recipe = self.recipe
        carried: dict[str, tuple[Place, str]] = {}
        for role, origin in (
            (Role.TOKENIZER, recipe.tokenizer),
            (Role.PROCESSOR, recipe.processor),
            (Role.CHAT_TEMPLATE, recipe.chat_template),
            (Role.NOTICE, _SOURCE),
        ):
            carried |= self.files_of(role, origin)
        carried |= self.code()
        return carried | {path: (self.checkpoint.place(path), "source") for path in self.included(carried)}

    def code(self) -> dict[str, tuple[Place, str]]:
        """The import closure of auto_map, from where config.json is."""
        checkpoint, name = self.origin(self.recipe.config, Role.CONFIG)
        code = remote_code(checkpoint.repository)
        if code.missing:
            missing = list(code.missing)
            what = f"asks for {some(missing)} (auto_map), which the source does not have"
            why = "nobody can load the model without its code"
            hint = f"copy {printable(missing[0])} from the base model into the source"
            raise MissingInput(what, why=why, path=code.missing[missing[0]], hint=hint)
        return {path: (checkpoint.place(path), name) for path in code.files}

    def included(self, carried: Collection[str]) -> list[str]:
        """What the recipe adds by name. repokit's own manifest, of a source that it built, is never taken over."""
        roles = self.checkpoint.roles.items()
        optional = [path for path, role in roles if path not in carried and role not in _WRITTEN]
        return sorted(matching(optional, self.recipe.files.include, "files.include") - {MANIFEST_NAME})

    def files_of(self, role: Role, origin: Origin) -> dict[str, tuple[Place, str]]:
        """The files of one role from where the recipe wants them."""
        checkpoint, name = self.origin(origin, role)
        return {path: (checkpoint.place(path), name) for path in checkpoint.files(role)}

    def origin(self, origin: Origin, role: Role) -> tuple[Checkpoint, str]:
        """Where the recipe wants the files of a role from, and what that is called."""
        if origin.from_ == "source":
            return self.checkpoint, "source"
        checkpoint = self.base if origin.from_ == "base" else open_checkpoint(place(self.folder, origin.from_))
        if checkpoint is None:
            what = f"{role}: from base needs a local copy of the base"
            raise RecipeError(what, place="base.path", hint="hf download BASE --local-dir DIR, then base.path: DIR")
        if not checkpoint.files(role):
            raise MissingInput(f"has no {role} files", path=str(checkpoint.root))
        return checkpoint, "base" if origin.from_ == "base" else "path"

    def license_places(self) -> dict[str, Repository]:
        """Where a license text is looked for, in order."""
        base = {} if self.base is None else {"base": self.base.repository}
        return {"source": self.checkpoint.repository, **base}

    def _license_text(self, excluded: Collection[str]) -> LicenseText | None:
        repositories = self.license_places()
        text = licenses.find_text(self.recipe.license, recipe_folder=self.folder, repositories=repositories)
        if text is not None and text.name in excluded:
            return None
        if text is None and self.recipe.license.file is not None:
            self.warnings.append(self._no_license_text())
        self.warnings.extend(self._other_licenses(repositories))
        return text

    def _other_licenses(self, repositories: Mapping[str, Repository]) -> Iterator[str]:
        """Cards of the source and the base that state another license than the recipe."""
        stated = self.recipe.license.id
        for word, repository in repositories.items():
            found = repository.card.string("license") if repository.card is not None else None
            if found is not None and found != stated:
                yield f"the card of the {word} states the license {printable(found)}, the recipe {printable(stated)}"

    def _no_license_text(self) -> str:
        license_id = printable(self.recipe.license.name or self.recipe.license.id)
        base = self.recipe.base.id
        command = f"hf download {base} LICENSE --local-dir ." if base else "save it as LICENSE beside the recipe"
        return f"the text of {license_id} is not at hand: {command}, then license.file: LICENSE"

    def left_out(self, published: Collection[str], excluded: Collection[str]) -> Iterator[LeftOut]:
        """What is not published, and why."""
        read = {*self.checkpoint.weights.files, self.checkpoint.weights.index_path, card.README}
        for left in self.checkpoint.weights.left_behind:
            yield LeftOut(path=left.path, reason=left.reason, size=0)
        for folder, why in self.checkpoint.unlisted.items():
            yield LeftOut(path=folder, reason=why, size=0)
        for path, role in self.checkpoint.roles.items():
            if path in published or path in read:
                continue
            reason = _INSTEAD.get(role, str(role))
            reason = "excluded by the recipe" if path in excluded else reason
            yield LeftOut(path=path, reason=reason, size=self.checkpoint.repository.files[path].size)


def _summary(planned: PlannedWeights) -> Summary:
    return Summary(
        tensors=len(planned.tensors),
        parameters=planned.parameters,
        weight_bytes=planned.size,
        source_bytes=sum(byte_size(tensor.stored.dtype, tensor.shape) or 0 for tensor in planned.tensors.values()),
        shards=len(planned.shards),
        renamed=planned.renamed,
        repairs=planned.repairs,
        cast=planned.cast,
        casts=planned.casts,
        kept=planned.kept,
        dropped=planned.dropped,
        tied=planned.tied,
        untied=planned.untied,
        vocabulary=planned.vocabulary,
        resized=planned.resized,
        views=planned.views,
    )
