"""From samples to a skeleton: for every name template its ranges, its condition and its dimensions.

Everything is found by comparing vectors over all observations. What a target can depend on is first narrowed to the
values that changed in the single-change samples in which it changed; what the trace of the model's own code computed
(`tracing`) is tried before anything is searched for. What cannot be found is written down as unknown, never left out.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from repokit.architectures.deriver.arithmetic import correlation, same_everywhere, search, simplicity, whole_number
from repokit.architectures.deriver.conditions import Atoms, bits, condition, truth
from repokit.architectures.deriver.features import Column, Features, Observations
from repokit.architectures.deriver.sides import sided
from repokit.architectures.deriver.templates import Point, Shape, prefixes, templates
from repokit.architectures.grammar import UNUSABLE, expression

MOST_COLUMNS: Final = 22
MOST_POINTS: Final = 6_000  # more of them than this, and conditions are searched for among pairs only
PIECES: Final = 3
MOST_FOUND: Final = 40  # conditions that are tried again as parts of others
MULTIPLES: Final = (2, 3, 4)
LARGEST_SUMMAND: Final = 4
FEW: Final = 400  # so many points at most are held against every key
MOST_INDEXED: Final = 1_500  # at more points than this, candidates with an index are not tried one by one


_INDEX_ATOM: Final = re.compile(
    r"^(?:not \()?[ijklm](?:==|<|%)"
)  # the first layer, every second one: what splits sizes most


@dataclass(slots=True)
class Fitted:
    """The skeleton of one class as data.

    Attributes:
        blocks: In the member format.
        unknown: What could not be found: (what, template).
    """

    blocks: list[Any]
    unknown: list[tuple[str, str]]


@dataclass(slots=True)
class _Target:
    """Something to be expressed: a value at each observation."""

    seen: Observations
    values: list[float]

    def reduced(self) -> _Target:
        """The same with one observation per sample, or per outer index, where the inner ones do not matter."""
        for depth in range(self.seen.depth):
            by_outer: dict[Point, set[float]] = defaultdict(set)
            for (sample, indices), value in zip(self.seen.points, self.values, strict=True):
                by_outer[sample, indices[:depth]].add(value)
            if all(len(values) == 1 for values in by_outer.values()):
                return _Target(Observations(tuple(by_outer)), [next(iter(values)) for values in by_outer.values()])
        return self

    def signature(self) -> dict[int, Hashable]:
        """Per sample, what tells whether the target changed there."""
        seen: dict[int, list[tuple[tuple[int, ...], float]]] = defaultdict(list)
        for (sample, indices), value in zip(self.seen.points, self.values, strict=True):
            seen[sample].append((indices, value))
        return {sample: tuple(sorted(values)) for sample, values in seen.items()}


@dataclass
class Fitter:
    """Fits the classes of one model type; what one class taught is tried first for the next.

    Attributes:
        features: The effective configs of all samples; sample 0 is the base.
        singles: Sample -> whether it differs from the base in one given field.
        expressions: Candidates from a trace of the code.
        conditions: Candidate conditions from there.
        preferred: Keys that a config.json carries; others are computed from them.
    """

    features: Features
    singles: Sequence[int]
    expressions: Sequence[str] = ()
    conditions: Sequence[str] = ()
    preferred: frozenset[str] = frozenset()
    _pool: dict[str, None] = field(default_factory=dict)
    _numbers: dict[Hashable, str | None] = field(default_factory=dict)
    _truths: dict[Hashable, str | None] = field(default_factory=dict)
    _found: dict[str, None] = field(default_factory=dict)  # conditions: those of weights are part of those of biases
    _deadline: float = 0.0
    _switches: frozenset[str] = frozenset()  # keys that decide which names the class at hand has

    def __post_init__(self) -> None:
        candidates = list(dict.fromkeys(form for text in self.expressions for form in sided(text, self.features.sides)))
        self._indexed = [text for text in candidates if expression(text).indexed]
        plain = [text for text in candidates if not expression(text).indexed]
        doubled = [f"2*{key}" for key in self.features.scalars]
        self._pool = dict.fromkeys([*self.features.scalars, *self.features.mixed, *plain, *doubled])

    def fit(self, shapes: Sequence[Mapping[str, Shape] | None], seconds: float) -> Fitted:
        """The skeleton that gives these shapes, one mapping per sample."""
        self._deadline = time.process_time() + seconds
        names = {number: frozenset(held) for number, held in enumerate(shapes) if held is not None}
        self._switches = self.causes(names)
        return _ClassFit(
            self, templates(shapes), [number for number, held in enumerate(shapes) if held is not None]
        ).fitted()

    @property
    def exhausted(self) -> bool:
        """Whether the time is up."""
        return time.process_time() > self._deadline

    def _seconds(self, most: float) -> float:
        return max(0.0, min(most, self._deadline - time.process_time()))

    @property
    def worked(self) -> list[str]:
        """Expressions that gave a target: candidates for a later fit on more samples."""
        return [text for text in {*self._numbers.values()} if text is not None and not text.isdecimal()]

    def causes(self, signature: Mapping[int, Hashable]) -> frozenset[str]:
        """The keys whose values differ from the base in the single changes that changed the target."""
        base = self.features.environments[0]
        changed = [sample for sample in self.singles if signature.get(sample) != signature.get(0)]
        return frozenset(
            key
            for sample in changed
            for key, value in self.features.environments[sample].items()
            if value != base[key] or (value is None) != (base[key] is None)
        )

    def number(self, seen: Observations, values: Sequence[float], pieces: int = PIECES) -> str | None:
        """The expression of a size or a count; None where none was found."""
        target = _Target(seen, list(values)).reduced()
        column = np.array(target.values, dtype=float)
        if (constant := same_everywhere(column)) is not None:
            return str(int(constant))
        key = (target.seen.points, column.tobytes())
        if key not in self._numbers:
            found = self._number(target, column, pieces)
            if found is None and self.exhausted:
                return None
            self._numbers[key] = found
            if found is not None and not expression(found).indexed:
                self._pool.setdefault(found)
        return self._numbers[key]

    def _number(self, target: _Target, column: Column, pieces: int) -> str | None:
        causes = self.causes(target.signature())
        known = self._known(target.seen, column)
        known.sort(key=lambda text: (bool(causes) and not expression(text).keys <= causes, self._plainness(text)))
        if known and (not causes or expression(known[0]).keys <= causes):
            return known[0]
        if causes and (found := search(column, self.features.columns(target.seen, causes), self._seconds(1.5))):
            return found
        if known:
            return known[0]
        return self._anywhere(target, column) or (self._piecewise(target, column, causes, pieces) if pieces else None)

    def _plainness(self, text: str) -> tuple[Any, ...]:
        keys = expression(text).keys
        return (len(keys - self.preferred) if self.preferred else 0, *simplicity(text))

    def _known(self, seen: Observations, column: Column) -> list[str]:
        """The candidates that give the column."""
        samples = seen.samples
        matching = [text for text in self._pool if (self.features.evaluated(text)[samples] == column).all()]
        matching = matching or self._multiples(samples, column)
        if not matching and seen.depth:
            usable = [text for text in self._indexed if seen.depth > 1 or " j" not in f" {text}"]
            matching = [text for text in usable if (self.features.at(text, seen) == column).all()]
        return matching

    def _multiples(self, samples: NDArray[np.intp], column: Column) -> list[str]:
        """Candidates that give the column but for a small factor or summand.

        A converter joined or split the tensor; a token of the class has a place of its own.
        """
        found = []
        for text in self._pool:
            values = self.features.evaluated(text)[samples]
            term = text if re.fullmatch(r"[\w.]+", text) else f"({text})"
            for factor in MULTIPLES:
                if (values * factor == column).all():
                    found.append(f"{factor}*{term}")
                elif (values == column * factor).all():
                    found.append(f"{term}//{factor}")
            more = whole_number(column[0] - values[0])
            if more and abs(more) <= LARGEST_SUMMAND and (values + more == column).all():
                found.append(f"{text}{more:+d}")
        return found

    def _anywhere(self, target: _Target, column: Column) -> str | None:
        columns = self.features.columns(target.seen)
        if len(columns) > MOST_COLUMNS:
            likeness = {text: correlation(values, column) for text, values in columns.items()}
            columns = {text: columns[text] for text in sorted(columns, key=lambda text: -likeness[text])[:MOST_COLUMNS]}
        return search(column, columns, self._seconds(0.8))

    def _piecewise(self, target: _Target, column: Column, causes: frozenset[str], pieces: int) -> str | None:
        """One expression under a condition, another one elsewhere."""
        if len(target.seen) > MOST_POINTS:
            return None
        atoms = Atoms.over(self.features, target.seen, causes | self._switches or None, self.conditions)
        partly = self._partly(target.seen, column)
        for number, (text, mask) in enumerate(partly):
            others = [other for at, (_, other) in enumerate(partly) if at != number]
            held = self._where(target.seen, mask, others, causes)
            if held is None:
                continue
            rest = ~self._holds(held, target.seen)
            if not rest.any() or not (rest | mask).all():
                continue
            other = self.number(target.seen.where(rest), list(column[rest]), pieces - 1)
            if other is not None:
                return f"({text} if {held} else {other})"
        return self._split(target, column, atoms, causes, pieces)

    def _where(
        self, seen: Observations, mask: NDArray[np.bool_], others: list[NDArray[np.bool_]], causes: frozenset[str]
    ) -> str | None:
        """The condition of one piece. Points that another piece gives as well may fall on either side."""
        either = mask & np.any(others, axis=0) if others else np.zeros_like(mask)
        near = causes | self._switches or None
        for doubtful, only in ((either, near), (np.zeros_like(mask), near), (either, None)):
            certain = seen.where(~doubtful)
            wanted = bits(mask[~doubtful].tolist())
            if wanted and len(certain) >= 4 and (only is not None or len(certain) < FEW):
                atoms = Atoms.over(self.features, certain, only, self.conditions)
                held = condition(wanted, atoms, self._seconds(0.5), deep=len(certain) < 1_000)
                if held is not None and held not in {"True", "False"}:
                    return held
        return None

    def _holds(self, text: str, seen: Observations) -> NDArray[np.bool_]:
        """Whether a condition holds at each observation; False where it cannot be asked."""
        compiled = expression(text)
        return np.array([truth(compiled, self.features.environments[at], indices) for at, indices in seen.points])

    def _partly(self, seen: Observations, column: Column) -> list[tuple[str, NDArray[np.bool_]]]:
        """Candidates that give a part of the column, those that give most of it first."""
        samples = seen.samples
        found: dict[bytes, tuple[str, NDArray[np.bool_]]] = {}
        for text in sorted(self._pool, key=self._plainness):
            equal = self.features.evaluated(text)[samples] == column
            if 2 <= equal.sum() < len(column):
                found.setdefault(equal.tobytes(), (text, equal))
        hinted = self._indexed if seen.depth and len(seen) < MOST_INDEXED else []
        for text in (*self.features.elements(seen), *hinted):
            equal = self.features.at(text, seen) == column
            if 2 <= equal.sum() < len(column):
                found.setdefault(equal.tobytes(), (text, equal))
        for value in np.unique(column)[:4]:
            equal = column == value
            found.setdefault(equal.tobytes(), (str(int(value)), equal))
        return sorted(found.values(), key=lambda item: -int(item[1].sum()))[:8]

    def _split(self, target: _Target, column: Column, atoms: Atoms, causes: frozenset[str], pieces: int) -> str | None:
        """Each atom in turn: an expression for one side, then the rest."""
        until = time.process_time() + self._seconds(2.0 if target.seen.depth else 1.0)
        only = causes or None
        for text, mask in sorted(atoms.bits.items(), key=lambda item: _INDEX_ATOM.search(item[0]) is None):
            if time.process_time() > until:
                return None
            here = np.array([bool(mask >> at & 1) for at in range(len(column))])
            if min(here.sum(), (~here).sum()) < 3:
                continue
            inside, outside = target.seen.where(here), target.seen.where(~here)
            first = search(column[here], self.features.columns(inside, only), 0.25)
            if first is None:
                continue
            second = search(column[~here], self.features.columns(outside, only), 0.25)
            if second is None and pieces > 1:
                second = self.number(outside, list(column[~here]), pieces - 1)
            if second is not None:
                return f"({first} if {text} else {second})"
        return None

    def truth(self, seen: Observations, held: Sequence[bool]) -> str | None:
        """The condition that holds just there; None where none was found."""
        if all(held):
            return "True"
        key = (seen.points, bits(held))
        if key not in self._truths:
            found = self._truth(seen, held)
            if found is None and self.exhausted:
                return None
            self._truths[key] = found
            if found not in {None, "True", "False"} and len(self._found) < MOST_FOUND:
                self._found.setdefault(str(found))
        return self._truths[key]

    def _truth(self, seen: Observations, held: Sequence[bool]) -> str | None:
        causes = self.causes(_Target(seen, [float(here) for here in held]).signature())
        small = len(seen) < MOST_POINTS
        found = None
        for only in dict.fromkeys((causes, causes | self._switches)):
            if only and (found is None or " if " in found):
                atoms = Atoms.over(self.features, seen, only, [*self._found, *self.conditions])
                found = condition(bits(held), atoms, self._seconds(1.0), deep=small) or found
        if found is None or " if " in found:
            every = Atoms.over(self.features, seen, None, [*self._found, *self.conditions])
            found = condition(bits(held), every, self._seconds(1.0), deep=found is None and small) or found
        return found


@dataclass
class _ClassFit:
    """The fit of one class: first how far each index runs, then each template."""

    fitter: Fitter
    seen: Mapping[str, Mapping[Point, Shape]]
    accepted: Sequence[int]
    counts: dict[str, dict[Point, int]] = field(default_factory=dict)
    ranges: dict[str, str | None] = field(default_factory=dict)
    unknown: list[tuple[str, str]] = field(default_factory=list)

    def fitted(self) -> Fitted:
        self._count()
        for prefix, counts in self.counts.items():
            self.ranges[prefix] = self.fitter.number(Observations(tuple(counts)), list(counts.values()))
            if self.ranges[prefix] is None:
                self.unknown.append(("range", prefix))
        grouped: dict[str, tuple[list[Any], list[Any]]] = {}
        parts = list(self._parts())
        common_first = sorted(range(len(parts)), key=lambda number: -len({sample for sample, _ in parts[number][1]}))
        entries = {number: self._entry(*parts[number]) for number in common_first}
        for number, (template, _) in enumerate(parts):
            head, dimensions = entries[number]
            grouped.setdefault(repr(head), (head, []))[1].append([template, dimensions])
        return Fitted([[*head, names] for head, names in grouped.values()], self.unknown)

    def _parts(self) -> Iterator[tuple[str, dict[Point, Shape]]]:
        """The templates; one that has another rank under another condition is there once for each."""
        for template, points in self.seen.items():
            for rank in sorted({len(shape) for shape in points.values()}):
                yield template, {point: shape for point, shape in points.items() if len(shape) == rank}

    def _count(self) -> None:
        highest: dict[str, dict[Point, int]] = defaultdict(dict)
        for template, points in self.seen.items():
            for level, prefix in enumerate(prefixes(template)):
                counts = highest[prefix]
                for sample, indices in points:
                    outer = (sample, indices[:level])
                    counts[outer] = max(counts.get(outer, 0), indices[level] + 1)
        self.counts = dict(highest)

    def _entry(self, template: str, points: Mapping[Point, Shape]) -> tuple[list[Any], list[str | None]]:
        levels = prefixes(template)
        ranges = [self.ranges[prefix] for prefix in levels]
        dimensions = self._dimensions(template, points)
        if None in ranges:
            return [None, ranges, False], dimensions
        free = self._inner_free(points, levels)
        looked_at = levels[:-1] if free else levels
        universe = [point for sample in self.accepted for point in self._points(looked_at, sample, ())]
        present = {(sample, indices[: len(looked_at)]) for sample, indices in points}
        held = self.fitter.truth(Observations(tuple(universe)), [point in present for point in universe])
        if held is None:
            self.unknown.append(("condition", template))
        return [held, ranges, free], dimensions

    def _points(self, levels: Sequence[str], sample: int, indices: tuple[int, ...]) -> Iterable[Point]:
        """Every index tuple that could be there in a sample: what was seen, or what the fitted range says."""
        if len(indices) == len(levels):
            return [(sample, indices)]
        count = self._range(levels[len(indices)], sample, indices)
        return [point for index in range(count) for point in self._points(levels, sample, (*indices, index))]

    def _range(self, prefix: str, sample: int, indices: tuple[int, ...]) -> int:
        if (seen := self.counts[prefix].get((sample, indices))) is not None:
            return seen
        try:
            count = expression(str(self.ranges[prefix])).evaluate(self.fitter.features.environments[sample], *indices)
            return min(max(0, int(count)), 1_000)
        except UNUSABLE:
            return 0

    def _inner_free(self, points: Mapping[Point, Shape], levels: Sequence[str]) -> bool:
        """Whether the innermost index always runs its whole range (experts): then no condition looks at it."""
        if len(levels) < 2:
            return False
        inner: dict[Point, int] = defaultdict(int)
        for sample, indices in points:
            inner[sample, indices[:-1]] += 1
        return all(count == self.counts[levels[-1]][point] for point, count in inner.items())

    def _dimensions(self, template: str, points: Mapping[Point, Shape]) -> list[str | None]:
        rank = len(next(iter(points.values())))
        seen = Observations(tuple(points))
        sizes = [self.fitter.number(seen, [shape[axis] for shape in points.values()]) for axis in range(rank)]
        self.unknown += [(f"dimension {axis}", template) for axis, size in enumerate(sizes) if size is None]
        return sizes
