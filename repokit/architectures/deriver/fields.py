"""The keys of a config class: what may stand in config.json, what an absent key means, what the object makes of it.

Keys are dotted: `text_config.hidden_size` is `hidden_size` of the sub-config `text_config`.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import inspect
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias, cast

from transformers import PreTrainedConfig

from repokit.architectures.deriver.classes import source_folder

Scalar: TypeAlias = bool | int | float | str | None
Value: TypeAlias = "Scalar | tuple[Value, ...]"


class Absent(enum.Enum):
    """The type of ABSENT: the key does not stand in config.json, and the class has no default to write down."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT

# Names that no tensor depends on in any class seen so far: skipping them saves time and decides nothing else.
# `qk_rope_head_dim`, `chunk_size` and the like must not be caught.
IRRELEVANT = re.compile(
    r"dropout|_eps$|epsilon|initializer|_token_id$|label2id|id2label|^architectures$|_name_or_path|"
    r"output_(attentions|hidden_states)|loss|dtype|temperature|momentum|return_dict|chunk_size_feed|"
    r"transformers_version|problem_type|use_cache|_token_index$|mask_time|mask_feature|layerdrop|drop_path|_coef$|"
    r"_attn_impl|init_std|hidden_act$|activation_function|_act$|rope_(param|theta|scal|inter)|apply_spec|ctc_|jitter|"
    r"gradient_check|use_return|initializer_range|pretraining_tp|router_(z|aux)|task_specific_params|per_layer_config$"
)

# Attributes of a config object that describe the file, not the model.
_BOOKKEEPING = {"id2label", "label2id", "architectures", "transformers_version", "dtype", "num_labels"}

LONGEST_LIST = 400  # longer lists are vocabularies or tables of numbers, not one entry a layer


@dataclass(frozen=True, slots=True)
class Key:
    """One key of config.json.

    Attributes:
        default: What the class takes when the key is absent.
        annotation: Its type as written in the source; "" for a hidden key.
        hidden: Not declared: read by `kwargs.pop`, `kwargs.get` or `getattr(config, ...)` only.
    """

    default: Value | Absent
    annotation: str
    hidden: bool = False


@dataclass(slots=True)
class Inventory:
    """All keys of a config class and of its sub-configs.

    Attributes:
        keys: By dotted key.
        aliases: Two spellings of one dotted key each: the accepted one first, the declared one second.
        subs: Path of a sub-config to its model type.
        optional: The paths among them that are None when absent, so that their part of the model is absent too.
        initial: What an absent sub-config has beyond the defaults of its class, by dotted key. A sub-config that stands
            in config.json has the defaults of its class only.
        classes: Path of a (sub-)config to the name of its class; "" is the config.
        sources: Path of a (sub-)config to the source text of its configuration and modeling modules.
        relevant: The keys that change a tensor of some class, once a sampler has found out.
    """

    keys: dict[str, Key] = field(default_factory=dict)
    aliases: list[tuple[str, str]] = field(default_factory=list)
    subs: dict[str, str] = field(default_factory=dict)
    optional: set[str] = field(default_factory=set)
    initial: dict[str, Value] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    relevant: set[str] = field(default_factory=set)

    @property
    def defaults(self) -> dict[str, Value | Absent]:
        """What an absent key means, by dotted key."""
        return {name: key.default for name, key in self.keys.items()}

    def source(self, dotted: str) -> str:
        """The source text that decides about this key."""
        path = dotted.rpartition(".")[0]
        while path not in self.sources:
            path = path.rpartition(".")[0]
        return self.sources[path]


def inventory(config: PreTrainedConfig) -> Inventory:
    """The keys of the config's class, with the sub-configs that this object has."""
    found = Inventory()
    _collect(config, "", found)
    found.keys["num_labels"] = Key(config.num_labels, "int")
    return found


def _collect(config: PreTrainedConfig, prefix: str, found: Inventory) -> None:
    path = prefix.removesuffix(".")
    found.classes[path] = type(config).__name__
    found.sources[path] = _source(source_folder(type(config)))
    subs = sub_configs(config)
    found.keys.update({prefix + name: key for name, key in _declared(config, subs)})
    found.keys.update({prefix + name: key for name, key in _undeclared(config, found.sources[path])})
    found.keys.update({prefix + name: key for name, key in _per_layer_keys(config, found.sources[path])})
    for spelling, name in (type(config).attribute_map or {}).items():
        found.aliases.append((prefix + spelling, prefix + name))
    for name, sub in subs.items():
        found.subs[prefix + name] = sub.model_type
        found.initial.update(_initial(config, name, f"{prefix}{name}."))
        _collect(sub, f"{prefix}{name}.", found)


def sub_configs(config: PreTrainedConfig) -> dict[str, PreTrainedConfig]:
    """The sub-configs that this object has, by attribute."""
    declared = [name for name in type(config).sub_configs or {} if name in config.__dict__]
    others = [name for name, value in config.__dict__.items() if isinstance(value, PreTrainedConfig)]
    found = {name: config.__dict__[name] for name in dict.fromkeys([*declared, *others]) if not name.startswith("_")}
    return {name: value for name, value in found.items() if isinstance(value, PreTrainedConfig)}


def _declared(config: PreTrainedConfig, subs: Mapping[str, object]) -> Iterator[tuple[str, Key]]:
    for item in dataclasses.fields(type(config)):
        known_as_sub = item.name in subs or item.name in (type(config).sub_configs or {})
        if known_as_sub or item.name.startswith("_") or IRRELEVANT.search(item.name) or item.name == "num_labels":
            continue
        default = _default(item)
        annotation = str(item.type)
        if isinstance(default, dict):
            yield from ((f"{item.name}.{key}", Key(value, "")) for key, value in flat_dict(default))
        else:
            yield item.name, Key(plain(default), annotation)


def _default(item: dataclasses.Field[object]) -> object:
    if item.default is not dataclasses.MISSING:
        return item.default
    return item.default_factory() if item.default_factory is not dataclasses.MISSING else None


def plain(value: object) -> Value:
    """A JSON value with lists as tuples; what JSON has not (a class, a config) as None."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return tuple(plain(item) for item in value)
    return None


def flat_dict(value: Mapping[str, object]) -> Iterator[tuple[str, Value]]:
    """The items of a dict of scalars and lists of scalars; nothing of any other dict."""
    if all(isinstance(key, str) and "." not in key and not isinstance(item, dict) for key, item in value.items()):
        yield from ((key, plain(item)) for key, item in value.items())


_READ_FROM_CONFIG = re.compile(
    r"""getattr\(\s*(?:self\.)?(?:text_|vision_|audio_)?config,\s*["'](\w+)["']\s*(?:,\s*([^)\n]*))?\)"""
)
_READ_FROM_KWARGS = re.compile(
    r"""kwargs\.(?:pop|get)\(\s*["'](\w+)["']\s*(?:,\s*([^)\n]*))?\)|["'](\w+)["'] in kwargs"""
)


def _undeclared(config: PreTrainedConfig, source: str) -> Iterator[tuple[str, Key]]:
    """Keys that no field declares and that matter all the same, with the default that stands where they are read."""
    own = inspect.getsource(type(config))
    matches = [*_READ_FROM_KWARGS.finditer(own), *_READ_FROM_CONFIG.finditer(source)]
    found: dict[str, str] = {}
    differ: set[str] = set()
    for match in matches:
        groups = match.groups()
        name = groups[0] or groups[-1]
        default = (groups[1] or "").strip() if len(groups) > 1 and groups[0] else ""
        if default and found.get(name, default) not in {"", default}:
            differ.add(name)  # conv_kernel_size of DeBERTa: 3 here, 0 there
        if not found.get(name):
            found[name] = default
    for name, default in found.items():
        if not _is_known(config, name):
            yield name, Key(ABSENT if name in differ else _literal(default), "", hidden=True)


def _is_known(config: PreTrainedConfig, name: str) -> bool:
    declared = {item.name for item in dataclasses.fields(type(config))}
    others = {*(type(config).attribute_map or {}), *(type(config).sub_configs or {}), "kwargs"}
    if name in declared | others or name.startswith("_") or IRRELEVANT.search(name):
        return True
    inherited = getattr(PreTrainedConfig, name, None) is not None or name.endswith(("_config", "_config_dict"))
    return inherited or (name in config.__dict__ and not _set_from_kwargs(config, name))


def _set_from_kwargs(config: PreTrainedConfig, name: str) -> bool:
    return re.search(rf"kwargs\.(?:pop|get)\(\s*[\"']{name}[\"']", inspect.getsource(type(config))) is not None


def _literal(text: str) -> Value | Absent:
    try:
        value = plain(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return ABSENT
    return ABSENT if value is None else value


def _per_layer_keys(config: PreTrainedConfig, source: str) -> Iterator[tuple[str, Key]]:
    """Overrides for single layers, `per_layer_config.0.head_dim`, where the class builds such a table itself."""
    if "per_layer_config" not in source:
        return
    for name in sorted(getattr(config, "per_layer_attributes", None) or ()):
        for layer in ("0", "3"):
            yield f"per_layer_config.{layer}.{name}", Key(ABSENT, "", hidden=True)


def _initial(config: PreTrainedConfig, name: str, prefix: str) -> Iterator[tuple[str, Value]]:
    """What a sub-config has beyond the defaults of its class when it is absent: by declaration, or as it came out."""
    sub = sub_configs(config)[name]
    specification = (getattr(type(config), "sub_configs_defaults", None) or {}).get(name)
    if specification is not None and specification.model_type == sub.model_type:
        differences = dict(specification.init_kwargs or {})
    else:
        differences = dict(_differences(sub))
    for key, value in differences.items():
        scalar = value is None or isinstance(value, bool | int | float | str | list | tuple)
        if scalar and not key.startswith("_") and not IRRELEVANT.search(key) and key != "num_labels":
            yield prefix + key, plain(value)


def _differences(sub: PreTrainedConfig) -> Iterator[tuple[str, object]]:
    try:
        alone = type(sub)()
    except Exception:  # noqa: BLE001  # no defaults to differ from
        return
    for item in dataclasses.fields(type(sub)):
        value = sub.__dict__.get(item.name)
        if value != alone.__dict__.get(item.name):
            yield item.name, value
    stages = getattr(sub, "out_indices", None)  # no field: which stages a backbone gives out
    if stages != getattr(alone, "out_indices", None):
        yield "out_indices", stages


@functools.lru_cache(maxsize=512)
def _source(folder: Path) -> str:
    files = [*sorted(folder.glob("configuration_*.py")), *sorted(folder.glob("modeling_*.py"))]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def keyword_arguments(given: Mapping[str, Value], subs: Mapping[str, str]) -> dict[str, object]:
    """The nested arguments of the config class for dotted keys; every sub-config is given with its model type.

    A sub-config that is given as None takes the keys below it along.
    """
    nested: dict[str, object] = {}
    nulls = tuple(f"{path}." for path in subs if given.get(path, path) is None)
    for path, model_type in subs.items():
        if not f"{path}.".startswith(nulls):
            _place(nested, path, {})
            if model_type:
                _place(nested, f"{path}.model_type", model_type)
    for dotted, value in given.items():
        if not dotted.startswith(nulls):
            _place(nested, dotted, _listed(value))
    return nested


def _place(nested: dict[str, object], dotted: str, value: object) -> None:
    *path, last = dotted.split(".")
    inner = nested
    for segment in path:
        below = inner.setdefault(segment, {})
        if not isinstance(below, dict):
            raise TypeError(f"{dotted}: {segment} has a value of its own")
        inner = below
    inner[last] = value


def _listed(value: Value) -> object:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value


def effective(config: PreTrainedConfig, prefix: str = "") -> dict[str, Value]:
    """What the model reads: the attributes of the config object and of its sub-configs, flat.

    Attributes that one layer may override come a second time as `<name>__per_layer`, one entry a layer. A sub-config is
    True, or None where it is not there.
    """
    subs = sub_configs(config)
    found: dict[str, Value] = {}
    for name, value in config.__dict__.items():
        if not name.startswith("_") and name not in subs and name not in _BOOKKEEPING:
            found.update((prefix + key, item) for key, item in _flattened(name, value))
    found.update((prefix + key, item) for key, item in _computed(config))
    found.update((prefix + key, item) for key, item in _per_layer(config))
    found[prefix + "num_labels"] = config.num_labels
    for name, sub in subs.items():
        found[prefix + name] = True
        found.update(effective(sub, f"{prefix}{name}."))
    return found


def _flattened(name: str, value: object) -> Iterator[tuple[str, Value]]:
    if value is None or isinstance(value, bool | int | float | str):
        yield name, value
    elif isinstance(value, list | tuple):
        if len(value) <= LONGEST_LIST and all(isinstance(item, bool | int | float | str) for item in value):
            yield name, tuple(value)
    elif isinstance(value, dict) and not IRRELEVANT.search(name):
        yield from ((f"{name}.{key}", item) for key, item in flat_dict(value))


def _computed(config: PreTrainedConfig) -> Iterator[tuple[str, Value]]:
    """Properties that the config class itself defines: `num_hidden_layers` may be the length of a list."""
    for name in _properties(cast("Hashable", type(config))):
        try:
            value = getattr(config, name)
        except Exception:  # noqa: BLE001, S112  # a property of another model's config may raise anything
            continue
        yield from _flattened(name, value)


@functools.lru_cache(maxsize=512)
def _properties(config_class: Hashable) -> tuple[str, ...]:
    inherited = set(dir(PreTrainedConfig))
    return tuple(
        name
        for name in dir(config_class)
        if not name.startswith("_")
        and name not in inherited
        and isinstance(inspect.getattr_static(config_class, name), property)
        and not IRRELEVANT.search(name)
    )


def _per_layer(config: PreTrainedConfig) -> Iterator[tuple[str, Value]]:
    names = getattr(config, "per_layer_attributes", None)
    if not names:
        return
    layers = list(config.per_layer_config)
    for name in sorted({*names, *(name for name in ("head_dim", "num_key_value_heads") if hasattr(layers[0], name))}):
        values = tuple(getattr(layer, name, None) for layer in layers)
        if all(isinstance(value, bool | int | float | str) for value in values):
            yield f"{name}__per_layer", values
