"""repokit.yaml read: every error with its line, its key and what to write instead."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from repokit.errors import RecipeError
from repokit.printable import count, printable, some
from repokit.schema import yaml_source
from repokit.schema.contradictions import contradictions
from repokit.schema.document import Problem, kind, problems, steps
from repokit.schema.recipe import Lint, Recipe
from repokit.schema.recipe_advice import advise
from repokit.schema.siblings import circles, in_order, misnamed, needs_of, shared_places, unknown_bases
from repokit.schema.variants import ALL, RecipeFile, Variants, place_of, resolved

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from repokit.schema.contradictions import Contradiction
    from repokit.schema.yaml_source import YamlSource


def read(path: Path, variant: str | None = None) -> Recipe:
    """The recipe in a file, or the one of a variant in it.

    Raises:
        RecipeError: What is wrong first, in the order of the file, and how many problems follow; or the file has
            variants and none is named, or not this one.
    """
    found = read_all(path)
    check_names(found, () if variant is None else (variant,), path)
    return found if isinstance(found, Recipe) else found.recipes[variant or ""]


def check_names(found: Recipe | Variants, wanted: Sequence[str], path: Path) -> None:
    """Refuses names of variants that a file does not have, and no name for a file that has some.

    Raises:
        RecipeError: With the names that there are.
    """
    if isinstance(found, Recipe):
        if wanted:
            what = f"has no variants, and {some(list(wanted))} is asked for"
            raise RecipeError(what, path=str(path), hint="leave out --variant, or add `variants` to the recipe")
        return
    names = list(found.recipes)
    if not wanted:
        what = f"has {count(len(names), 'variant')}, and none is named: {some(names, 10)}"
        raise RecipeError(what, path=str(path), hint=f"add --variant {names[0]}, or --variant {ALL}")
    for name in wanted:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"it has {some(names, 10)}"
            raise RecipeError(f"has no variant {printable(name, 60)}", path=str(path), hint=hint)


def read_all(path: Path) -> Recipe | Variants:
    """The recipe in a file, or every variant of it; a mistake in one of them is one of the file.

    Raises:
        RecipeError: See `read`.
    """
    source = yaml_source.load(path)
    _check_version(source)
    if "variants" not in source.value:
        _refuse(problems(Recipe, source.value), source)
        recipe = Recipe.model_validate(source.value)
        _refuse_first(contradictions(recipe, path.parent), source)
        return recipe
    return _variants(source, path.parent)


def place_in(path: Path, where: tuple[str, ...], value: str) -> str | None:
    """The line of a value in a recipe, at the top or in the variant that has it; None where it is in no such file."""
    if not path.is_file():
        return None
    try:
        source = yaml_source.load(path)
    except RecipeError:
        return None
    variants = source.value.get("variants")
    prefixes = [(), *(("variants", name) for name in variants)] if isinstance(variants, dict) else [()]
    for steps_ in ((*prefix, *where) for prefix in prefixes):
        if _at(source.value, steps_) == value:
            return _place(source.position(steps_))
    return None


def _at(document: object, where: Iterable[str]) -> object:
    for step in where:
        document = document.get(step) if isinstance(document, dict) else None
    return document


def _variants(source: YamlSource, folder: Path) -> Variants:
    """Every variant: the file as it stands first, then what each of them makes of it, then all of them together."""
    _refuse(problems(RecipeFile, source.value), source)
    document = source.value
    _refuse_first(misnamed(list(document["variants"])), source, of_key=True)
    if not document["variants"]:
        what, hint = "`variants` names none", "remove it, or name one: `variants: {fp8: {source: ./fp8}}`"
        raise RecipeError(what, path=source.path, place=_place(source.position(("variants",))), hint=hint)
    _refuse_first(unknown_bases(document), source)
    recipes = {name: _variant(source, name, folder) for name in document["variants"]}
    _refuse_first(shared_places(document, recipes, folder), source)
    needs = needs_of(document, recipes, folder)
    _refuse_first(circles(document, needs), source)
    return Variants({name: recipes[name] for name in in_order(needs)}, needs)


def _variant(source: YamlSource, name: str, folder: Path) -> Recipe:
    document = resolved(source.value, name)
    for problem in problems(Recipe, document):
        where = steps(problem.pointer)
        advice = advise(problem, Recipe, document, None, prefix=("variants", name))
        place = _place(source.position(place_of(source.value, name, where)))
        hint = f"{advice.hint} to it, or at the top for all" if problem.fault == "missing" else advice.hint
        raise RecipeError(advice.what, why=advice.why, hint=hint, path=source.path, place=place)
    recipe = Recipe.model_validate(document)
    for found in contradictions(recipe, folder):
        where = place_of(source.value, name, found.steps)
        _refuse_first([replace(found, steps=where, what=f"variant {name}: {found.what}")], source)
    return recipe


def _refuse_first(found: Iterable[Contradiction], source: YamlSource, *, of_key: bool = False) -> None:
    """Raises the first contradiction, if there is one, at the value that is to be changed, or at its key."""
    for one in found:
        position = source.key_position(one.steps) if of_key else source.position(one.steps)
        raise RecipeError(one.what, why=one.why, hint=one.hint, path=source.path, place=_place(position))


def read_lint(path: Path) -> Lint:
    """The lint settings alone: of a repokit.yaml whose other parts may be unfinished, or of a pyproject.toml.

    Raises:
        RecipeError: The file cannot be read, or `lint` (`tool.repokit.lint`) is not what it must be.
    """
    if path.suffix == ".toml":
        return _lint_of_toml(path)
    source = yaml_source.load(path)
    _check_version(source)
    found = problems(RecipeFile, source.value)
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
    advice = advise(problem, RecipeFile, source.value, source.unquoted(where))
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
