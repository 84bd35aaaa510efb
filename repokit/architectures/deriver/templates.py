"""From the names of many samples to name templates: which numbers in a name count layers, experts, stages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from repokit.architectures.grammar import INDICES

Shape = tuple[int, ...]
Point = tuple[int, tuple[int, ...]]
CONSTANT: Final = 8  # so many numbers that never change are still counted; fewer are the places of a Sequential


@dataclass(slots=True)
class _Name:
    sample: int
    segments: list[str]
    shape: Shape
    prefix: tuple[str, ...] = ()
    indices: tuple[int, ...] = ()


def templates(samples: Sequence[Mapping[str, Shape] | None]) -> dict[str, dict[Point, Shape]]:
    """Template -> where it was seen -> with which shape.

    Args:
        samples: On-disk shapes per sample; None where the class refused the config.
    """
    names = [
        _Name(number, name.split("."), shape)
        for number, shapes in enumerate(samples)
        if shapes is not None
        for name, shape in shapes.items()
    ]
    deepest = max((len(name.segments) for name in names), default=0)
    for depth in range(deepest):
        here = [name for name in names if depth < len(name.segments)]
        counted = _counted(here, depth)
        for name in here:
            segment = name.segments[depth]
            if segment.isdecimal() and name.prefix in counted and len(name.indices) < len(INDICES):
                name.prefix = (*name.prefix, "{" + INDICES[len(name.indices)] + "}")
                name.indices = (*name.indices, int(segment))
            else:
                name.prefix = (*name.prefix, segment)
    found: dict[str, dict[Point, Shape]] = defaultdict(dict)
    for name in names:
        found[".".join(name.prefix)][name.sample, name.indices] = name.shape
    return dict(found)


def _counted(names: list[_Name], depth: int) -> set[tuple[str, ...]]:
    """The prefixes whose numbers at this depth are an index: they vary, and run from 0 without a gap somewhere."""
    sets: dict[tuple[str, ...], dict[Point, set[int]]] = defaultdict(lambda: defaultdict(set))
    for name in names:
        if name.segments[depth].isdecimal():
            sets[name.prefix][name.sample, name.indices].add(int(name.segments[depth]))
    return {prefix for prefix, seen in sets.items() if _is_index(list(seen.values()))}


def _is_index(seen: list[set[int]]) -> bool:
    if len({frozenset(numbers) for numbers in seen}) == 1:
        return len(seen[0]) >= CONSTANT
    return any(numbers == set(range(len(numbers))) for numbers in seen) and max(map(len, seen)) > 1


def prefixes(template: str) -> list[str]:
    """The template up to each of its index variables: what their ranges hang on."""
    segments = template.split(".")
    return [".".join(segments[: at + 1]) for at, segment in enumerate(segments) if segment.startswith("{")]
