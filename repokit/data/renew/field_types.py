"""Renews what transformers' config classes take: data/field_types.json.z.

    PYTHONPATH=. python repokit/data/renew/field_types.py

    usual        type -> the fields that have it in most classes
    classes      class -> the class that it is most like, and what differs; see repokit/schema/field_types.py
    model_types  model_type -> class, where a class stands for several or has no name of its own in AutoConfig
    layer_types  the words that `layer_types` and `mlp_layer_types` may have, and `older`, which are converted
    refused      class -> conditions under which its `validate_*` methods raise, each one tried on the class itself
    defaults     class -> values of fields in such a condition where config.json does not give them
    elsewhere    words of transformers' own code that are one letter away from a field: they are not misspelt

Needs transformers 5 and torch (the extra `load`). A config of a class is made to try it, and no model.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import logging
import re
import types
import typing
import warnings
import zlib
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from refusals import conditions
from table import DATA

from repokit.schema.config import Config
from repokit.schema.document import problems, steps

# A string, or an attribute of something that is called a config.
WORD = re.compile(r"""config\w*\.([a-z_]\w{4,40})\b|["']([a-z_]\w{4,40})["']""")

PLAIN = {int: "int", float: "float", bool: "bool", str: "str", type(None): "null", dict: "dict", list: "list"}


def main() -> None:
    """Writes the table."""
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    named = _classes()
    usual = _usual(named)
    items = {name: _items(cls, usual, named) for name, cls in named.items()}
    refused, defaults = conditions(named)
    parts = {"classes": _like(items), "model_types": _others(named), "refused": refused, "defaults": defaults}
    _write(usual, parts, _elsewhere(items))


def _classes() -> dict[str, Any]:
    """Name to class: by its model_type where AutoConfig knows it by that, else by the name of the class."""
    from transformers.configuration_utils import PreTrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    found: dict[Any, str] = {}
    pending = []
    for model_type in sorted(CONFIG_MAPPING_NAMES, key=lambda name: (CONFIG_MAPPING[name].model_type != name, name)):
        found.setdefault(CONFIG_MAPPING[model_type], model_type)
    pending = list(found)
    while pending:
        for spec in pending.pop().sub_configs_defaults.values():
            cls = spec.config_class
            if issubclass(cls, PreTrainedConfig) and cls not in found:
                found[cls] = cls.__name__
                pending.append(cls)
    return {name: cls for cls, name in sorted(found.items(), key=lambda pair: pair[1])}


def _others(named: dict[str, Any]) -> dict[str, str]:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    names = {cls: name for name, cls in named.items()}
    return {word: names[CONFIG_MAPPING[word]] for word in sorted(CONFIG_MAPPING_NAMES) if word not in named}


def _checked(cls: Any) -> list[Any]:  # noqa: ANN401 - a config class
    """Its fields. An annotation that is a string is not evaluated, and so not checked (huggingface_hub.dataclasses)."""
    return [field for field in dataclasses.fields(cls) if not isinstance(field.type, str)]


def _usual(named: dict[str, Any]) -> dict[str, str]:
    """Field to the type that most classes give it."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for cls in named.values():
        for field in _checked(cls):
            counts[field.name][type_of(field.type)] += 1
    return {name: max(sorted(count), key=count.__getitem__) for name, count in sorted(counts.items())}


def type_of(annotation: Any) -> str:  # noqa: ANN401 - a type expression
    """A type as the words of the table, of what JSON can hold alone. A tuple comes out of no JSON file."""
    words = sorted(set(_alternatives(annotation)), key=lambda word: (word != "null", word))
    return "|".join(words[1:] + words[:1] if words[:1] == ["null"] else words) or "nothing"


def _alternatives(annotation: Any) -> list[str]:  # noqa: ANN401 - a type expression
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in {typing.Union, types.UnionType}:
        return [word for part in args for word in _alternatives(part)]
    if origin is typing.Literal:
        return [json.dumps(value) for value in args]
    if origin is dict:
        return [f"dict[{type_of(args[0])},{type_of(args[1])}]"]
    if origin in {list, collections.abc.Sequence}:
        return [f"list[{type_of(args[0])}]"]
    if annotation is Any:
        return ["any"]
    return [PLAIN[annotation]] if annotation in PLAIN else []


def _items(cls: Any, usual: dict[str, str], named: dict[str, Any]) -> frozenset[str]:  # noqa: ANN401 - a config class
    """What the table says of a class: fields, aliases, parts and whether it checks the words of layer_types."""
    fields = {field.name: type_of(field.type) for field in _checked(cls)}
    found = {name if usual[name] == kind else f"{name}:{kind}" for name, kind in fields.items()}
    found |= {f"{key}:any" for key in _written_otherwise(cls) - fields.keys()}
    found |= {f"{alias}>{name}" for alias, name in cls.attribute_map.items()}
    names = {known: name for name, known in named.items()}
    for key, spec in cls.sub_configs_defaults.items():
        found.add(f"{key}={names.get(spec.config_class, f'{spec.model_type}*')}")
    found |= {f"^{key}" for key in _computed(cls)}
    found |= {f"!{key}" for key in ("layer_types", "mlp_layer_types") if _refuses_words(cls, key)}
    found |= {"!num_hidden_layers"} if _has_layers(cls) else set()
    return frozenset(found | ({"!head_dim"} if _refuses_odd_heads(cls) else set()))


def _written_otherwise(cls: Any) -> set[str]:  # noqa: ANN401 - a config class
    """Keys that it writes of its own accord, in a form that no other family has: LXMERT's three numbers of layers."""
    try:
        raw = json.loads(cls().to_json_string(use_diff=False))
    except Exception:  # noqa: BLE001 - whatever a config class asks for
        return set()
    return {steps(problem.pointer)[0] for problem in problems(Config, raw) if len(steps(problem.pointer)) == 1}


def _refuses_words(cls: Any, key: str) -> bool:  # noqa: ANN401 - a config class
    """Whether it refuses a list of words that are none of the known ones. Asked of the class itself."""
    types = {} if key == "layer_types" else {"layer_types": ["full_attention"] * 2}
    try:
        cls(**types, **{key: ["nonsense"] * 2}, num_hidden_layers=2)
    except Exception as error:  # noqa: BLE001 - whatever a config class asks for
        return f"`{key}` entries must be in" in str(error)
    return False


def _has_layers(cls: Any) -> bool:  # noqa: ANN401 - a config class
    """Whether it counts its layers under this name, by itself: without that, it does not look at their words."""
    try:
        return hasattr(cls(), "num_hidden_layers")
    except Exception:  # noqa: BLE001 - whatever a config class asks for
        return False


def _refuses_odd_heads(cls: Any) -> bool:  # noqa: ANN401 - a config class
    """Whether it refuses a head with rotary positions that is odd. Asked of the class itself."""
    try:
        cls(head_dim=7)
    except Exception as error:  # noqa: BLE001 - whatever a config class asks for
        return "even rotary dimension" in str(error)
    return False


def _computed(cls: Any) -> set[str]:  # noqa: ANN401 - a config class
    """Properties that cannot be set, and that it does not take out of what it is made from."""
    properties = {key for key in dir(cls) if isinstance(getattr(cls, key, None), property)}
    return {key for key in properties if getattr(cls, key).fset is None and _refuses_key(cls, key)}


def _refuses_key(cls: Any, key: str) -> bool:  # noqa: ANN401 - a config class
    try:
        cls(**{key: None})
    except AttributeError as error:
        return "setter" in str(error)
    except Exception:  # noqa: BLE001 - whatever a config class asks for
        return False
    return False


def _like(items: dict[str, frozenset[str]]) -> dict[str, str]:
    """Every class as an earlier one, what it lacks, and what it has beside that."""
    written: dict[str, str] = {}
    done: list[str] = []
    for name in sorted(items, key=lambda name: (-len(items[name]), name)):
        texts = [_difference(other, items[other], items[name]) for other in done]
        written[name] = min([_difference("", frozenset(), items[name]), *texts], key=len)
        done.append(name)
    return dict(sorted(written.items()))


def _difference(other: str, theirs: frozenset[str], ours: frozenset[str]) -> str:
    return " ".join([f"~{other}", *(f"-{item}" for item in sorted(theirs - ours)), *sorted(ours - theirs)])


def _elsewhere(items: dict[str, frozenset[str]]) -> list[str]:
    import transformers

    keys = {re.split("[:=>]", item)[0].lstrip("!^") for found in items.values() for item in found}
    shorter: set[str] = {word for key in keys for word in _without_a_letter(key)}
    words: set[str] = set()
    for path in sorted(Path(transformers.__file__).parent.rglob("*.py")):
        words.update(*re.findall(WORD, path.read_text("utf-8")))
    return sorted(word for word in words - keys if _without_a_letter(word) & shorter)


def _without_a_letter(word: str) -> frozenset[str]:
    """The word, and what is left of it without each of its letters: words one letter apart share some of these."""
    return frozenset({word, *(word[:i] + word[i + 1 :] for i in range(len(word)))})


def _write(usual: dict[str, str], tables: dict[str, dict[str, Any]], elsewhere: list[str]) -> None:
    from transformers import configuration_utils as source

    by_type: dict[str, list[str]] = collections.defaultdict(list)
    for name, kind in usual.items():
        by_type[kind].append(name)
    parts: dict[str, dict[str, Any]] = {
        "usual": {kind: " ".join(names) for kind, names in sorted(by_type.items())},
        "classes": tables["classes"],
        "model_types": tables["model_types"],
        "layer_types": {
            "layer_types": list(source.ALLOWED_ATTN_LAYER_TYPES),
            "mlp_layer_types": list(source.ALLOWED_MLP_LAYER_TYPES),
            "older": sorted(source._LEGACY_LAYER_TYPE_REMAP),  # noqa: SLF001 - there is no public name
        },
        "refused": tables["refused"],
        "defaults": tables["defaults"],
        "elsewhere": dict.fromkeys(elsewhere, ""),
    }
    written = f"transformers {version('transformers')}, its config classes"
    head = f' "source": {json.dumps(written)},\n "date": "{datetime.now(UTC).date().isoformat()}"'
    text = ",\n".join([head, *(_lines(key, values) for key, values in parts.items())])
    packed = zlib.compress(f"{{\n{text}\n}}\n".encode(), 9)
    (DATA / "field_types.json.z").write_bytes(packed)
    print(f"field_types.json.z: {len(tables['classes'])} classes, {len(usual):,} fields, {len(packed):,} bytes")


def _lines(key: str, values: dict[str, Any]) -> str:
    lines = (f"  {json.dumps(word)}: {json.dumps(value)}" for word, value in values.items())
    return f' "{key}": {{\n' + ",\n".join(lines) + "\n }"


if __name__ == "__main__":
    main()
