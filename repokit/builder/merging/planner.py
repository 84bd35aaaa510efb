"""`kind: full` of an adapter, or with `merge.adapters`: a base model with LoRA adapters merged into its weights.

Configuration, tokenizer and the like come from the adapter's folder where it has files of that role (a Trainer saves
the tokenizer there), else from the base.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from repokit.builder.adapters.document import BASE, Known, cached, on_the_hub
from repokit.builder.card import README
from repokit.builder.checkpoints.layouts import check_supported
from repokit.builder.checkpoints.sources import Role
from repokit.builder.generated_cards import is_generated
from repokit.builder.kinds import ADAPTER_CONFIG
from repokit.builder.merging.combination import Combination, combined
from repokit.builder.merging.lora import WEIGHTS, Adapter
from repokit.builder.merging.weights import MergedWeights
from repokit.builder.plan import LeftOut
from repokit.builder.planner import Planner
from repokit.errors import PlanError, RecipeError
from repokit.formats.front_matter import parse_card
from repokit.formats.strict_json import dumps
from repokit.formats.tensors import HEADER_NAMES
from repokit.formats.urls import place
from repokit.operations import WriteText
from repokit.printable import printable, some
from repokit.repo.config import CONFIG

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from repokit.builder.checkpoints.sources import Checkpoint
    from repokit.builder.merging.changes import Steps
    from repokit.builder.plan import Summary
    from repokit.builder.weights import PlannedWeights
    from repokit.formats.urls import Place
    from repokit.schema.recipe import Origin, Recipe

# A branch, a tag or a commit: it is shown in the card.
_REVISION: Final = re.compile(r"[A-Za-z0-9._/-]+")
# Of what files go together with the tokenizer's: a template of another one does not fit it.
_WITH_TOKENIZER: Final = frozenset({Role.CHAT_TEMPLATE})


def is_adapter(checkpoint: Checkpoint) -> bool:
    """Whether a source is an adapter."""
    return ADAPTER_CONFIG in checkpoint.repository.files and checkpoint.file in {None, *WEIGHTS}


def is_merge(recipe: Recipe, checkpoint: Checkpoint) -> bool:
    """Whether a full model of this recipe is a base with adapters merged into it."""
    return bool(recipe.merge.adapters) or is_adapter(checkpoint)


class MergePlanner(Planner):
    """Plans a full model whose weights are those of a base and of adapters."""

    _combination = Combination()
    _merged_from: Sequence[str] = ()

    def check(self) -> None:
        """Reads the adapters and finds the place of everything in them.

        Raises:
            RecipeError: There is no base at hand.
            InputError, PlanError: Something cannot be merged: see combination.combined.
        """
        self._check_recipe()
        of_source = is_adapter(self.checkpoint)
        model = self.base if of_source else self.checkpoint
        assert model is not None  # noqa: S101 - _check_recipe refuses it
        if of_source:
            described = self.origin(self.recipe.config, Role.CONFIG)[0]
            model.described_by = self.checkpoint.described_by = described.repository
        model.architectures = self.recipe.config.architectures
        check_supported(model)
        adapters = self._adapters(of_source=of_source)
        self._combination = combined(adapters, model, self.live)
        files = [adapters[0].file or ""] if of_source else model.weights.files
        self.checkpoint.weights = MergedWeights(model.weights, self._combination.changes, files)
        self._check_base(adapters)

    def _check_recipe(self) -> None:
        if not is_adapter(self.checkpoint):
            return
        if self.checkpoint.given:
            what = "the source is an adapter, and the weights are given by a program"
            raise RecipeError(what, place="source", hint="name the base as the source, the adapter in merge.adapters")
        if self.base is None:
            named = self.recipe.base.id or "BASE"
            what = "an adapter is to be merged, which needs the weights of its base"
            hint = f"hf download {named} --local-dir base, then base.path: ./base; or publish it: kind: adapter"
            raise RecipeError(what, place="base.path", hint=hint)

    def _adapters(self, *, of_source: bool) -> list[Adapter]:
        own = [Adapter(self.checkpoint.root, self.recipe.source)] if of_source else []
        named = self.recipe.merge.adapters
        found = [*own, *(Adapter(place(self.folder, one.path), one.path, one.weight) for one in named)]
        places: dict[Place, Adapter] = {}
        for number, adapter in enumerate(found, -len(own)):
            root = adapter.root.resolve() if isinstance(adapter.root, Path) else adapter.root
            if (first := places.setdefault(root, adapter)) is not adapter:
                what = f"{printable(adapter.label)} is merged twice"
                hint = f"name it once; for more of it, its weight: {first.weight + adapter.weight:g}"
                raise RecipeError(what, place=f"merge.adapters[{number}].path", hint=hint)
        return found

    def _check_base(self, adapters: list[Adapter]) -> None:
        """Says where an adapter was trained on another base, and what the base is where the recipe does not."""
        base = self.recipe.base
        for adapter in adapters:
            trained = _trained_on(adapter)
            if trained is None:
                continue
            label = printable(adapter.label)
            if base.id is None:
                base = base.model_copy(update={"id": trained.id})
                if not is_adapter(self.checkpoint):
                    what = f"{label} was trained on {trained.id}, and nothing says that the source is that model"
                    self.warnings.append(f"{what}: the card will name it; set base.id")
            if str(base.id).casefold() != trained.id.casefold():
                what = f"{label} was trained on {trained.id}, and base.id is {base.id}"
                self.warnings.append(f"{what}: merged into other weights than its own it gives another model")
            elif base.revision is None:
                base = base.model_copy(update={"revision": trained.revision})
        if base.id is None:
            self.warnings.append("the card will name no base model: set base.id to its repository on the Hub")
        self.recipe = self.recipe.model_copy(update={"base": base})
        self._merged_from = [_named(adapter) for adapter in adapters]

    # ------------------------------------------------------------ what differs from a model that was trained whole

    def origin(self, origin: Origin, role: Role) -> tuple[Checkpoint, str]:
        """From the adapter's folder, if it has files of the role; else from the base."""
        if origin.from_ != "source" or self.base is None or not is_adapter(self.checkpoint):
            return super().origin(origin, role)
        asked = Role.TOKENIZER if role in _WITH_TOKENIZER and not self.checkpoint.files(role) else role
        own = role is not Role.CONFIG and bool(self.checkpoint.files(asked))
        return (self.checkpoint, "source") if own else (self.base, "base")

    def weights(self) -> PlannedWeights:
        """The tensors of the output. A head that has come apart from the embedding is not tied again."""
        if self._combination.untied:
            settings = self.recipe.weights.model_copy(update={"tie": "off"})
            self.recipe = self.recipe.model_copy(update={"weights": settings})
        self.warnings.extend(self._combination.notes)
        planned = super().weights()
        for steps in self._combination.steps:
            self._check_rounding(steps, planned)
        return planned

    def _check_rounding(self, steps: Steps, planned: PlannedWeights) -> None:
        """Refuses an adapter of which nothing is left in the dtype that is published."""
        weights = self.checkpoint.weights
        assert isinstance(weights, MergedWeights)  # noqa: S101 - check has made it
        published = {output.stored: output.dtype for output in planned.tensors.values()}
        changed = [
            (tensor, found, published[tensor])
            for name, found in steps.steps.items()
            if (tensor := weights.tensors.get(name)) in published
        ]
        if steps.replaced or not changed or any(weights.shows(*one) for one in changed):
            return
        dtypes = some(sorted({HEADER_NAMES.get(dtype, dtype) for _, _, dtype in changed}))
        what = f"changes nothing: all that it adds is lost where the sums are rounded to {dtypes}"
        why = "the merged model would be the base"
        hint = "correct its weight in merge.adapters, or lora_alpha in adapter_config.json; or take another checkpoint"
        raise PlanError(what, why=why, path=steps.adapter.weights_path, hint=hint)

    def documents(self, planned: PlannedWeights, carried: dict[str, tuple[Place, str]]) -> Iterator[WriteText]:
        """With config.json as the merged weights need it."""
        written = {document.path: document for document in super().documents(planned, carried)}
        changed = self._config(written.get(CONFIG))
        if changed is not None:
            carried.pop(CONFIG, None)
            written[CONFIG] = changed
        yield from written.values()

    def _config(self, document: WriteText | None) -> WriteText | None:
        found = self._combination
        if not found.untied and found.vocabulary is None:
            return None
        import json

        described, origin = self.origin(self.recipe.config, Role.CONFIG)
        config = described.repository.config
        assert config is not None  # noqa: S101 - check_supported refuses a base without one
        raw = dict(config.raw) if document is None else json.loads(document.content)
        if found.untied:
            raw = _with(raw, "tie_word_embeddings", value=False, always=True)
        if found.vocabulary is not None:
            raw = _with(raw, "vocab_size", value=found.vocabulary, always=False)
        return WriteText(path=CONFIG, content=dumps(raw, infinity=True), origin=f"{origin}, merge")

    def card(self, planned: PlannedWeights, published: Collection[str], license_file: str | None) -> WriteText:
        """A new README.md: those of the adapter and of the base describe something else.

        What trainers write beside an adapter knows its data sets, which are those of the merge too.
        """
        own = self.checkpoint.repository.content(README) or b"" if is_adapter(self.checkpoint) else b""
        existing = own if is_generated(parse_card(own, README).body) else b""
        return self.written_card(planned, published, license_file, merged_from=self._merged_from, existing=existing)

    def left_out(self, published: Collection[str], excluded: Collection[str]) -> Iterator[LeftOut]:
        """What is not published, and why."""
        for left in super().left_out(published, excluded):
            merged = left.path == ADAPTER_CONFIG and is_adapter(self.checkpoint)
            yield left.model_copy(update={"reason": "merged"}) if merged else left
        if README in self.checkpoint.roles:
            whose = "adapter" if is_adapter(self.checkpoint) else "base"
            reason = f"the card of the {whose}: the merged model has its own"
            yield LeftOut(path=README, reason=reason, size=self.checkpoint.repository.files[README].size)

    def summary(self, planned: PlannedWeights) -> Summary:
        """With what was merged."""
        changed = sum(bool(found.steps) for found in self._combination.changes.values())
        update = {"merged": changed, "adapters": tuple(self._combination.described)}
        return super().summary(planned).model_copy(update=update)


def _trained_on(adapter: Adapter) -> Known | None:
    """The model that its config names, where others can load it."""
    name, revision = (adapter.config.string(key) for key in (BASE, "revision"))
    if name is None or not on_the_hub(name):
        return cached(name)
    return Known(name, revision if revision and _REVISION.fullmatch(revision) else None)


def _named(adapter: Adapter) -> str:
    """For the card: no path of this machine."""
    root = adapter.root
    if isinstance(root, Path):
        name = root.resolve().name
    else:
        name = root.path.partition("@")[0] if root.protocol == "hf" else root.name
    weight = "" if adapter.weight == 1 else f" (weight {adapter.weight:g})"
    return f"`{printable(name, 100).replace('`', '')}`{weight}"


def _with(raw: Mapping[str, Any], key: str, *, value: object, always: bool) -> dict[str, Any]:
    """A config with a value wherever it states another one; at the top also where it states none."""
    nested = {
        name: _with(inner, key, value=value, always=False)
        for name, inner in raw.items()
        if name == "text_config" and isinstance(inner, dict)
    }
    stated = {key: value} if always or key in raw else {}
    return {**raw, **nested, **stated}
