"""`int`, `len`, `range` and others as the modules of models see them while a config is traced.

Python's own give plain numbers: int() and len() by definition, range() because it counts in C. These keep the
expression: the numbers of a traced loop are the index variables of the grammar, `i` in the outer loop, `j` in the next.
"""

from __future__ import annotations

import builtins
import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

from repokit.architectures.deriver.tracing_terms import call
from repokit.architectures.deriver.tracing_values import (
    TracedFloat,
    TracedInt,
    TracedList,
    TracedTuple,
    current,
    indexed,
    noted,
    plain,
    term_of,
)
from repokit.architectures.grammar import INDICES

MOST_TURNS: Final = 256  # of a loop: longer ones fill tables of sines

_NUMBERS: Final = (TracedInt, TracedFloat)
_SEQUENCES: Final = (TracedList, TracedTuple)


class _Standing(type):
    """The type of a name that stands for a builtin type: `isinstance(x, int)` goes on to mean what it meant."""

    standard: type

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.standard)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.standard)

    def __eq__(cls, other: object) -> bool:
        return other is cls.standard or other is cls

    def __hash__(cls) -> builtins.int:
        return hash(cls.standard)

    def __call__(cls, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as the builtin type
        if len(arguments) == 1 and isinstance(arguments[0], _NUMBERS):
            return _converted(arguments[0], cls.standard)
        return cls.standard(*arguments, **options)


class Int(metaclass=_Standing):
    """Stands for int."""

    standard = int
    from_bytes = int.from_bytes


class Float(metaclass=_Standing):
    """Stands for float."""

    standard = float
    fromhex = float.fromhex


def _converted(value: Any, standard: type) -> Any:  # noqa: ANN401 - traced numbers
    narrows = standard is int and isinstance(value, TracedFloat)
    return noted(standard(plain(value)), call("int", value.term) if narrows else value.term)


def _len(sized: Any) -> Any:  # noqa: ANN401 - as len
    size = len(sized)
    return noted(size, call("len", sized.term)) if isinstance(sized, _SEQUENCES) and sized.term else size


def _sum(items: Iterable[Any], /, start: Any = 0) -> Any:  # noqa: ANN401 - as sum
    result = sum(items, start)
    return _of_list("sum", items, result)


def _of_list(function: str, items: object, result: Any) -> Any:  # noqa: ANN401 - a number
    if isinstance(items, _SEQUENCES) and items.term and isinstance(result, _NUMBERS):
        return noted(plain(result), call(function, items.term))
    return result


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    def choose(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as max and min
        chosen = function(*arguments, **options)
        if options or len(arguments) == 1:
            return _of_list(function.__name__, arguments[0], chosen)
        if not any(isinstance(argument, _NUMBERS) for argument in arguments):
            return chosen
        return noted(plain(chosen), call(function.__name__, *map(term_of, arguments)))

    return choose


@contextmanager
def _loop() -> Iterator[str | None]:
    """The index variable of a loop that begins; None in the deepest."""
    trace = current()
    depth, trace.loops = trace.loops, trace.loops + 1
    try:
        yield INDICES[depth] if depth < len(INDICES) else None
    finally:
        trace.loops = max(0, trace.loops - 1)  # a loop of a model that failed may end during the next attempt


class _Range:
    """A range whose numbers are traced."""

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401 - as range
        self.numbers = range(*arguments)
        for bound in arguments:
            if isinstance(bound, TracedInt):
                noted(plain(bound), bound.term)  # how often a loop turns is how many layers there are

    def __iter__(self) -> Iterator[Any]:
        return self._turns(self.numbers)

    def __reversed__(self) -> Iterator[Any]:
        return self._turns(self.numbers[::-1])

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 - as range
        return self.numbers[place]

    def __contains__(self, number: object) -> bool:
        return plain(number) in self.numbers

    def __eq__(self, other: object) -> bool:
        return self.numbers == (other.numbers if isinstance(other, _Range) else other)

    def __hash__(self) -> int:
        return hash(self.numbers)

    def _turns(self, numbers: range) -> Iterator[Any]:
        if len(numbers) > MOST_TURNS:
            yield from numbers
            return
        with _loop() as index:
            for number in numbers:
                yield indexed(number, index) if index else number


def _enumerate(items: Iterable[Any], start: int = 0) -> Iterator[tuple[Any, Any]]:
    if start or (hasattr(items, "__len__") and len(items) > MOST_TURNS):  # type: ignore[arg-type]
        yield from enumerate(items, start)
        return
    with _loop() as index:
        for number, item in enumerate(items):
            yield (indexed(number, index) if index else number), item


class _Math:
    """The module math, with the functions that have an expression."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever math has
        return getattr(math, name)

    def sqrt(self, value: Any) -> Any:  # noqa: ANN401 - a number
        return value**0.5 if isinstance(value, _NUMBERS) else math.sqrt(value)

    def log2(self, value: Any) -> Any:  # noqa: ANN401 - a number
        result = math.log2(value)
        return noted(result, call("log2", value.term)) if isinstance(value, _NUMBERS) else result

    def pow(self, base: Any, exponent: Any) -> Any:  # noqa: ANN401 - numbers
        return float(base) ** exponent if isinstance(exponent, _NUMBERS) else base ** float(exponent)

    def prod(self, items: Iterable[Any], *, start: Any = 1) -> Any:  # noqa: ANN401 - numbers
        result = start
        for item in items:
            result = result * item
        return result


SHADOWS: Final[dict[str, Any]] = {
    "int": Int,
    "float": Float,
    "len": _len,
    "sum": _sum,
    "max": _extreme(max),
    "min": _extreme(min),
    "range": _Range,
    "enumerate": _enumerate,
}


_ABSENT: Final = object()


@contextmanager
def shadowed(packages: Collection[str]) -> Iterator[None]:
    """Puts the shadows into the modules of these packages of models that are loaded, and takes them out again."""
    changed = [(module, _shadows(module)) for module in _model_modules(packages)]
    before = [(module, {name: vars(module).get(name, _ABSENT) for name in shadows}) for module, shadows in changed]
    try:
        for module, shadows in changed:
            vars(module).update(shadows)
        yield
    finally:
        for module, names in before:
            for name, value in names.items():
                vars(module)[name] = value
                if value is _ABSENT:
                    del vars(module)[name]


def _shadows(module: ModuleType) -> dict[str, Any]:
    found = {name: shadow for name, shadow in SHADOWS.items() if name not in vars(module)}
    return {**found, "math": _Math()} if vars(module).get("math") is math else found


def _model_modules(packages: Collection[str]) -> list[ModuleType]:
    return [
        module
        for name, module in list(sys.modules.items())
        if name.rpartition(".")[0] in packages and name.rpartition(".")[2].startswith(("modeling_", "configuration_"))
    ]
