"""The closed grammar in which a skeleton says how many tensors there are and of which shape.

An expression is Python's own syntax cut down to numbers, strings, arithmetic, comparisons, `x if c else y`, subscripts
and the functions of `FUNCTIONS`. Names are keys of config.json, those of a nested config with their path
(`text_config.hidden_size`); the single letters of `INDICES` are the numbers of layer, expert and so on. Text is parsed,
every node is held against a white list, and what remains is compiled to a function that can reach nothing but the
environment it is given. Numbers in config.json come from strangers: products and powers refuse what would not end.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

INDICES: Final = "ijklm"
LARGEST: Final = 1 << 63  # no dimension, count or offset of a file format is larger

Value = None | bool | int | float | str | tuple["Value", ...]
Environment = Mapping[str, Value]


class NotInGrammar(ValueError):
    """The text is no expression of the grammar."""


def _pair(value: Any) -> tuple[int, int]:  # noqa: ANN401 - a number or two of them, as the configs have it
    sides = value if isinstance(value, tuple) else (value, value)
    return sides[0], sides[-1]


def patches(image: Any, patch: Any) -> int:  # noqa: ANN401 - a number or two of them, as the configs have it
    """How many patches of this size cover an image; each is one side or (height, width)."""
    (height, width), (down, across) = _pair(image), _pair(patch)
    return int((height // down) * (width // across))


def count(value: Any) -> int:  # noqa: ANN401 - one value or a list of them
    """How many values a key gives that takes one or a list of them (`vision_feature_layer`)."""
    return len(value) if isinstance(value, tuple) else 1


def first(value: Any) -> Any:  # noqa: ANN401 - one value or a list of them
    """The first value of a key that takes one or a list of them: the height of a patch."""
    return value[0] if isinstance(value, tuple) else value


def last(value: Any) -> Any:  # noqa: ANN401 - one value or a list of them
    """The last value of a key that takes one or a list of them: the width of a patch."""
    return value[-1] if isinstance(value, tuple) else value


def side(value: Any, number: Any) -> Any:  # noqa: ANN401 - one value or a list of them
    """Value `number` of a key that takes a list or one value for all of them."""
    return value[number] if isinstance(value, tuple) else value


def take(values: Any, number: Any) -> Any:  # noqa: ANN401 - a list and how many of it
    """The first values of a list."""
    return values[: max(0, number)]


def _whole(round_off: Callable[[float], int], slack: float) -> Callable[[Any], int]:
    """Rounds; the slack forgives what a division in floating point adds or takes from a whole number."""
    return lambda value: value if isinstance(value, int) else round_off(value + slack)


def times(left: Any, right: Any) -> Any:  # noqa: ANN401 - numbers
    """A product of numbers. Python would also repeat a string, a thousand million times if a config says so."""
    if isinstance(left, (str, tuple)) or isinstance(right, (str, tuple)):
        raise TypeError(f"{left if isinstance(left, (str, tuple)) else right!r} is not a number")
    return left * right


def remainder(left: Any, right: Any) -> Any:  # noqa: ANN401 - numbers
    """The rest of a division. Python would also format a string, as wide as a config says."""
    if isinstance(left, str):
        raise TypeError("text is not a number")
    return left % right


def power(left: Any, right: Any) -> Any:  # noqa: ANN401 - numbers
    """A power whose size is known before it is computed."""
    if abs(right) * max(1.0, math.log2(abs(left) or 1)) > 64:
        raise OverflowError(f"{left} to the power of {right}")
    return left**right


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "abs": abs,
    "bool": bool,
    "ceil": _whole(math.ceil, -1e-9),
    "count": count,
    "first": first,
    "floor": _whole(math.floor, 1e-9),
    "int": int,
    "last": last,
    "len": len,
    "log2": math.log2,
    "max": max,
    "min": min,
    "patches": patches,
    "round": _whole(round, 0),  # of one argument: rounding to 10^9 digits would not end
    "side": side,
    "sum": sum,
    "take": take,
}
_GUARDED: Final = {ast.Mult: "__times", ast.Pow: "__power", ast.Mod: "__remainder"}
_NODES: Final = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Name, ast.Load,
    ast.Attribute, ast.Constant, ast.Subscript, ast.Tuple, ast.List, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv,
    ast.Mod, ast.Pow, ast.USub, ast.UAdd, ast.Not, ast.And, ast.Or, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
    ast.Is, ast.IsNot, ast.In, ast.NotIn,
)  # fmt: skip
_CONSTANTS: Final = (int, float, str, bool, type(None))


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression.

    `evaluate(environment, *indices)` raises TypeError, ValueError, IndexError, ZeroDivisionError or OverflowError for
    values that it was not made for.
    """

    text: str
    keys: frozenset[str]
    indexed: bool  # depends on the number of a layer, expert, ...
    evaluate: Callable[..., Any]

    def __str__(self) -> str:
        return self.text


UNUSABLE: Final = (TypeError, ValueError, IndexError, ZeroDivisionError, OverflowError, MemoryError)


class _Reader(ast.NodeTransformer):
    """Turns keys into look-ups and unbounded operators into guarded calls; refuses the rest."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.keys: set[str] = set()
        self.indexed = False

    def refuse(self, what: str) -> NotInGrammar:
        return NotInGrammar(f"{what} in {self.text[:200]!r}")

    def visit(self, node: ast.AST) -> ast.AST:
        if not isinstance(node, _NODES):
            raise self.refuse(type(node).__name__)
        return super().visit(node)  # type: ignore[no-any-return]

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not isinstance(node.value, _CONSTANTS):
            raise self.refuse(type(node.value).__name__)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS or node.keywords:
            raise self.refuse("a call")
        return ast.Call(node.func, [self.visit(argument) for argument in node.args], [])  # type: ignore[misc]

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        guard = _GUARDED.get(type(node.op))
        return ast.Call(ast.Name(guard, ast.Load()), [node.left, node.right], []) if guard else node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in INDICES:
            self.indexed = True
            return node
        return self.key(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        parts: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name):
            raise self.refuse("an attribute")
        return self.key(".".join([inner.id, *reversed(parts)]))

    def key(self, name: str) -> ast.AST:
        self.keys.add(name)
        return ast.Subscript(ast.Name("__environment", ast.Load()), ast.Constant(name), ast.Load())


_SCOPE: Final = {"__builtins__": {}, "__times": times, "__power": power, "__remainder": remainder, **FUNCTIONS}
_ARGUMENTS: Final = f"__environment, {', '.join(f'{index}=0' for index in INDICES)}"


@cache
def expression(text: str) -> Expression:
    """Parses and compiles one expression.

    Raises:
        NotInGrammar: The text is not of the grammar.
    """
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NotInGrammar(f"no expression: {text[:200]!r}") from None
    reader = _Reader(text)
    function = ast.parse(f"lambda {_ARGUMENTS}: 0", mode="eval")
    try:
        operator.attrgetter("body")(function).body = reader.visit(tree.body)
        compiled = compile(ast.fix_missing_locations(function), "<skeleton>", "eval")
    except RecursionError:
        raise NotInGrammar(f"too deep: {text[:200]!r}") from None
    return Expression(text, frozenset(reader.keys), reader.indexed, eval(compiled, dict(_SCOPE)))  # noqa: S307 - a white-listed tree of our own data
