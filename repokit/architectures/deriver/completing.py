"""Fits what the config class makes of absent and null keys: from config.json to the attributes that the model reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from repokit.architectures.completion import PER_LAYER
from repokit.architectures.deriver.features import Features, Observations
from repokit.architectures.deriver.fields import ABSENT, Inventory
from repokit.architectures.deriver.fitting import Fitter
from repokit.architectures.grammar import Environment, Value, expression
from repokit.architectures.member import ConfigFacts

MOST_VALUES: Final = 6


def all_keys(inventory: Inventory, name: str) -> ConfigFacts:
    """The facts of a config class before anything is fitted: every key with its default."""
    defaults: dict[str, Value] = {}
    for key, value in inventory.defaults.items():
        defaults[key] = None if value is ABSENT else value
    for path in inventory.subs:
        defaults[path] = None if path in inventory.optional else True
    return ConfigFacts(name, defaults, tuple(inventory.aliases), {}, inventory.subs, inventory.initial, ())


@dataclass
class Completing:
    """The rules for one config class.

    Attributes:
        given: What config.json says in each sample, defaults filled in.
        effective: What the model reads in each sample.
    """

    given: Sequence[Environment]
    effective: Sequence[Mapping[str, Value]]
    singles: Sequence[int]
    seconds: float
    unknown: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._coded = _coded(self.given)
        seen = [
            {
                key: tuple(value) if key in self._coded and isinstance(value, str) else value
                for key, value in one.items()
            }
            for one in self.given
        ]
        self._fitter = Fitter(Features(seen), self.singles)
        self._fitter.fit([], self.seconds)  # starts its clock

    def rules(self, keys: Iterable[str], known: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Key -> its rule in the member format; keys that are what config.json says have none."""
        found: dict[str, dict[str, Any]] = {}
        for key in sorted(keys):
            if key in known:
                found[key] = dict(known[key])
                continue
            values = [one.get(key) for one in self.effective]
            given = [one.get(key) for one in self.given]
            if all(map(_same, values, given)):
                continue
            where = [number for number, value in enumerate(given) if value is None]
            own = all(
                _same(values[number], given[number]) for number in range(len(values)) if given[number] is not None
            )
            rule = self._rule(where if own else list(range(len(values))), values)
            if rule is None:
                self.unknown.append(key)
            else:
                found[key] = {"given": own and any(value is not None for value in given), **rule}
        return found

    def _rule(self, samples: list[int], values: list[Value]) -> dict[str, str] | None:
        wanted = [values[sample] for sample in samples]
        seen = Observations(tuple((sample, ()) for sample in samples))
        if not all(isinstance(value, tuple) for value in wanted):
            text = self._value(seen, wanted)
            return None if text is None else {"expr": text}
        lists = [value for value in wanted if isinstance(value, tuple)]
        length = self._value(seen, [len(value) for value in lists])
        points = tuple(
            (sample, (at,)) for sample, value in zip(samples, lists, strict=True) for at in range(len(value))
        )
        items = [item for value in lists for item in value]
        element = self._value(Observations(points), items) if items else "0"
        return None if length is None or element is None else {"len": length, "elem": element}

    def _value(self, seen: Observations, values: list[Value]) -> str | None:
        """The expression of values of any type."""
        if len({repr(value) for value in values}) == 1:
            return repr(values[0])
        numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
        if len(numbers) == len(values) and (text := self._fitter.number(seen, numbers)):
            return text
        if (text := self._copied(seen, values)) or (text := self._chosen(seen, values)):
            return text
        return self._where_known(seen, values)

    def _copied(self, seen: Observations, values: list[Value]) -> str | None:
        """A key that has just these values."""
        for key in (*self._fitter.features.choices, *self._fitter.features.lists):
            if all(
                _same(self.given[sample].get(key), value)
                for (sample, _), value in zip(seen.points, values, strict=True)
            ):
                return key
        return None

    def _chosen(self, seen: Observations, values: list[Value]) -> str | None:
        """One of a few values, each under a condition."""
        kinds = {repr(value): value for value in values}
        if len(kinds) > MOST_VALUES:
            return None
        spelled = [repr(value) for value in values]
        first, *others = sorted(kinds, key=lambda kind: (-spelled.count(kind), kind))
        text = first
        for kind in others:
            held = self._fitter.truth(seen, [value == kind for value in spelled])
            if held is None:
                return None
            if kinds.keys() == {"True", "False"}:
                return held if kind == "True" else f"not ({held})"
            text = f"({kind} if {held} else {text})"
        return text

    def _where_known(self, seen: Observations, values: list[Value]) -> str | None:
        """Null under a condition, a number elsewhere."""
        absent = [value is None for value in values]
        if not any(absent) or all(absent):
            return None
        held = self._fitter.truth(seen, absent)
        rest = self._value(seen.where(not none for none in absent), [value for value in values if value is not None])
        return None if held is None or rest is None else f"(None if {held} else {rest})"


def _same(one: Value, other: Value) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool) and (one is None) == (other is None)


def _coded(given: Sequence[Environment]) -> frozenset[str]:
    """Keys whose strings spell a list, one character per layer (`M-M*`)."""
    keys = {key for one in given for key, value in one.items() if isinstance(value, str)}
    found = set()
    for key in keys:
        words = {value for one in given if isinstance(value := one.get(key), str)}
        alphabet = {letter for word in words for letter in word}
        if len(words) > 3 and len(alphabet) <= MOST_VALUES and all(len(word) > 1 for word in words):
            found.add(key)
    return frozenset(found)


def closure(texts: Iterable[str], rules: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Every key that these expressions, and the rules of those keys, mention."""
    keys: set[str] = set()
    for text in texts:
        keys |= expression(text).keys
    for key in [key for key in keys if key.endswith(PER_LAYER)]:
        path, _, name = key.removesuffix(PER_LAYER).rpartition(".")
        keys |= {f"{path}.{own}".lstrip(".") for own in (name, "num_hidden_layers")}
    for key in list(keys):
        for part in ("expr", "len", "elem"):
            if key in rules and part in rules[key]:
                keys |= expression(rules[key][part]).keys
    return keys
