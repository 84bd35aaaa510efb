"""The first config of a type: as small as its classes take it, and as near to the default as they need.

Where the default config cannot be built, or not by every class, single repairs are tried for as long as they help.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from transformers import PreTrainedConfig

from repokit.architectures.deriver.candidates import filled_in, smaller
from repokit.architectures.deriver.fields import ABSENT, Inventory, Key, Value, inventory, sub_configs
from repokit.architectures.deriver.hints import BY_CLASS, BY_NAME, REQUIRED_SUBS
from repokit.architectures.deriver.truth import Refused, guarded

MOST_REPAIRS = 80


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the classes of a type took a config.

    Attributes:
        accepted: The classes that were built.
        reasons: Why the others were not, or why there was no config to build them from.
    """

    accepted: frozenset[str]
    reasons: tuple[str, ...]


Attempt = Callable[[Mapping[str, Value]], Outcome]


def default_inventory(config_class: type[PreTrainedConfig]) -> Inventory:
    """The keys of the type, with every sub-config that it can have.

    Raises:
        Refused: The class cannot be built from its defaults, and nothing is known that would help.
    """
    with guarded(30):
        given = REQUIRED_SUBS.get(config_class.__name__, {})
        config = config_class(**given)
        optional = dict(_optional_subs(config))
        filled = _filled(config_class, {**given, **optional, **dict(_buildable_backbones(config))}) or config
        found = inventory(filled)
        found.optional = {name for name in optional if name in sub_configs(filled)}
        for path, parts in given.items():
            found.initial.update({f"{path}.{key}": value for key, value in parts.items() if key != "model_type"})
        return found


def _filled(config_class: type[PreTrainedConfig], given: Mapping[str, object]) -> PreTrainedConfig | None:
    try:
        return config_class(**given)
    except Exception:  # noqa: BLE001  # a class may refuse what it declares, in any way
        return None


def _optional_subs(config: PreTrainedConfig) -> Iterator[tuple[str, dict[str, object]]]:
    present = sub_configs(config)
    specified = getattr(type(config), "sub_configs_defaults", None) or {}
    for name, specification in specified.items():
        if name not in present:
            yield name, {"model_type": specification.model_type, **(specification.init_kwargs or {})}
    for name, sub_class in dict(type(config).sub_configs or {}).items():
        if name not in present and name not in specified and hasattr(sub_class, "model_type") and sub_class.model_type:
            yield name, {"model_type": sub_class.model_type}


def _buildable_backbones(config: PreTrainedConfig) -> Iterator[tuple[str, dict[str, object]]]:
    """Where the timm package is missing: the backbone that the class names, instead of one of timm's."""
    for name, specification in (getattr(type(config), "sub_configs_defaults", None) or {}).items():
        sub = sub_configs(config).get(name)
        replaceable = specification.model_type not in {"timm_backbone", "timm_wrapper"}
        if sub is not None and sub.model_type == "timm_backbone" and replaceable and not _has_timm():
            yield name, {"model_type": specification.model_type, **(specification.init_kwargs or {})}


def _has_timm() -> bool:
    from transformers.utils import is_timm_available

    return bool(is_timm_available())


def find_base(keys: Inventory, type_name: str, attempt: Attempt, *, seconds: float = 8) -> dict[str, Value]:
    """What the base config gives: a small config that as many classes as possible accept.

    Keys that no source names but that a class asks for are added to `keys`.

    Raises:
        Refused: No class accepted any config; with the reason for the first.
    """
    search = _Search(keys, attempt, time.process_time() + seconds)
    first: str | None = None
    for base in _proposals(keys, BY_CLASS.get(type_name, {})):
        search.consider(base)
        first = first or " | ".join(search.outcome.reasons[:1])
        if not search.outcome.reasons:
            return search.base
    search.repair()
    if not search.outcome.accepted:
        raise Refused(first or "no config to try")
    return search.base


def _proposals(keys: Inventory, hints: Mapping[str, Value]) -> Iterator[dict[str, Value]]:
    initial = dict(keys.initial)
    for dotted in hints:
        keys.keys.setdefault(dotted, Key(ABSENT, "", hidden=True))
    small = smaller(keys)
    yield {**initial, **small, **hints}
    yield {**initial, **hints}
    yield {**initial, **{key: value for key, value in small.items() if "." not in key}, **hints}


class _Search:
    """The best config so far, and how the classes took it."""

    def __init__(self, keys: Inventory, attempt: Attempt, deadline: float) -> None:
        self._keys = keys
        self._attempt = attempt
        self._deadline = deadline
        self._attempts = 0
        self.base: dict[str, Value] = {}
        self.outcome = Outcome(frozenset(), ())

    def consider(self, base: Mapping[str, Value]) -> bool:
        """Take the config if it is the first, or more classes accept it than the best so far."""
        if self._attempts and time.process_time() > self._deadline:
            return False
        self._attempts += 1
        outcome = self._attempt(base)
        better = self.outcome.accepted < outcome.accepted or self._attempts == 1
        gets_further = not self.outcome.accepted and outcome.reasons != self.outcome.reasons
        if better:
            self.base, self.outcome = dict(base), outcome
        return better or (gets_further and bool(outcome.accepted))

    def repair(self) -> None:
        """Try single repairs, then further ones on top of those that helped, until every class accepts the config."""
        self._missing_attributes()
        for change in list(_repairs(self._keys, self.outcome.reasons))[:MOST_REPAIRS]:
            if not self.outcome.reasons:
                return
            if self.consider({**self.base, **change}):
                self._missing_attributes()

    def _missing_attributes(self) -> None:
        """Give the attributes that a class reads and no config has, one after the other."""
        given: dict[str, Value] = {}
        for _ in range(8):
            outcome = self._attempt({**self.base, **given}) if given else self.outcome
            missing = dict(_missing(self._keys, outcome.reasons))
            if not missing or missing.keys() <= given.keys():
                break
            given.update(missing)
        if given and self.consider({**self.base, **given}):
            self._keys.keys.update({key: Key(ABSENT, "", hidden=True) for key in given if key not in self._keys.keys})


_MISSING = re.compile(r"'(\w+)' object has no attribute '(\w+)'")


def _missing(keys: Inventory, reasons: tuple[str, ...]) -> Iterator[tuple[str, Value]]:
    for reason in reasons:
        for class_name, name in _MISSING.findall(reason):
            for path, sub_class in keys.classes.items():
                if sub_class == class_name:
                    yield f"{path}.{name}" if path else name, _guess(name)


def _guess(name: str) -> Value:
    if name in BY_NAME:
        return BY_NAME[name]
    if re.search(r"size|dim|hidden", name):
        return 64
    return 0.0 if re.search(r"dropout|rate|eps", name) else 4


def _repairs(keys: Inventory, reasons: tuple[str, ...]) -> Iterator[dict[str, Value]]:
    yield {key: item.default for key, item in keys.keys.items() if isinstance(item.default, tuple)}
    text = " ".join(reasons)
    for key, item in keys.keys.items():
        if re.search(rf"\b{re.escape(key.rpartition('.')[2])}\b", text):
            yield from ({key: value} for value in _opposites(item.default))
    for path in keys.sources:
        beside = filled_in(f"{path}.-" if path else "-", keys)
        yield beside
    for name, value in BY_NAME.items():
        yield {key: value for key, item in keys.keys.items() if key.rpartition(".")[2] == name and not item.default}
    numbers = [key for key, item in keys.keys.items() if type(item.default) is int and item.default > 0]
    for pattern, value in (
        (r"heads$|groups?$", 1),
        (r"heads$|groups?$", 4),
        (r"(hidden|embed|d_model|n_embd)\w*$", 64),
    ):
        yield {key: value for key in numbers if re.search(pattern, key)}


def _opposites(default: object) -> tuple[Value, ...]:
    if isinstance(default, bool):
        return (not default,)
    if default is None or default is ABSENT:
        return (True, 16, (0, 1, 2, 3))
    if isinstance(default, int):
        return (1, 2) if default <= 0 else (1,)
    return (None,)
