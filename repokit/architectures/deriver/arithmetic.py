"""Finds the expression that gives a vector of numbers, among those that model code writes.

The target is a size or a count at many observations; a candidate is the same over the values of the configs. Equality
of two vectors is a look-up by their bytes, so that sums, products and quotients of two terms cost one pass over the
terms. Simplest first: a key, a key with one constant, two keys, sums and products of such terms.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from repokit.architectures.deriver.features import Column

DIVISORS: Final = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 32, 64)
ROUNDED_TO: Final = (8, 16, 32, 64, 128, 256, 512)
FACTORS: Final = (1, 2, 3, 4, 6, 8)
MOST_TERMS: Final = 400


def simplicity(text: str) -> tuple[int, int, int]:
    """Sorts expressions: fewer operators, fewer special cases, shorter."""
    return (text.count(" if "), sum(text.count(operator) for operator in "+-*/%[("), len(text))


def whole_number(value: float) -> int | None:
    """The integer that a float is; None where it is none."""
    return int(value) if np.isfinite(value) and value == round(value) else None


def same_everywhere(column: Column) -> float | None:
    """The one value of a column; None where it varies or is undefined."""
    return float(column[0]) if np.isfinite(column[0]) and (column == column[0]).all() else None


def floor(column: Column) -> Column:
    """Rounded down, with the slack that the grammar's `floor` and `int` need for quotients."""
    return np.floor(column + 1e-9)


@dataclass
class Search:
    """One search: a target over columns of the same length.

    Attributes:
        target: What is to be given.
        columns: Text -> its vector; those that do not vary are dropped, of equal ones the simplest is kept.
        deadline: `time.process_time()` after which it gives up.
    """

    target: Column
    columns: dict[str, Column]
    deadline: float
    terms: dict[str, Column] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kept: dict[bytes, str] = {}
        for text in sorted(self.columns, key=simplicity):
            column = self.columns[text]
            if same_everywhere(column) is None:
                kept.setdefault(column.tobytes(), text)
        self.columns = {text: self.columns[text] for text in kept.values()}

    def found(self) -> str | None:
        """The first expression that gives the target; None where there is none or time is up."""
        if (constant := same_everywhere(self.target)) is not None:
            return None if (number := whole_number(constant)) is None else str(number)
        with np.errstate(all="ignore"):
            for level in (self._one(), self._two(), self._of_terms(), self._polynomials()):
                for text, column in level:
                    if column.shape == self.target.shape and (column == self.target).all():
                        return text
                    if time.process_time() > self.deadline:
                        return None
        return None

    def _one(self) -> Iterator[tuple[str, Column]]:
        yield from self.columns.items()
        for text, column in self.columns.items():
            yield from self._scaled(text, column)
            for divisor in DIVISORS:
                yield f"{text}//{divisor}", floor(column / divisor)
                yield f"ceil({text}/{divisor})", np.ceil(column / divisor)
            for step in ROUNDED_TO:
                yield f"ceil({text}/{step})*{step}", np.ceil(column / step) * step
            square = column * column
            yield f"{text}*{text}", square
            yield from self._scaled(f"{text}*{text}", square)
            if column.max() < 16:
                yield from self._scaled(f"2**{text}", 2.0**column)

    def _scaled(self, text: str, column: Column) -> Iterator[tuple[str, Column]]:
        """The term times a constant, divided by one, with one added, or both: the constants that could be."""
        lowest, highest = int(column.argmin()), int(column.argmax())
        if column[lowest] == column[highest]:
            return
        slope = (self.target[highest] - self.target[lowest]) / (column[highest] - column[lowest])
        factor = whole_number(round(slope, 9))
        rest = None if factor is None else whole_number(self.target[lowest] - factor * column[lowest])
        if factor and rest is not None:
            yield _linear(text, factor, rest), column * factor + rest
        if column.min() > 0 and (ratio := self.target[highest] / column[highest]) > 0:
            inverse = whole_number(round(1 / ratio, 9))
            if inverse and inverse > 1:
                yield f"({text})//{inverse}", floor(column / inverse)

    def _two(self) -> Iterator[tuple[str, Column]]:
        self.terms = dict(self.columns)
        for (one, a), (two, b) in itertools.combinations(self.columns.items(), 2):
            product = a * b
            yield f"{one}*{two}", product
            self._keep(f"{one}*{two}", product)
            yield f"{one}+{two}", a + b
            yield f"{one}-{two}", a - b
            yield f"{two}-{one}", b - a
            yield f"max({one},{two})", np.maximum(a, b)
            yield f"min({one},{two})", np.minimum(a, b)
            yield from self._scaled(f"{one}*{two}", product)
            yield from self._scaled(f"({one}+{two})", a + b)
            yield from self._fractions(one, two, product)
            for first, above, second, below in ((one, a, two, b), (two, b, one, a)):
                yield from self._quotients(first, above, second, below)
                yield from self._powers(first, above, second, below)
                yield f"{first}*{first}*{second}", above * above * below
                yield from self._scaled(f"{first}*{first}*{second}", above * above * below)
            for times_one, times_two in itertools.product((1, 2, 3, 4), (1, 2, 3, -1, -2)):
                yield f"{times_one}*{one}{times_two:+d}*{two}", times_one * a + times_two * b

    def _keep(self, text: str, column: Column) -> None:
        if len(self.terms) < MOST_TERMS and np.isfinite(column).all():
            self.terms.setdefault(text, column)

    def _fractions(self, one: str, two: str, product: Column) -> Iterator[tuple[str, Column]]:
        """int(hidden * ratio), and the SwiGLU widths of two thirds rounded up to a step."""
        yield f"int({one}*{two})", np.floor(product)
        for factor in FACTORS[1:]:
            yield f"int({factor}*{one}*{two})", np.floor(factor * product)
        third = np.floor(np.floor(product) * 2 / 3)
        for step in ROUNDED_TO:
            yield f"ceil(int(int({one}*{two})*2/3)/{step})*{step}", np.ceil(third / step) * step

    def _quotients(self, one: str, a: Column, two: str, b: Column) -> Iterator[tuple[str, Column]]:
        if b.min() <= 0:
            return
        quotient = floor(a / b)
        self._keep(f"({one}//{two})", quotient)
        yield f"{one}//{two}", quotient
        yield f"ceil({one}/{two})", np.ceil(a / b - 1e-9)
        yield f"ceil({one}/{two})*{two}", np.ceil(a / b - 1e-9) * b
        yield from self._scaled(f"({one}//{two})", quotient)
        yield from self._scaled(f"({one}//{two})*({one}//{two})", quotient * quotient)

    @staticmethod
    def _powers(one: str, a: Column, two: str, b: Column) -> Iterator[tuple[str, Column]]:
        if b.min() < 0 or b.max() > 12:
            return
        for more in (0, 1, -1, 2):
            yield f"{one}*2**({two}{more:+d})" if more else f"{one}*2**{two}", a * 2 ** (b + more)

    def _of_terms(self) -> Iterator[tuple[str, Column]]:
        """Sums, products and quotients of two terms; a term is a key, a product or a quotient of two."""
        known: dict[bytes, str] = {}
        for text, column in self.terms.items():
            known.setdefault(column.tobytes(), text)
        for text, column in list(self.terms.items()):
            for name, single in self.columns.items() if "//" in text else ():
                known.setdefault((column * single).tobytes(), f"{name}*{text}")
        for text, column in list(self.terms.items()):
            yield from self._of_sum(text, column, known)
            if column.min() > 0:
                yield from self._of_product(text, column, known)
            yield from self._scaled(text, column)
            for name, single in self.columns.items():
                yield f"{text}*{name}", column * single
                yield f"int({text}*{name})", np.floor(column * single)
                if single.min() > 0:
                    yield f"({text})//{name}", floor(column / single)

    def _of_sum(self, text: str, column: Column, known: Mapping[bytes, str]) -> Iterator[tuple[str, Column]]:
        for factor in FACTORS[:3]:
            rest = self.target - factor * column
            for divisor in FACTORS[:4]:
                if other := known.get((rest / divisor).tobytes()):
                    yield f"{_times(factor, text)}+{_times(divisor, other)}", self.target

    def _of_product(self, text: str, column: Column, known: Mapping[bytes, str]) -> Iterator[tuple[str, Column]]:
        rest = self.target / column
        for factor in FACTORS:
            if other := known.get((rest / factor).tobytes()):
                inner = f"({other})" if "+" in other or "-" in other else other
                yield f"{_times(factor, text)}*{inner}", self.target

    def _polynomials(self) -> Iterator[tuple[str, Column]]:
        """Sums of monomials with small whole coefficients, by least squares."""
        few = dict(itertools.islice(self.columns.items(), 7))
        quotients = {text: column for text, column in self.terms.items() if "//" in text}
        for factors, degree in ((few, 2), (few, 3), ({**few, **dict(itertools.islice(quotients.items(), 6))}, 2)):
            if len(factors) > 1 and (text := self._least_squares(factors, degree)):
                yield text, self.target

    def _least_squares(self, factors: Mapping[str, Column], degree: int) -> str | None:
        monomials = {"1": np.ones_like(self.target)}
        for order in range(1, degree + 1):
            for names in itertools.combinations_with_replacement(factors, order):
                monomials["*".join(names)] = np.prod([factors[name] for name in names], axis=0)
        if len(monomials) > min(140, len(self.target) * 0.7):
            return None
        matrix = np.stack(list(monomials.values()), axis=1)
        scale = np.abs(matrix).max(axis=0) + 1e-30
        solution = np.linalg.lstsq(matrix / scale, self.target, rcond=1e-13)[0] / scale
        weights = np.round(solution * 8) / 8
        chosen = [(int(weight), name) for weight, name in zip(weights, monomials, strict=True) if weight]
        exact = np.abs(matrix @ weights - self.target).max() < 1e-6
        if not exact or len(chosen) > 7 or any(weight != round(weight) for weight in weights):
            return None
        return "".join(f"{weight:+d}*{name}" for weight, name in chosen).removeprefix("+")


def _times(factor: int, text: str) -> str:
    return text if factor == 1 else f"{factor}*{text}"


def _linear(text: str, factor: int, rest: int) -> str:
    scaled = _times(factor, text)
    return scaled if rest == 0 else f"{scaled}{rest:+d}"


def search(target: Column, columns: Mapping[str, Column], seconds: float) -> str | None:
    """The simplest expression over these columns that gives the target; None where none was found in the time."""
    return Search(target, dict(columns), time.process_time() + seconds).found()


def correlation(one: Column, two: Column) -> float:
    """How much alike two columns vary: 0 to 1."""
    if one.std() == 0 or two.std() == 0:
        return 0.0
    return float(abs(np.corrcoef(one, two)[0, 1]))
