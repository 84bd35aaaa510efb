"""What a file holds, for the questions that a config leaves open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from repokit.architectures.expansion import Shape
from repokit.architectures.quantized_parts import Module, Need, Part
from repokit.architectures.skeleton import Skeleton


class Held:
    """Tensors of a file by name, in every spelling that loaders take."""

    def __init__(self, skeleton: Skeleton, tensors: Mapping[str, tuple[int, ...]]) -> None:
        self.skeleton, self.tensors = skeleton, tensors

    @cached_property
    def endings(self) -> Counter[str]:
        """The last parts of the names: how often each occurs."""
        return Counter(name.rpartition(".")[2] for name in self.tensors)

    @cached_property
    def _names(self) -> dict[str, str]:
        """Canonical name -> name, of what no plain look-up would find."""
        canonical = self.skeleton.names.among(self.tensors).canonical
        return {canonical(name): name for name in self.tensors}

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a tensor that the skeleton calls so; None: it is not there."""
        if (found := self.tensors.get(name)) is not None:
            return found
        if name.rpartition(".")[2] not in self.endings:
            return None
        other = self._names.get(self.skeleton.canonical(name))
        return None if other is None else self.tensors[other]

    def suffix(self, part: Part) -> str:
        """The spelling of a part that the file has most often; the first where it has none."""
        if not part.spellings:
            return part.suffix
        return max(part.suffixes, key=lambda suffix: self.endings[suffix.rpartition(".")[2]])

    def has_any(self, part: Part) -> bool:
        """Whether any module of the file has this part."""
        return any(suffix.rpartition(".")[2] in self.endings for suffix in part.suffixes)

    def settled(self, parts: Sequence[Part]) -> list[Part]:
        """The parts in the spelling of the file; what writers leave out, as this one does or does not."""
        found: list[Part] = []
        for part in parts:
            there = self.has_any(part)
            if part.need is Need.REQUIRED or there:
                need = Need.OPTIONAL if part.need is Need.OPTIONAL else Need.REQUIRED
                found.append(replace(part, suffix=self.suffix(part), spellings=(), need=need))
        return found

    def fitting(self, name: str, part: Part) -> Shape:
        """The shape that a part must have: of those that it may have, the one that is there."""
        if not part.also:
            return part.shape
        held = self.shape(name)
        return next((shape for shape in (part.shape, *part.also) if held is not None and fits(held, shape)), part.shape)

    def is_quantized(self, module: Module, parts: Sequence[Part]) -> bool:
        """Whether the file has any part of the module that only a quantized one has."""
        return any(self._shows(module, part) for part in parts)

    def _shows(self, module: Module, part: Part) -> bool:
        """Whether this part is there. A weight under its own name shows nothing but by the shape of a packed one."""
        if part.suffix != ".weight":
            return part.suffix != ".bias" and any(
                self.shape(module.name + suffix) is not None for suffix in part.suffixes
            )
        held = self.shape(module.name + part.suffix)
        if held is None or fits(held, module.weight):
            return False
        return any(fits(held, shape) for shape in (part.shape, *part.also))


def fits(held: tuple[int, ...], wanted: Shape) -> bool:
    """Whether a shape is the wanted one, unknown sizes aside."""
    return len(held) == len(wanted) and all(size is None or size == own for own, size in zip(held, wanted, strict=True))
