"""Numbers, strings and lists that remember which keys of the config they were computed from.

`TracedInt(4096, named("hidden_size")) * 3` is 12288 and knows that it is `3*hidden_size`. Each is an instance of the
type that it stands for, so that models take it for one; every operation on it is written to the trace of `recording`.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from repokit.architectures.deriver.tracing_terms import (
    Rank,
    Term,
    call,
    constant,
    difference,
    element,
    named,
    negative,
    power,
    product,
    quotient,
    total,
)

MOST_TEXT: Final = 200  # of one expression, in characters: what is longer goes on as a plain number
MOST_OPERATIONS: Final = 20_000  # of one model: those with tables of positions have millions, all others below 3,000


class TooMuch(Exception):
    """A model computes more with its config than is worth writing down."""


@dataclass(slots=True)
class Trace:
    """What was computed.

    Attributes:
        expressions: Every result, with the value that it had first.
        conditions: Every comparison and truth test that decided something in transformers.
        read: The keys that a model's module read, whatever came of it.
        loops: How many traced loops run now, one in another.
        operations: How many there were in this model.
    """

    expressions: dict[str, float] = field(default_factory=dict)
    conditions: dict[str, None] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    loops: int = 0
    operations: int = 0

    def started(self) -> None:
        """Begins with another model."""
        self.loops = self.operations = 0

    def count(self) -> None:
        """Counts an operation.

        Raises:
            TooMuch: There were MOST_OPERATIONS.
        """
        self.operations += 1
        if self.operations > MOST_OPERATIONS:
            raise TooMuch

    def decided(self, text: str) -> None:
        """A condition held or did not."""
        if len(text) <= MOST_TEXT:
            self.conditions.setdefault(text)


_MODELS: Final = "transformers.models."
_OTHERS: Final = ("torch.", "transformers.", "repokit.")
_current: Trace = Trace()


@contextmanager
def recording(trace: Trace) -> Iterator[Trace]:
    """Writes to `trace` what is computed meanwhile."""
    global _current  # noqa: PLW0603 - operators have no other way to their trace
    before, _current = _current, trace
    try:
        yield trace
    finally:
        _current = before


def current() -> Trace:
    """The trace that is written now."""
    return _current


def _decided(text: str) -> None:
    """A condition, unless the question was torch's own (`if in_features > 0`) or the like."""
    _current.count()
    caller = sys._getframe(2).f_globals.get("__name__", "")  # noqa: SLF001 - who asked
    if caller.startswith(_MODELS) or not caller.startswith(_OTHERS):
        _current.decided(text)


def noted(value: float, term: Term) -> Any:  # noqa: ANN401 - a traced number, or a plain one
    """The value with its term, which the trace gets to know."""
    if len(term.text) > MOST_TEXT or term.number is not None or not isinstance(value, (int, float)):
        return value
    _current.count()
    _current.expressions.setdefault(term.text, value)
    return TracedFloat(value, term) if isinstance(value, float) else TracedInt(value, term)


def indexed(number: int, index: str) -> TracedInt:
    """The number of a turn of a loop over an index variable."""
    return TracedInt(number, named(index))


def plain(value: Any) -> Any:  # noqa: ANN401 - any value
    """The value without its term."""
    if isinstance(value, TracedStr):
        return str.__str__(value)
    if isinstance(value, _Number):
        return float.__float__(value) if isinstance(value, float) else int.__int__(value)  # type: ignore[arg-type]
    return value


def term_of(value: object) -> Term:
    """The term of a traced value; a plain one is a constant."""
    return value.term if isinstance(value, (_Number, TracedStr)) else constant(value)


_Operator = Callable[[Any, Any], Any]


def _forward(operate: _Operator, combine: Callable[[Term, Term], Term]) -> _Operator:
    def method(self: _Number, other: Any) -> Any:  # noqa: ANN401 - any value
        if not isinstance(other, (int, float)):
            return NotImplemented
        value = operate(plain(self), plain(other))
        return noted(value, combine(self.term, term_of(other)))

    return method


def _reflected(operate: _Operator, combine: Callable[[Term, Term], Term]) -> _Operator:
    def method(self: _Number, other: Any) -> Any:  # noqa: ANN401 - any value
        if not isinstance(other, (int, float)):
            return NotImplemented
        value = operate(plain(other), plain(self))
        return noted(value, combine(term_of(other), self.term))

    return method


def _comparison(operate: _Operator, symbol: str) -> _Operator:
    def method(self: _Number, other: Any) -> Any:  # noqa: ANN401 - any value
        if not isinstance(other, (int, float)):
            return NotImplemented
        _decided(f"{self.term.at(Rank.SUM)}{symbol}{term_of(other).at(Rank.SUM)}")
        return operate(plain(self), plain(other))

    return method


def _rounding(function: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    def method(self: _Number) -> Any:  # noqa: ANN401 - a number
        value = function(plain(self))
        return noted(value, self.term if isinstance(self, int) else call(name, self.term))

    return method


class _Number:
    """What traced ints and floats do alike."""

    term: Term

    __add__ = _forward(operator.add, total)
    __radd__ = _reflected(operator.add, total)
    __sub__ = _forward(operator.sub, difference)
    __rsub__ = _reflected(operator.sub, difference)
    __mul__ = _forward(operator.mul, product)
    __rmul__ = _reflected(operator.mul, product)
    __truediv__ = _forward(operator.truediv, quotient("/"))
    __rtruediv__ = _reflected(operator.truediv, quotient("/"))
    __floordiv__ = _forward(operator.floordiv, quotient("//"))
    __rfloordiv__ = _reflected(operator.floordiv, quotient("//"))
    __mod__ = _forward(operator.mod, quotient("%"))
    __rmod__ = _reflected(operator.mod, quotient("%"))
    __rpow__ = _reflected(operator.pow, power)
    __lt__ = _comparison(operator.lt, "<")
    __le__ = _comparison(operator.le, "<=")
    __gt__ = _comparison(operator.gt, ">")
    __ge__ = _comparison(operator.ge, ">=")
    __eq__ = _comparison(operator.eq, "==")
    __ne__ = _comparison(operator.ne, "!=")
    __ceil__ = _rounding(math.ceil, "ceil")
    __floor__ = _rounding(math.floor, "floor")
    __trunc__ = _rounding(math.trunc, "int")

    @property
    def expression(self) -> str:
        return self.term.text

    def __hash__(self) -> int:
        return hash(plain(self))

    def __bool__(self) -> bool:
        _decided(self.term.text)
        return bool(plain(self))

    def __pow__(self, other: Any, modulus: object = None) -> Any:  # noqa: ANN401 - a number
        if modulus is not None or not isinstance(other, (int, float)):
            return NotImplemented
        return noted(plain(self) ** plain(other), power(self.term, term_of(other)))

    def __neg__(self) -> Any:  # noqa: ANN401 - a number
        return noted(-plain(self), negative(self.term))

    def __pos__(self) -> Any:  # noqa: ANN401 - a number
        return self

    def __abs__(self) -> Any:  # noqa: ANN401 - a number
        return noted(abs(plain(self)), call("abs", self.term))

    def __divmod__(self, other: Any) -> Any:  # noqa: ANN401 - numbers
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:  # noqa: ANN401 - numbers
        return other // self, other % self

    def __round__(self, digits: int | None = None) -> Any:  # noqa: ANN401 - a number
        return round(plain(self), digits) if digits is not None else _rounding(round, "round")(self)

    def __copy__(self) -> Any:  # noqa: ANN401 - a number
        return self

    def __deepcopy__(self, memo: object) -> Any:  # noqa: ANN401 - a number
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (plain(self), self.term)


class TracedInt(_Number, int):  # type: ignore[misc]  # the overloads of int say what kind of number comes back
    """An int that knows its expression."""

    def __new__(cls, value: int, term: Term) -> TracedInt:
        traced = int.__new__(cls, value)
        traced.term = term
        return traced

    def __lshift__(self, other: Any) -> Any:  # noqa: ANN401 - numbers
        return self * 2**other

    def __rlshift__(self, other: Any) -> Any:  # noqa: ANN401 - numbers
        return other * 2**self

    def __rshift__(self, other: Any) -> Any:  # noqa: ANN401 - numbers
        return self // 2**other


class TracedBool(TracedInt):
    """A flag. No class may inherit from bool; this one passes for it where `isinstance` asks."""

    __class__ = property(lambda _self: bool)

    def __bool__(self) -> bool:
        _current.decided(self.term.text)  # of torch too: that is where `bias=config.attention_bias` is asked for
        return bool(plain(self))


class TracedFloat(_Number, float):  # type: ignore[misc]  # as above
    """A float that knows its expression."""

    def __new__(cls, value: float, term: Term) -> TracedFloat:
        traced = float.__new__(cls, value)
        traced.term = term
        return traced


class TracedStr(str):
    """A string that knows the key it stands in."""

    term: Term
    __slots__ = ("term",)

    def __new__(cls, value: str, term: Term) -> TracedStr:
        traced = str.__new__(cls, value)
        traced.term = term
        return traced

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            _decided(f"{self.term.text}=={term_of(other).text}")
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        if isinstance(other, str):
            _decided(f"{self.term.text}=={term_of(other).text}")
        return str.__ne__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)

    def __contains__(self, part: Any) -> bool:  # noqa: ANN401 - a string
        _decided(f"{term_of(part).text} in {self.term.text}")
        return str.__contains__(self, part)

    def __getitem__(self, place: Any) -> str:  # noqa: ANN401 - an index or a slice
        part = str.__getitem__(self, place)
        return part if isinstance(place, slice) else TracedStr(part, element(self.term, term_of(place)))

    def __copy__(self) -> TracedStr:
        return self

    def __deepcopy__(self, memo: object) -> TracedStr:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return TracedStr, (str.__str__(self), self.term)


class _Sequence:
    """What traced lists and tuples do alike."""

    term: Term | None = None

    def __getitem__(self: Any, place: Any) -> Any:  # noqa: ANN401 - an index or a slice
        item = super().__getitem__(place)  # type: ignore[misc]
        return (
            retraced(item, element(self.term, term_of(place))) if self.term and isinstance(place, TracedInt) else item
        )

    def __contains__(self: Any, item: object) -> bool:
        if self.term and isinstance(item, (int, float, str)):
            _decided(f"{term_of(item).text} in {self.term.text}")
        return any(plain(item) == plain(other) for other in self)

    def __bool__(self: Any) -> bool:
        if self.term:
            _decided(f"len({self.term.text})>0")
        return any(True for _ in self)


class TracedList(_Sequence, list[Any]):
    """A list that knows the key it stands in; so do its elements."""

    def __deepcopy__(self, memo: object) -> Any:  # noqa: ANN401 - a list
        return listed([retraced(item, None) for item in self], self.term)


class TracedTuple(_Sequence, tuple[Any, ...]):  # noqa: SLOT001 - no tuple has room for the slot of its term
    """The same for a tuple."""

    def __deepcopy__(self, memo: object) -> TracedTuple:
        return self


def listed(items: Sequence[Any], term: Term | None) -> Any:  # noqa: ANN401 - a list or a tuple
    """The items, already traced, as the list or tuple of this term."""
    traced = TracedTuple(items) if isinstance(items, tuple) else TracedList(items)
    traced.term = term
    return traced


def retraced(value: Any, term: Term | None) -> Any:  # noqa: ANN401 - any value
    """A traced value under another term; without one, a copy under its own."""
    if isinstance(value, _Sequence):
        return listed(value, term or value.term)  # type: ignore[arg-type]
    if term is None or not isinstance(value, (_Number, TracedStr)):
        return value
    return type(value)(plain(value), term)  # type: ignore[call-arg]
