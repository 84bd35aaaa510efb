"""The recipe that is meant: the one that was named, or the one that lies here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from repokit.schema.recipe import Recipe

RECIPE = "repokit.yaml"
PYPROJECT = "pyproject.toml"


def read_recipe(path: str | Path = RECIPE) -> Recipe:
    """The recipe in a file.

    Raises:
        RecipeError: It cannot be read, or is not a recipe.
    """
    from repokit.schema.recipe import load_recipe

    return load_recipe(Path(path))


def recipe_of(directory: Path, named: Path | None) -> Recipe | None:
    """The recipe that was named, else the one that lies here if it is this directory's.

    Another one's settings would push to the wrong place.
    """
    recipe = named or Path(RECIPE)
    if named is None and not recipe.is_file():
        return None
    found = read_recipe(recipe)
    return found if named or (recipe.parent / found.output).resolve() == directory.resolve() else None
