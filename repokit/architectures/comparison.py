"""The tensors that a file holds, against those that a skeleton says it must hold.

Exact names are compared first, by plain look-ups: they decide almost every checkpoint, and a large one has 45,000
tensors. What is left over is then looked at more closely: the second form of a layer (fused experts), other spellings
that loaders accept, copies of tied weights, what loaders pass over, tensors of which nothing certain is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

from repokit.architectures.differences import Comparison, Form, Held, Misshapen, differing, fits
from repokit.architectures.marks import INDEX, Tie, marked
from repokit.architectures.member import Kind
from repokit.architectures.second_form import SecondForm, templates_of

if TYPE_CHECKING:
    from repokit.architectures.expansion import Loose, Shape
    from repokit.architectures.names import Names
    from repokit.architectures.skeleton import Skeleton

__all__ = ["Comparison", "Form", "Held", "Misshapen", "compare", "differing", "is_legacy_buffer"]


def compare(skeleton: Skeleton, held: Held) -> Comparison:
    """Holds the tensors of a file against a skeleton.

    Args:
        skeleton: Of the file's config.
        held: Name -> shape of every tensor in the file.
    """
    expected = skeleton.shapes
    result = Comparison()
    for name, shape in held.items():
        wanted = expected.get(name)
        if wanted is None:
            result.unexpected.append(name)
        elif wanted != shape and not fits(shape, wanted):
            result.misshapen.append(Misshapen(name, shape, wanted))
    if len(held) - len(result.unexpected) != len(expected):
        result.missing = [name for name in expected if name not in held]
    if result.missing or result.unexpected or result.misshapen:
        Closer(skeleton, held, result).look()
    return result


# Buffers that versions of transformers before 4.31 or so stored; a mask is [1, 1, n, n], its filling a scalar.
_LEGACY: Final = frozenset(
    {"inv_freq", "position_ids", "masked_bias", "causal_mask", "cos_cached", "sin_cached", "relative_position_index"}
)
_MASKS: Final = ("attention.bias", "attn.bias")
_MASK_DIMENSIONS: Final = 4
_NOTHING: Final = "(?!)"  # the pattern of a class that has none: not worth a search
_NUMBER: Final = re.compile(r"(?<![^.])\d+(?![^.])")


def is_legacy_buffer(name: str, shape: tuple[int, ...]) -> bool:
    """Whether an older version stored this tensor, and newer ones compute it from the config."""
    return name.rpartition(".")[2] in _LEGACY or (len(shape) == _MASK_DIMENSIONS and name.endswith(_MASKS))


class Closer:
    """The second look, at what exact names left over."""

    def __init__(self, skeleton: Skeleton, held: Held, result: Comparison) -> None:
        self.skeleton, self.held, self.result = skeleton, held, result
        self._spelled: dict[str, str] = {}

    def look(self) -> None:
        """Explains what can be explained, cheap and certain things first."""
        if self.skeleton.memory is not None:
            SecondForm(self, self.skeleton.memory).look()
        if self.result.unexpected:
            self._other_spellings()
        if self.result.unexpected or self.result.missing:
            self._ties()
        self._unexpected()
        self.result.missing = [name for name in self.result.missing if not self._dispensable(name)]

    # ---------------------------------------------------------------- spellings

    @cached_property
    def names_of_file(self) -> Names:
        return self.skeleton.names.among(self.held)

    @cached_property
    def names_of_skeleton(self) -> Names:
        return self.skeleton.names.among(self.skeleton.shapes)

    def spelled(self, name: str) -> str:
        """The canonical name of a tensor of the file."""
        if name not in self._spelled:
            self._spelled[name] = self.names_of_file.canonical(name)
        return self._spelled[name]

    def _other_spellings(self) -> None:
        result, shapes = self.result, self.skeleton.shapes
        canonical = self.names_of_skeleton.canonical
        wanted = {canonical(name): name for name in reversed(result.missing)}
        unexpected: list[str] = []
        for name in result.unexpected:
            found = wanted.pop(self.spelled(name), None) or self._twice(name, wanted)
            if found is None:
                unexpected.append(name)
            else:
                self.take(name, found, shapes[found])
        result.unexpected = unexpected
        found_names = set(result.renamed.values())
        result.missing = [name for name in result.missing if name not in found_names]

    def _twice(self, name: str, wanted: dict[str, str]) -> str | None:
        """The tensor meant by a name that has the prefix of the base model twice.

        transformers 5.24 takes one away where what is left is a name of the model (core_model_loading.py,
        `rename_source_key`).
        """
        base = f"{self.skeleton.prefix}."
        stripped = self.spelled(name).removeprefix(base)
        found = wanted.get(stripped)
        if found is None or stripped == self.spelled(name) or not found.startswith(base):
            return None
        return wanted.pop(stripped)

    def take(self, name: str, found: str, shape: Shape) -> None:
        """A tensor of the file is one of the skeleton's under another name."""
        self.result.renamed[name] = found
        if not fits(self.held[name], shape):
            self.result.misshapen.append(Misshapen(name, self.held[name], shape))

    def _double(self, name: str) -> str | None:
        """The tensor that the file holds under another name too."""
        spelled = self.spelled(name)
        return self._accounted.get(spelled) if _NUMBER.sub("#", spelled) in self._forms else None

    @cached_property
    def _forms(self) -> set[str]:
        """The canonical names that the skeleton has, every number written `#`."""
        canonical = self.names_of_skeleton.canonical
        names = (template.name for template in templates_of(self.skeleton))
        return {_NUMBER.sub("#", canonical(INDEX.sub("0", name))) for name in names}

    @cached_property
    def _accounted(self) -> dict[str, str]:
        """Canonical name -> skeleton's name, of what the file holds."""
        missing = set(self.result.missing)
        canonical = self.names_of_skeleton.canonical
        return {canonical(name): name for name in self.skeleton.shapes if name not in missing}

    # ---------------------------------------------------------------- ties

    def _ties(self) -> None:
        """Copies of tied weights; and sources that are missing where a copy of them is there, which loaders tie."""
        ties = self._templates_of_ties()
        if not ties:
            return
        as_in_file = {own: name for name, own in self.result.renamed.items()}
        spare: dict[str, str] = {}  # source -> a copy of it
        for name in self.result.unexpected:
            source = next((source for tie in ties if (source := tie.source_of(self.spelled(name))) is not None), None)
            if source is None:
                continue
            there = source if source in self.held else as_in_file.get(source)
            if there is None:
                spare.setdefault(source, name)
            elif self.held[there] == self.held[name]:
                self.result.duplicates[name] = there
        self._swap(spare)
        copies = self.result.duplicates
        self.result.unexpected = [name for name in self.result.unexpected if name not in copies]

    def _swap(self, spare: Mapping[str, str]) -> None:
        for wanted in spare.keys() & set(self.result.missing):
            self.result.missing.remove(wanted)
            self.result.unexpected.remove(spare[wanted])
            self.take(spare[wanted], wanted, self.skeleton.shapes[wanted])

    def _templates_of_ties(self) -> list[Tie]:
        canonical = self.names_of_skeleton.canonical
        return [Tie.of(canonical(marked(target)), marked(source)) for target, source in self.skeleton.ties]

    # ---------------------------------------------------------------- what else may be there

    def _unexpected(self) -> None:
        result = self.result
        loose = self._loose if result.unexpected else {}
        unexpected: list[str] = []
        for name in result.unexpected:
            shape = self.held[name]
            if loose and (known := loose.get(_NUMBER.sub("#", self.spelled(name)))) is not None:
                if not any(fits(shape, one.shape) for one in known):
                    result.misshapen.append(Misshapen(name, shape, known[0].shape))
            elif is_legacy_buffer(name, shape) or self._legacy.search(name):
                result.legacy.append(name)
            elif self._passed_over(name):
                result.ignored.append(name)
            elif (double := self._double(name)) is not None:
                result.respelled[name] = double
            else:
                unexpected.append(name)
        result.unexpected = unexpected

    @cached_property
    def _loose(self) -> dict[str, list[Loose]]:
        """What may be there, by canonical name with every number written `#`."""
        found: dict[str, list[Loose]] = {}
        memory = self.skeleton.memory
        canonical = self.names_of_skeleton.canonical
        for loose in (*self.skeleton.loose, *(memory.loose if memory else ())):
            name = canonical(INDEX.sub("0", loose.template.name))
            found.setdefault(_NUMBER.sub("#", name), []).append(loose)
        return found

    @cached_property
    def _legacy(self) -> re.Pattern[str]:
        """Finds buffers that the class computes anew."""
        return re.compile("|".join(self.skeleton.facts.other.get("legacy", ())) or _NOTHING)

    def _passed_over(self, name: str) -> bool:
        ignored = self.skeleton.ignored
        if self.skeleton.unknown and self.spelled(name).startswith(self.skeleton.unknown):
            return True
        return ignored.pattern != _NOTHING and bool(ignored.search(name) or ignored.search(self.spelled(name)))

    def _dispensable(self, name: str) -> bool:
        """Whether loaders do without: the class says so, or it is a buffer that they compute."""
        pattern = self.skeleton.dispensable
        if pattern.pattern != _NOTHING and (
            pattern.search(name) or pattern.search(self.names_of_skeleton.canonical(name))
        ):
            return True
        template = self.skeleton.templates.get(name)
        return template is not None and template.kind is Kind.BUFFER and name.rpartition(".")[2] in _LEGACY
