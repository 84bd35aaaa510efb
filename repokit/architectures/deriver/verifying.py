"""Holds a fitted skeleton against configs that it was not fitted on, with the code that a lint runs.

Three readings of each config must give the truth: what the model reads, what a person writes, and what the config
object writes into config.json. What is wrong becomes unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from repokit.architectures.completion import Completed, complete
from repokit.architectures.errors import ConfigUnusable
from repokit.architectures.expansion import Expanded, expand
from repokit.architectures.grammar import INDICES, Environment, Value
from repokit.architectures.member import Block, ConfigFacts

_NUMBER: Final = re.compile(r"(?<=\.)\d+(?=\.|$)")
Shape = tuple[int, ...]


@dataclass(slots=True)
class Verdict:
    """What a skeleton got wrong over all configs.

    Attributes:
        configs: How many it was held against.
        exact: How many came out exact in all readings.
        absent: Templates whose presence was wrong.
        misshapen: (template, axis) whose size was wrong; axis None: the rank.
        unheard: Names that no template gives, and their rank.
        examples: A few of the differences, for people.
    """

    configs: int = 0
    exact: int = 0
    absent: set[str] = field(default_factory=set)
    misshapen: set[tuple[str, int | None]] = field(default_factory=set)
    unheard: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """Whether nothing was wrong."""
        return self.exact == self.configs


def readings(
    facts: ConfigFacts, effective: Mapping[str, Value], given: Mapping[str, Any], saved: Mapping[str, Any] | None
) -> Iterator[tuple[str, Environment]]:
    """The environments of one config, by how it is read."""
    yield "effective", Completed(effective)
    yield "given", complete(facts, given)
    if saved is not None:
        yield "saved", complete(facts, saved)


def hold(
    skeleton: Sequence[Block], environment: Environment, truth: Mapping[str, Shape], verdict: Verdict, reading: str
) -> bool:
    """Whether the skeleton gives the truth here; what is wrong goes into the verdict."""
    try:
        expanded = expand(tuple(skeleton), environment)
    except ConfigUnusable as error:
        verdict.examples.append(f"{reading}: {error}")
        _blame(skeleton, environment, verdict)
        return False
    wrong = list(_differences(skeleton, expanded, truth, verdict))
    verdict.examples += [f"{reading}: {text}" for text in wrong[:2]]
    return not wrong


def _differences(
    skeleton: Sequence[Block], expanded: Expanded, truth: Mapping[str, Shape], verdict: Verdict
) -> Iterator[str]:
    for name, shape in expanded.shapes.items():
        template = expanded.templates[name].name
        if name not in truth:
            verdict.absent.add(template)
            yield f"{name} is not there"
            continue
        real = truth[name]
        if len(real) != len(shape):
            verdict.misshapen.add((template, None))
            yield f"{name}: {shape} is {real}"
        for axis, (size, held) in enumerate(zip(shape, real, strict=False)):
            if size is not None and size != held:
                verdict.misshapen.add((template, axis))
                yield f"{name}: {shape} is {real}"
    for name, real in truth.items():
        if name not in expanded.shapes:
            yield from _unexpected(skeleton, expanded, name, real, verdict)


def _unexpected(
    skeleton: Sequence[Block], expanded: Expanded, name: str, real: Shape, verdict: Verdict
) -> Iterator[str]:
    for loose in expanded.loose:
        if loose.pattern.fullmatch(name):
            if len(loose.shape) != len(real) or any(
                size not in {None, held} for size, held in zip(loose.shape, real, strict=True)
            ):
                verdict.misshapen.update((loose.template.name, axis) for axis in range(len(loose.shape)))
                yield f"{name}: {loose.shape} is {real}"
            return
    for block in skeleton:
        for template in block.templates:
            if pattern(template.name).fullmatch(name):
                verdict.absent.add(template.name)
                yield f"{name} is there"
                return
    verdict.unheard[name] = len(real)
    yield f"{name} is there, and no template of it"


def _blame(skeleton: Sequence[Block], environment: Environment, verdict: Verdict) -> None:
    """Which templates cannot be expanded in this environment."""
    for block in skeleton:
        for template in block.templates:
            alone = Block(block.condition, block.ranges, block.inner_free, (template,))
            try:
                expand((alone,), environment)
            except ConfigUnusable:
                verdict.absent.add(template.name)


def pattern(template: str) -> re.Pattern[str]:
    """Matches the names of a template."""
    return re.compile(r"\d+".join(map(re.escape, re.split(r"\{[" + INDICES + r"]\}", template))))


def demoted(document: list[Any], verdict: Verdict) -> list[Any]:
    """The blocks with everything that was wrong made unknown."""
    wrong_rank = {template for template, axis in verdict.misshapen if axis is None}
    kept: list[Any] = []
    for condition, ranges, free, entries in document:
        for name, shape, *kind in entries:
            if name in wrong_rank:
                continue
            sizes = [None if (name, axis) in verdict.misshapen else size for axis, size in enumerate(shape)]
            if name in verdict.absent:
                kept.append([None, ranges, False, [[name, sizes, *kind]]])
            else:
                kept.append([condition, ranges, free, [[name, sizes, *kind]]])
    return kept
