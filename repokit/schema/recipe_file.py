"""repokit.yaml read: every error with its line, its key and what to write instead."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, Final

from repokit.errors import RecipeError
from repokit.printable import count, printable
from repokit.schema import yaml_source
from repokit.schema.contradictions import contradictions
from repokit.schema.document import Problem, kind, problems, steps
from repokit.schema.recipe import Lint, Recipe
from repokit.schema.recipe_advice import advise

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from repokit.schema.yaml_source import YamlSource


def read(path: Path) -> Recipe:
    """The recipe in a file.

    Raises:
        RecipeError: What is wrong first, in the order of the file, and how many problems follow.
    """
    source = yaml_source.load(path)
    _check_version(source)
    _refuse(problems(Recipe, source.value), source)
    recipe = Recipe.model_validate(source.value)
    for found in contradictions(recipe, path.parent):
        place = _place(source.position(found.steps))
        raise RecipeError(found.what, why=found.why, hint=found.hint, path=source.path, place=place)
    return recipe


def read_lint(path: Path) -> Lint:
    """The lint settings alone: of a repokit.yaml whose other parts may be unfinished, or of a pyproject.toml.

    Raises:
        RecipeError: The file cannot be read, or `lint` (`tool.repokit.lint`) is not what it must be.
    """
    if path.suffix == ".toml":
        return _lint_of_toml(path)
    source = yaml_source.load(path)
    _check_version(source)
    found = problems(Recipe, source.value)
    _refuse([problem for problem in found if steps(problem.pointer)[:1] == ("lint",)], source)
    return Lint.model_validate(source.value.get("lint", {}))


def _check_version(source: YamlSource) -> None:
    """Before anything else: in another version of the format every other complaint would mislead."""
    version = source.value.get("version", 1)
    if type(version) is int and version == 1:
        return
    place = _place(source.position(("version",)))
    if type(version) is not int:  # true and 1.0 equal 1, and are not meant
        hint = "write `version: 1`"
        what = f"`version` is {kind(version)}, must be the integer 1"
        raise RecipeError(what, why=_OTHER_VERSION, hint=hint, path=source.path, place=place)
    raise RecipeError(
        f"is written in version {printable(version, 20)} of the recipe's format; this repokit reads version 1",
        why=_OTHER_VERSION,
        hint="upgrade repokit, or write `version: 1` and check the keys",
        path=source.path,
        place=place,
    )


_OTHER_VERSION: Final = "keys may mean something else in another version of the format"


def _refuse(found: Sequence[Problem], source: YamlSource) -> None:
    """Raises the first of the problems in the order of the file; what is there goes before what is not.

    A mistyped key is two problems, an unknown key and a missing one, and the first explains the second.
    """
    if not found:
        return
    placed = [(problem.fault == "missing", _position(problem, source), problem) for problem in found]
    _, position, problem = min(placed, key=lambda entry: entry[:2])
    where = steps(problem.pointer)
    advice = advise(problem, Recipe, source.value, source.unquoted(where))
    rest = f" (and {count(len(found) - 1, 'more problem')})" if len(found) > 1 else ""
    raise RecipeError(advice.what + rest, why=advice.why, hint=advice.hint, path=source.path, place=_place(position))


def _position(problem: Problem, source: YamlSource) -> tuple[int, int]:
    where = steps(problem.pointer)
    return source.key_position(where) if problem.fault == "unknown-key" else source.position(where)


def _place(position: tuple[int, int]) -> str:
    return f"line {position[0]} column {position[1]}"


def _lint_of_toml(path: Path) -> Lint:
    try:
        settings: Any = tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise RecipeError(f"cannot be read: {printable(error.strerror)}", path=str(path)) from None
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        hint = "compare it with pyproject.toml's specification"
        raise RecipeError(f"is not TOML: {printable(error)}", hint=hint, path=str(path)) from None
    for key in ("tool", "repokit", "lint"):
        settings = settings.get(key, {}) if isinstance(settings, dict) else settings
    for problem in problems(Lint, settings):
        advice = advise(problem, Lint, settings, None, prefix=("tool", "repokit", "lint"))
        raise RecipeError(advice.what, why=advice.why, hint=advice.hint, path=str(path))
    return Lint.model_validate(settings)
