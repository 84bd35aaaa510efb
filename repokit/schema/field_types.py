"""What transformers 5 refuses in config.json: its config classes check the type of every field when they are made.

The table is data/field_types.json.z; its program reads it off the classes. A type is what JSON can hold of it:

    int  float  bool  str  null  any      an integer is no float, a boolean no integer, and null no type but null
    list  list[T]  dict  dict[K,T]        `list` and `dict` hold whatever they hold
    "full"                                this word
    nothing                               a tuple: no file can say it

A class is written as an earlier one and what differs: `~llama -rope_theta head_dim hidden_size:list[int]
text_config=llama vision_config=clip_vision_model* width>hidden_size !layer_types`. A field without a type has the one
that it has in most classes; `=` is the class of a part, with a star where the part's own model_type chooses another;
`>` leads from an alias, which is not checked, to the field; `!` marks a field whose value is checked beside its
type, `^` a key that cannot be set.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from repokit.resources import packed
from repokit.schema.config import Config
from repokit.schema.config_conditions import holds, names
from repokit.schema.document import Problem, alternatives, kind, pointer, problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pydantic import BaseModel

TABLE: Final = "field_types"
_MOST_NESTED: Final = 8  # parts inside of parts; transformers has four


@dataclass(frozen=True, slots=True)
class ConfigClass:
    """A config class of transformers.

    Attributes:
        name: A model_type, or the name of the class where it has none of its own.
        fields: Checked field to its type, as the table spells it.
        aliases: Key to the field that it is another name of.
        parts: Key to the class of the config that lies there; with a star where its model_type chooses the class.
        checks: Fields that more is asked of than their type: `layer_types`, `mlp_layer_types` (where there
            is a number of layers, `num_hidden_layers` among these or in config.json), `head_dim`.
        computed: Keys that the class works out itself: it refuses whoever sets them.
    """

    name: str
    fields: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)
    checks: frozenset[str] = frozenset()
    computed: frozenset[str] = frozenset()

    @property
    def keys(self) -> frozenset[str]:
        """Everything that it reads by name, apart from what every class has."""
        return frozenset({*self.fields, *self.aliases, *self.parts})

    def __contains__(self, key: object) -> bool:
        return key in self.keys


@dataclass(frozen=True, slots=True)
class Level:
    """One object of config.json, and the class that is made from it."""

    path: tuple[str, ...]
    raw: Mapping[str, Any]
    cls: ConfigClass

    def at(self, key: str) -> str:
        return pointer((*self.path, key))


def table() -> Mapping[str, Any]:
    """The table as stored."""
    stored: Mapping[str, Any] = packed(TABLE)
    return stored


def class_of(model_type: object) -> ConfigClass | None:
    """The class that AutoConfig makes for a model_type."""
    if not isinstance(model_type, str):
        return None
    name = table()["model_types"].get(model_type, model_type)
    return _class(name) if name in table()["classes"] else None


@cache
def _class(name: str) -> ConfigClass:
    fields: dict[str, str] = {}
    aliases: dict[str, str] = {}
    parts: dict[str, str] = {}
    checks: set[str] = set()
    computed: set[str] = set()
    for item in _items(name):
        if item.startswith("!"):
            checks.add(item[1:])
        elif item.startswith("^"):
            computed.add(item[1:])
        elif ">" in item:
            alias, _, aliases[alias] = item.partition(">")
        elif "=" in item:
            key, _, parts[key] = item.partition("=")
        else:
            key, _, spelled = item.partition(":")
            fields[key] = spelled or _usual()[key]
    return ConfigClass(name, fields, aliases, parts, frozenset(checks), frozenset(computed))


def _items(name: str) -> frozenset[str]:
    like, *differences = table()["classes"][name].split(" ")
    found = set() if like == "~" else set(_items(like[1:]))
    for item in differences:
        if item.startswith("-"):
            found.discard(item[1:])
        elif item:
            found.add(item)
    return frozenset(found)


@cache
def _usual() -> Mapping[str, str]:
    return {name: spelled for spelled, names in table()["usual"].items() for name in names.split(" ")}


def is_known(key: str) -> bool:
    """Whether some class has a field of this name, or transformers reads it elsewhere."""
    return key in _usual() or key in table()["elsewhere"] or key in Config.model_fields or key in _other_keys()


@cache
def _other_keys() -> frozenset[str]:
    items = (item for text in table()["classes"].values() for item in text.split(" "))
    return frozenset(re.split("[:=>]", item)[0].lstrip("-^!") for item in items)


def root_class(raw: Mapping[str, Any]) -> ConfigClass | None:
    """The class that AutoConfig makes of a whole config.json; None where that is not one of the table.

    Code of the repository, and files that lead to another config, are not judged.
    """
    mapped = raw.get("auto_map")
    if "configuration_files" in raw or (isinstance(mapped, dict) and "AutoConfig" in mapped):
        return None
    model_type = raw.get("model_type")
    if model_type == "mistral" and "layer_types" in raw:  # AutoConfig.from_pretrained takes it for the other family
        model_type = "ministral"
    return class_of(model_type)


def levels(raw: Mapping[str, Any]) -> Iterator[Level]:
    """The config and its parts, outermost first, as far as their classes are known."""
    cls = root_class(raw)
    pending = [] if cls is None else [Level((), raw, cls)]
    while pending:
        level = pending.pop(0)
        yield level
        if len(level.path) < _MOST_NESTED:
            pending.extend(_parts(level))


def _parts(level: Level) -> Iterator[Level]:
    for key, name in level.cls.parts.items():
        part = level.raw.get(key)
        if isinstance(part, dict) and (cls := part_class(key, name, part)) is not None:
            yield Level((*level.path, key), part, cls)


def part_class(key: str, name: str, part: Mapping[str, Any]) -> ConfigClass | None:
    """The class of the config under a key of another one (transformers configuration_utils.py `SubConfigSpec`)."""
    if key == "backbone_config":  # its model_type decides alone, and there is no default
        return class_of(part.get("model_type"))
    if name.endswith("*"):
        return class_of(part.get("model_type", name[:-1]))
    return class_of(name)


def type_problems(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Every field whose value its class refuses. Silent of a file that a newer transformers wrote than the table's."""
    for level in () if is_newer(raw) else levels(raw):
        for key, value in level.raw.items():
            spelled = level.cls.fields.get(key)
            if spelled is not None and not accepts(spelled, value):
                yield Problem(level.at(key), sentence(spelled, value))


def accepted(raw: Mapping[str, Any]) -> frozenset[str]:
    """The pointers of the fields that are as their classes want them, whatever other families say of such a field."""
    return frozenset(
        level.at(key)
        for level in levels(raw)
        for key, value in level.raw.items()
        if key in level.cls.fields and key not in level.cls.parts and accepts(level.cls.fields[key], value)
    )


def is_newer(raw: Mapping[str, Any]) -> bool:
    """Whether a transformers wrote the file that is newer than the table, in which a field may have other types."""
    return _version(raw.get("transformers_version")) > _version(table()["source"])


def _version(text: object) -> tuple[int, ...]:
    found = re.search(r"(\d{1,6})(?:\.(\d{1,6}))?", text) if isinstance(text, str) else None
    return () if found is None else tuple(int(number) for number in found.groups() if number)


def config_problems(model: type[BaseModel], raw: object) -> tuple[Problem, ...]:
    """What is wrong in a config.json: what its class refuses, then what no family takes. One problem a place."""
    if not isinstance(raw, dict) or root_class(raw) is None:
        return problems(model, raw)
    refused, fine = tuple(type_problems(raw)), accepted(raw)
    told = tuple(problem.pointer for problem in refused)
    others = (problem for problem in problems(model, raw) if not _is_below(problem.pointer, (*told, *fine)))
    return (*refused, *others)


def _is_below(place: str, around: Iterable[str]) -> bool:
    return any(place == one or place.startswith(f"{one}/") for one in around)


def accepts(spelled: str, value: object) -> bool:
    """Whether a field of this type takes the value (huggingface_hub.dataclasses `type_validator`)."""
    return any(_fits(word, value) for word in _split(spelled))


_TYPES: Final[Mapping[str, type]] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "null": type(None),
    "list": list,
    "dict": dict,
}


def _fits(word: str, value: object) -> bool:
    if word in _TYPES:
        return type(_decoded(value)) is _TYPES[word]
    if word.startswith('"'):
        return isinstance(value, str) and value == json.loads(word)
    name, _, inner = word.removesuffix("]").partition("[")
    match name, value:
        case "any", _:
            return True
        case "list", list():
            return all(accepts(inner, item) for item in value)
        case "dict", dict():
            keys, _, values = inner.partition(",")
            return all(accepts(keys, key) and accepts(values, item) for key, item in value.items())
    return False


def _decoded(value: object) -> object:
    """`{"__float__": "Infinity"}` is a float (configuration_utils.py `_decode_special_floats`)."""
    if isinstance(value, dict) and value.keys() == {"__float__"}:
        return 0.0 if value["__float__"] in {"Infinity", "-Infinity", "NaN"} else value
    return value


@cache
def _split(spelled: str) -> tuple[str, ...]:
    """The alternatives of a type: cut at each bar that is in no bracket."""
    found, depth = [""], 0
    for letter in spelled:
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "|" and not depth:
            found.append("")
        else:
            found[-1] += letter
    return tuple(found)


# A type, as one value and as several.
_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "int": ("an integer", "integers"),
    "float": ("a float", "floats"),
    "bool": ("a boolean", "booleans"),
    "str": ("a string", "strings"),
    "null": ("null", "nulls"),
    "list": ("a list", "lists"),
    "dict": ("an object", "objects"),
    "any": ("anything", "anything"),
    "nothing": ("absent", "nothing"),
}


def sentence(spelled: str, value: object) -> str:
    """`is an integer, must be a float`: a value that does not fit, and what would."""
    wanted = alternatives([_named(word) for word in _split(spelled) if word != "null"])
    inside = "list[" if isinstance(value, list) else "dict[" if isinstance(value, dict) else "-"
    is_filled_wrongly = any(word.startswith(inside) for word in _split(spelled))
    return f"{'holds another type' if is_filled_wrongly else f'is {kind(value)}'}, must be {wanted}"


def _named(word: str) -> str:
    if word.startswith('"'):
        return word
    name, _, inner = word.removesuffix("]").partition("[")
    if not inner or name == "dict":
        return _WORDS[name][0]
    return f"a list of {alternatives([_WORDS[part.partition('[')[0]][1] for part in _split(inner)])}"


def refusals(level: Level) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Conditions that hold of this object and under which its class raises, each with the values that it is about."""
    known = dict(table()["defaults"].get(level.cls.name, {}))
    for text in table()["refused"].get(level.cls.name, ()):
        values = {name: value for name in sorted(names(text)) if (value := _given(level, name, known)) is not _UNKNOWN}
        if not values.keys().isdisjoint(level.raw) and holds(text, values):
            yield text, values


_UNKNOWN: Final = object()


def _given(level: Level, name: str, known: Mapping[str, Any]) -> object:
    """The value that the class has under this name; null where it fills something in is unknown, as a wrong type is."""
    keys = [*(alias for alias, real in level.cls.aliases.items() if real == name), name]
    key = next((key for key in keys if key in level.raw), None)
    if key is None:
        return known.get(name, _UNKNOWN)
    value = level.raw[key]
    fits = accepts(level.cls.fields.get(name, "any"), value)
    return _UNKNOWN if not fits or (value is None and known.get(name, _UNKNOWN) is not None) else value
