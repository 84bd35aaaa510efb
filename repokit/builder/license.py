"""The license: never guessed, its text never typed in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.errors import MissingInput, Stopped
from repokit.formats.urls import Place, place
from repokit.printable import some
from repokit.repo.remote_files import content

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.repo.repository import Repository
    from repokit.schema.license import License

NAMES: Final = tuple(f"{stem}{end}" for stem in ("LICENSE", "LICENCE", "COPYING") for end in ("", ".md", ".txt"))

# Only texts without a name in them: MIT and BSD begin with a copyright line that repokit cannot know.
_LIBRARY_TEXTS: Final = {"apache-2.0": ("huggingface_hub", "Apache License")}


class LicenseText(NamedTuple):
    """A license file and where its text was found: `source`, `base`, `recipe`, `huggingface_hub`."""

    name: str
    content: bytes
    origin: str


def require_id(license: License, *, recipe: str, base: str | None) -> str:  # noqa: A002 - the field's own word
    """The id that the recipe states.

    Raises:
        Stopped: There is none.
    """
    if license.id:
        return license.id
    from repokit.schema.license import license_ids

    known = some(license_ids(), limit=4)
    hint = f"set license.id in {recipe}: one of {known}"
    if base:
        hint = f"set license.id in {recipe}; the base model's card states its own: https://huggingface.co/{base}"
    why = "without one nobody may use the model; repokit never guesses it"
    raise Stopped("the license is missing", why=why, path=recipe, place="license.id", hint=hint)


def find_text(license: License, *, recipe_folder: Path, repositories: Mapping[str, Repository]) -> LicenseText | None:  # noqa: A002 - the field's own word
    """The text for the stated id, or None where it is not at hand.

    Args:
        license: What the recipe says.
        recipe_folder: What a path there is relative to.
        repositories: Where `auto` looks, in order, each under the word that names it as an origin.

    Raises:
        MissingInput: The recipe names a file that is not there.
    """
    if license.file is None:
        return None
    if license.file != "auto":
        return _from_recipe(place(recipe_folder, license.file))
    for origin, repository in repositories.items():
        for name in NAMES:
            if (content := repository.content(name)) is not None:
                return LicenseText(name, content, origin)
    return _from_library(license.id or "")


def _from_recipe(path: Place) -> LicenseText:
    if isinstance(path, Path) and not path.is_file():
        raise MissingInput("is named by license.file and not there", path=str(path))
    return LicenseText("LICENSE", content(path), "recipe")


def _from_library(license_id: str) -> LicenseText | None:
    """The text as a library that is installed beside repokit ships it."""
    from importlib import metadata

    if license_id not in _LIBRARY_TEXTS:
        return None
    distribution, beginning = _LIBRARY_TEXTS[license_id]
    for file in metadata.files(distribution) or ():
        if file.name == "LICENSE" and (text := file.locate().read_bytes()).lstrip().startswith(beginning.encode()):  # type: ignore[attr-defined]
            return LicenseText("LICENSE", text, distribution)
    return None
