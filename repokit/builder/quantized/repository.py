"""A repository of quantized weights: assembled from what the quantizer's tool wrote. Nothing is quantized here.

Tensors are copied as they are, with what they are read with in the same file. What a quantizer saves anew and changes
on the way (tokenizer, processor, chat template, generation config) comes from the base, where that is at hand.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from repokit.builder import card, weights
from repokit.builder.checkpoints.layouts import check_supported
from repokit.builder.checkpoints.sources import Role
from repokit.builder.planner import GENERATION_CONFIG, Planner
from repokit.builder.quantized import card as quantized_card, companions, private
from repokit.builder.quantized.files import KEY, declaration_of
from repokit.builder.quantized.metadata import shard_metadata
from repokit.builder.quantized.sizes import parameters
from repokit.builder.quantized.words import words
from repokit.errors import PlanError, RecipeError
from repokit.formats.strict_json import dumps, loads
from repokit.operations import WriteText
from repokit.printable import count, printable, some
from repokit.repo.config import CONFIG

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from repokit.builder.checkpoints.sources import Checkpoint
    from repokit.builder.plan import Summary
    from repokit.builder.quantized.files import Declaration
    from repokit.builder.weights import PlannedWeights
    from repokit.formats.urls import Place
    from repokit.repo.repository import Repository
    from repokit.schema.recipe import Origin

# What quantizers save anew: by default the base's.
_INHERITED: Final = frozenset({Role.TOKENIZER, Role.PROCESSOR, Role.CHAT_TEMPLATE, Role.NOTICE})
_TEMPLATE: Final = "chat_template.jinja"
_TEMPLATES: Final = frozenset({_TEMPLATE, "chat_template.json"})


class QuantizedPlanner(Planner):
    """One planning of quantized weights."""

    _written_template = False

    @cached_property
    def declaration(self) -> Declaration:
        """What the quantizer wrote of its work."""
        return declaration_of(self.checkpoint)

    def check(self) -> None:
        """Refuses a cast, documents that contradict each other, and what no repository is built from.

        Raises:
            RecipeError: The recipe asks for another dtype.
            InputError: With what is wrong and what to do instead.
        """
        wanted = self.recipe.weights.dtype
        if wanted != "auto":
            what = f"is {wanted}, and the weights are quantized: nothing in them can be cast"
            why = "scales, zero points and packed integers would no longer fit each other"
            hint = "weights: {dtype: auto}; for another dtype quantize again, from the full-precision weights"
            raise RecipeError(what, why=why, place="weights.dtype", hint=hint)
        check_supported(self.checkpoint, quantized=True)
        self.warnings.extend(self.declaration.notes)
        if not self.declaration.known:
            method = printable(self.declaration.method, 60)
            self.warnings.append(f"quant_method {method!r} is not known to this version: it is assembled as it is")
        if self.recipe.base.id is None:
            self.warnings.append("base.id is not given: the card cannot say what was quantized")
        elif self.recipe.base.path is not None and self.recipe.base.revision is None:
            self.warnings.append("base.revision is not given: nobody can tell which revision files are inherited from")

    def weights(self) -> PlannedWeights:
        """The tensors of the output: as they are stored, every module in one file."""
        planned = weights.plan_weights(self.recipe.weights, self.checkpoint, module_of=companions.module_of)
        self._check_drops(planned)
        stored = {name: tensor.stored for name, tensor in planned.tensors.items()}
        planned.packed, planned.declared = True, None  # of a running program too, config.json states its own dtype
        planned.logical = parameters(stored, self.checkpoint, self.declaration)
        planned.metadata = shard_metadata(planned, self.checkpoint, self.declaration)
        if self.recipe.weights.max_shard_size == "auto" and self.checkpoint.weights.sharded:
            moved = companions.brought_together({name: tensor.file for name, tensor in stored.items()})
            if moved:
                told = count(moved, "module lies", "modules lie")
                self.warnings.append(f"{told} in two files of the source: each is written into one")
        if planned.logical is None:
            self.warnings.append("the parameters of the base cannot be counted: the card states no bits per weight")
        return planned

    def summary(self, planned: PlannedWeights) -> Summary:
        """With method and bits per weight."""
        method = words(self.declaration, self.recipe.quantization).method
        bits = f"{quantized_card.bits_per_weight(planned)} bits per weight"
        told = method if planned.logical is None else f"{method}: {bits}"
        return super().summary(planned).model_copy(update={"quantized": told})

    def _check_drops(self, planned: PlannedWeights) -> None:
        """Refuses to drop a part of a module and to leave the rest: scales without their weight.

        Raises:
            PlanError: The recipe does.
        """
        left = {companions.module_of(name) for name in planned.tensors}
        cut = [name for name in planned.dropped if companions.module_of(name) in left and not name.endswith(".bias")]
        if cut:
            module = printable(companions.module_of(cut[0]))
            what = f"weights.drop takes {some(cut)} and leaves other tensors of the module"
            why = "a packed weight cannot be read without its scales, nor they without it"
            raise PlanError(what, why=why, place="weights.drop", hint=f'drop all of it: "{module}.*"')

    def documents(self, planned: PlannedWeights, carried: dict[str, tuple[Place, str]]) -> Iterator[WriteText]:
        """With what the quantizer's documents need: a quantization_config, and nothing private of its machine."""
        for document in super().documents(planned, carried):
            changed = self._completed(document.content, document.origin) if document.path == CONFIG else None
            yield changed or document
        if CONFIG in carried:
            described, origin = self.origin(self.recipe.config, Role.CONFIG)
            completed = self._completed(described.repository.content(CONFIG) or b"{}", origin)
            yield from _instead(completed, carried)
        for path in self.declaration.published:
            side = self.checkpoint.repository.document(path) if path.endswith(".json") else None
            if side is not None and (clean := private.published(side.raw)) != side.raw:
                self.warnings.extend(private.told(path, side.raw))
                yield from _instead(WriteText(path=path, content=dumps(clean), origin="source"), carried)
        yield from self._template(carried)

    def _completed(self, content: bytes, origin: str) -> WriteText | None:
        """config.json as it must be; None where it is so already."""
        raw = loads(content, CONFIG, infinity=True)
        declaration = self.declaration
        if declaration.added is None:
            self.warnings.extend(private.told(CONFIG, declaration.config.raw))
            full = _put(raw, declaration.config.pointer.split("/")[1:], declaration.missing)
        else:
            full = {**raw, KEY: declaration.added}
        wanted = private.published_config(full)
        if wanted == raw:
            return None
        places = dict.fromkeys((origin, "recipe" if declaration.origin == CONFIG else declaration.origin))
        return WriteText(path=CONFIG, content=dumps(wanted, infinity=True), origin=", ".join(places))

    def _template(self, carried: Collection[str]) -> Iterator[WriteText]:
        """The template in the quantizer's tokenizer_config.json, where the tokenizer is the base's and has none."""
        own = self.checkpoint.repository.tokenizer_config
        template = None if own is None else own.raw.get("chat_template")
        tokenizer = self._tokenizer.repository.tokenizer_config
        has_one = tokenizer is not None and tokenizer.raw.get("chat_template")
        if not template or has_one or any(path.rpartition("/")[2] in _TEMPLATES for path in carried):
            return
        if not isinstance(template, str):
            told = "the chat templates in tokenizer_config.json of the source are not published, and the base has none"
            self.warnings.append(f"{told}; tokenizer: {{from: source}} publishes them")
            return
        told = f"{_TEMPLATE} is written from tokenizer_config.json of the source"
        self.warnings.append(f"{told}: the tokenizer of the base has no template")
        self._written_template = True
        yield WriteText(path=_TEMPLATE, content=template.encode(), origin="source")

    @property
    def _tokenizer(self) -> Checkpoint:
        """Where the tokenizer that is published comes from."""
        origin = self.recipe.tokenizer
        inherits = "from_" not in origin.model_fields_set and self.base is not None and self.base.files(Role.TOKENIZER)
        return self.base if inherits and self.base is not None else self.origin(origin, Role.TOKENIZER)[0]

    def generating(self, described: Checkpoint, origin: str) -> tuple[Checkpoint, str]:
        """generation_config.json is the base's: quantizers save it anew."""
        if self.base is not None and self.base.repository.has(GENERATION_CONFIG):
            return self.base, "base"
        return super().generating(described, origin)

    def carried(self) -> dict[str, tuple[Place, str]]:
        """With what the quantizer wrote beside config.json."""
        beside = {path: (self.checkpoint.place(path), "source") for path in self.declaration.published}
        carried = beside | super().carried()
        self._tell_inherited(carried)
        return carried

    def files_of(self, role: Role, origin: Origin) -> dict[str, tuple[Place, str]]:
        """From the base, unless the recipe says otherwise: a quantizer's copies are changed ones."""
        if role not in _INHERITED or "from_" in origin.model_fields_set or self.base is None:
            return super().files_of(role, origin)
        if self.base.files(role):
            return {path: (self.base.place(path), "base") for path in self.base.files(role)}
        if role is Role.CHAT_TEMPLATE and self._base_has_template():
            return {}
        return super().files_of(role, origin)

    def _base_has_template(self) -> bool:
        """Whether the template lies in the base's tokenizer_config.json, which is published."""
        config = None if self.base is None else self.base.repository.tokenizer_config
        return config is not None and "chat_template" in config

    def _tell_inherited(self, carried: dict[str, tuple[Place, str]]) -> None:
        """Says which files of the base replace those of the quantizer."""
        inherited = [path for path, (_, origin) in carried.items() if origin == "base"]
        if other := [path for path in inherited if self._differs(path)]:
            verb = "is" if len(other) == 1 else "are"
            self.warnings.append(f"{some(sorted(other))} {verb} the base's, byte for byte; the quantizer's differ")

    def _differs(self, path: str) -> bool:
        """Whether the source has another file than the base under this name. One that cannot be read differs."""
        own, base = self.checkpoint.repository, None if self.base is None else self.base.repository
        if base is None or not own.has(path):
            return False
        return own.files[path].size != base.files[path].size or own.content(path) != base.content(path)

    def license_places(self) -> dict[str, Repository]:
        """The base's license first: it is its model."""
        places = super().license_places()
        return {word: places[word] for word in ("base", "source") if word in places}

    def card(self, planned: PlannedWeights, published: Collection[str], license_file: str | None) -> WriteText:
        """README.md."""
        self.warnings.extend(card.unused(self.recipe, self.checkpoint))
        self.warnings.extend(quantized_card.unused(self.recipe, self.checkpoint))
        content = quantized_card.write(
            self.recipe,
            self.checkpoint,
            self.declaration,
            planned,
            tokenizer=self._tokenizer,
            published={*published, *([_TEMPLATE] if self._written_template else [])},
            license_file=license_file,
        )
        return WriteText(path=card.README, content=content, origin="recipe")


def _instead(document: WriteText | None, carried: dict[str, tuple[Place, str]]) -> Iterator[WriteText]:
    """A document in the place of the file that was to be taken over."""
    if document is not None and carried.pop(document.path, None) is not None:
        yield document


def _put(raw: Mapping[str, Any], keys: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """A document with values in one of its objects, which lies below these keys."""
    if not keys:
        return {**raw, **values}
    below = raw.get(keys[0])
    return {**raw, keys[0]: _put(below if isinstance(below, dict) else {}, keys[1:], values)} if values else {**raw}
