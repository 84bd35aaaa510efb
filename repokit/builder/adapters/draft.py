"""`repokit init` on an adapter: a recipe with its base model, which is where most adapters go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from repokit.builder.adapters.card import method_of, numbers_of, pipeline_tag_of
from repokit.builder.adapters.checks import whole_tensors
from repokit.builder.adapters.document import BASE, cached, on_the_hub, stated_revision
from repokit.builder.adapters.naming import saved_names
from repokit.builder.adapters.weights import read_adapters
from repokit.builder.checkpoints.sources import Checkpoint, Role, open_checkpoint
from repokit.builder.draft import Draft, Facts, rendered
from repokit.printable import count, printable, size
from repokit.repo.adapter import ADAPTER_CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repokit.builder.adapters.weights import StoredAdapter
    from repokit.builder.checkpoints.training_run import Nested
    from repokit.formats.urls import Place

_MOST: Final = 20  # files that are not recognised, in a comment


def adapter_draft(
    checkpoint: Checkpoint, nested: tuple[Nested, ...], *, recipe_folder: Path, base: Place | None
) -> Draft:
    """See `draft`.

    Raises:
        InputError: It is no adapter that can be read.
    """
    adapters = read_adapters(checkpoint)
    facts = _AdapterFacts(checkpoint, adapters, None if base is None else open_checkpoint(base))
    root = checkpoint.root / (checkpoint.file or "")
    known = facts.known_base
    unusable = None if known else facts.named
    text = rendered(
        "repokit-adapter.yaml.jinja",
        facts,
        recipe_folder=recipe_folder,
        base_path=base,
        nested=nested,
        base=known and known[0],
        base_origin=known and known[1],
        base_revision=facts.revision,
        unusable=unusable,
        stored=facts.stored,
        renamed=facts.renamed,
        unknown=facts.unrecognised[:_MOST],
    )
    todo = ("repo", *(() if known else ("base.id",)), *(() if facts.license else ("license.id",)))
    return Draft(text, root, tuple(facts.found()), nested, todo)


class _AdapterFacts(Facts):
    """What an adapter says about itself, and where it says so."""

    def __init__(self, checkpoint: Checkpoint, adapters: tuple[StoredAdapter, ...], base: Checkpoint | None) -> None:
        super().__init__(checkpoint)
        self.adapters = adapters
        self._base = base

    @property
    def named(self) -> str | None:
        """What its config names as its base: an id, or a path of the machine that trained."""
        return self.adapters[0].config.string(BASE)

    @property
    def known_base(self) -> tuple[str, str] | None:
        """The base model's id and where it was found."""
        if (name := self.named) is not None and on_the_hub(name):
            return name, ADAPTER_CONFIG
        if (found := cached(self.named)) is not None:
            return found.id, f"{ADAPTER_CONFIG}: the name of a folder of the Hub's cache"
        return super().base

    @property
    def revision(self) -> str | None:
        """The commit of the base, where it is this one that the config speaks of."""
        found = cached(self.named)
        return found.revision if found is not None else stated_revision(self.adapters[0], self.named or "")

    @property
    def pipeline_tag(self) -> tuple[str, str] | None:
        if (stated := super().pipeline_tag) is not None and stated[1] == "README.md":
            return stated
        found = pipeline_tag_of(self.adapters[0], None if self._base is None else self._base.config)
        return (found, "task_type" if self._base is None else "the base model") if found else None

    @property
    def renamed(self) -> int:
        """How many names are not those that PEFT saves."""
        return sum(
            name != final
            for one in self.adapters
            for name, final in saved_names(
                one.weights.tensors, one.method, bias=one.config.string("bias") or "none", whole=one.whole
            ).final.items()
        )

    @property
    def unrecognised(self) -> list[str]:
        read = {path for one in self.adapters for path in (one.config.path, *one.weights.files)}
        return [path for path in self.checkpoint.files(Role.UNKNOWN) if path not in read]

    def found(self) -> Iterator[str]:
        """What lies there, a line each."""
        for one in self.adapters:
            numbers = numbers_of(one)
            where = f" in {printable(one.folder)}" if one.folder else ""
            yield f"adapter       {method_of(one)}{f', {numbers}' if numbers else ''}{where}"
            names = saved_names(one.weights.tensors, one.method, bias="all", whole=one.whole).final
            sizes = {final: one.weights.tensors[name].size for name, final in names.items()}
            for beside in whole_tensors(one, sizes):
                yield f"beside it     {size(beside.size)}: {beside.what}"
        named = "none named" if self.named is None else printable(self.named, 100)
        yield f"base          {named}, from {ADAPTER_CONFIG}"
        stated = self.adapters[0].config.raw.get("revision")
        if stated is not None and self.revision is None:
            yield f"not taken     revision {printable(stated, 60)}: none of a model on the Hub"
        tensors = self.checkpoint.tensors
        total = sum(tensor.size for tensor in tensors.values())
        files = count(len(self.checkpoint.weights.files), "file")
        under = f" under {printable(self.checkpoint.weights.container)}" if self.checkpoint.weights.container else ""
        stored = " + ".join(self.stored)
        yield f"weights       {count(len(tensors), 'tensor')}, {size(total)}, {stored}, in {files}{under}"
        yield from self.beside()
