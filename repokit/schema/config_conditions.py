"""Conditions under which a config class of transformers raises, as the table of field types spells them.

An expression of Python over the fields of one config: `hidden_size % num_attention_heads != 0`. It is parsed and never
compiled: what it may hold is what `_value` below has a case for.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

_LARGEST: Final = 10**9  # beyond it powers and products are not worth their time


class UnknownValueError(Exception):
    """A field is not known, or has a value with which nothing can be computed."""


_BINARY: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
}
_COMPARED: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}
_CALLED: Final[Mapping[str, Callable[[Any], Any]]] = {
    "len": len,
    "sum": sum,
    "list": list,
    "sorted": sorted,
    "is_list": lambda value: isinstance(value, list),
}


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@cache
def names(text: str) -> frozenset[str]:
    """The fields in a condition."""
    found = {node.id for node in ast.walk(_parsed(text)) if isinstance(node, ast.Name)}
    return frozenset(found - _CALLED.keys())


def is_known(text: str) -> bool:
    """Whether a condition is made of nothing but what can be evaluated here."""
    return all(_is_node(node) for node in ast.walk(_parsed(text)))


def _is_node(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name), args=[_], keywords=[]):
            return name in _CALLED
        case ast.Subscript(slice=ast.Constant() | ast.UnaryOp()):
            return True
        case ast.operator():
            return type(node) in _BINARY
        case ast.cmpop():
            return type(node) in _COMPARED
    plain = (ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Name, ast.Constant, ast.List, ast.Tuple)
    return isinstance(node, (*plain, ast.boolop, ast.unaryop, ast.expr_context))


def holds(text: str, values: Mapping[str, Any]) -> bool:
    """Whether the condition is met, of a config with these values; False where one of them is missing or unusable."""
    try:
        return bool(_value(_parsed(text), values))
    except (UnknownValueError, ArithmeticError, TypeError, LookupError):
        return False


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:  # noqa: ANN401, C901 - any type; a case for each node
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name) if name in values:
            return _small(values[name])
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value(part, values) for part in parts]
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_number(_value(left, values)), _number(_value(right, values)))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, values)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, values)
        case ast.IfExp(test=test, body=body, orelse=other):
            return _value(body if _value(test, values) else other, values)
        case ast.Subscript(value=base, slice=index):
            return _value(base, values)[_value(index, values)]
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            return _CALLED[name](_value(argument, values))
        case ast.BoolOp(op=op, values=parts):
            results = (_value(part, values) for part in parts)
            return all(results) if isinstance(op, ast.And) else any(results)
        case ast.Compare(left=left, ops=ops, comparators=others):
            operands = [_value(part, values) for part in (left, *others)]
            return all(_COMPARED[type(op)](*operands[i : i + 2]) for i, op in enumerate(ops))
    raise UnknownValueError


def _number(value: object) -> int | float:
    """No text: a class may take "auto" for a number that it works out itself."""
    if isinstance(value, int | float):
        return value
    raise UnknownValueError


def _small(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) > _LARGEST:
        raise UnknownValueError
    return value
