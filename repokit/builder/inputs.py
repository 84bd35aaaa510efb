"""What a recipe reads, and whether its output may be replaced: nothing that is built from is ever taken with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from repokit.errors import MissingInput, RecipeError
from repokit.formats.urls import Place, Url, place
from repokit.printable import printable
from repokit.schema.contradictions import inputs
from repokit.schema.recipe_file import place_in

if TYPE_CHECKING:
    from repokit.schema.recipe import Recipe

_ONLY_READ: Final = ("source", "merge.adapters")  # nothing is built inside of these either


def check_inputs(recipe: Recipe, folder: Path, recipe_name: str) -> None:
    """Refuses what a recipe names and does not exist, at the line that names it.

    Raises:
        MissingInput: With the key, and what stands there.
    """
    for steps, text in inputs(recipe):
        found = place(folder, text)
        if steps in {("source",), ("base", "path")} and isinstance(found, Path) and not os.path.lexists(found):
            what = f"{'.'.join(steps)}: {printable(text)} does not exist"
            where = place_in(Path(recipe_name), steps, text)
            why = f"paths in a recipe are relative to its folder, {printable(folder.resolve())}"
            raise MissingInput(what, why=why, path=recipe_name, place=where, hint=f"correct `{'.'.join(steps)}`")


def check_output(recipe: Recipe, folder: Path, source: Place, recipe_name: str) -> None:
    """Refuses an output whose replacement would take an input with it, and one inside the source or an adapter.

    Args:
        recipe: What is built, from what.
        folder: What relative paths in it are relative to.
        source: The folder of the checkpoint, which is that of the file where the recipe names one.
        recipe_name: For messages.

    Raises:
        RecipeError: Even `--force` must not delete what is built from.
    """
    output = place(folder, recipe.output)
    read: dict[str, Place] = {"source": source, "recipe": folder}
    for steps, text in inputs(recipe):
        if steps != ("source",):
            read["base" if steps == ("base", "path") else ".".join(steps)] = place(folder, text)
    if isinstance(output, Url):
        _check_writable(output, recipe_name)
    replaced = _resolved(output)
    for word, path in read.items():
        if replaced in {_resolved(path), *_resolved(path).parents}:
            what = f"{printable(output)} holds the {word}; a build replaces its output"
            raise RecipeError(what, path=recipe_name, place="output", hint="name a directory of its own: ./dist/NAME")
        if word.startswith(_ONLY_READ) and _resolved(path) in replaced.parents:
            what = f"{printable(output)} lies inside the {word}, which is only read"
            raise RecipeError(what, path=recipe_name, place="output", hint=f"name a directory beside the {word}")


def _resolved(path: Place) -> Place:
    """One and the same for all that leads there: `file://` is a path."""
    on_disk = path.on_disk if isinstance(path, Url) else None
    return path.resolve() if on_disk is None else on_disk.resolve()


def _check_writable(output: Url, recipe_name: str) -> None:
    if output.protocol == "hf" and not output.path.startswith("buckets/"):
        what = f"{printable(output)} is a repository on the Hub, which is published to in one commit"
        hint = "build into a directory, then: repokit push DIR org/name"
        raise RecipeError(what, path=recipe_name, place="output", hint=hint)
    if output.lists_nothing:
        what = f"{printable(output)} is on a web server, to which nothing can be written"
        raise RecipeError(what, path=recipe_name, place="output", hint="name a directory, or a folder of a bucket")
    if output.parent == output:
        what = f"{printable(output)} is a whole bucket; a build replaces its output"
        raise RecipeError(what, path=recipe_name, place="output", hint=f"name a folder in it: {output / 'NAME'}")
