"""What is wrong in a recipe, why it matters and what to write instead: one line each."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import BaseModel

from repokit.printable import printable
from repokit.schema.document import steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pydantic.fields import FieldInfo

    from repokit.schema.document import Problem

# What people call dtypes, where the nearest spelling is another dtype or none.
_DTYPES: Mapping[str, str] = {
    "bf16": "bfloat16",
    "double": "float64",
    "f16": "float16",
    "f32": "float32",
    "float": "float32",
    "fp16": "float16",
    "fp32": "float32",
    "half": "float16",
}

_ALIKE = 0.55  # `lisence` is license, at 0.57; what is further off is another word

# Keys that are missing on purpose.
_ELSEWHERE: Mapping[str, tuple[str, str]] = {
    "token": ("a secret does not belong in a file that is shared", "run `hf auth login`, or set HF_TOKEN"),
    "hf_token": ("a secret does not belong in a file that is shared", "run `hf auth login`, or set HF_TOKEN"),
    "variants": ("a variant has none of its own", "write `variants` at the top of the recipe"),
    "version": ("it is the version of the whole file", "write it once, at the top of the recipe"),
}


@dataclass(frozen=True, slots=True)
class Advice:
    """The three lines of a RecipeError."""

    what: str
    why: str
    hint: str


def advise(
    problem: Problem,
    model: type[BaseModel],
    document: object,
    unquoted: tuple[str, str] | None,
    *,
    prefix: Sequence[str] = (),
) -> Advice:
    """Words for a problem that `problems(model, document)` found.

    Args:
        problem: The problem.
        model: Of the whole document.
        document: As parsed.
        unquoted: The text of the value and its type in YAML, where it stands without quotes and is no string.
        prefix: Keys above the document in its file.
    """
    where = steps(problem.pointer)
    name = dotted((*prefix, *where))
    match problem.fault:
        case "unknown-key":
            return _unknown_key(where, name, model)
        case "missing":
            return _missing(where, name, model, problem.missing or "")
    message = problem.message.replace("an object", "a mapping")
    what = f"`{name}` {message}" if name else message
    if unquoted and "a string" in problem.message.partition("must be")[2]:
        text, kind = (printable(part, 60) for part in unquoted)
        why = f"YAML 1.1 reads {text} without quotes as {kind}"
        return Advice(what, why, f'write it in quotes: {_last_key(where)}: "{text}"')
    return Advice(what, _meaning(where, model), _value_hint(problem, where, model, _value_at(document, where)))


def dotted(where: Sequence[str]) -> str:
    """`lint.ignore[0].code`."""
    name = ""
    for step in where:
        name += f"[{step}]" if step.isdecimal() else f".{printable(step, 60)}"
    return name.removeprefix(".")


def _last_key(where: Sequence[str]) -> str:
    return next((step for step in reversed(where) if not step.isdecimal()), "")


def _unknown_key(where: tuple[str, ...], name: str, model: type[BaseModel]) -> Advice:
    key, parent = where[-1], model_at(model, where[:-1])
    what = f"`{name}` is not a known key"
    if key in _ELSEWHERE:
        return Advice(what, *_ELSEWHERE[key])
    why = "a key that nobody reads would be ignored in silence, with whatever it was to do"
    known = list(_fields(parent)) if parent else []
    if near := difflib.get_close_matches(key, known, n=1, cutoff=_ALIKE):
        return Advice(what, why, f"did you mean `{near[0]}`?")
    places = [place for place in _places(model) if place.split(".")[-1] == key]
    if places:
        return Advice(what, why, f"did you mean `{places[0]}`?")
    return Advice(what, why, f"known here: {', '.join(known)}")


def _missing(where: tuple[str, ...], name: str, model: type[BaseModel], key: str) -> Advice:
    what = f"`{name}` lacks `{printable(key, 60)}`" if name else f"lacks `{printable(key, 60)}`"
    choices = _choices((*where, key), model)
    return Advice(what, _meaning((*where, key), model), f"add `{key}: {choices[0] if choices else '...'}`")


def _value_hint(problem: Problem, where: tuple[str, ...], model: type[BaseModel], value: object) -> str:
    if where[-2:] == ("weights", "rename") and isinstance(value, dict):
        return "write a list of rules: rename: [{from: REGEX, to: TEXT}]"
    if choices := _choices(where, model):
        return _choice_hint(choices, value)
    wanted = problem.message.rpartition("must be ")[2]
    inner = model_at(model, where)
    field = _field_at(model, _keys(where))
    if field and field.examples:
        return f"for example `{_last_key(where)}: {field.examples[0]}`"
    if inner and wanted == "an object":
        return f"write a mapping with the keys {', '.join(_fields(inner))}"
    return _SHAPES.get(wanted, "the README's section on the recipe says what each key may be")


# What to write where a value of another type stands.
_SHAPES: Mapping[str, str] = {
    "a boolean": "write true or false",
    "a date": "write a day, 2027-01-31, or a month, 2027-01",
    "a list": "write a list, [one, two], also around a single value",
    "an object": "write keys and values, {name: value}",
}


def _choice_hint(choices: Sequence[str], value: object) -> str:
    if isinstance(value, str):
        spelled = value.lower().removeprefix("torch.")
        near = [_DTYPES[spelled]] if spelled in _DTYPES else difflib.get_close_matches(spelled, choices, n=1)
        if near and near[0] in choices:
            return f"did you mean `{near[0]}`?"
    return f"write one of: {', '.join(choices)}"


def _meaning(where: tuple[str, ...], model: type[BaseModel]) -> str:
    """What the key at a path is for, in the words of the schema."""
    keys = _keys(where)
    for length in range(len(keys), 0, -1):
        name, field, inner = dotted(keys[:length]), _field_at(model, keys[:length]), model_at(model, keys[:length])
        if field and field.description:
            return f"{name}: {field.description}"
        if inner and inner.__doc__:
            return f"{name}: {inner.__doc__.partition(chr(10))[0]}"
    return "a recipe that is not understood as a whole is not carried out in part"


def _keys(where: Sequence[str]) -> tuple[str, ...]:
    """A path without its positions in lists."""
    return tuple(step for step in where if not step.isdecimal())


def model_at(model: type[BaseModel], where: Sequence[str]) -> type[BaseModel] | None:
    """The model of the object at a path of keys and list positions; None where there is none."""
    current: type[BaseModel] | None = model
    named = False
    for step in where:
        if current is None:
            return None
        if named or step.isdecimal():  # the name of one of such objects in a mapping, or a position in a list of them
            named = False
            continue
        field = _fields(current).get(step)
        current = next(_models_in(field.annotation), None) if field else None
        named = field is not None and get_origin(field.annotation) is dict
    return current


def _field_at(model: type[BaseModel], keys: Sequence[str]) -> FieldInfo | None:
    parent = model_at(model, keys[:-1])
    return _fields(parent).get(keys[-1]) if parent and keys else None


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Fields by the names that stand in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _choices(where: Sequence[str], model: type[BaseModel]) -> list[str]:
    field = _field_at(model, _keys(where))
    return [str(choice) for choice in _literals_in(field.annotation)] if field else []


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:  # noqa: ANN401 - a type form has no type of its own
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _literals_in(annotation: Any) -> Iterator[object]:  # noqa: ANN401 - a type form has no type of its own
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
        return
    for argument in get_args(annotation):
        yield from _literals_in(argument)


def _places(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """`weights.dtype` and every other key below the top."""
    for name, field in _fields(model).items():
        yield prefix + name
        for inner in _models_in(field.annotation):
            yield from _places(inner, f"{prefix}{name}.")


def _value_at(document: Any, where: Sequence[str]) -> object:  # noqa: ANN401 - whatever the file holds
    for step in where:
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document
