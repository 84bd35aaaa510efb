"""Expressions as text: composed, folded a little and bracketed no more than they need.

Equal things shall read equal: a constant factor stands in front, a constant summand at the end, ones and zeros go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum


class Rank(IntEnum):
    """How tightly an expression binds: the operands of an operator are bracketed by it."""

    COMPARISON = 0
    SUM = 1
    DIVISION = 2
    PRODUCT = 3
    UNARY = 4
    POWER = 5
    ATOM = 6


@dataclass(frozen=True, slots=True)
class Term:
    """An expression in the closed grammar.

    Attributes:
        text: The expression.
        rank: Of its outermost operator.
        number: Its value, if it is a constant.
        inner: What is left without a constant factor and a constant summand, if it has one.
        scale: The constant factor of `inner`.
        shift: The constant summand beside `inner`.
    """

    text: str
    rank: Rank = Rank.ATOM
    number: int | float | None = None
    inner: Term | None = None
    scale: int = 1
    shift: int = 0

    def at(self, rank: Rank) -> str:
        """The text as an operand that must bind as tightly as `rank`."""
        return self.text if self.rank >= rank else f"({self.text})"


def named(key: str) -> Term:
    """The term of a key of the config, or of an index variable."""
    return Term(key)


def constant(value: object) -> Term:
    """The term of a plain number or string."""
    if isinstance(value, str):
        return Term(repr(str(value)))
    number = float(value) if isinstance(value, float) else int(value)  # type: ignore[call-overload]
    return Term(repr(number), Rank.ATOM if number >= 0 else Rank.UNARY, number)


def call(function: str, *arguments: Term) -> Term:
    """The term of a function of the grammar."""
    return Term(f"{function}({', '.join(argument.text for argument in arguments)})")


def element(sequence: Term, place: Term) -> Term:
    """The term of `sequence[place]`."""
    return Term(f"{sequence.text}[{place.text}]")


def product(left: Term, right: Term) -> Term:
    """Left * right, with the constant factors folded and in front."""
    for factor, other in ((left, right), (right, left)):
        if factor.number is not None:
            return _scaled(other, factor.number)
    scale, first, second = 1, left, right
    if left.inner and not left.shift:
        scale, first = left.scale, left.inner
    if right.inner and not right.shift:
        scale, second = scale * right.scale, right.inner
    return _scaled(Term(f"{first.at(Rank.PRODUCT)}*{second.at(Rank.PRODUCT)}", Rank.PRODUCT), scale)


def _scaled(term: Term, factor: float) -> Term:
    if factor in {0, 1}:
        return term if factor else constant(0)
    if isinstance(factor, int) and term.inner and not term.shift:
        return _scaled(term.inner, factor * term.scale)
    text = f"{constant(factor).at(Rank.PRODUCT)}*{term.at(Rank.PRODUCT)}"
    return Term(text, Rank.PRODUCT, None, *((term, factor) if isinstance(factor, int) else ()))


def total(left: Term, right: Term) -> Term:
    """Left + right, with the constant summand folded and at the end."""
    for summand, other in ((left, right), (right, left)):
        if isinstance(summand.number, int):
            return _shifted(other, summand.number)
    (first, scale), (second, more) = _parts(left), _parts(right)
    if first.text == second.text:
        return _scaled(first, scale + more)
    text = f"{_unshifted(left).text}+{_unshifted(right).at(Rank.SUM)}"
    return _shifted(Term(text, Rank.SUM), left.shift + right.shift)


def difference(left: Term, right: Term) -> Term:
    """Left - right."""
    if isinstance(right.number, int):
        return _shifted(left, -right.number)
    return Term(f"{left.at(Rank.SUM)}-{right.at(Rank.DIVISION)}", Rank.SUM)


def _parts(term: Term) -> tuple[Term, int]:
    return (term.inner, term.scale) if term.inner and not term.shift else (term, 1)


def _unshifted(term: Term) -> Term:
    return term.inner if term.inner and term.shift else term


def _shifted(term: Term, summand: int) -> Term:
    if term.inner and term.shift:
        return _shifted(term.inner, summand + term.shift)
    if summand == 0:
        return term
    return Term(f"{term.at(Rank.SUM)}{summand:+d}", Rank.SUM, None, term, 1, summand)


def quotient(symbol: str) -> Callable[[Term, Term], Term]:
    """The rule for `/`, `//` or `%`."""

    def combine(left: Term, right: Term) -> Term:
        if right.number == 1:
            return constant(0) if symbol == "%" else left
        return Term(f"{left.at(Rank.DIVISION)}{symbol}{right.at(Rank.UNARY)}", Rank.DIVISION)

    return combine


def power(left: Term, right: Term) -> Term:
    """Left ** right."""
    return left if right.number == 1 else Term(f"{left.at(Rank.ATOM)}**{right.at(Rank.POWER)}", Rank.POWER)


def negative(term: Term) -> Term:
    """-term."""
    return _scaled(term, -1)
