"""`kind: adapter`: what PEFT, a Trainer, unsloth, LLaMA-Factory or Lightning left, as a repository of adapters.

Each adapter is one file, adapter_model.safetensors: PEFT reads no shards. Its tensors have the names that PEFT saves
(naming), its config says nothing of the machine that trained it (document), and what would make it useless is refused
(checks). A config.json is the base model's: none is made, and one that lies here stays out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from repokit.builder import naming
from repokit.builder.adapters.card import write_card
from repokit.builder.adapters.checks import OF_BASE, UNTARGETED, check_fits_base, check_tensors, whole_tensors
from repokit.builder.adapters.document import base_of, published_config
from repokit.builder.adapters.naming import saved_names
from repokit.builder.adapters.weights import read_adapters
from repokit.builder.card import README, unused
from repokit.builder.checkpoints.sources import Role
from repokit.builder.kinds import ADAPTER_FILES
from repokit.builder.plan import LeftOut, matching
from repokit.builder.planner import Planner
from repokit.builder.transforms.cast import CASTABLE
from repokit.builder.weights import Output, PlannedWeights, shard
from repokit.errors import RecipeError
from repokit.formats.tensors import TORCH_NAMES
from repokit.operations import WriteText
from repokit.printable import count, printable, size, some
from repokit.repo.adapter import ADAPTER_CONFIG
from repokit.repo.adapter_names import PREFIX
from repokit.repo.tensor_names import is_embedding, is_head
from repokit.repo.weights import ADAPTER, INDEX, SINGLE
from repokit.schema.recipe import ConfigOrigin

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from repokit.builder.adapters.document import Known
    from repokit.builder.adapters.weights import StoredAdapter
    from repokit.builder.checkpoints.stored import TensorAt
    from repokit.formats.urls import Place
    from repokit.operations import CopyFile, WriteShard
    from repokit.schema.recipe import Recipe

_TOKENS: Final = "token_adapter.trainable_tokens_delta"
_OF_THE_BASE: Final = "of the base model, which has its own"


class AdapterPlanner(Planner):
    """Plans a repository of one adapter, or of several in a folder each."""

    adapters: tuple[StoredAdapter, ...] = ()
    known: Known

    def check(self) -> None:
        """Reads the adapters and what they are for.

        Raises:
            InputError: There is none, or none that can be read.
            RecipeError: Nothing says which base model they are for; or the recipe asks for what an adapter has not.
        """
        self.adapters = read_adapters(self.checkpoint)
        self.checkpoint.check_read()
        _check_recipe(self.recipe, self.checkpoint.repository.files)
        self.known = base_of(self.recipe.base, self.adapters)
        base = self.recipe.base.model_copy(update={"id": self.known.id, "revision": self.known.revision})
        self.recipe = self.recipe.model_copy(update={"base": base})
        if self.recipe.weights.max_shard_size != "auto":
            self.warnings.append("weights.max_shard_size does nothing here: PEFT reads an adapter from one file")
        if self.known.revision is None and base.variant is None:
            later = f"the adapter will be put onto whatever {printable(self.known.id)} is then"
            self.warnings.append(f"base.revision is not given: {later}")
        moved = self._folder(self.adapters[0])
        if moved != self.adapters[0].folder:
            self.warnings.append(f"the only adapter lies in {self.adapters[0].folder}: it is published at the top")

    def _folder(self, adapter: StoredAdapter) -> str:
        """Where an adapter is published: the only one at the top, where PEFT looks first."""
        return "" if len(self.adapters) == 1 else adapter.folder

    # ---------------------------------------------------------------- weights

    def weights(self) -> PlannedWeights:
        """The tensors of every adapter; those of a folder have its name before their own."""
        recipe, stored = self.recipe.weights, self.checkpoint.tensors
        dropped = matching(stored, recipe.drop, "weights.drop")
        planned = PlannedWeights({}, dropped=tuple(sorted(dropped)))
        for adapter in self.adapters:
            tensors = self._named(adapter, dropped, planned)
            check_tensors(adapter, tensors)
            if self.base is not None:
                check_fits_base(adapter, tensors, self.base)
            folder = self._folder(adapter)
            planned.tensors |= {folder + name: Output(tensor, tensor.dtype) for name, tensor in tensors.items()}
            planned.shards.append([folder + name for name in tensors])
            self._tell_whole(adapter, tensors)
        self._cast(planned)
        return planned

    def _named(self, adapter: StoredAdapter, dropped: set[str], planned: PlannedWeights) -> dict[str, TensorAt]:
        """The tensors of one adapter by the names under which PEFT saves them."""
        held = adapter.weights.tensors
        left = [name for name in held if adapter.folder + name not in dropped]
        rename = self.recipe.weights.rename
        if rename == "auto":
            bias = adapter.config.string("bias") or "none"
            found = saved_names(left, adapter.method, bias=bias, whole=adapter.whole)
            grown = self._resized(adapter, found.of_base)
            final = found.final | grown
            self._tell_base(adapter, [name for name in found.of_base if name not in grown])
        elif rename == "off":
            final = {name: name for name in left}
        else:
            final = naming.renamed({name: name for name in left}, [(rule.from_, rule.to) for rule in rename])
        if adapter.whole:
            final = _without_tied(adapter, final)
        naming.check_one_to_one(final)
        planned.renamed += sum(name != now for name, now in final.items())
        return {now: held[name] for name, now in final.items()}

    def _resized(self, adapter: StoredAdapter, of_base: Collection[str]) -> dict[str, str]:
        """Embeddings and heads with more rows than those of the base: PEFT saves them too, or new tokens have none."""
        held = {} if self.base is None else self.base.tensors
        rows = adapter.weights.tensors
        names = saved_names([name for name in of_base if _by_token(name)], adapter.method).final
        return {
            name: final
            for name, final in names.items()
            if (own := held.get(final.removeprefix(PREFIX))) is not None and own.shape != rows[name].shape
        }

    def _tell_base(self, adapter: StoredAdapter, names: list[str]) -> None:
        if not names:
            return
        total = sum(adapter.weights.tensors[name].size for name in names)
        where = next(iter(adapter.weights.files), "memory")
        told = f"{where}: {count(len(names), 'tensor')} of the base model, {size(total)}, left out: {some(names)}"
        if self.base is None and any(map(_by_token, names)):
            told += "; whether its vocabulary was resized, only a base.path can tell"
        self.warnings.append(told)

    def _tell_whole(self, adapter: StoredAdapter, tensors: Mapping[str, TensorAt]) -> None:
        """Whole parts of the model make an adapter large: everyone should know why."""
        sizes = {name: tensor.size for name, tensor in tensors.items()}
        total = sum(sizes.values())
        for beside in whole_tensors(adapter, sizes):
            told = f"{size(beside.size)} of {size(total)} are {beside.what}: {some(beside.names)}"
            if beside.what == UNTARGETED:
                told += "; PEFT saves them where the vocabulary was resized; else leave them out with weights.drop"
            elif beside.what == OF_BASE:
                told += "; PEFT does not load them: leave them out with weights.drop"
            self.warnings.append(told)

    def _cast(self, planned: PlannedWeights) -> None:
        recipe = self.recipe.weights
        kept = matching(planned.tensors, recipe.keep, "weights.keep")
        target = TORCH_NAMES.get(recipe.dtype)
        for name, held in planned.tensors.items():
            if target is not None and target in CASTABLE and held.dtype in CASTABLE and name not in kept:
                planned.tensors[name] = held._replace(dtype=target)
        planned.kept = sum(planned.tensors[name].stored.dtype in CASTABLE for name in kept)

    def written(self, planned: PlannedWeights) -> Iterator[WriteShard | WriteText | CopyFile]:
        """One file for each adapter."""
        for adapter, names in zip(self.adapters, planned.shards, strict=True):
            folder = self._folder(adapter)
            tensors = {name.removeprefix(folder): planned.tensors[name] for name in names}
            yield shard(folder + ADAPTER, tensors, adapter.weights, self.sources)

    # ---------------------------------------------------------------- what lies beside

    def documents(self, planned: PlannedWeights, carried: dict[str, tuple[Place, str]]) -> Iterator[WriteText]:  # noqa: ARG002 - as Planner has it
        """adapter_config.json of each."""
        for adapter in self.adapters:
            edited = published_config(adapter, self.known)
            self.warnings.extend(edited.notes)
            origin = "source" if edited.content == adapter.content else "source, recipe"
            yield WriteText(path=self._folder(adapter) + ADAPTER_CONFIG, content=edited.content, origin=origin)

    def carried(self) -> dict[str, tuple[Place, str]]:
        """Tokenizer and chat template, which a training may have changed, and what the recipe names."""
        own = {path for one in self.adapters for path in (one.config.path, *one.weights.files)}
        return {path: place for path, place in super().carried().items() if path not in own}

    def code(self) -> dict[str, tuple[Place, str]]:
        """None: what `auto_map` of a config.json names is the base model's."""
        return {}

    def card(self, planned: PlannedWeights, published: Collection[str], license_file: str | None) -> WriteText:
        """README.md."""
        self.warnings.extend(unused(self.recipe, self.checkpoint))
        content = write_card(
            self.recipe,
            self.checkpoint,
            self.adapters,
            planned=planned,
            base=None if self.base is None else self.base.config,
            published=published,
            license_file=license_file,
        )
        return WriteText(path=README, content=content, origin="recipe")

    def left_out(self, published: Collection[str], excluded: Collection[str]) -> Iterator[LeftOut]:
        """What stays behind; the config of an adapter that was moved does not."""
        read = {adapter.folder + ADAPTER_CONFIG for adapter in self.adapters}
        for left in super().left_out(published, excluded):
            if left.path in read:
                continue
            role = self.checkpoint.roles.get(left.path)
            yield left.model_copy(update={"reason": _OF_THE_BASE}) if role is Role.CONFIG else left


def _by_token(name: str) -> bool:
    """Whether a matrix of this name has a row for every token."""
    return ".base_layer." not in name and (is_embedding(name) or is_head(name))


def _without_tied(adapter: StoredAdapter, names: dict[str, str]) -> dict[str, str]:
    """Without rows of trained tokens that are those of the module to which this one is tied: PEFT saves them once."""
    held, found = adapter.weights.tensors, dict[str, str]()
    for name, final in names.items():
        rows = [other for other, now in found.items() if _TOKENS in now]
        if _TOKENS not in final or not any(adapter.weights.same_memory(held[name], held[other]) for other in rows):
            found[name] = final
    return found


def _check_recipe(recipe: Recipe, files: Collection[str]) -> None:
    """Refuses what a recipe asks for and an adapter has not, and one that leaves open what is built.

    Args:
        recipe: What is wanted.
        files: Of the source.

    Raises:
        RecipeError: Naming the key.
    """
    if recipe.kind == "auto" and {SINGLE, INDEX} & set(files) and set(ADAPTER_FILES) & set(files):
        what = "the source holds an adapter and a full model"
        raise RecipeError(what, place="kind", hint="say which one is published: kind: adapter, or kind: full")
    for key, asked in (("generation_config", recipe.generation_config), ("config", recipe.config != ConfigOrigin())):
        if asked:
            what = f"an adapter has none: {key}.json is the base model's"
            raise RecipeError(what, place=key, hint="leave it out; kind: full merges the adapter into base.path")
