"""Samples of a model type: configs, and the tensors that every class of the type has under each of them."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from transformers import PreTrainedModel

from repokit.architectures.deriver import base_config
from repokit.architectures.deriver.building import SECONDS_FOR_BASE, Builder, Built, Sample, Shapes
from repokit.architectures.deriver.candidates import Change, Op, applied, candidates, filled_in
from repokit.architectures.deriver.classes import config_class
from repokit.architectures.deriver.fields import ABSENT, Inventory, Value
from repokit.architectures.deriver.truth import Refused

__all__ = ["Sample", "Sampler", "Underivable"]

KEPT_PER_KEY = 3  # samples that change one key
MOST_PAIRS = 40
MOST_RANDOM = 70
MOST_FLIPS = 14  # switches under which the other keys are tried again
FACTORS = (2, 4, 5, 6, 7)  # of fresh configs
POWERS_OF_TWO = (2, 4, 8)  # the same, for a key that a factor of 3 does not suit


class Underivable(Exception):
    """No config of this type can be built here; the message says why."""


@dataclass(frozen=True, slots=True)
class _Joint:
    """Lists of one length that are cut to `length` together with the numbers that equal their length."""

    lists: tuple[str, ...]
    counts: tuple[str, ...]
    size: int


class Sampler:
    """Draws samples for all model classes of one config class; the same seed draws the same samples.

    Time limits can end a phase early; what was drawn before is not affected.

    Attributes:
        samples: The base config first, then single changes, pairs and random ones.
        inventory: The keys of the type.
        refusals: Class name to the reason why the base config does not suit it. Another Sampler for these classes alone
            may find one that does.
        cost: Seconds of processor time for one config with all classes.
    """

    def __init__(self, config_class_name: str, class_names: Sequence[str], *, seed: int = 0) -> None:
        self._rng = random.Random(seed)  # noqa: S311  # reproducible samples, not secrets
        self._changes: dict[str, list[Change]] = {}
        self._tried: set[str] = set()
        self._joints: list[_Joint] = []
        self._needs: dict[str, dict[str, Value]] = {}
        self._drawn: set[tuple[object, ...]] = set()
        self.samples: list[Sample] = []
        self.refusals: dict[str, str] = {}
        config_type = config_class(config_class_name)
        try:
            self.inventory: Inventory = base_config.default_inventory(config_type)
            self._builder = Builder(config_type, self.inventory, class_names)
            self._base = base_config.find_base(self.inventory, config_class_name, self._builder.outcome)
        except Refused as refused:
            raise Underivable(str(refused)) from refused
        self._start()

    @property
    def recommended_seconds(self) -> float:
        """What `explore` needs to come to its end on a type of this cost, within reason."""
        return min(60.0, max(4.0, 180 * self.cost))

    def _start(self) -> None:
        built = self._builder.config(self._base)
        self._builder.complete(built, self._builder.classes, SECONDS_FOR_BASE)
        self.refusals = built.refused
        for name in built.refused:
            del self._builder.classes[name]
        self._seen = built.effective
        self._probes = _probes(built.shapes, self._builder.classes)
        self.samples = [self._builder.sample(self._base, built, None)]
        start = time.process_time()
        self._builder.complete(self._builder.config(self._base), self._builder.classes)
        self.cost = time.process_time() - start

    def _try(self, given: Mapping[str, Value]) -> Built | None:
        """The config with the first of the probes that takes it; None if none does."""
        try:
            built = self._builder.config(given)
        except Refused:
            return None
        for name in self._probes:
            self._builder.complete(built, (name,))
            if built.shapes:
                return built
        return None

    # -- exploring -----------------------------------------------------------------------------------------------

    def explore(self, *, seconds: float) -> None:
        """Find the relevant keys and fill `samples`: single changes, switches with other keys, pairs, random ones."""
        start = time.process_time()
        self._singles(start + 0.45 * seconds)
        self._truncations()
        self._irrelevant_under(self._base, start + 0.5 * seconds)
        self._under_switches(start + 0.65 * seconds)
        self._pairs(start + 0.75 * seconds)
        self.samples += self._random(MOST_RANDOM, start + seconds, fresh=False)

    def _singles(self, deadline: float) -> None:
        for key in sorted(self.inventory.keys, key=self._is_unread):
            if time.process_time() > deadline:
                return
            self._tried.add(key)
            self._single(key)

    def _is_unread(self, key: str) -> bool:
        """Whether no model reads an attribute of this name: those come last, in case time is short."""
        return f".{key.rpartition('.')[2]}" not in self.inventory.source(key)

    def _single(self, key: str) -> None:
        kept = 0
        for change in self._expanded(candidates(key, self.inventory, self._base, self._seen), key):
            given = self._changed(self._base, key, change)
            built = self._try(given)
            if built is None:
                continue
            self._changes.setdefault(key, []).append(change)
            differs = self._differs(built, self.samples[0])
            if differs:
                self.inventory.relevant.add(key)
            if (differs or self._elsewhere(built, key)) and kept < KEPT_PER_KEY:
                kept += 1
                self.samples.append(self._builder.sample(given, built, key))
            if key not in self.inventory.relevant and len(self._changes[key]) >= 2 and change.op is not Op.SET:
                return

    def _elsewhere(self, built: Built, key: str) -> bool:
        return any(built.effective.get(name, value) != value for name, value in self._seen.items() if name != key)

    @staticmethod
    def _differs(built: Built, other: Sample | Built) -> bool:
        common = [name for name in built.shapes if name in other.shapes]
        return any(built.shapes[name] != other.shapes[name] for name in common)

    def _expanded(self, changes: Iterable[Change], key: str) -> Iterator[Change]:
        """The same changes, with the members of lists and alphabets reduced to those that are accepted alone."""
        for change in changes:
            if change.op not in {Op.KINDS, Op.PATTERN}:
                yield change
                continue
            accepted = [item for item in change.members if self._try(self._uniform(key, change, item)) is not None]
            members: Value = tuple(accepted) if change.op is Op.KINDS else "".join(map(str, accepted))
            if len(accepted) > 1:
                yield from (Change(change.op, members, change.length) for _ in range(3))

    def _uniform(self, key: str, change: Change, item: Value) -> dict[str, Value]:
        count = self._count(change, self._base) or 4
        value: Value = (item,) * count if change.op is Op.KINDS else str(item) * count
        return {**self._base, key: value}

    def _count(self, change: Change, given: Mapping[str, Value]) -> int | None:
        if change.length not in self.inventory.keys:
            return None  # there is no such key, or it is computed: the list itself decides
        count = given.get(change.length, self._seen.get(change.length))
        return count if isinstance(count, int) else None

    def _changed(
        self, given: Mapping[str, Value], key: str, change: Change, *, fresh: bool = False
    ) -> dict[str, Value]:
        divisible = Change(Op.MULTIPLY, 3) in self._changes.get(key, ())
        factors = (FACTORS if divisible else POWERS_OF_TWO) if fresh else ()
        current = self._base.get(key, self._seen.get(key))
        value = applied(change, current, self._count(change, given), self._rng, factors=factors)
        return {
            **given,
            **{name: value for name, value in self._needs.get(key, {}).items() if name not in given},
            key: value,
        }

    def _truncations(self) -> None:
        groups: dict[tuple[str, int], list[str]] = {}
        for key in self.inventory.keys:
            value = self._base.get(key, self.inventory.keys[key].default)
            if isinstance(value, tuple) and 3 <= len(value) <= 9:
                groups.setdefault((key.rpartition(".")[0], len(value)), []).append(key)
        for (path, size), lists in groups.items():
            self._truncate(_Joint(tuple(lists), tuple(self._counts(path, size)), size))

    def _counts(self, path: str, size: int) -> Iterator[str]:
        for key, item in self.inventory.keys.items():
            named = any(word in key for word in ("stage", "layer", "block", "level", "num"))
            if key.rpartition(".")[0] == path and named and self._base.get(key, item.default) == size:
                yield key

    def _truncate(self, joint: _Joint) -> None:
        for option in dict.fromkeys((joint, _Joint(joint.lists, (), joint.size))):
            given = self._shortened(self._base, option, 1)
            built = self._try(given)
            if built is not None and self._differs(built, self.samples[0]):
                self._joints.append(option)
                self.inventory.relevant.update(option.lists)
                self.samples.append(self._builder.sample(given, built, None))
                return

    def _shortened(self, given: Mapping[str, Value], joint: _Joint, by: int) -> dict[str, Value]:
        found = dict(given)
        for key in joint.lists:
            value = found.get(key, self._seen.get(key))
            found[key] = value[:-by] if isinstance(value, tuple) else value
        found.update(dict.fromkeys(joint.counts, joint.size - by))
        return found

    # -- what matters only behind a switch -----------------------------------------------------------------------

    def _switches(self, *, relevant: bool) -> list[tuple[str, Change]]:
        pool = self.inventory.relevant if relevant else self._changes
        return [
            (key, change)
            for key in self.inventory.keys
            if key in pool
            for change in self._changes.get(key, ())
            if change.is_structural or self._is_off(key)
        ]

    def _is_off(self, key: str) -> bool:
        value = self._base.get(key, self.inventory.keys[key].default)
        return value is ABSENT or not value

    def _under_switches(self, deadline: float) -> None:
        self._refused_alone(deadline)
        seen: set[tuple[str, bool]] = set()
        for key, change in self._switches(relevant=True):
            kind = (key, bool(change.operand))
            if kind not in seen and len(seen) < MOST_FLIPS:
                seen.add(kind)
                self._irrelevant_under(self._changed(self._base, key, change), deadline)

    def _refused_alone(self, deadline: float) -> None:
        """Try what was refused again together with a switch, or with everything that is None filled in."""
        flips = [item for item in self._switches(relevant=False) if isinstance(item[1].operand, bool)]
        for key in [key for key in self.inventory.keys if key in self._tried and key not in self._changes]:
            beside = [(flip, change) for flip, change in flips if _same_place(flip, key)][:MOST_FLIPS]
            preparations = [self._changed(self._base, flip, change) for flip, change in beside]
            preparations.append({**self._base, **filled_in(key, self.inventory)})
            changes = candidates(key, self.inventory, self._base, self._seen)
            for change in [change for change in changes if change.op not in {Op.KINDS, Op.PATTERN}][:2]:
                if time.process_time() > deadline:
                    return
                self._behind(key, change, preparations)

    def _behind(self, key: str, change: Change, preparations: Iterable[dict[str, Value]]) -> None:
        for before in preparations:
            given = self._changed(before, key, change)
            built = self._try(given)
            without = self._try(before) if built is not None else None
            if built is None or without is None:
                continue
            self._changes.setdefault(key, []).append(change)
            needed = {name: value for name, value in before.items() if self._base.get(name, ABSENT) != value}
            self._needs[key] = needed
            if self._differs(built, without):
                self.inventory.relevant.add(key)
                self.samples += [self._builder.sample(before, without, None), self._builder.sample(given, built, None)]
            return

    def _irrelevant_under(self, given: Mapping[str, Value], deadline: float) -> None:
        """Change everything irrelevant at once; halve what makes a difference, or is refused, until one is left."""
        before = self._try(given)
        if before is None:
            return
        self._builder.complete(before, self._builder.classes)
        keys = [key for key in self._changes if key not in self.inventory.relevant and key not in given]
        self._halve(given, before, keys, deadline)

    def _halve(self, given: Mapping[str, Value], before: Built, keys: Sequence[str], deadline: float) -> None:
        if not keys or time.process_time() > deadline:
            return
        changed = dict(given)
        for key in keys:
            changed = self._changed(changed, key, self._changes[key][0])
        built = self._try(changed)
        if built is not None:
            self._builder.complete(built, self._builder.classes)
            if not self._differs(built, before):
                return
        if len(keys) > 1:
            middle = len(keys) // 2
            self._halve(given, before, keys[:middle], deadline)
            self._halve(given, before, keys[middle:], deadline)
        elif built is not None:
            self.inventory.relevant.add(keys[0])
            self._keep_all(given, keys[0])

    def _keep_all(self, given: Mapping[str, Value], key: str) -> None:
        single = key if dict(given) == self._base else None
        for change in self._changes[key][:KEPT_PER_KEY]:
            changed = self._changed(given, key, change)
            built = self._try(changed)
            if built is not None:
                self.samples.append(self._builder.sample(changed, built, single))

    # -- several changes at once ---------------------------------------------------------------------------------

    def _pairs(self, deadline: float) -> None:
        switches = self._switches(relevant=True)
        pairs = [pair for pair in itertools.combinations(switches, 2) if pair[0][0] != pair[1][0]]
        self._rng.shuffle(pairs)
        for pair in pairs[:MOST_PAIRS]:
            if time.process_time() > deadline:
                return
            given = dict(self._base)
            for key, change in pair:
                given = self._changed(given, key, change)
            built = self._try(given)
            if built is not None:
                self.samples.append(self._builder.sample(given, built, None))

    def fresh(self, count: int, *, seconds: float) -> list[Sample]:
        """Random configs with values that exploring did not use; others at every call."""
        return self._random(count, time.process_time() + seconds, fresh=True)

    def _random(self, count: int, deadline: float, *, fresh: bool) -> list[Sample]:
        found: list[Sample] = []
        refused, share = 0, 0.5
        while len(found) < count and refused <= 8 * count and time.process_time() < deadline:
            given = self._drawn_config(share * self._rng.uniform(0.3, 1.2), fresh=fresh)
            built = self._try(given) if self._is_new(given) else None
            if built is not None:
                found.append(self._builder.sample(given, built, None))
                continue
            refused += 1
            if refused % 5 == 0:
                share = max(0.06, share * 0.8)
        return found

    def _is_new(self, given: Mapping[str, Value]) -> bool:
        mark = tuple(sorted((key, repr(value)) for key, value in given.items()))
        new = mark not in self._drawn
        self._drawn.add(mark)
        return new

    def _drawn_config(self, share: float, *, fresh: bool) -> dict[str, Value]:
        given = dict(self._base)
        relevant = [key for key in self.inventory.keys if key in self.inventory.relevant and key in self._changes]
        others = [key for key in self._changes if key not in self.inventory.relevant]
        others = self._rng.sample(others, min(len(others), 3))
        for key in sorted(relevant, key=self._follows_counts) + others:
            if self._rng.random() < share:
                given = self._changed(given, key, self._choice(key), fresh=fresh)
        for joint in self._joints:
            if self._rng.random() < share / 2:
                given = self._shortened(given, joint, self._rng.choice((1, 2) if fresh and joint.size > 3 else (1,)))
        return given

    def _follows_counts(self, key: str) -> bool:
        """Lists with one entry a layer come after the number of layers."""
        return any(change.length for change in self._changes[key])

    def _choice(self, key: str) -> Change:
        change = self._rng.choice(self._changes[key])
        if change == Change(Op.SET, 0) and self._rng.random() < 0.6:
            change = self._rng.choice(self._changes[key])
        return change


def _same_place(one: str, other: str) -> bool:
    return one.rpartition(".")[0] == other.rpartition(".")[0]


def _probes(shapes: Shapes, classes: Mapping[str, type[PreTrainedModel]]) -> list[str]:
    """Up to three classes that stand for the others: the one with most tensors, then those that add most names."""
    names = {name: {_tail(tensor, classes[name]) for tensor in held} for name, held in shapes.items()}
    chosen: list[str] = []
    covered: set[str] = set()
    while len(chosen) < 3:
        best = max(names, key=lambda name: (len(names[name] - covered), name))
        if not names[best] - covered:
            break
        chosen.append(best)
        covered |= names[best]
    return chosen


def _tail(tensor: str, model_class: type[PreTrainedModel]) -> str:
    return tensor.removeprefix(f"{model_class.base_model_prefix}.")
