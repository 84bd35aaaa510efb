"""One config, and the tensors that the classes of its type have under it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from repokit.architectures.deriver.base_config import Outcome
from repokit.architectures.deriver.fields import ABSENT, Inventory, Value, effective, keyword_arguments
from repokit.architectures.deriver.truth import Refused, Shape, guarded, on_disk

Shapes = dict[str, dict[str, Shape]]

SECONDS_PER_MODEL = 4.0
SECONDS_FOR_BASE = 20.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One config and what its classes hold.

    Attributes:
        given: Dotted key to the JSON value that stands in config.json, lists as tuples.
        effective: Dotted attribute of the config object to its value, lists as tuples (see `fields.effective`).
        saved: What the config object writes to config.json, without what equals a default.
        shapes: Class name to on-disk name to shape. A class that refused this config is absent.
        changed: The one key that differs from the base config, None if there is not exactly one.
    """

    given: dict[str, Value]
    effective: dict[str, Value]
    saved: dict[str, object]
    shapes: Shapes
    changed: str | None = None


@dataclass(slots=True)
class Built:
    """A config object, and the classes that have been built from it so far."""

    config: PreTrainedConfig
    effective: dict[str, Value]
    given: Mapping[str, Value]
    shapes: Shapes = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


class Builder:
    """Builds configs of one type, and its classes from them.

    Attributes:
        classes: The model classes by name.
    """

    def __init__(self, config_class: type[PreTrainedConfig], inventory: Inventory, class_names: Sequence[str]) -> None:
        self._config_class = config_class
        self._inventory = inventory
        self._changes_config: dict[str, bool] = {}
        self.classes: dict[str, type[PreTrainedModel]] = {name: getattr(transformers, name) for name in class_names}

    def config(self, given: Mapping[str, Value]) -> Built:
        """The config object for these keys; raises Refused if the class does not take them."""
        config = self._fresh(given)
        with guarded(SECONDS_PER_MODEL):
            seen = effective(config)
        for key, item in self._inventory.keys.items():
            if item.hidden and key not in seen:
                value = given.get(key, item.default)
                seen[key] = None if value is ABSENT else value
        for path in self._inventory.optional:
            seen.setdefault(path, None)
        return Built(config, seen, given)

    def complete(self, built: Built, names: Iterable[str], seconds: float = SECONDS_PER_MODEL) -> None:
        """Build these classes too, unless they have been tried."""
        for name in names:
            if name not in built.shapes and name not in built.refused:
                try:
                    own = copy.deepcopy(built.config)  # GPT2DoubleHeadsModel and others write into theirs
                    built.shapes[name] = on_disk(self.classes[name], own, seconds=seconds)
                except Refused as refused:
                    built.refused[name] = str(refused)

    def _shapes(self, name: str, built: Built, seconds: float) -> dict[str, Shape]:
        """The tensors of one class; a class that changes its config gets one of its own."""
        if self._changes_config.get(name):
            return on_disk(self.classes[name], self._fresh(built.given), seconds=seconds)
        shapes = on_disk(self.classes[name], built.config, seconds=seconds)
        if name not in self._changes_config:
            after = effective(built.config)
            self._changes_config[name] = any(built.effective.get(key, value) != value for key, value in after.items())
            if self._changes_config[name]:
                built.config = self._fresh(built.given)
        return shapes

    def _fresh(self, given: Mapping[str, Value]) -> PreTrainedConfig:
        with guarded(SECONDS_PER_MODEL):
            return self._config_class(**keyword_arguments(given, self._inventory.subs))

    def outcome(self, given: Mapping[str, Value]) -> Outcome:
        """Which classes accept the keys, and why others do not."""
        try:
            built = self.config(given)
        except Refused as refused:
            return Outcome(frozenset(), (str(refused),))
        self.complete(built, self.classes, SECONDS_FOR_BASE)
        reasons = tuple(f"{name}: {reason}" for name, reason in built.refused.items())
        return Outcome(frozenset(built.shapes), reasons)

    def sample(self, given: Mapping[str, Value], built: Built, changed: str | None) -> Sample:
        """The finished sample, with every class."""
        self.complete(built, self.classes)
        return Sample(dict(given), built.effective, _saved(built.config), built.shapes, changed)


def _saved(config: PreTrainedConfig) -> dict[str, object]:
    try:
        with guarded(SECONDS_PER_MODEL):
            saved = json.loads(config.to_json_string(use_diff=True))
    except Refused:
        return {}
    return saved if isinstance(saved, dict) else {}
