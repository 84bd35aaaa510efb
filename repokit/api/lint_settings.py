"""What the recipe, or pyproject.toml, says of linting."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from repokit.api.reading import address_of, place_of
from repokit.api.recipes import PYPROJECT, RECIPE, read_recipes, recipe_of
from repokit.linter.selection import Ignore, Selection

if TYPE_CHECKING:
    from repokit.hub.address import Address
    from repokit.schema.recipe import Lint, Recipe


@dataclass(frozen=True)
class LintSettings:
    """What files say of linting.

    Attributes:
        selection: Which rules, which findings.
        fail_on: From which severity on `repokit lint` fails, `error` to `never`; None: not said.
        baseline: The file of findings that are known; None: not said.
        origin: The file; None: there is none that says anything.
    """

    selection: Selection = field(default_factory=Selection)
    fail_on: str | None = None
    baseline: Path | None = None
    origin: str | None = None


def settings_for(target: str | Path) -> LintSettings:
    """The lint settings that hold for a target.

    Those of ./repokit.yaml where it builds the directory or names the repository on the Hub, else
    `[tool.repokit.lint]` of ./pyproject.toml.

    Raises:
        RecipeError: One of the two is there and cannot be read.
    """
    recipe = _recipe_for(address_of(target)) or recipe_of(place_of(target), None)
    if recipe is not None:
        found, origin = recipe.lint, RECIPE
    elif Path(PYPROJECT).is_file():
        from repokit.schema.recipe_file import read_lint

        found, origin = read_lint(Path(PYPROJECT)), PYPROJECT
    else:
        return LintSettings()
    if not found.model_fields_set:
        return LintSettings()
    baseline = None if found.baseline is None else Path(found.baseline)
    return LintSettings(selection_of(found), found.fail_on, baseline, origin)


def _recipe_for(address: Address | None) -> Recipe | None:
    """The recipe that lies here, if it is the one of this repository on the Hub."""
    if address is None or not Path(RECIPE).is_file():
        return None
    recipes = (one.recipe for one in read_recipes(RECIPE))
    return next((recipe for recipe in recipes if recipe.repo == address.repo_id), None)


def selection_of(settings: Lint) -> Selection:
    """The selection that a recipe asks for."""
    per_file = settings.per_file.items()
    with_reason = [(paths, entry) for paths, entries in per_file for entry in entries if not isinstance(entry, str)]
    return Selection(
        select=settings.select,
        ignore=(
            *(Ignore(entry.code, entry.reason, entry.until) for entry in settings.ignore),
            *(Ignore(entry.code, entry.reason, entry.until, paths) for paths, entry in with_reason),
        ),
        per_file={paths: tuple(entry for entry in entries if isinstance(entry, str)) for paths, entries in per_file},
        extend_select=settings.extend_select,
    )
