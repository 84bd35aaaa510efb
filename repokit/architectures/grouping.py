"""Hundreds of names of tensors as a few lines: whole modules by their name, layers and experts as ranges.

model.layers.{28-31}: all 9 tensors of each
model.layers.{0-31}.self_attn.q_proj.bias: 32 tensors
model.layers.2.mlp.experts.{3,7}: all 3 tensors of each
visual: all 390 tensors
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_NUMBER: Final = re.compile(r"(?<![^.])(\d{1,9})(?![^.])")
_FEWEST_OF_RANGE: Final = 3  # `0,1` is shorter than `0-1` is clear

_MOST_RANGES: Final = 8


@dataclass(frozen=True, slots=True)
class Group:
    """Tensors that one line speaks of.

    Attributes:
        pattern: Their common name, numbers as sets: `model.layers.{0-31}.self_attn.q_proj.bias`; a whole module
            without the names in it; empty for everything.
        tensors: How many.
        whole: It is a module, or several, of which all tensors are meant.
        modules: How many modules, where whole.
        first: The first tensor, in the order in which the names were given.
    """

    pattern: str
    tensors: int
    whole: bool
    modules: int
    first: str

    def __str__(self) -> str:
        if not self.whole:
            return self.pattern if self.tensors == 1 else f"{self.pattern}: {self.tensors:,} tensors"
        if not self.pattern:
            return f"all {self.tensors:,} tensors"
        each, rest = divmod(self.tensors, self.modules)
        if self.modules > 1 and rest == 0:
            return f"{self.pattern}: all {each:,} tensors of each"
        return f"{self.pattern}: all {self.tensors:,} tensors"


def grouped(names: Iterable[str], among: Iterable[str]) -> list[Group]:
    """The groups of some names, the largest first.

    Args:
        names: What to speak of.
        among: All names of the model: what a whole module is. Those of `names` count as among them.
    """
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return []
    modules, alone = _whole_modules(wanted, among)
    groups = [
        Group(pattern, sum(map(len, own)), whole=True, modules=len(own), first=own[0][0])
        for pattern, own in _merged(modules)
    ]
    groups += [
        Group(pattern, len(own), whole=False, modules=0, first=own[0][0])
        for pattern, own in _merged({name: [name] for name in alone})
    ]
    place = {name: position for position, name in enumerate(wanted)}
    return sorted(groups, key=lambda group: (-group.tensors, place[group.first]))


def summary(names: Iterable[str], among: Iterable[str], limit: int = 4) -> str:
    """The largest groups in one line: `model.layers.{28-31}: all 9 tensors of each; lm_head.weight`."""
    groups = grouped(names, among)
    shown = [str(group) for group in groups[:limit]]
    if rest := sum(group.tensors for group in groups[limit:]):
        shown.append(f"{rest:,} more")
    return "; ".join(shown)


def _whole_modules(names: Sequence[str], among: Iterable[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The outermost modules of which every tensor is among the names, with these; and the names that are left.

    A module that holds a single tensor is left to its name.
    """
    meant = set(names)
    outside: set[str] = set()  # modules that hold something else too
    for name in among:
        if name not in meant:
            module = name
            while module and (module := module.rpartition(".")[0]) not in outside:
                outside.add(module)
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(_outermost(name, outside), []).append(name)
    alone = [name for module, own in found.items() if len(own) == 1 or module in outside for name in own]
    lonely = set(alone)
    modules = {module: own for module, own in found.items() if own[0] not in lonely}
    return modules, [name for name in names if name in lonely]


def _outermost(name: str, outside: set[str]) -> str:
    """The outermost module of a name that is not in `outside`; the name itself where there is none."""
    if "" not in outside:
        return ""
    place = name.find(".")
    while place >= 0:
        if name[:place] not in outside:
            return name[:place]
        place = name.find(".", place + 1)
    return name


def _merged(entries: Mapping[str, list[str]]) -> list[tuple[str, list[list[str]]]]:
    """Entries that differ only in numbers, together: pattern with sets of numbers, and what stood under each."""
    shapes: dict[tuple[str, ...], dict[tuple[int, ...], list[str]]] = {}
    for name, own in entries.items():
        pieces = _NUMBER.split(name)
        key = (*pieces[::2], "") if len(own) == 1 else (*pieces[::2], str(len(own)))
        shapes.setdefault(key, {})[tuple(map(int, pieces[1::2]))] = own
    merged: list[tuple[str, list[list[str]]]] = []
    for texts, numbers in shapes.items():
        for sets, members in _boxes(sorted(numbers)):
            merged.append((_spelled(texts[:-1], sets), [numbers[member] for member in members]))
    return merged


Sets = tuple[tuple[int, ...], ...]
Box = tuple[Sets, list[tuple[int, ...]]]


def _boxes(tuples: Sequence[tuple[int, ...]]) -> list[Box]:
    """Tuples of numbers as products of sets: [(2, 3), (2, 7), (4, 3), (4, 7)] is {2, 4} x {3, 7}."""
    if not tuples or not tuples[0]:
        return [((), list(tuples))]
    below: dict[int, list[tuple[int, ...]]] = {}
    for first, *rest in tuples:
        below.setdefault(first, []).append(tuple(rest))
    alike: dict[Sets, list[int]] = {}
    for first, rests in below.items():
        for sets, _ in _boxes(rests):
            alike.setdefault(sets, []).append(first)
    return [((tuple(firsts), *sets), _product((tuple(firsts), *sets))) for sets, firsts in alike.items()]


def _product(sets: Sets) -> list[tuple[int, ...]]:
    tuples: list[tuple[int, ...]] = [()]
    for numbers in sets:
        tuples = [(*before, number) for before in tuples for number in numbers]
    return tuples


def _spelled(texts: Sequence[str], sets: Sets) -> str:
    spelled = texts[0]
    for text, numbers in zip(texts[1:], sets, strict=True):
        spelled += f"{numbers[0]}{text}" if len(numbers) == 1 else f"{{{_ranges(numbers)}}}{text}"
    return spelled


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as ranges: `0-3,7,9-11`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"{run[0]}-{run[-1]}" if len(run) >= _FEWEST_OF_RANGE else ",".join(map(str, run)) for run in runs]
    return ",".join(parts if len(parts) <= _MOST_RANGES else [*parts[:_MOST_RANGES], "..."])
