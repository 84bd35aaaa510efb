"""The expressions that a model class computes from its config while it builds itself.

A search over vectors finds `num_attention_heads*head_dim` only if it tries it. The class computes it before our eyes:
its config is filled with values that remember where they come from, it is built on the meta device, and what it
computed and asked is written down. These are candidates; whether one is the size of a tensor, the fitter decides.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.integrations.heterogeneity.configuration_utils import _PerLayerConfigView

from repokit.architectures.completion import PER_LAYER
from repokit.architectures.deriver.fields import IRRELEVANT, LONGEST_LIST, sub_configs
from repokit.architectures.deriver.tracing_builtins import shadowed
from repokit.architectures.deriver.tracing_terms import Term, constant, element, named
from repokit.architectures.deriver.tracing_values import (
    Trace,
    TracedBool,
    TracedFloat,
    TracedInt,
    TracedStr,
    listed,
    noted,
    plain,
    recording,
    term_of,
)
from repokit.architectures.deriver.tracing_variants import keys_in, ordered
from repokit.architectures.deriver.truth import Refused, guarded

_PATH: Final = "_traced_path"  # an attribute of the config: it goes along when the config is copied


@dataclass(frozen=True, slots=True)
class Hints:
    """Candidates for what a skeleton says.

    Attributes:
        expressions: For dimensions and counts, simplest first; those that a module holds as an attribute before others.
        conditions: For the presence of tensors; one holds where its value is truthy.
        touched: The keys in these.
        read: The keys that code of models read while the model was built, whatever came of it.
        level: Which of LEVELS built the model; len(LEVELS) if none did.
    """

    expressions: tuple[str, ...]
    conditions: tuple[str, ...]
    touched: frozenset[str]
    read: frozenset[str]
    level: int


@dataclass(frozen=True, slots=True)
class Level:
    """Which values are traced beside integers. Some classes refuse some: they insist on a bool, or on a list."""

    flags: bool = False
    strings: bool = False
    others: bool = False  # floats, lists and dicts
    builtins: bool = False


LEVELS: Final = (
    Level(flags=True, strings=True, others=True, builtins=True),
    Level(strings=True, others=True, builtins=True),
    Level(others=True, builtins=True),
    Level(others=True),
    Level(),
)


def traced(
    model_class: type[PreTrainedModel],
    config: PreTrainedConfig,
    *,
    hidden: Mapping[str, object] | None = None,
    seconds: float,
) -> Hints:
    """Build the model with a config whose values are traced.

    Args:
        model_class: The class.
        config: Its config, which is not changed. Build the model once before: then the modules of its parts are loaded.
        hidden: Keys that no class declares, and what the model takes when they are absent.
        seconds: For all attempts together.

    Returns:
        What was seen. A model that fails on traced values is no error: what was seen until then counts.
    """
    trace = Trace()
    end = time.process_time() + seconds
    for number, level in enumerate(LEVELS):
        trace.started()
        with contextlib.suppress(Refused), guarded(max(0.05, end - time.process_time())):
            return _hints(trace, _built(model_class, _filled(config, hidden or {}, level), level, trace), number)
        if time.process_time() > end:
            break
    return _hints(trace, [], len(LEVELS))


def _hints(trace: Trace, held: list[str], level: int) -> Hints:
    whole = [text for text, value in trace.expressions.items() if 0 <= value < float("inf") and value == int(value)]
    expressions, conditions = ordered(held, whole, trace.conditions)
    touched = frozenset(key for text in (*expressions, *conditions) for key in keys_in(text))
    return Hints(expressions, conditions, touched, frozenset(trace.read), level)


def _built(model_class: type[PreTrainedModel], config: PreTrainedConfig, level: Level, trace: Trace) -> list[str]:
    """Builds the model; the expressions that its modules hold as attributes."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(recording(trace))
        stack.enter_context(_watched(trace))
        if level.builtins:
            stack.enter_context(shadowed(_packages(model_class, config)))
        stack.enter_context(torch.device("meta"))
        return list(dict.fromkeys(_held(model_class(config).modules())))


def _packages(model_class: type[PreTrainedModel], config: PreTrainedConfig) -> set[str]:
    """`transformers.models.llama` and the like: of the class, of its config, of the configs in it, of their parents."""
    configs = [config]
    for known in configs:
        configs += sub_configs(known).values()
    classes = [parent for known in (model_class, *map(type, configs)) for parent in known.__mro__]
    modules = {parent.__module__ for parent in classes}
    return {module.rpartition(".")[0] for module in modules if module.startswith("transformers.models.")}


def _held(modules: Iterable[torch.nn.Module]) -> Iterator[str]:
    """`in_features` of a Linear, `kernel_size` of a convolution, and whatever else models keep."""
    for module in modules:
        for value in vars(module).values():
            for item in value if type(value) in (tuple, list) else (value,):
                if type(item) is TracedInt and plain(item) >= 0:
                    yield item.expression


@contextlib.contextmanager
def _watched(trace: Trace) -> Iterator[None]:
    """Writes down what models read, and lets values be traced that no attribute of a config holds."""
    replaced = (
        (PreTrainedConfig, "__getattribute__", _reading(trace, PreTrainedConfig.__getattribute__)),
        (PreTrainedConfig, "num_labels", _counting(PreTrainedConfig.num_labels)),
        (_PerLayerConfigView, "__getitem__", _of_one_layer(_PerLayerConfigView.__getitem__)),
    )
    before = [getattr(owner, name) for owner, name, _ in replaced]
    try:
        for owner, name, replacement in replaced:
            setattr(owner, name, replacement)
        yield
    finally:
        for (owner, name, _), original in zip(replaced, before, strict=True):
            setattr(owner, name, original)


def _reading(trace: Trace, read: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def reading(config: PreTrainedConfig, key: str) -> Any:  # noqa: ANN401 - any value
        value = read(config, key)
        if key[0] != "_" and sys._getframe(1).f_globals.get("__name__", "").startswith("transformers.models."):  # noqa: SLF001 - who reads
            _was_read(trace, f"{_path(config)}{read(config, 'attribute_map').get(key, key)}", value)
        return value

    return reading


def _was_read(trace: Trace, key: str, value: object) -> None:
    if value is None:
        trace.conditions.setdefault(f"{key} is None")
    elif not isinstance(value, (bool, int, float, str, list, tuple)):
        return
    trace.read.add(key)
    if type(value) is TracedInt:
        noted(plain(value), value.term)


def _path(config: PreTrainedConfig) -> str:
    return str(vars(config).get(_PATH, ""))


def _counting(labels: property) -> property:
    def counted(config: PreTrainedConfig) -> int | None:
        number = labels.__get__(config)
        return None if number is None else TracedInt(number, named(f"{_path(config)}num_labels"))

    return property(counted, labels.fset)


def _of_one_layer(view: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The config of one layer, `config.per_layer_config[i]`: what layers may override is an element of a list."""

    def of_one_layer(layers: Any, place: Any) -> Any:  # noqa: ANN401 - as transformers has it
        config = view(layers, place)
        whole = layers._config  # noqa: SLF001 - the config that the layers belong to
        if isinstance(place, int) and whole.is_heterogeneous:
            for name in whole.per_layer_attributes | {"head_dim", "num_key_value_heads"}:
                if type(value := plain(vars(config).get(name))) in (int, float):
                    vars(config)[name] = noted(
                        value, element(named(f"{_path(whole)}{name}{PER_LAYER}"), term_of(place))
                    )
        return config

    return of_one_layer


def _filled(config: PreTrainedConfig, hidden: Mapping[str, object], level: Level) -> PreTrainedConfig:
    """A copy of the config with traced values, past its validators."""
    filled = copy.deepcopy(config)
    _fill(filled, "", hidden, level)
    return filled


def _fill(config: PreTrainedConfig, prefix: str, hidden: Mapping[str, object], level: Level) -> None:
    attributes = vars(config)
    subs = sub_configs(config)
    for key, value in hidden.items():
        name = key.rpartition(".")[2]
        if key == prefix + name and not hasattr(config, name) and isinstance(value, (bool, int, float, str, tuple)):
            attributes[name] = value
    for name, value in list(attributes.items()):
        if not name.startswith("_") and name not in subs and not IRRELEVANT.search(name):
            attributes[name] = _traced(value, named(prefix + name), level)
    attributes[_PATH] = prefix
    for name, sub in subs.items():
        _fill(sub, f"{prefix}{name}.", hidden, level)


def _traced(value: object, term: Term, level: Level) -> object:
    match value:
        case bool():
            return TracedBool(value, term) if level.flags else value
        case int():
            return TracedInt(value, term)
        case float() if level.others:
            return TracedFloat(value, term)
        case str() if level.strings:
            return TracedStr(value, term)
        case list() | tuple() if level.others and len(value) <= LONGEST_LIST:
            return listed(_items(value, term, level), term)
        case dict() if level.others and all(isinstance(key, str) and key.isidentifier() for key in value):
            return {key: _traced(item, named(f"{term.text}.{key}"), level) for key, item in value.items()}
        case _:
            return value


def _items(values: list[Any] | tuple[Any, ...], term: Term, level: Level) -> list[Any] | tuple[Any, ...]:
    items = [_traced(value, element(term, constant(number)), level) for number, value in enumerate(values)]
    return tuple(items) if isinstance(values, tuple) else items
