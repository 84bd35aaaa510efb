"""From blocks and an environment to every tensor: name and shape."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from repokit.architectures.errors import ConfigUnusable
from repokit.architectures.grammar import INDICES, LARGEST, UNUSABLE, Environment, Expression
from repokit.architectures.member import Block, Template

Shape = tuple[int | None, ...]
MOST_TENSORS: Final = 2_000_000  # the largest published model has some 200,000
_MOST_STEPS: Final = 2 * MOST_TENSORS
_INDEX: Final = re.compile(r"\{[" + INDICES + r"]\}")


@dataclass(frozen=True, slots=True)
class Loose:
    """Tensors that may be there: their condition, or how many there are, is unknown."""

    pattern: re.Pattern[str]
    shape: Shape
    template: Template


@dataclass(slots=True)
class Expanded:
    """Every tensor of a model.

    Attributes:
        shapes: Name -> shape; None for an unknown dimension.
        templates: Name -> the template that it came from.
        loose: What may be there beside.
    """

    shapes: dict[str, Shape] = field(default_factory=dict)
    templates: dict[str, Template] = field(default_factory=dict)
    loose: list[Loose] = field(default_factory=list)


def expand(blocks: tuple[Block, ...], environment: Environment) -> Expanded:
    """Every tensor that the blocks give in this environment.

    Raises:
        ConfigUnusable: A value of the config is of a wrong type, negative or beyond every model.
    """
    expanded = Expanded()
    steps = _Steps()
    for block in blocks:
        if block.condition is None or None in block.ranges:
            expanded.loose += [_loose(template, environment) for template in block.templates]
        else:
            _expand(block, environment, expanded, steps)
    return expanded


class _Steps:
    """How many layers, experts and so on were looked at, with tensors in them or not."""

    def __init__(self) -> None:
        self.taken = 0

    def take(self, number: int) -> None:
        self.taken += number
        if self.taken > _MOST_STEPS:
            raise ConfigUnusable(f"the config asks for more than {_MOST_STEPS:,} layers, experts or the like")


def _expand(block: Block, environment: Environment, expanded: Expanded, steps: _Steps) -> None:
    entries: list[tuple[Template, str, _Dimensions, Shape | None]] | None = None
    shapes, templates = expanded.shapes, expanded.templates
    for indices in _indices(block, environment, steps):
        if len(shapes) > MOST_TENSORS:
            raise ConfigUnusable(f"the config asks for more than {MOST_TENSORS:,} tensors")
        if entries is None:  # only now: a block that gives no tensor must not fail over the shape of one
            entries = [_prepared(template, environment) for template in block.templates]
        for template, pattern, dimensions, fixed in entries:
            name = pattern % indices
            shapes[name] = fixed or dimensions.at(indices)
            templates[name] = template


def _prepared(template: Template, environment: Environment) -> tuple[Template, str, _Dimensions, Shape | None]:
    """A template with its name as a format of the indices, and its shape where that is the same for all of them."""
    pattern = "%d".join(part.replace("%", "%%") for part in _INDEX.split(template.name))
    dimensions = _Dimensions(template, environment)
    return template, pattern, dimensions, dimensions.fixed


def _indices(block: Block, environment: Environment, steps: _Steps) -> Iterator[tuple[int, ...]]:
    """The index tuples for which the block's condition holds, in order."""
    depth = len(block.ranges)
    looks_at = depth - 1 if block.inner_free else depth
    ranges = [known for known in block.ranges if known is not None]
    condition = None if block.condition is None or block.condition.text == "True" else block.condition

    def holds(indices: tuple[int, ...]) -> bool:
        return condition is None or bool(_evaluated(condition, environment, indices))

    def descend(indices: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        level = len(indices)
        if level == looks_at and not holds(indices):
            return
        if level == depth:
            yield indices
            return
        number = _count(ranges[level], environment, indices)
        steps.take(number)
        for index in range(number):
            yield from descend((*indices, index))

    return descend(())


class _Dimensions:
    """The shape of one template: computed once where no index takes part."""

    def __init__(self, template: Template, environment: Environment) -> None:
        self.template, self.environment = template, environment
        self._fixed: Shape | None = None
        self.indexed = any(size is not None and size.indexed for size in template.shape)

    @property
    def fixed(self) -> Shape | None:
        """The shape, where it is the same for all indices. First asked for when a tensor is there to have it."""
        if self._fixed is None and not self.indexed:
            self._fixed = self.at(())
        return self._fixed

    def at(self, indices: tuple[int, ...]) -> Shape:
        """The shape for these indices."""
        return tuple(None if size is None else _size(size, self.environment, indices) for size in self.template.shape)


def _evaluated(wanted: Expression, environment: Environment, indices: tuple[int, ...]) -> Any:  # noqa: ANN401 - of any type
    try:
        return wanted.evaluate(environment, *indices)
    except UNUSABLE as error:
        raise unusable(wanted, environment, str(error)) from None


def unusable(wanted: Expression, environment: Environment, why: str) -> ConfigUnusable:
    """The error for an expression that this config gives no value, with the values that take part in it."""
    values = ", ".join(f"{key} = {_shown(environment[key], 60)}" for key in sorted(wanted.keys))
    key = next(iter(wanted.keys)) if len(wanted.keys) == 1 else None
    return ConfigUnusable(f"{why} ({values})" if values else why, key=key)


def _shown(value: object, most: int) -> str:
    try:
        return str(value)[:most]
    except ValueError:  # sys.int_info.default_max_str_digits
        return "a number of thousands of digits"


def _number(wanted: Expression, environment: Environment, indices: tuple[int, ...], most: int, what: str) -> int:
    value = _evaluated(wanted, environment, indices)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or not 0 <= value <= most:
        raise unusable(wanted, environment, f"{wanted} is no {what}: {_shown(value, 40)}")
    return int(value)


def _count(wanted: Expression, environment: Environment, indices: tuple[int, ...]) -> int:
    value = _evaluated(wanted, environment, indices)
    if isinstance(value, int) and value < 0 and wanted.text not in wanted.keys:
        return 0  # as range() has it: a head of depth 1 has -1 layers in between
    return _number(wanted, environment, indices, MOST_TENSORS, "number of layers, experts or the like")


def _size(wanted: Expression, environment: Environment, indices: tuple[int, ...]) -> int:
    return _number(wanted, environment, indices, LARGEST, "size of a tensor")


def _loose(template: Template, environment: Environment) -> Loose:
    pattern = r"\d+".join(re.escape(part) for part in _INDEX.split(template.name))
    return Loose(re.compile(pattern), _sizes_that_can_be_known(template, environment), template)


def _sizes_that_can_be_known(template: Template, environment: Environment) -> Shape:
    read: Callable[[Expression], int | None] = lambda size: _optional(size, environment)  # noqa: E731 - named for its use below
    return tuple(None if size is None or size.indexed else read(size) for size in template.shape)


def _optional(size: Expression, environment: Environment) -> int | None:
    try:
        return _size(size, environment, ())
    except ConfigUnusable:
        return None  # the tensor need not be there
