"""YAML that a person wrote, with the line of every key and value.

The types are those of YAML 1.1, as every other tool of the ecosystem reads them. Tags, merge keys, duplicate keys,
alias bombs and what looks like a number and is text (1e-5) are errors. (formats/front_matter.py reads model cards by
the same limits; this one keeps the nodes.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

import yaml

from repokit.errors import RecipeError
from repokit.printable import printable, size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MAX_BYTES: Final = 1024 * 1024
MAX_NODES: Final = 20_000
MAX_DEPTH: Final = 50

# Numbers of YAML 1.2 and of JSON; YAML 1.1 reads as one only what has both a point and a sign: 1.0e-5.
_EXPONENT: Final = re.compile(r"([-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?))[eE]([-+]?)([0-9]+)")
_STR: Final = "tag:yaml.org,2002:str"
_TYPES: Final = {
    "tag:yaml.org,2002:bool": "a boolean",
    "tag:yaml.org,2002:int": "an integer",
    "tag:yaml.org,2002:float": "a float",
    "tag:yaml.org,2002:null": "null",
    "tag:yaml.org,2002:timestamp": "a date",
    _STR: "a string",
    "tag:yaml.org,2002:seq": "a list",
    "tag:yaml.org,2002:map": "a mapping",
}


@dataclass(frozen=True, slots=True)
class YamlSource:
    """A mapping read from a YAML file.

    Attributes:
        path: The file, as the user gave it.
        value: What it says.
        root: Its nodes, which know where they stand.
    """

    path: str
    value: dict[str, Any]
    root: yaml.MappingNode

    def position(self, steps: Sequence[str]) -> tuple[int, int]:
        """Line and column, from 1, of the value at a path; of the deepest value above it where there is none."""
        return _mark(_walk(self.root, steps)[1])

    def key_position(self, steps: Sequence[str]) -> tuple[int, int]:
        """Line and column, from 1, of the key that ends a path."""
        return _mark(_walk(self.root, steps)[0])

    def unquoted(self, steps: Sequence[str]) -> tuple[str, str] | None:
        """The text of a scalar that YAML reads as something else than a string, and as what: `no`, `a boolean`."""
        node = _walk(self.root, steps)[1]
        if isinstance(node, yaml.ScalarNode) and node.style is None and node.tag != _STR:
            return node.value, _TYPES.get(node.tag, "something else")
        return None


def load(path: Path) -> YamlSource:
    """Reads a YAML file that is a mapping.

    Raises:
        RecipeError: It cannot be read, is not UTF-8, is not YAML, or is YAML that means something else in each reader.
    """
    shown = str(path)
    text = _text(path, shown)
    root = _composed(text, shown)
    if root is None:
        raise RecipeError("is empty", hint="`repokit init CHECKPOINT` writes one to start from", path=shown)
    if not isinstance(root, yaml.MappingNode):
        what = f"is {_TYPES.get(root.tag, 'something else')}, must be a mapping of keys to values"
        raise RecipeError(what, hint="begin with `version: 1`", path=shown, place="line 1")
    _check(root, shown)
    try:
        value = yaml.SafeLoader("").construct_document(root)
    except ValueError as error:  # 2026-13-45 looks like a date and is none
        raise RecipeError(
            f"has a value that YAML cannot read: {printable(error)}",
            why="without quotes it looks like a date or a number, and it is none",
            hint="write it in quotes",
            path=shown,
        ) from None
    return YamlSource(shown, value, root)


def _text(path: Path, shown: str) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        hint = "`repokit init CHECKPOINT` writes one"
        raise RecipeError("is not there", hint=hint, path=shown) from None
    except OSError as error:
        raise RecipeError(f"cannot be read: {printable(error.strerror)}", path=shown) from None
    if len(data) > MAX_BYTES:
        raise RecipeError(f"has {size(len(data))}; a recipe has at most {size(MAX_BYTES)}", path=shown)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        why = f"byte 0x{data[error.start]:02x} begins no character there"
        raise RecipeError("is not UTF-8", why=why, hint="save it as UTF-8", path=shown, place=f"line {line}") from None


def _composed(text: str, shown: str) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = _place((mark.line + 1, mark.column + 1)) if mark else None
        context = f" {error.context}" if error.context else ""
        what = f"is not YAML: {printable(error.problem)}{printable(context)}"
        raise RecipeError(what, why=_NOT_YAML, hint=_yaml_hint(error.problem), path=shown, place=place) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"has the character U+{ord(text[error.position]):04X}, which YAML does not allow"
        raise RecipeError(what, hint="remove it", path=shown, place=f"line {line}") from None
    except RecursionError:
        _refuse_depth(shown, None)
    return node


_NOT_YAML: Final = "nothing after that place can be read"


def _yaml_hint(problem: str | None) -> str:
    if problem and "'\\t'" in problem:
        return "indent with spaces, never with tabs"
    if problem and "mapping values are not allowed" in problem:
        return "put quotes around a text that has a colon and a space in it"
    return "look at the indentation, the colons and the quotes there"


def _check(root: yaml.MappingNode, shown: str) -> None:
    """Walks the nodes before any value is built. Aliases share nodes and each visit counts, so that bombs run out."""
    waiting: list[tuple[yaml.Node, int]] = [(root, 0)]
    visits = 0
    while waiting:
        node, depth = waiting.pop()
        visits += 1
        if visits > MAX_NODES:
            what = f"has more than {MAX_NODES:,} values, aliases followed"
            raise RecipeError(what, hint="write out what the aliases repeat", path=shown, place=_place(_mark(node)))
        if depth > MAX_DEPTH:
            _refuse_depth(shown, node)
        if node.tag not in _TYPES:
            _refuse_tag(shown, node)
        if isinstance(node, yaml.ScalarNode):
            _check_text(node, shown)
            _check_number(node, shown)
        elif isinstance(node, yaml.MappingNode):
            _check_keys(node, shown)
            waiting.extend((value, depth + 1) for _, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            waiting.extend((value, depth + 1) for value in node.value)


def _refuse_depth(shown: str, node: yaml.Node | None) -> NoReturn:
    place = _place(_mark(node)) if node else None
    raise RecipeError(f"is nested deeper than {MAX_DEPTH} levels", hint="a recipe has 4", path=shown, place=place)


def _refuse_tag(shown: str, node: yaml.Node) -> NoReturn:
    raise RecipeError(
        f"has the tag {printable(node.tag)}, must have none",
        why="a tag makes a value of a type that only some readers know",
        hint="write the value without the tag",
        path=shown,
        place=_place(_mark(node)),
    )


def _check_text(node: yaml.ScalarNode, shown: str) -> None:
    r"""Refuses what an escape such as "\0" or "\ud800" can bring in and no file or file name can hold."""
    if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in node.value):
        raise RecipeError(
            "has a NUL or half of a surrogate pair in a text",
            why="neither can be part of a file's name or of UTF-8",
            hint="remove the escape",
            path=shown,
            place=_place(_mark(node)),
        )


def _check_number(node: yaml.ScalarNode, shown: str) -> None:
    """Refuses 1e-5: rms_norm_eps and weights are written so everywhere but in YAML 1.1, which takes it for a text."""
    found = _EXPONENT.fullmatch(node.value) if node.style is None and node.tag == _STR else None
    if found is None:
        return
    mantissa, sign, digits = found.groups()
    number = f"{mantissa}{'' if '.' in mantissa else '.0'}e{sign or '+'}{digits}"
    raise RecipeError(
        f"has {printable(node.value, 60)} without quotes: a text in YAML 1.1, a number in YAML 1.2",
        why="editors and repokit would read the file differently, and loaders stop at a text where a number must be",
        hint=f"write {printable(number, 60)}, or put it in quotes if it is a text",
        path=shown,
        place=_place(_mark(node)),
    )


def _check_keys(node: yaml.MappingNode, shown: str) -> None:
    seen: dict[str, int] = {}
    for key, _ in node.value:
        line, column = _mark(key)
        text = printable(key.value if isinstance(key, yaml.ScalarNode) else "?", 60)
        place = _place((line, column))
        if key.tag == "tag:yaml.org,2002:merge":
            raise RecipeError(
                "has a merge key `<<`, which this reader does not follow",
                why="YAML 1.2 has no merge keys, so editors and repokit could read the file differently",
                hint="write the keys out",
                path=shown,
                place=place,
            )
        if key.tag != _STR:
            raise RecipeError(
                f"has the key `{text}`, which YAML reads as {_TYPES.get(key.tag, 'something else')}",
                why="keys are strings; YAML 1.1 reads unquoted words such as yes, no, on, off and numbers as values",
                hint=f'write it in quotes: "{text}":',
                path=shown,
                place=place,
            )
        if key.value in seen:
            raise RecipeError(
                f"has the key `{text}` twice: first on line {seen[key.value]}",
                why="YAML readers keep one of the two in silence",
                hint="remove or merge one of them",
                path=shown,
                place=place,
            )
        seen[key.value] = line


def _walk(root: yaml.Node, steps: Sequence[str]) -> tuple[yaml.Node, yaml.Node]:
    """The key node and the value node at the end of a path, or of as much of it as there is."""
    key, value = root, root
    for step in steps:
        match value:
            case yaml.MappingNode():
                children = {child_key.value: (child_key, child) for child_key, child in value.value}
            case yaml.SequenceNode():
                children = {str(index): (child, child) for index, child in enumerate(value.value)}
            case _:
                children = {}
        if step not in children:
            break
        key, value = children[step]
    return key, value


def _mark(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _place(position: tuple[int, int]) -> str:
    return f"line {position[0]} column {position[1]}"
