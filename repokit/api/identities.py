"""What is known of a model beside its files: by the recipe that builds it, or by its address on the Hub."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from repokit.api.reading import address_of, place_of
from repokit.api.recipes import RECIPE, read_recipes, recipe_of
from repokit.errors import RecipeError
from repokit.repo.identity import Identity

if TYPE_CHECKING:
    from repokit.schema.recipe import Recipe


def identity_of(target: str | Path) -> Identity | None:
    """What the recipe that lies here says of a target, if it is the target's, or its address; None without either.

    A recipe that cannot be read says nothing here: whoever asks for its settings is told.
    """
    address = address_of(target)
    with suppress(RecipeError):
        if address is None:
            recipe = recipe_of(place_of(target), None)
            return None if recipe is None else identity_in(recipe)
        recipes = (one.recipe for one in read_recipes(RECIPE)) if Path(RECIPE).is_file() else ()
        if (recipe := next((recipe for recipe in recipes if recipe.repo == address.repo_id), None)) is not None:
            return identity_in(recipe)
    return None if address is None else Identity(repo=address.repo_id, origin="its address")


def identity_in(recipe: Recipe) -> Identity:
    """What a recipe says."""
    said = recipe.identity
    return Identity(recipe.repo, said.name, said.family, said.variant)
