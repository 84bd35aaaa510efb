"""The recipe that is meant: the one that was named, or the one that lies here; of several variants, which."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from repokit.errors import MissingInput, UsageError
from repokit.formats.urls import Place, place
from repokit.printable import count, printable, some

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from repokit.schema.recipe import Recipe
    from repokit.schema.variants import Variants

RECIPE = "repokit.yaml"
PYPROJECT = "pyproject.toml"


@dataclass(frozen=True)
class Wanted:
    """One of the repositories that a recipe builds.

    Attributes:
        recipe: What is built.
        variant: Its name, where the recipe has several.
        needs: Variants of the recipe that it is made from, and what they build.
    """

    recipe: Recipe
    variant: str | None = None
    needs: Mapping[str, Place] = field(default_factory=dict)

    def check_needs(self) -> None:
        """Refuses to begin before what it is made from is built.

        Raises:
            MissingInput: With the variant that comes first.
        """
        for name, output in self.needs.items():
            if not _is_built(output):
                what = f"is not built, and the variant {self.variant} is made from it"
                hint = f"repokit build --variant {name}, or --variant all"
                raise MissingInput(what, path=str(output), hint=hint)


def read_recipe(path: str | Path = RECIPE, variant: str | None = None) -> Recipe:
    """The recipe in a file, or the one of a variant in it.

    Raises:
        RecipeError: It cannot be read, or is not a recipe; or it has variants and this is none of them.
    """
    from repokit.schema.recipe import load_recipe

    return load_recipe(Path(path), variant)


def read_recipes(path: str | Path = RECIPE) -> tuple[Wanted, ...]:
    """Everything that a recipe builds: one repository, or its variants in the order in which they are built.

    Raises:
        RecipeError: It cannot be read, or is not a recipe.
    """
    from repokit.schema.recipe_file import read_all

    return _wanted(read_all(Path(path)), Path(path).parent)


def chosen_recipes(path: str | Path, variants: Sequence[str]) -> tuple[Wanted, ...]:
    """The variants that are named, or with `all` every one, in the order in which they are built.

    Args:
        path: The recipe.
        variants: Names; none for a recipe that builds one repository.

    Raises:
        RecipeError: It cannot be read, is not a recipe, or has variants and these are none of them.
    """
    from repokit.schema.recipe_file import check_names, read_all
    from repokit.schema.variants import ALL, Variants

    found = read_all(Path(path))
    is_all = ALL in variants and isinstance(found, Variants)
    if not is_all:
        check_names(found, variants, Path(path))
    wanted = _wanted(found, Path(path).parent)
    return tuple(one for one in wanted if is_all or one.variant is None or one.variant in variants)


def _wanted(found: Recipe | Variants, folder: Path) -> tuple[Wanted, ...]:
    from repokit.schema.recipe import Recipe

    if isinstance(found, Recipe):
        return (Wanted(found),)
    outputs = {name: place(folder, recipe.output) for name, recipe in found.recipes.items()}
    return tuple(
        Wanted(recipe, name, {need: outputs[need] for need in outputs if need in found.needs[name]})
        for name, recipe in found.recipes.items()
    )


def _is_built(output: Place) -> bool:
    if isinstance(output, Path):
        return output.is_dir()
    from repokit.repo.remote_files import listed

    return bool(listed(output))


def recipe_of(directory: Place, named: Path | None) -> Recipe | None:
    """The recipe that was named, else the one that lies here if it is this directory's.

    Another one's settings would push to the wrong place. Of several variants it is the one that builds the directory.

    Raises:
        UsageError: A recipe with variants was named, and none of them builds the directory.
    """
    recipe = named or Path(RECIPE)
    if named is None and not recipe.is_file():
        return None
    found = read_recipes(recipe)
    wanted = directory.resolve()
    for one in found:
        if place(recipe.parent, one.recipe.output).resolve() == wanted:
            return one.recipe
    if named is None:
        return None
    if found[0].variant is None:
        return found[0].recipe
    what = f"none of the {count(len(found), 'variant')} of {printable(recipe)} builds {printable(directory)}"
    outputs = [one.recipe.output for one in found]
    raise UsageError(what, hint=f"name what one of them builds: {some(outputs)}")
