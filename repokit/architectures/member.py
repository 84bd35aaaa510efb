"""The data of one model type: read from the wheel, checked, and given as records.

data/architectures/skeletons.bin holds one compressed member per model type, so that a lint reads the one that it needs;
`python -m repokit.architectures.deriver` writes it. A file `<model_type>.json.z` beside it goes first: a member of its
own. A member that is damaged, or changed by hand into something that is not of the grammar, is an error that names it.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final

from repokit import resources
from repokit.architectures.archive import archive, unpacked
from repokit.architectures.errors import NotCovered
from repokit.architectures.folding import unfolded
from repokit.architectures.grammar import Expression, NotInGrammar, Value, expression
from repokit.errors import InternalError
from repokit.printable import printable

FOLDER: Final = "architectures"
SUFFIX: Final = ".json.z"
ARCHIVE: Final = "skeletons.bin"
FORMAT: Final = 1
_TYPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,80}")


class Evidence(StrEnum):
    """How far a class's skeleton can be trusted."""

    VERIFIED = "verified"
    """Exact on at least 20 random configs that the derivation had not seen, in three readings of each."""
    PARTIAL = "partial"
    """What it says was exact on such configs; some names, counts or sizes are unknown."""
    NONE = "none"
    """Nothing is known; it has no record."""


class Kind(StrEnum):
    """Which sort of module holds a tensor. Quantizers and adapters choose their targets by it."""

    LINEAR = "l"
    TRANSPOSED = "t"
    """GPT-2's Conv1D: a linear layer whose weight is [in, out]."""
    EMBEDDING = "e"
    CONVOLUTION = "c"
    NORM = "n"
    PARAMETER = "p"
    BUFFER = "b"


@dataclass(frozen=True, slots=True)
class Template:
    """The tensors of one name pattern.

    Attributes:
        name: With index variables: `model.layers.{i}.mlp.up_proj.weight`.
        shape: One expression per dimension; None where the size is unknown.
        integer: Its dtype is an integer one.
    """

    name: str
    shape: tuple[Expression | None, ...]
    kind: Kind
    integer: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """Templates that are there under one condition and for the same indices.

    Attributes:
        condition: None: unknown. They may be there or not.
        ranges: How many values each index takes; None where it is unknown.
        inner_free: The condition does not look at the innermost index.
    """

    condition: Expression | None
    ranges: tuple[Expression | None, ...]
    inner_free: bool
    templates: tuple[Template, ...]


@dataclass(frozen=True, slots=True)
class Derived:
    """How a value follows from others where config.json leaves it null or does not know it.

    Attributes:
        given: The key's own value counts, unless it is null.
        value: The expression; for a list, of its element number `i`.
        length: For a list: how many elements.
    """

    given: bool
    value: Expression
    length: Expression | None = None


@dataclass(frozen=True, slots=True)
class ConfigFacts:
    """What the tensors of a model type need of its config.json.

    Attributes:
        defaults: Every key that matters -> what its absence means; dotted paths.
        aliases: Pairs of spellings of one key.
        subs: Path of a nested config -> the model type that it has by default.
        initial: What an absent nested config has beyond the defaults of its own class.
        flat: Nested configs whose keys older files keep at the top level.
    """

    name: str
    defaults: Mapping[str, Value]
    aliases: tuple[tuple[str, str], ...]
    derived: Mapping[str, Derived]
    subs: Mapping[str, str]
    initial: Mapping[str, Value]
    flat: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClassFacts:
    """The skeleton of one architecture class.

    Attributes:
        configs: On how many fresh random configs it was exact.
        disk: As save_pretrained writes it.
        memory: As the model holds it, where that differs (fused experts); loaders take both.
        other: The record's further keys: `names`, `tied`, `prefix`, `ignore_unexpected`, `references`, ...
    """

    name: str
    evidence: Evidence
    configs: int
    disk: tuple[Block, ...]
    memory: tuple[Block, ...] | None
    other: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Member:
    """Everything known of one model type. `raw` holds the classes as they were written; `architecture()` reads one."""

    model_type: str
    transformers: str
    date: str
    source: str
    config: ConfigFacts
    raw: Mapping[str, Mapping[str, Any]] = field(repr=False)
    document: Mapping[str, Any] = field(repr=False)
    read: dict[str, ClassFacts] = field(default_factory=dict, repr=False)

    def architecture(self, name: str) -> ClassFacts:
        """The skeleton of one class.

        Raises:
            NotCovered: The class is not one of this model type's, or could not be derived.
        """
        if name not in self.raw:
            raise NotCovered(f"there is no skeleton of {printable(name)} among those of {self.model_type}")
        if name not in self.read:
            with _damage_named(f"{ARCHIVE}, member {self.model_type},"):
                self.read[name] = _class_facts(name, unfolded(self.raw[name], self.document))
        return self.read[name]


def folder() -> Path:
    """Where the members lie."""
    return resources.folder("data") / FOLDER


@cache
def member(model_type: str) -> Member:
    """Reads the member of a model type: a file of its own, if there is one, before the archive of all.

    Raises:
        NotCovered: There is none.
        InternalError: It is damaged.
    """
    own, every = folder() / f"{model_type}{SUFFIX}", folder() / ARCHIVE
    if _TYPE.fullmatch(model_type) and own.is_file():
        with _damage_named(own.name):
            return parsed(model_type, json.loads(unpacked(own.read_bytes(), b"")))
    with _damage_named(f"{ARCHIVE}, member {model_type},"):
        if every.is_file() and model_type in archive(every).entries:
            return parsed(model_type, archive(every).document(model_type))
    raise NotCovered(f"no skeleton is known for the model type {printable(model_type)}")


def known() -> tuple[str, ...]:
    """The model types that have a member."""
    own = {path.name.removesuffix(SUFFIX) for path in folder().glob(f"*{SUFFIX}")}
    every = folder() / ARCHIVE
    with _damage_named(ARCHIVE):
        return tuple(sorted(own | set(archive(every).entries if every.is_file() else ())))


class _damage_named:  # noqa: N801 - reads as the statement that it is used in
    """Says which member is damaged, whatever the damage was."""

    def __init__(self, name: str) -> None:
        self.name = printable(name)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        damage = (zlib.error, OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError)
        if isinstance(error, damage):
            raise InternalError(
                f"data/{FOLDER}/{self.name} of this installation is damaged: {printable(str(error))}",
                why="it says which tensors a checkpoint holds",
                hint="pip install --force-reinstall repokit",
            ) from error


def parsed(model_type: str, document: Any) -> Member:  # noqa: ANN401 - a JSON document
    """A member from its document.

    Raises:
        ValueError, KeyError, TypeError: It is not one.
    """
    if document["format"] != FORMAT or document["model_type"] != model_type:
        raise ValueError(f"it is of format {document['format']} for {document['model_type']}")
    config = document["config"]
    facts = ConfigFacts(
        name=config["class"],
        defaults={key: frozen(value) for key, value in config["defaults"].items()},
        aliases=tuple((first, second) for first, second in config["aliases"]),
        derived={key: _derived(rule) for key, rule in config["derive"].items()},
        subs=dict(config["subs"]),
        initial={key: frozen(value) for key, value in config.get("initial", {}).items()},
        flat=tuple(config.get("flat", ())),
    )
    return Member(
        model_type=model_type,
        transformers=document["transformers"],
        date=document["date"],
        source=document["source"],
        config=facts,
        raw=dict(document["classes"]),
        document=document,
    )


def frozen(value: Any) -> Value:  # noqa: ANN401 - a JSON value
    """A JSON value as the grammar takes it: lists as tuples.

    Raises:
        TypeError: It holds an object.
    """
    if isinstance(value, (list, tuple)):
        return tuple(frozen(item) for item in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"an object where a value belongs: {str(value)[:100]}")


def _derived(rule: Mapping[str, Any]) -> Derived:
    if "len" in rule:
        return Derived(bool(rule["given"]), expression(rule["elem"]), expression(rule["len"]))
    return Derived(bool(rule["given"]), expression(rule["expr"]))


def _class_facts(name: str, record: Mapping[str, Any]) -> ClassFacts:
    memory = record.get("memory")
    own = {"evidence", "configs", "blocks", "memory"}
    return ClassFacts(
        name=name,
        evidence=Evidence(record["evidence"]),
        configs=int(record["configs"]),
        disk=blocks(record["blocks"]),
        memory=None if memory is None else blocks(memory),
        other={key: value for key, value in record.items() if key not in own},
    )


def blocks(document: list[Any]) -> tuple[Block, ...]:
    """Blocks from their document.

    Raises:
        ValueError, TypeError, KeyError: They are not of the format, or an expression is not of the grammar.
    """
    return tuple(
        Block(_known(condition), tuple(map(_known, ranges)), bool(free), tuple(map(_template, templates)))
        for condition, ranges, free, templates in document
    )


def _known(text: str | None) -> Expression | None:
    if text is not None and not isinstance(text, str):
        raise NotInGrammar(f"no expression: {text!r}")
    return None if text is None else expression(text)


def _template(entry: list[Any]) -> Template:
    name, shape, *kind = entry
    usual = "l" if len(shape) == 2 and name.endswith(".weight") else "p"
    letter = kind[0] if kind else usual
    return Template(name, tuple(map(_known, shape)), Kind(letter.lower()), letter.isupper())
