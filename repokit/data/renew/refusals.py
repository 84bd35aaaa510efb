"""Reads off the `validate_*` methods of transformers' config classes under which conditions they raise.

A method is a row of `if CONDITION: raise`. Conditions over fields alone are kept as they are written, without `self.`:
`hidden_size % num_attention_heads != 0`. Each is then tried on the class: values for which it holds, in an otherwise
default config, must be refused, and values for which it does not must pass. What fails that is left out.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import random
import textwrap
import warnings
from typing import Any

from repokit.schema import config_conditions

TRIALS = 400
REFUSED = 5  # as many values for which a condition holds must have been refused by the class
BASE = {"validate_output_attentions", "validate_token_ids", "validate_rope", "validate_layer_type"}


def conditions(named: dict[str, Any]) -> tuple[dict[str, list[str]], dict[str, dict[str, Any]]]:
    """Class to its conditions, and class to the values that fields in them have where config.json does not say."""
    warnings.simplefilter("ignore")
    refused: dict[str, list[str]] = {}
    defaults: dict[str, dict[str, Any]] = {}
    for name, cls in named.items():
        kept = [text for text in dict.fromkeys(_written(cls)) if _is_confirmed(cls, text)]
        if kept:
            refused[name] = kept
            defaults[name] = _defaults(cls, {field for text in kept for field in config_conditions.names(text)})
    return refused, defaults


def _written(cls: Any) -> list[str]:  # noqa: ANN401 - a config class
    methods = [method for method in cls.__class_validators__ if method.__name__ not in BASE]
    return [*(text for method in methods for text in _of_method(cls, method)), *_intervals(cls)]


def _intervals(cls: Any) -> list[str]:  # noqa: ANN401 - a config class
    """Fields that must lie between two numbers (transformers utils/type_validators.py `interval`)."""
    found = []
    for field in dataclasses.fields(cls):
        for validator in field.metadata.get("validator", ()):
            known = inspect.getclosurevars(validator).nonlocals
            if {"min", "max"} <= known.keys() and not known.get("exclude_min") and not known.get("exclude_max"):
                limits = [(known["min"], "<"), (known["max"], ">")]
                tests = [f"{field.name} {sign} {limit}" for limit, sign in limits if limit is not None]
                found.append(" or ".join(tests))
    return found


def _derived(cls: Any) -> dict[str, ast.expr]:  # noqa: ANN401 - a config class
    """What `__post_init__` works out of fields in one line, and is no field itself."""
    fields = {field.name for field in dataclasses.fields(cls)}
    body = ast.parse(textwrap.dedent(inspect.getsource(cls.__post_init__))).body[0]
    found: dict[str, ast.expr] = {}
    for statement in body.body if isinstance(body, ast.FunctionDef) else ():
        match statement:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                if name not in fields:
                    found[name] = value
    return found


def _of_method(cls: Any, method: Any) -> list[str]:  # noqa: ANN401 - a config class and its method
    """The conditions of one method, and of the method of the same name above it where it calls that."""
    body = ast.parse(textwrap.dedent(inspect.getsource(method))).body[0]
    found: list[str] = []
    local: dict[str, ast.expr] = {f"self.{name}": value for name, value in _derived(cls).items()}
    for statement in body.body if isinstance(body, ast.FunctionDef) else ():
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                local[name] = value
            case ast.If():
                found += [text for test in _tests(statement) if (text := _text(test, local)) is not None]
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super"))))):
                found += _above(cls, method)
    return found


def _above(cls: Any, method: Any) -> list[str]:  # noqa: ANN401 - a config class and its method
    owners = [base for base in cls.__mro__ if method.__name__ in vars(base)]
    owner = next(index for index, base in enumerate(owners) if vars(base)[method.__name__] is method)
    return _of_method(cls, vars(owners[owner + 1])[method.__name__]) if owner + 1 < len(owners) else []


def _tests(statement: ast.If) -> list[ast.expr]:
    """The condition of each `raise` below an `if`: nested ones joined by `and`. Branches of `else` are not read."""
    if any(isinstance(part, ast.Raise) for part in statement.body):
        return [statement.test]
    inner = [test for part in statement.body if isinstance(part, ast.If) for test in _tests(part)]
    return [ast.BoolOp(ast.And(), [statement.test, test]) for test in inner]


class _Plain(ast.NodeTransformer):
    def __init__(self, local: dict[str, ast.expr]) -> None:
        self.local = local

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            value = self.local.get(f"self.{node.attr}")
            return ast.Name(node.attr, ast.Load()) if value is None else self.visit(_copy(value))
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self.local.get(node.id)
        return node if value is None else self.visit(_copy(value))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        match node:
            case ast.Call(func=ast.Name(id="hasattr"), args=[ast.Name(id="self"), ast.Constant(value=str(name))]):
                return ast.Compare(ast.Name(name, ast.Load()), [ast.IsNot()], [ast.Constant(None)])
            case ast.Call(func=ast.Name(id="isinstance"), args=[value, ast.Name(id="list")]):
                return ast.Call(ast.Name("is_list", ast.Load()), [self.visit(value)], [])
        self.generic_visit(node)
        return node


def _copy(node: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(node), mode="eval").body


def _text(test: ast.expr, local: dict[str, ast.expr]) -> str | None:
    """The condition in words of the table; None where the table has no words for it."""
    text = ast.unparse(_Plain(local).visit(test))
    return text if config_conditions.is_known(text) else None


def _defaults(cls: Any, wanted: set[str]) -> dict[str, Any]:  # noqa: ANN401 - a config class
    """Defaults of fields that `__post_init__` leaves alone: what a default config says is what the class declares."""
    config = cls()
    declared = {field.name: field.default for field in dataclasses.fields(cls)}
    found = {}
    for name in sorted(wanted & declared.keys()):
        value = list(declared[name]) if isinstance(declared[name], tuple) else declared[name]
        now = getattr(config, name)
        if isinstance(value, bool | int | float | str | list | None) and value == (
            list(now) if isinstance(now, tuple) else now
        ):
            found[name] = value
    return found


def _is_confirmed(cls: Any, text: str) -> bool:  # noqa: ANN401 - a config class
    """Whether the class refuses what the condition refuses."""
    fields = {field.name for field in dataclasses.fields(cls)}
    names = config_conditions.names(text)
    if not names or not names <= fields:
        return False
    try:
        config = cls()
    except Exception:  # noqa: BLE001 - whatever a config class asks for
        return False
    chance = random.Random(text)
    values = [{name: _near(getattr(config, name), chance) for name in sorted(names)} for _ in range(TRIALS)]
    holding = [value for value in values if config_conditions.holds(text, value)]
    answers = [_is_refused(cls, value) for value in holding[: 4 * REFUSED]]
    return False not in answers and answers.count(True) >= REFUSED


def _near(value: Any, chance: random.Random) -> Any:  # noqa: ANN401 - a value of a config
    match value:
        case bool():
            return chance.random() < 0.5
        case int():
            return chance.choice([value, value + 1, value - 1, value * 2, -1, 0, 1, 2, 3, 4, 6, 8, 24])
        case float():
            return chance.choice([value, 0.0, -1.0, value * 2])
        case str():
            return chance.choice([value, f"{value}-x", "nonsense", "a-b-c"])
        case list() | tuple():
            return list(value)[: chance.randint(0, len(value))] + list(value)[: chance.randint(0, 1)]
    return chance.choice([value, 1, 2, 3])


def _is_refused(cls: Any, values: dict[str, Any]) -> bool | None:  # noqa: ANN401 - a config class
    """Whether one of its methods raises; None where it does not come that far."""
    from huggingface_hub.errors import StrictDataclassClassValidationError, StrictDataclassFieldValidationError

    try:
        cls(**values)
    except (StrictDataclassClassValidationError, NotImplementedError):
        return True
    except StrictDataclassFieldValidationError as error:
        return True if isinstance(error.__cause__, ValueError) else None
    except Exception:  # noqa: BLE001 - whatever a config class asks for
        return None
    return False
