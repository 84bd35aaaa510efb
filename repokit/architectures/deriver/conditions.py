"""Finds the condition under which something is there, among those that model code writes.

A condition over n observations is a string of n bits, kept as one Python integer: and, or, not and equality of two
conditions are then single operations, and hundreds of atoms can be tried in pairs and triples.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from repokit.architectures.deriver.features import Features, Observations
from repokit.architectures.grammar import INDICES, UNUSABLE, Environment, Expression, Value, expression

PERIODS: Final = (2, 3, 4, 5, 6, 8)
MOST_WORDS: Final = 10
MOST_TRIED: Final = 60
MOST_JOINED: Final = 44
MOST_ALTERNATIVES: Final = 4
DEEPEST_TREE: Final = 4
_PERIOD: Final = re.compile(r"period|freq|interval|step|every|pattern")


def bits(truths: Iterable[bool]) -> int:
    """Truth values as one integer; the first one is the lowest bit."""
    text = "".join("1" if truth else "0" for truth in truths)
    return int(text[::-1], 2) if text else 0


def _quality(text: str) -> tuple[int, int]:
    """Sorts atoms: what model code would say first."""
    ranks = (
        (r"\[[ijklm]\]==|\b[ijklm] in ", 0),
        (r"is not None", 1),
        (r"^[\w.]+$", 2),
        (r"=='", 3),
        (r"^[ijklm][<=%]|^\([ijklm]\+1\)", 4),
        (r"^bool", 5),
    )
    rank = next((rank for pattern, rank in ranks if re.search(pattern, text)), 6)
    return (rank + 3 * text.startswith("not "), len(text))


@dataclass(frozen=True)
class Atoms:
    """Conditions over one set of observations, each with its bits; of equal ones the best is kept."""

    everywhere: int
    bits: dict[str, int]

    @classmethod
    def over(
        cls, features: Features, seen: Observations, only: frozenset[str] | None = None, hints: Sequence[str] = ()
    ) -> Atoms:
        """All atoms that these observations allow.

        Args:
            features: The configs.
            seen: The observations.
            only: The keys that may take part; None: all.
            hints: Further atoms to try, from a trace of the model's code.
        """
        everywhere = (1 << len(seen)) - 1
        best: dict[int, str] = {}
        candidates = [*_of_choices(features, seen, only), *_of_lists(features, seen, only)]
        candidates += [*_of_pairs(features, seen, only), *_of_indices(features, seen, only)]
        candidates += list(_of_hints(features, seen, only, hints))
        for text, mask in candidates:
            for name, held in ((text, mask), (negated(text), everywhere & ~mask)):
                if held not in {0, everywhere} and (held not in best or _quality(name) < _quality(best[held])):
                    best[held] = name
        return cls(everywhere, {text: mask for mask, text in sorted(best.items(), key=lambda item: _quality(item[1]))})


def negated(text: str) -> str:
    """The opposite of a condition."""
    return text.removeprefix("not ") if text.startswith("not ") else f"not ({text})"


def _allowed(keys: Iterable[str], only: frozenset[str] | None) -> Iterator[str]:
    return (key for key in keys if only is None or key in only)


def _over_samples(seen: Observations, truths: list[bool]) -> int:
    return bits(truths[sample] for sample, _ in seen.points)


def _of_choices(features: Features, seen: Observations, only: frozenset[str] | None) -> Iterator[tuple[str, int]]:
    for key in _allowed(features.choices, only):
        values = features.choices[key]
        if all(isinstance(value, bool) for value in values):
            yield key, _over_samples(seen, [value is True for value in values])
            continue
        if None in values:
            yield f"{key} is not None", _over_samples(seen, [value is not None for value in values])
        yield f"bool({key})", _over_samples(seen, [bool(value) for value in values])
        words = {value for value in values if isinstance(value, (str, bool)) or value in {0, 1, 2}} - {None}
        for word in sorted(words, key=repr)[:MOST_WORDS]:
            same = [value == word and type(value) is type(word) for value in values]
            yield f"{key}=={word!r}", _over_samples(seen, same)
        if all(isinstance(value, (int, float)) for value in values):
            for least in (0, 1):
                more = [isinstance(value, (int, float)) and value > least for value in values]
                yield f"{key}>{least}", _over_samples(seen, more)


def _of_lists(features: Features, seen: Observations, only: frozenset[str] | None) -> Iterator[tuple[str, int]]:
    for key in _allowed(features.lists, only):
        values = [value if isinstance(value, tuple) else () for value in features.lists[key]]
        yield f"bool({key})", _over_samples(seen, [bool(value) for value in values])
        yield f"{key} is not None", _over_samples(seen, [value is not None for value in features.lists[key]])
        words = {item for value in values for item in value if isinstance(item, str)}
        for word in sorted(words)[:MOST_WORDS]:
            yield (
                f"({key} is not None and {word!r} in {key})",
                _over_samples(seen, [word in value for value in values]),
            )


def _of_pairs(features: Features, seen: Observations, only: frozenset[str] | None) -> Iterator[tuple[str, int]]:
    allowed = list(_allowed(features.scalars, only))
    keys = [key for key in allowed if None not in features.scalars[key]]
    if len(keys) > 24:
        return
    for one, two in itertools.product([key for key in allowed if None in features.scalars[key]][:6], keys):
        other = [a is not None and a != b for a, b in zip(features.scalars[one], features.scalars[two], strict=True)]
        yield f"({one} is not None and {one}!={two})", _over_samples(seen, other)
    for one, two in itertools.combinations(keys, 2):
        pairs = [
            (a, b)
            for a, b in zip(features.scalars[one], features.scalars[two], strict=True)
            if isinstance(a, (int, float)) and isinstance(b, (int, float))
        ]
        yield f"{one}=={two}", _over_samples(seen, [a == b for a, b in pairs])
        yield f"{one}>{two}", _over_samples(seen, [a > b for a, b in pairs])
        yield f"{one}<{two}", _over_samples(seen, [a < b for a, b in pairs])


def _of_indices(features: Features, seen: Observations, only: frozenset[str] | None) -> Iterator[tuple[str, int]]:
    for level in range(seen.depth):
        index = INDICES[level]
        at = [indices[level] for _, indices in seen.points]
        for number in range(4):
            yield f"{index}=={number}", bits(here == number for here in at)
        for period in PERIODS:
            yield f"{index}%{period}==0", bits(here % period == 0 for here in at)
            yield f"({index}+1)%{period}==0", bits((here + 1) % period == 0 for here in at)
        for key in _allowed(features.scalars, only):
            yield from _of_count(features, seen, key, index, at)
        for key in _allowed(features.lists, only):
            yield from _of_place(features, seen, key, index, at)


def _of_count(features: Features, seen: Observations, key: str, index: str, at: list[int]) -> Iterator[tuple[str, int]]:
    values = [features.scalars[key][sample] for sample, _ in seen.points]
    counts = [value for value in values if isinstance(value, int)]
    if len(counts) < len(values) or max(counts) > 64:
        return
    pairs = list(zip(at, counts, strict=True))
    yield f"{index}<{key}", bits(here < count for here, count in pairs)
    yield f"{index}=={key}", bits(here == count for here, count in pairs)
    for back in (1, 2):
        yield f"{index}=={key}-{back}", bits(here == count - back for here, count in pairs)
    yield f"{index}<{key}//2", bits(here < count // 2 for here, count in pairs)
    yield f"{index}=={key}//2", bits(here == count // 2 for here, count in pairs)
    yield f"{index}>{key}//2", bits(here > count // 2 for here, count in pairs)
    if min(counts) > 0:
        yield f"{index}%{key}==0", bits(here % count == 0 for here, count in pairs)
        yield f"({index}+1)%{key}==0", bits((here + 1) % count == 0 for here, count in pairs)
        if _PERIOD.search(key):
            for other in features.scalars:
                if "offset" in other and other.rpartition(".")[0] == key.rpartition(".")[0]:
                    text = f"({index}-{other})%{key}==0"
                    yield text, _evaluated(features, seen, text)


def _of_place(features: Features, seen: Observations, key: str, index: str, at: list[int]) -> Iterator[tuple[str, int]]:
    lists = [features.lists[key][sample] for sample, _ in seen.points]
    known: list[tuple[Value, ...]] = [value if isinstance(value, tuple) else () for value in lists]
    pairs = list(zip(at, known, strict=True))
    for number in _small(features) if all(isinstance(item, int) for value in known for item in value) else ():
        text = f"({key} is not None and {index} in take({key},{number}))"
        yield text, _evaluated(features, seen, text)
    yield f"({key} is not None and {index} in {key})", bits(here in value for here, value in pairs)
    yield f"{index}==len({key})-1", bits(here == len(value) - 1 for here, value in pairs)
    if all(here < len(value) for here, value in pairs):
        words = {value[here] for here, value in pairs}
        for word in sorted(words, key=repr)[:MOST_WORDS]:
            yield f"{key}[{index}]=={word!r}", bits(value[here] == word for here, value in pairs)


def _small(features: Features) -> list[str]:
    """Counts of a few."""
    ranges = {
        key: values for key, values in features.scalars.items() if all(isinstance(value, int) for value in values)
    }
    return [key for key, values in ranges.items() if max(values) <= 8][:8]  # type: ignore[type-var,operator]


def _of_hints(
    features: Features, seen: Observations, only: frozenset[str] | None, hints: Sequence[str]
) -> Iterator[tuple[str, int]]:
    for text in hints:
        compiled = expression(text)
        deep = any(re.search(rf"\b{index}\b", text) for index in INDICES[seen.depth :])
        if not deep and (only is None or compiled.keys <= only):
            yield text, _evaluated(features, seen, text)


def _evaluated(features: Features, seen: Observations, text: str) -> int:
    compiled = expression(text)
    truths: dict[tuple[int, tuple[int, ...]], bool] = {}

    for sample, indices in seen.points:
        point = (sample, indices if compiled.indexed else ())
        if point not in truths:
            truths[point] = truth(compiled, features.environments[sample], indices)
    return bits(truths[sample, indices if compiled.indexed else ()] for sample, indices in seen.points)


def truth(compiled: Expression, environment: Environment, indices: tuple[int, ...]) -> bool:
    """Whether a condition holds; False where it cannot be asked."""
    try:
        return bool(compiled.evaluate(environment, *indices))
    except UNUSABLE:
        return False


@dataclass
class _Search:
    target: int
    atoms: Atoms
    deadline: float

    def found(self, *, deep: bool) -> str | None:
        target, everywhere = self.target, self.atoms.everywhere
        if target == everywhere:
            return "True"
        if target == 0:
            return "False"
        for text, mask in self.atoms.bits.items():
            if mask == target:
                return text
        wider = [(text, mask) for text, mask in self.atoms.bits.items() if target & ~mask == 0]
        narrower = [(text, mask) for text, mask in self.atoms.bits.items() if mask & ~target == 0]
        shallow = self._joined(wider, narrower, 2)
        if shallow or not deep:
            return shallow
        joined = self._joined(wider[:MOST_TRIED], narrower[:MOST_TRIED], 3)
        return joined or self._mixed(wider, narrower) or self._alternatives() or self._tree()

    def _joined(self, wider: list[tuple[str, int]], narrower: list[tuple[str, int]], count: int) -> str | None:
        for chosen in itertools.combinations(wider, count):
            mask = self.atoms.everywhere
            for _, other in chosen:
                mask &= other
            if mask == self.target:
                return " and ".join(f"({text})" for text, _ in chosen)
        for chosen in itertools.combinations(narrower, count):
            mask = 0
            for _, other in chosen:
                mask |= other
            if mask == self.target:
                return " or ".join(f"({text})" for text, _ in chosen)
        return None

    def _mixed(self, wider: list[tuple[str, int]], narrower: list[tuple[str, int]]) -> str | None:
        """A and (b or c); a or (b and c)."""
        for text, mask in wider[:MOST_TRIED]:
            inside = [
                (name, other & mask) for name, other in self.atoms.bits.items() if other & mask & ~self.target == 0
            ]
            for (one, a), (two, b) in itertools.combinations([pair for pair in inside if pair[1]][:200], 2):
                if a | b == self.target:
                    return f"({text}) and (({one}) or ({two}))"
            if time.process_time() > self.deadline:
                return None
        for text, mask in narrower[:MOST_TRIED]:
            rest = self.target & ~mask
            around = [(name, other) for name, other in self.atoms.bits.items() if rest & ~other == 0]
            for (one, a), (two, b) in itertools.combinations(around[:200], 2):
                if (a & b) | mask == self.target:
                    return f"({text}) or (({one}) and ({two}))"
            if time.process_time() > self.deadline:
                return None
        return None

    def _alternatives(self) -> str | None:
        """Up to four conjunctions of up to three atoms, joined by or."""
        atoms = list(self.atoms.bits.items())[:MOST_JOINED]
        parts: dict[int, tuple[str, ...]] = {}
        for size in (1, 2, 3):
            for chosen in itertools.combinations(atoms, size):
                mask = self.atoms.everywhere
                for _, other in chosen:
                    mask &= other
                if mask and not mask & ~self.target:
                    parts.setdefault(mask, tuple(text for text, _ in chosen))
            if time.process_time() > self.deadline:
                return None
        rest = self.target
        used: list[str] = []
        while rest and len(used) < MOST_ALTERNATIVES and parts:
            best = max(parts, key=lambda mask: ((mask & rest).bit_count(), -len(parts[mask])))
            if not best & rest:
                return None
            used.append(" and ".join(f"({text})" for text in parts[best]))
            rest &= ~best
        return None if rest else " or ".join(f"({text})" for text in used)

    def _tree(self) -> str | None:
        return self._branch(self.atoms.everywhere, DEEPEST_TREE)

    def _branch(self, within: int, depth: int) -> str | None:
        target = self.target & within
        if target == within:
            return "True"
        if target == 0:
            return "False"
        if depth == 0 or time.process_time() > self.deadline:
            return None
        best = min(self.atoms.bits.items(), key=lambda item: _impurity(target, within, item[1]), default=None)
        if best is None or not within & best[1] or not within & ~best[1]:
            return None
        text, mask = best
        yes, no = self._branch(within & mask, depth - 1), self._branch(within & ~mask, depth - 1)
        return None if yes is None or no is None else _chosen(text, yes, no)


def _impurity(target: int, within: int, mask: int) -> float:
    """Gini impurity after a split, times the number of observations."""
    total = 0.0
    for side in (within & mask, within & ~mask):
        size = side.bit_count()
        if not size:
            return float("inf")
        share = (target & side).bit_count() / size
        total += size * share * (1 - share)
    return total


def _chosen(text: str, yes: str, no: str) -> str:
    match (yes, no):
        case ("True", "False"):
            return text
        case ("False", "True"):
            return negated(text)
        case ("False", _):
            return f"({negated(text)}) and ({no})"
        case (_, "False"):
            return f"({text}) and ({yes})"
        case ("True", _):
            return f"({text}) or ({no})"
        case (_, "True"):
            return f"({negated(text)}) or ({yes})"
        case _:
            return f"({yes} if {text} else {no})"


def condition(target: int, atoms: Atoms, seconds: float, *, deep: bool = True) -> str | None:
    """The simplest condition that holds exactly where the target's bits are set; None where none was found."""
    return _Search(target, atoms, time.process_time() + seconds).found(deep=deep)
