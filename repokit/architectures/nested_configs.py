"""Configs in configs: those of the parts of composed models.

"flat" of a config in a data file: the nested configs whose keys older files keep at the top level, as those of Qwen2-VL
before transformers 4.52 do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from repokit.architectures.completion import complete
from repokit.architectures.errors import ConfigUnusable, NotCovered
from repokit.architectures.member import ConfigFacts, member

_DEEPEST: Final = 6  # models in models in models: three levels are the most that transformers has


def flattened(config: Mapping[str, Any], facts: ConfigFacts) -> Mapping[str, Any]:
    """The config as the class reads it.

    Nested configs that older files keep flat are put in their place. What a nested config of another type than the
    derived one leaves out means what it means for its own type.

    Raises:
        ConfigUnusable: It nests models without end.
    """
    if facts.subs:
        _check_depth(config)
    whole = dict(config)
    for path in facts.flat:
        if not isinstance(whole.get(path), Mapping):
            nested = {key: whole[key] for key in _keys_below(facts, path) if key in whole}
            if nested:
                whole[path] = nested
    for path in sorted(facts.subs):
        _fill(whole, path, facts)
    return whole


def _keys_below(facts: ConfigFacts, path: str) -> set[str]:
    keys = {*facts.defaults, *facts.derived, *(key for pair in facts.aliases for key in pair)}
    for rule in facts.derived.values():
        keys |= rule.value.keys | (rule.length.keys if rule.length else frozenset())
    before = f"{path}."
    return {key.removeprefix(before) for key in keys if key.startswith(before)}


def _fill(whole: dict[str, Any], path: str, facts: ConfigFacts) -> None:
    nested = nested_config(whole, path)
    if nested is None or (own := other_type(nested, path, facts)) is None:
        return
    try:
        part = member(own).config
        values = complete(part, flattened(nested, part))
    except (NotCovered, ConfigUnusable):
        return
    spellings = {**dict(part.aliases), **{second: first for first, second in part.aliases}}
    filled = dict(nested)
    for key in _keys_below(facts, path) - nested.keys():
        names = [name for name in (key, spellings.get(key, "")) if name in part.defaults or name in part.derived]
        if names:
            filled[key] = values[names[0]]
    _put(whole, path, filled)


def _put(whole: dict[str, Any], path: str, value: Mapping[str, Any]) -> None:
    *parents, last = path.split(".")
    holder = whole
    for name in parents:
        holder[name] = dict(holder[name])
        holder = holder[name]
    holder[last] = value


def nested_config(config: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    """The nested config at a dotted path, if there is one."""
    found: Any = config
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else None


def other_type(nested: Mapping[str, Any], path: str, facts: ConfigFacts) -> str | None:
    """The model type of a nested config, if it is not the derived one."""
    own = nested.get("model_type")
    return own if isinstance(own, str) and own and own != facts.subs.get(path) else None


def _check_depth(config: Mapping[str, Any]) -> None:
    level: list[Any] = [config]
    for _ in range(_DEEPEST):
        level = [value for holder in level for value in holder.values() if isinstance(value, Mapping)]
    if any("model_type" in holder for holder in level):
        raise ConfigUnusable(f"models are nested more than {_DEEPEST} deep")
