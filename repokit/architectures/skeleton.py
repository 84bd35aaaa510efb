"""The public call: from config.json to every tensor that a checkpoint of it must hold."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from repokit.architectures.completion import complete
from repokit.architectures.composition import composed, flattened
from repokit.architectures.errors import NotCovered
from repokit.architectures.expansion import Expanded, Loose, Shape
from repokit.architectures.grammar import Environment
from repokit.architectures.member import ClassFacts, Evidence, Member, Template, member
from repokit.architectures.names import Names


@dataclass(frozen=True)
class Skeleton:
    """The tensors that a checkpoint of one config must hold.

    Attributes:
        architecture: The class: `LlamaForCausalLM`.
        evidence: How far it can be trusted: verified or partial.
        environment: The completed config: what its expressions saw.
        expanded: Names as save_pretrained writes them, shapes, templates.
        second: The same as the model holds them in memory, where that differs.
        unknown: What canonical names begin with of which nothing is known: parts of a composed model.
    """

    architecture: str
    model_type: str
    evidence: Evidence
    environment: Environment
    expanded: Expanded
    facts: ClassFacts
    member: Member
    second: Expanded | None = None
    unknown: tuple[str, ...] = ()

    @property
    def shapes(self) -> dict[str, Shape]:
        """Name -> shape; None for a dimension that is not known."""
        return self.expanded.shapes

    @property
    def templates(self) -> dict[str, Template]:
        """Name -> the template that it came from."""
        return self.expanded.templates

    @property
    def loose(self) -> list[Loose]:
        """Tensors that may be there: nothing is known of their condition or number."""
        return self.expanded.loose

    @property
    def prefix(self) -> str:
        """The class's base_model_prefix; empty where it has none."""
        return str(self.facts.other.get("prefix") or "")

    @property
    def origin(self) -> str:
        """Where it comes from, for reports."""
        return f"data of {self.member.date}, from transformers {self.member.transformers}"

    @cached_property
    def memory(self) -> Skeleton | None:
        """The second form that loaders take, as the model holds it in memory (fused experts); None: there is none."""
        return None if self.second is None else dataclasses.replace(self, expanded=self.second, second=None)

    @cached_property
    def ties(self) -> tuple[tuple[str, str], ...]:
        """(target, source) templates of tensors that are one in memory; the target may be left out of the file."""
        return tuple((target, source) for target, source in self.facts.other.get("tied", ()))

    @cached_property
    def ignored(self) -> re.Pattern[str]:
        """Finds names that loaders pass over in silence when they are there and not asked for."""
        return _any_of(list(self.facts.other.get("ignore_unexpected", ())))

    @cached_property
    def dispensable(self) -> re.Pattern[str]:
        """Finds names that loaders do without in silence."""
        return _any_of(list(self.facts.other.get("ignore_missing", ())))

    @cached_property
    def names(self) -> Names:
        """The spellings that loaders take for the same tensor."""
        return Names(self.facts.other.get("names"))

    def canonical(self, name: str) -> str:
        """One name for all spellings of a tensor that loaders accept."""
        return self.names.canonical(name)


_NEVER: Final = re.compile(r"(?!)")


def _any_of(patterns: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns)) if patterns else _NEVER


def skeleton(config: Mapping[str, Any], architecture: str | None = None) -> Skeleton:
    """The skeleton of this config.

    Args:
        config: config.json, parsed.
        architecture: The class; the first of the config's own `architectures` unless it is given.

    Raises:
        NotCovered: There is none for its model type or class, or the config names neither.
        ConfigUnusable: No tensors follow from its values.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise NotCovered("config.json names no model_type")
    name = architecture or first_architecture(config)
    known = member(model_type)
    facts = known.architecture(name)
    whole = flattened(config, known.config)
    environment = complete(known.config, whole)
    found = composed(known, facts, whole, environment, skeleton)
    return Skeleton(
        architecture=name,
        model_type=model_type,
        evidence=found.evidence,
        environment=environment,
        expanded=found.disk,
        facts=found.facts,
        member=known,
        second=found.memory,
        unknown=tuple(found.unknown),
    )


def first_architecture(config: Mapping[str, Any]) -> str:
    """The class that config.json names, first of several.

    Raises:
        NotCovered: It names none.
    """
    match config.get("architectures"):
        case [str() as name, *_]:
            return name
        case _:
            raise NotCovered("config.json names no architecture")


def covered(model_type: str) -> tuple[str, ...]:
    """The classes of a model type that have a skeleton, verified ones first."""
    try:
        classes = member(model_type).raw
    except NotCovered:
        return ()
    return tuple(sorted(classes, key=lambda name: (classes[name].get("evidence") != Evidence.VERIFIED, name)))


def evidence(model_type: str, architecture: str) -> Evidence:
    """How far the skeleton of a class can be trusted."""
    try:
        return member(model_type).architecture(architecture).evidence
    except NotCovered:
        return Evidence.NONE
