from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repokit.errors import RecipeError
from repokit.schema.recipe import Recipe, load_recipe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEAD = "version: 1\nsource: ./checkpoint\noutput: ./dist/tiny\n"


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], Recipe]:
    """Loads a recipe whose first three lines are the required keys."""

    def _load(text: str, *, head: str = HEAD) -> Recipe:
        path = tmp_path / "repokit.yaml"
        path.write_text(head + text, encoding="utf-8")
        return load_recipe(path)

    return _load


@pytest.fixture
def refusal(load: Callable[[str], Recipe]) -> Callable[[str], RecipeError]:
    """The error with which a recipe is refused."""

    def _refusal(text: str, *, head: str = HEAD) -> RecipeError:
        with pytest.raises(RecipeError) as caught:
            load(text, head=head)
        return caught.value

    return _refusal
