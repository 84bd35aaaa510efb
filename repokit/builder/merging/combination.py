"""All adapters of a merge together: what becomes of every tensor of the base, and of its config."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from repokit.architectures.adapters import compare, tensors as wanted_tensors
from repokit.architectures.errors import NotCovered
from repokit.architectures.member import Evidence
from repokit.builder.merging.changes import Steps, held
from repokit.builder.merging.places import Places
from repokit.builder.merging.weights import Changed, ProductAt, RowsAt, Step
from repokit.builder.transforms.tie import same_bytes
from repokit.errors import MalformedFile, PlanError, UnsupportedSource
from repokit.formats.tensors import FLOATS
from repokit.printable import count, printable, some

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from repokit.architectures.live import Live
    from repokit.builder.checkpoints.sources import Checkpoint
    from repokit.builder.checkpoints.stored import TensorAt
    from repokit.builder.merging.lora import Adapter


@dataclass
class Combination:
    """What a merge does.

    Attributes:
        changes: By stored name of the base; names that it does not have are new tensors.
        untied: The head is no longer the embedding: config.json has to say so.
        vocabulary: Rows of the embedding where an adapter has more or fewer of them.
        notes: What a person should know.
        described: Each adapter in words.
        steps: What each adapter does, in order.
    """

    changes: dict[str, Changed] = field(default_factory=dict)
    untied: bool = False
    vocabulary: int | None = None
    notes: list[str] = field(default_factory=list)
    described: list[str] = field(default_factory=list)
    steps: list[Steps] = field(default_factory=list)


def combined(adapters: Sequence[Adapter], model: Checkpoint, live: Live | None) -> Combination:
    """What becomes of a base model.

    Args:
        adapters: What is merged, in order.
        model: The base, in full precision.
        live: Says which tensors an architecture has that the data does not cover.

    Raises:
        InputError, PlanError: An adapter does not fit, contradicts another one, or changes nothing.
    """
    return _Combining(model, Places(model, live)).of(adapters)


class _Combining:
    """One merge, as it comes together."""

    def __init__(self, model: Checkpoint, places: Places) -> None:
        config = model.config
        assert config is not None  # noqa: S101 - layouts.check_supported refuses a base without one
        self._model = model
        self._places = places
        self._config = config
        self._tied = places.tied(stated=config.tie_word_embeddings)
        self._embedding = places.embedding()
        self._result = Combination()

    def of(self, adapters: Sequence[Adapter]) -> Combination:
        for adapter in adapters:
            self._check_changes(adapter)
            steps = Steps(adapter, self._places, self._config.model_type or "", self._heads(), self._lacking())
            self._check_complete(adapter, steps)
            self._check_weight(adapter, steps)
            self._check_effect(adapter, steps)
            self._add(adapter, steps)
            self._result.described.append(_described(adapter, steps))
            self._result.steps.append(steps)
        self._settle_ties(adapters)
        self._settle_vocabulary()
        return self._result

    # ------------------------------------------------------------ names

    def _heads(self) -> frozenset[str]:
        """Heads that are stored as the embedding alone."""
        names = [f"{module}.weight" for module in self._places.tied_to_it()] if self._tied and self._embedding else []
        return frozenset(name for name in names if self._places.find(name) is None)

    def _lacking(self) -> frozenset[str]:
        """What the class that config.json names has, and the base does not: the head of a classifier."""
        skeleton = self._places.skeleton
        if skeleton is None or not self._places.verified:
            return frozenset()
        return frozenset(name for name in skeleton.shapes if self._places.find(name) is None)

    # ------------------------------------------------------------ one adapter

    def _check_complete(self, adapter: Adapter, steps: Steps) -> None:
        """Refuses an adapter that lacks what its config promises: half of it would be merged."""
        modules = self._places.modules
        if modules is None or not self._places.verified:
            return
        try:
            wanted = wanted_tensors(modules, adapter.config.raw, Evidence.VERIFIED)
        except NotCovered:
            return
        found = compare(wanted, dict(held(adapter, steps.move)))
        missing = [name for name in found.missing if not name.endswith(".bias")]
        if missing:
            what = f"lacks {count(len(missing), 'tensor')} that adapter_config.json promises: {some(missing)}"
            why = "a part of what was trained would be missing from the model"
            hint = "copy the adapter again, or correct target_modules"
            raise MalformedFile(what, why=why, path=adapter.weights_path, hint=hint)
        ignored = [name for name in found.unexpected if ".lora_" in name]
        if ignored:
            what = f"has {count(len(ignored), 'tensor')} that adapter_config.json does not ask for: {some(ignored)}"
            why = "PEFT ignores them: merged, they would give another model than the one that was tried"
            hint = "correct target_modules and layers_to_transform, or save the adapter again"
            raise MalformedFile(what, why=why, path=adapter.weights_path, hint=hint)

    def _check_changes(self, adapter: Adapter) -> None:
        idle = adapter.idle()
        if adapter.changes_nothing:
            zero = "its weight is 0" if not adapter.weight else "one factor of every module is all zeros"
            what = f"changes nothing: {zero}"
            hint = "it was not trained, or saved under names that were not found again: take another checkpoint"
            why = "the merged model would be the base"
            raise PlanError(what, why=why, path=adapter.weights_path, hint=hint)
        if idle:
            what = f"{printable(adapter.label)}: {count(len(idle), 'module')} of {len(adapter.factors)} change nothing"
            self._result.notes.append(f"{what}, a factor is all zeros: {some(idle)}")

    def _check_effect(self, adapter: Adapter, steps: Steps) -> None:
        """Refuses an adapter of which nothing comes out, and says which of its changes are multiplied by 0."""
        found = [(name, step) for name, of_it in steps.steps.items() for step in of_it]
        idle = list(dict.fromkeys(name for name, step in found if _scaled_to_nothing(step)))
        if not steps.replaced and not any(_has_effect(adapter, step) for _, step in found):
            zero = "its scale is 0 (lora_alpha, alpha_pattern)" if idle else "its factors are all zeros"
            why = "the merged model would be the base"
            hint = "correct adapter_config.json, or take another checkpoint"
            raise PlanError(f"changes nothing: {zero}", why=why, path=adapter.config_path, hint=hint)
        if idle:
            what = f"{printable(adapter.label)}: {count(len(idle), 'tensor')} not changed"
            self._result.notes.append(f"{what}, the scale is 0 (alpha_pattern): {some(idle)}")

    def _check_weight(self, adapter: Adapter, steps: Steps) -> None:
        """Only a sum can be weighted; what takes the place of something else cannot."""
        if adapter.weight == 1:
            return
        products = [step for found in steps.steps.values() for step in found if isinstance(step, ProductAt)]
        reason = next(
            (
                reason
                for reason, holds in (
                    ("has modules that are trained in full (modules_to_save)", steps.replaced),
                    ("has new rows for single tokens", adapter.tokens),
                    ("is a DoRA, whose magnitudes are no sum", any(step.magnitude is not None for step in products)),
                )
                if holds
            ),
            None,
        )
        if reason is not None:
            what = f"{reason}, and its weight is {adapter.weight:g}"
            raise PlanError(what, path=adapter.weights_path, hint="set its weight to 1 in merge.adapters")

    def _add(self, adapter: Adapter, steps: Steps) -> None:
        if steps.move.adapter != steps.move.base:
            before, after = (printable(part) or "nothing" for part in (steps.move.adapter, steps.move.base))
            self._result.notes.append(f"{printable(adapter.label)}: names begin with {after} in the base, not {before}")
        changes = self._result.changes
        for name, replaced in steps.replaced.items():
            if name in changes:
                what = f"has {printable(name)} whole, which an adapter before it changes too"
                raise PlanError(what, path=adapter.weights_path, hint="merge one of them alone")
            changes[name] = Changed(replaced.tensor, replaced.stored, self._dtype(name, replaced.tensor))
            self._check_shape(adapter, name, replaced.tensor)
        for name, found in steps.steps.items():
            if name not in changes:
                changes[name] = self._of_base(name)
            changes[name].steps.extend(found)
            changes[name].experts = changes[name].experts or name in steps.experts
            self._check_full_precision(name, changes[name].base)
            self._check_new_rows(adapter, name)

    def _of_base(self, name: str) -> Changed:
        """A tensor of the base, or a head that is stored as the embedding."""
        at = self._places.tensors.get(name) or self._places.tensors[self._embedding or ""]
        return Changed(at, self._model.weights, at.dtype)

    def _dtype(self, name: str, replaced: TensorAt) -> str:
        """That of the base, so that a model of 16 bits does not get single tensors of 32."""
        at = self._places.tensors.get(name) or self._places.tensors.get(self._embedding or "")
        return at.dtype if at is not None and {at.dtype, replaced.dtype} <= FLOATS else replaced.dtype

    def _check_shape(self, adapter: Adapter, name: str, replaced: TensorAt) -> None:
        base = self._places.tensors.get(name)
        head = f"{next(iter(self._places.tied_to_it()), 'lm_head')}.weight"
        resizable = name in {self._embedding, self._places.find(head), head}
        if base is None or base.shape == replaced.shape or (resizable and base.shape[1:] == replaced.shape[1:]):
            return
        what = f"has the shape {list(replaced.shape)}, the base {list(base.shape)}"
        raise MalformedFile(what, path=adapter.weights_path, place=name, hint="check base.path")

    def _check_full_precision(self, name: str, at: TensorAt) -> None:
        if at.dtype not in FLOATS:
            what = f"is stored as {at.dtype}, and an adapter is to be merged into it"
            why = "quantized weights would be changed by less than they can show"
            hint = "merge into the weights before quantization: base.path"
            raise UnsupportedSource(what, why=why, path=at.file, place=name, hint=hint)

    def _check_new_rows(self, adapter: Adapter, name: str) -> None:
        rows = [step.rows for step in self._result.changes[name].steps if isinstance(step, RowsAt)]
        tokens = [token for chosen in rows for token in chosen]
        if rows and (len(rows) < len(self._result.changes[name].steps) or len(set(tokens)) < len(tokens)):
            what = f"has new rows of {printable(name)}, which an adapter before it changes too"
            raise PlanError(what, path=adapter.weights_path, hint="merge one of them alone")

    # ------------------------------------------------------------ what follows for the model

    def _settle_ties(self, adapters: Sequence[Adapter]) -> None:
        """An embedding and a head that are one in the base: still one, or two from now on."""
        if not self._tied or self._embedding is None:
            return
        heads = [self._places.find(f"{module}.weight") or f"{module}.weight" for module in self._places.tied_to_it()]
        changes = self._result.changes
        if not any(name in changes for name in (self._embedding, *heads)):
            return
        if len(heads) != 1:
            what = f"shares its embedding between {len(heads) + 1} modules, and an adapter changes it"
            hint = "merge it where it was trained: model.merge_and_unload(), then save_pretrained"
            raise UnsupportedSource(what, path=str(self._model.root), place=self._embedding, hint=hint)
        head = heads[0]
        if self._stays_tied(adapters, head):
            changes.pop(head, None)
            if head in self._places.tensors:
                changes[head] = replace(changes[self._embedding])
            return
        if head not in changes:
            changes[head] = self._of_base(head)
        self._result.untied = True
        what = "the head and the embedding are one in the base, and no longer in what is built"
        self._result.notes.append(f"{what}: an adapter changes one of them; tie_word_embeddings becomes false")

    def _stays_tied(self, adapters: Sequence[Adapter], head: str) -> bool:
        """Whether what was trained was tied (peft 0.21 lora/model.py _add_targets_to_tie); new rows are so anyway."""
        embedding, other = (self._result.changes.get(name) for name in (self._embedding or "", head))
        if embedding is None:
            return False
        if all(adapter.config.flag("ensure_weight_tying") is True for adapter in adapters):
            return True
        if other is None:
            return bool(embedding.steps) and all(isinstance(step, RowsAt) for step in embedding.steps)
        same = embedding.stored is other.stored and not embedding.steps and not other.steps
        return same and same_bytes(embedding.stored, embedding.base, other.base)

    def _settle_vocabulary(self) -> None:
        """An embedding with more rows, or fewer, than the base has: its head must have as many."""
        if self._embedding is None or self._embedding not in self._places.tensors:
            return
        before = self._places.tensors[self._embedding].shape[0]
        rows = {name: found.base.shape[0] for name, found in self._rows_of_tokens()}
        if set(rows.values()) <= {before}:
            return
        if len(set(rows.values())) > 1:
            what = " and ".join(f"{printable(name)} has {number:,} rows" for name, number in rows.items())
            why = "a model has one row of each for every token"
            raise PlanError(what, why=why, hint="save the adapter with save_embedding_layers=True")
        self._result.vocabulary = next(iter(rows.values()))
        what = f"the vocabulary has {self._result.vocabulary:,} rows where the base has {before:,}"
        self._result.notes.append(f"{what}: vocab_size follows")

    def _rows_of_tokens(self) -> Iterator[tuple[str, Changed]]:
        heads = [self._places.find(f"{module}.weight") or f"{module}.weight" for module in self._places.tied_to_it()]
        for name in dict.fromkeys([self._embedding or "", *heads]):
            if name in self._result.changes:
                yield name, self._result.changes[name]
            elif name in self._places.tensors:
                yield name, self._of_base(name)


def _scaled_to_nothing(step: Step) -> bool:
    """Not of a DoRA: its magnitudes hold whatever the scale is."""
    return not isinstance(step, RowsAt) and not step.scale and getattr(step, "magnitude", None) is None


def _has_effect(adapter: Adapter, step: Step) -> bool:
    if isinstance(step, RowsAt):
        return True
    if isinstance(step, ProductAt):
        factors = [step.a, step.b, *([step.diagonal] if step.diagonal else [])]
    else:
        factors = [step.values]
    looked_at = [adapter.values.get(factor.tensor) for factor in factors]  # of a part of one nothing is known
    return not _scaled_to_nothing(step) and (
        (isinstance(step, ProductAt) and step.magnitude is not None)
        or not any(values is not None and values.zero for values in looked_at)
    )


def _described(adapter: Adapter, steps: Steps) -> str:
    """`./a (r 16, scale 2)`."""
    products = [step for found in steps.steps.values() for step in found if isinstance(step, ProductAt)]
    ranks = sorted({step.a.shape[0] for step in products})
    scales = sorted({step.scale for step in products})
    told = []
    if products:
        told += [f"r {_span(ranks)}", f"scale {_span(scales)}"]
    if any(step.magnitude is not None for step in products):
        told.append("DoRA")
    if steps.replaced:
        told.append(f"{count(len(steps.replaced), 'tensor')} whole")
    rows = sum(tensor.shape[0] for tensor in adapter.tokens.values())
    if rows:
        told.append(f"{count(rows, 'token')}")
    return f"{printable(adapter.label)} ({', '.join(told)})"


def _span(values: Sequence[float]) -> str:
    return f"{values[0]:.6g}" if len(values) == 1 else f"{values[0]:.6g} to {values[-1]:.6g}"
