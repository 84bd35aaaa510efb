"""config.json as the tensors depend on it: absent keys by the class's defaults, nulls by the class's rules.

An absent key and a null are two things: absent means the default of the configuration class, null means what the class
computes in its place (`head_dim: null` is hidden_size // num_attention_heads, an absent one may be 128).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import chain
from typing import Any, Final

from repokit.architectures.errors import ConfigUnusable
from repokit.architectures.grammar import UNUSABLE, Environment, Value
from repokit.architectures.member import ConfigFacts, Derived, frozen

LABELS: Final = "num_labels"
PER_LAYER: Final = "__per_layer"
MOST_ELEMENTS: Final = 100_000  # of a list of config.json, given or computed
_ABSENT: Final = object()


class Completed(dict[str, Value]):
    """The flat environment of the expressions. What nothing defines is None, as an attribute of a config would be."""

    def __missing__(self, key: str) -> None:
        return None


def complete(facts: ConfigFacts, config: Mapping[str, Any]) -> Environment:
    """The environment that the expressions of this model type see.

    Raises:
        ConfigUnusable: A value is an object, or a list without end.
    """
    raw = _raw(facts, config)
    completed = Completed(raw)
    for key, rule in facts.derived.items():
        if not (rule.given and raw[key] is not None):
            completed[key] = _per_layer(config, raw, key) or _computed(rule, raw)
    return completed


def _raw(facts: ConfigFacts, config: Mapping[str, Any]) -> Completed:
    raw = Completed(facts.defaults)
    given: dict[str, Value] = {}
    for key in _wanted(facts):
        value = _looked_up(config, key)
        if value is not _ABSENT and not (value is None and raw[key] is True and key in facts.subs):
            given[key] = _usable(key, value)
    for key, value in facts.initial.items():
        if not isinstance(_looked_up(config, key.rpartition(".")[0]), Mapping):
            raw[key] = value
    if isinstance(labels := config.get("id2label"), Mapping) and labels:
        given[LABELS] = len(labels)
    for first, second in facts.aliases:
        if second in given:
            given.setdefault(first, given[second])
        elif first in given:
            given[second] = given[first]
    raw.update(given)
    return raw


@cache
def _keys(rules: tuple[Derived, ...]) -> frozenset[str]:
    lengths = [rule.length.keys for rule in rules if rule.length is not None]
    return frozenset().union(*lengths, *(rule.value.keys for rule in rules))


def _wanted(facts: ConfigFacts) -> set[str]:
    return {*facts.defaults, *facts.derived, *facts.subs, *chain(*facts.aliases), *_keys(tuple(facts.derived.values()))}


def _looked_up(config: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401 - a JSON value
    found: Any = config
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return _ABSENT
        found = found[part]
    return found


def _usable(key: str, value: Any) -> Value:  # noqa: ANN401 - a JSON value
    if isinstance(value, (list, tuple)) and len(value) > MOST_ELEMENTS:
        raise ConfigUnusable(f"{key} has {len(value):,} elements", key=key)
    try:
        return True if isinstance(value, Mapping) else frozen(value)
    except (TypeError, RecursionError):
        return None  # an object where the class has none is a matter of the schema


def _computed(rule: Derived, raw: Completed) -> Value:
    """What the class would put there; None where the values do not allow it: the class would have refused them."""
    try:
        if rule.length is None:
            value: Value = rule.value.evaluate(raw)
            return value
        length = int(rule.length.evaluate(raw))
        if length > MOST_ELEMENTS:
            raise ConfigUnusable(f"{rule.length} is {length:,}", key=next(iter(rule.length.keys), None))
        return tuple(rule.value.evaluate(raw, index) for index in range(length))
    except UNUSABLE:
        return None


def _per_layer(config: Mapping[str, Any], raw: Completed, key: str) -> Value:
    """`head_dim__per_layer`: a value that `per_layer_config` may set for single layers (Gemma 4)."""
    if not key.endswith(PER_LAYER):
        return None
    path, _, name = key.removesuffix(PER_LAYER).rpartition(".")
    before = f"{path}." if path else ""
    layers = _looked_up(config, f"{before}per_layer_config")
    count = raw[f"{before}num_hidden_layers"]
    if not isinstance(layers, Mapping) or not isinstance(count, int) or not 0 <= count <= MOST_ELEMENTS:
        return None
    usual = raw[f"{before}{name}"]
    own = [layers.get(str(index)) for index in range(count)]
    return tuple(_usable(key, layer.get(name, usual)) if isinstance(layer, Mapping) else usual for layer in own)
