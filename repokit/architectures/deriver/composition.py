"""Which parts of a composed model are models of their own, chosen by the model_type of a nested config.

`references`, `autos` and `flat_paths` write what repokit.architectures.composition reads; there stands the format.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import transformers
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from repokit.architectures.deriver.hints import REQUIRED_SUBS
from repokit.architectures.deriver.names import loaded_as
from repokit.architectures.deriver.truth import Refused, Truth, truth

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_SECONDS = 30.0
_DECODER, _ENCODER_DECODER = "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"
_COUNTER = ".num_batches_tracked"
# Keys of a nested config that say nothing of its tensors, or that the outer config has a meaning of its own for.
_NOT_LIFTED = re.compile(r"_token_(id|index)$|^(tie|is|use|pad|transformers)_|^(dtype|architectures|id2label)$")


@dataclass(frozen=True, slots=True)
class Chosen:
    """One call of `from_config` of an Auto class while a model was built."""

    auto: str
    config: PreTrainedConfig
    model: PreTrainedModel


def autos(model_class: type[PreTrainedModel]) -> list[str]:
    """The Auto classes that choose this class for its config."""
    found = []
    for auto in _auto_classes():
        mapping = getattr(auto, "_model_mapping", None)
        chosen = mapping.get(model_class.config_class, None) if mapping is not None else None
        first = chosen[0] if isinstance(chosen, (list, tuple)) and chosen else chosen
        if first is model_class:
            found.append(auto.__name__)
    return sorted(found)


@contextlib.contextmanager
def recorded() -> Iterator[list[Chosen]]:
    """Records the sub-models that Auto classes choose within it."""
    calls: list[Chosen] = []
    holders = {base for auto in _auto_classes() for base in auto.__mro__ if "from_config" in base.__dict__}
    before = {holder: holder.__dict__["from_config"] for holder in holders}
    for holder, original in before.items():
        holder.from_config = classmethod(_recording(original.__func__, calls))
    try:
        yield calls
    finally:
        for holder, original in before.items():
            holder.from_config = original


def _auto_classes() -> list[Any]:
    values = [value for name, value in vars(modeling_auto).items() if name.startswith("Auto")]
    return [value for value in values if isinstance(value, type) and hasattr(value, "from_config")]


def _recording(original: Any, calls: list[Chosen]) -> Any:  # noqa: ANN401 - a method of an Auto class
    def from_config(auto: Any, config: Any, **options: Any) -> Any:  # noqa: ANN401 - as the method that it stands for
        made = original(auto, config, **options)
        calls.append(Chosen(auto.__name__, config, made))
        return made

    return from_config


def references(model_class: type[PreTrainedModel], config: PreTrainedConfig) -> list[dict[str, Any]]:
    """The references of a class: one for each sub-model that an Auto class chooses.

    Args:
        model_class: The composed class.
        config: A config under which the class can be built, with the sub-models that it has by default.

    Raises:
        Refused: The class does not take this config.
    """
    with recorded() as calls:
        whole = truth(model_class, config, seconds=_SECONDS)
    paths = _config_paths(whole.model.config)
    modules = {id(module): name for name, module in whole.model.named_modules(remove_duplicate=False)}
    loaded = loaded_as(whole.model, whole.disk)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for call in calls:
        path, module = _path(paths, call.config), modules.get(id(call.model))
        if path and module and (row := _reference(whole, loaded, call, module)) is not None:
            found[path, row["prefix"]] = {"path": path, **row}
    return [found[key] for key in sorted(found, key=lambda key: (key[0].count("."), key))]


def completed(document: Mapping[str, Any]) -> dict[str, Any]:
    """A member's document with what composition needs, where its derivation did not say it.

    Classes whose default config cannot be built stay without references.
    """
    config, classes = dict(document["config"]), {}
    for name, record in document["classes"].items():
        model_class = getattr(transformers, name)
        config.setdefault("flat", flat_paths(model_class.config_class))
        added: dict[str, Any] = {"autos": autos(model_class), "references": []}
        if "references" not in record and config["subs"]:
            with contextlib.suppress(Exception):  # whatever a config class raises, it has no default
                given = REQUIRED_SUBS.get(config["class"], {})
                added["references"] = references(model_class, model_class.config_class(**given))
        classes[name] = {**{key: value for key, value in added.items() if value}, **record}
    return {**document, "config": config, "classes": classes}


def _config_paths(config: PreTrainedConfig, before: str = "") -> dict[str, PreTrainedConfig]:
    found = {}
    for name, value in config.__dict__.items():
        if isinstance(value, PreTrainedConfig) and not name.startswith("_"):
            found[before + name] = value
            found |= _config_paths(value, f"{before}{name}.")
    return found


def _path(paths: Mapping[str, PreTrainedConfig], config: PreTrainedConfig) -> str | None:
    """Where a config lies in the whole one; a copy of it counts when it is of one only."""
    same = [path for path, value in paths.items() if value is config]
    if not same:
        alike = [path for path, value in paths.items() if type(value) is type(config)]
        same = [path for path in alike if paths[path].to_dict() == config.to_dict()]
    return same[0] if len(same) == 1 else None


def _reference(whole: Truth, loaded: Mapping[str, str], call: Chosen, module: str) -> dict[str, Any] | None:
    """What the names below `module` have to do with those of the sub-model alone; None: the files have none of it."""
    there = [name for name in whole.disk if loaded[name].startswith(f"{module}.")]
    if not there:
        return None
    try:
        held = truth(type(call.model), copy.deepcopy(call.config), seconds=_SECONDS)
    except Refused:
        held = Truth({}, {}, call.model)
    alone = held.disk
    prefix = _prefix(whole.disk, alone, there)
    row: dict[str, Any] = {"prefix": prefix, "module": f"{module}.", "auto": call.auto}
    if call.auto == _DECODER and f"{_ENCODER_DECODER}.from_config(" in _source(type(whole.model)):
        row["instead"] = _ENCODER_DECODER  # BLIP-2 takes OPT as well as T5
    below = {name.removeprefix(prefix): shape for name, shape in whole.disk.items() if name.startswith(prefix)}
    missing = alone.keys() - below.keys()
    without = _modules(missing, set(alone))
    counters = {name for name in alone if name.endswith(_COUNTER)}
    if missing == counters:  # detectors freeze the batch norms of their backbone
        without = [_COUNTER] if counters else []
    simple = all(alone[name] == below[name] for name in alone.keys() & below.keys())
    elsewhere = any(f"{module}.{name}" in loaded.values() for name in loaded_as(held.model, missing).values())
    if not simple or elsewhere or len(missing) == len(alone) or below.keys() - alone.keys():
        return {**row, "auto": None}  # its files are not laid out as those of the sub-model
    if any(map(_NUMBER.search, without)):
        return {**row, "auto": None}
    if call.auto == "AutoBackbone" and "replace_batch_norm(" in _source(type(whole.model)):
        without = sorted({*without, _COUNTER})
    return {**row, "without": without} if without else row


def _source(model_class: type) -> str:
    return inspect.getsource(sys.modules[model_class.__module__])


def _prefix(disk: Mapping[str, Any], alone: Mapping[str, Any], there: list[str]) -> str:
    """What stands before the names of the sub-model alone, in the files of the whole."""
    counts: Counter[str] = Counter()
    for name in there:
        parts = name.split(".")
        tails = (".".join(parts[start:]) for start in range(1, len(parts)))
        counts.update(name.removesuffix(tail) for tail in tails if alone.get(tail) == disk[name])
    if counts:
        return max(counts, key=lambda prefix: (counts[prefix], len(prefix)))
    common = [parts[0] for parts in zip(*(name.split(".") for name in there), strict=False) if len(set(parts)) == 1]
    prefix = ".".join(common)  # what all have at the same place; that it is a beginning is checked
    return f"{prefix}." if prefix and all(name.startswith(f"{prefix}.") for name in there) else ""


def _modules(missing: set[str], names: set[str]) -> list[str]:
    """The shortest prefixes of whole modules that hold all missing names and no other."""
    found: set[str] = set()
    for name in sorted(missing):
        parts = name.split(".")
        heads = [".".join(parts[:end]) + "." for end in range(1, len(parts))]
        whole = (head for head in heads if all(other in missing for other in names if other.startswith(head)))
        found.add(next(whole, name))
    return sorted(found)


def flat_paths(config_class: type[PreTrainedConfig]) -> list[str]:
    """The nested configs whose keys the class also takes at the top level, as its files of 2023 and 2024 have them.

    Tried: keys get other values than they have by default, are put at the top level, and must arrive in the nested
    config and nowhere else.
    """
    found = []
    for path in config_class.sub_configs or {}:
        try:
            nested = getattr(config_class(), path, None)
            flat = isinstance(nested, PreTrainedConfig) and _arrives(config_class, path, _changed(nested))
        except Exception:  # noqa: BLE001 - whatever a config class raises, it does not take this form
            flat = False
        if flat:
            found.append(path)
    return found


def _changed(nested: PreTrainedConfig) -> dict[str, int]:
    # Doubled, so that what must divide something still does.
    return {
        key: 2 * value
        for key, value in nested.to_dict().items()
        if type(value) is int and value > 0 and not _NOT_LIFTED.search(key)
    }


def _arrives(config_class: type[PreTrainedConfig], path: str, changed: Mapping[str, int]) -> bool:
    own = config_class().to_dict()
    flat = {key: value for key, value in changed.items() if key not in own}
    nested = getattr(config_class.from_dict(dict(flat)), path, None)
    arrived = [key for key, value in flat.items() if getattr(nested, key, None) == value]
    return len(flat) > 2 and 2 * len(arrived) > len(flat)
