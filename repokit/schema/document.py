"""Document, the root of every file model, and the translation of Pydantic's errors into problems for people."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# A file in which more values than this are wrong is not the file that it claims to be. Listing each of them would
# take more memory than the file.
MOST_PROBLEMS = 10_000

_Path: TypeAlias = tuple[Any, ...]

# "Input should be ...", "String should have ..."; the value's name stands before the message here.
_SHOULD = re.compile(r"^[A-Z][a-z]+ should")


class Document(BaseModel):
    """A file, or an object inside one, that other tools write and read.

    Unknown keys are legal and kept: every library adds its own. Types are strict: a bool is not an int, "4096" is not
    an int, 4096.0 is not an int. An int is accepted where a float is meant, because transformers 4 wrote `1` for `1.0`
    and most readers do not mind; transformers 5 does, and a rule says so where it applies. `null` means absent.
    """

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, protected_namespaces=())


@dataclass(frozen=True, slots=True)
class Problem:
    """One value that its readers cannot use.

    Attributes:
        pointer: JSON Pointer (RFC 6901) to the value; to the object around it where a key is missing.
        message: Goes on from the value's name: `is a string, must be an integer`.
        fault: What kind of problem it is.
        missing: The key that is not there, where that is the problem.
    """

    pointer: str
    message: str
    fault: Literal["value", "missing", "unknown-key"] = "value"
    missing: str | None = None


def problems(model: type[BaseModel], raw: object) -> tuple[Problem, ...]:
    """Everything in the parsed document `raw` that `model` does not allow, one problem per place. Never raises."""
    try:
        model.model_validate(raw)
    except ValidationError as error:
        if error.error_count() > MOST_PROBLEMS:
            return (Problem("", f"has {error.error_count():,} values of a wrong type"),)
        return tuple(_translated(error.errors(include_url=False, include_input=False), raw))
    return ()


def pointer(path: Iterable[object]) -> str:
    """The JSON Pointer (RFC 6901) of a path of keys and list positions."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def steps(pointer: str) -> tuple[str, ...]:
    """The keys and list positions of a JSON Pointer, all as strings."""
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])


def only(*kinds: type, expected: str) -> PlainValidator:
    """A validator that looks at the type of a value and leaves its contents alone.

    For objects too large to be worth a walk in which every entry is checked and copied, such as a vocabulary.
    """

    def check(value: object) -> object:
        if isinstance(value, kinds):
            return value
        raise PydanticCustomError("kind", "must be {expected}", {"expected": expected})

    accepted = kinds[0] if len(kinds) == 1 else kinds[0] | kinds[1]
    return PlainValidator(check, json_schema_input_type=accepted)


LargeList: TypeAlias = Annotated[list[Any], only(list, expected="a list")]

# Error types of pydantic_core, as the end of a sentence that begins "must be".
_EXPECTED: Mapping[str, str] = {
    "bool_type": "a boolean",
    "date_from_datetime_inexact": "a date",
    "date_from_datetime_parsing": "a date",
    "date_type": "a date",
    "dict_type": "an object",
    "float_type": "a number",
    "int_from_float": "an integer",
    "int_type": "an integer",
    "list_type": "a list",
    "model_type": "an object",
    "string_type": "a string",
    "tuple_type": "a list",
}


def _translated(errors: Sequence[ErrorDetails], raw: object) -> Iterable[Problem]:
    by_place: dict[_Path, list[tuple[ErrorDetails, object]]] = {}
    for error in errors:
        path, value = _resolved(error, raw)
        by_place.setdefault(path, []).append((error, value))
    # A union reports each of its branches. The branch that fits the value goes on inside it; what the others say
    # about the value as a whole ("must be a string") is noise.
    inner = {path[:length] for path in by_place for length in range(len(path))}
    for path, found in by_place.items():
        if path not in inner:
            yield _problem(path, found)


def _resolved(error: ErrorDetails, raw: object) -> tuple[_Path, object]:
    """The path of an error in the document, and the value there.

    Pydantic's location also names the branches of unions ("int", "list[int]", a class): whatever is no key here is
    one of them. A key that is spelled like a branch wins, which misplaces an error by one step at worst.
    """
    path: list[object] = []
    value = raw
    for step in error["loc"]:
        match value:
            case dict() if step in value:
                value = value[step]
            case list() if isinstance(step, int) and step < len(value):
                value = value[step]
            case _:
                continue
        path.append(step)
    if error["type"] == "missing":
        path.append(error["loc"][-1])
    return tuple(path), value


def _problem(path: _Path, found: Sequence[tuple[ErrorDetails, object]]) -> Problem:
    error, value = found[0]
    match error["type"]:
        case "missing":
            key = str(path[-1])
            return Problem(pointer(path[:-1]), f"lacks `{printable(key, 60)}`", "missing", key)
        case "extra_forbidden":
            return Problem(pointer(path), "is not a known key", "unknown-key")
        case "recursion_loop" | "recursion_depth_exceeded":
            return Problem(pointer(path), "is nested too deeply")
        case "string_unicode":
            return Problem(pointer(path), "holds a lone surrogate, must be Unicode text")
        case "float_type" if isinstance(value, int) and not isinstance(value, bool):
            return Problem(pointer(path), "is an integer beyond what a float can hold")
    if error["type"] == "invalid_key" or error["loc"][-1:] == ("[key]",):
        return Problem(pointer(path), "is a key that is not a string")
    return Problem(pointer(path), _sentence(value, [error for error, _ in found]))


def _sentence(value: object, errors: Sequence[ErrorDetails]) -> str:
    """`is a string, must be an integer or a list`: the branches of a union in one sentence."""
    expected = list(dict.fromkeys(phrase for error in errors if (phrase := _expected(error))))
    if not expected:
        return _SHOULD.sub("must", errors[0]["msg"].removeprefix("Value error, "))
    wanted = alternatives(expected)
    if any(error["type"] == "literal_error" for error in errors) and isinstance(value, str | int | float):
        return f"is {printable(repr(value), 60)}, must be {wanted}"
    return f"is {kind(value)}, must be {wanted}"


def _expected(error: ErrorDetails) -> str | None:
    if error["type"] in _EXPECTED:
        return _EXPECTED[error["type"]]
    expected = error.get("ctx", {}).get("expected")
    return str(expected) if expected else None


def alternatives(phrases: Sequence[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    *most, last = phrases
    return f"{', '.join(most)} or {last}" if most else last


# bool before int: it is a subclass.
_KINDS: Sequence[tuple[type | tuple[type, ...], str]] = (
    (type(None), "null"),
    (bool, "a boolean"),
    (int, "an integer"),
    (float, "a float"),
    (str, "a string"),
    (list, "a list"),
    (dict, "an object"),
    (bytes, "binary data"),
)


def kind(value: object) -> str:
    """What a parsed value is, in the words of JSON: `an integer`. YAML and TOML also give dates and times."""
    for types, name in _KINDS:
        if isinstance(value, types):
            return name
    return f"a {type(value).__name__}"
