"""What a recipe must not say at the same time, although each part of it is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repokit.schema.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two values that cannot both be meant.

    Attributes:
        steps: Path of the value to change first.
        what: One line; says both.
        why: What would happen.
        hint: What to write.
    """

    steps: tuple[str, ...]
    what: str
    why: str
    hint: str


def contradictions(recipe: Recipe, folder: Path) -> Iterator[Contradiction]:
    """Everything in the recipe that does not go together. `folder` is what its paths are relative to."""
    yield from _paths(recipe, folder)
    yield from _recipe_itself(recipe, folder)
    yield from _base(recipe)
    yield from _weights(recipe)
    yield from _license(recipe)
    yield from _files(recipe)


def _paths(recipe: Recipe, folder: Path) -> Iterator[Contradiction]:
    output = _resolved(folder, recipe.output)
    for steps, text in ((("source",), recipe.source), (("base", "path"), recipe.base.path)):
        if output is None or text is None or (place := _resolved(folder, text)) is None:
            continue
        name = ".".join(steps)
        if place == output or output in place.parents:
            relation = "are the same" if place == output else f"overlap: `{name}` lies inside `output`"
            yield Contradiction(
                ("output",),
                f"`{name}` ({printable(text, 80)}) and `output` ({printable(recipe.output, 80)}) {relation}",
                "the output directory is replaced as a whole, and what the build reads would go with it",
                f"write an `output` outside `{name}`: ./dist/{printable(place.name or 'name', 60)}",
            )


def _recipe_itself(recipe: Recipe, folder: Path) -> Iterator[Contradiction]:
    output, home = _resolved(folder, recipe.output), _resolved(folder, ".")
    if output is not None and home is not None and (home == output or output in home.parents):
        yield Contradiction(
            ("output",),
            f"the recipe lies inside its own `output` ({printable(recipe.output, 80)})",
            "the output directory is replaced as a whole, and the recipe would go with it",
            "write an `output` below the recipe or beside it: ./dist/name",
        )


def _resolved(folder: Path, text: str) -> Path | None:
    """Links followed, so that two names of one folder are seen to be one. None for what is no local path."""
    if "://" in text:
        return None
    try:
        return (folder / text).resolve()
    except (OSError, RuntimeError):  # a loop of links: the build says so when it opens it
        return None


def _base(recipe: Recipe) -> Iterator[Contradiction]:
    base = recipe.base
    if base.variant is not None:
        yield Contradiction(
            ("base", "variant"),
            f"`base.variant` is `{printable(base.variant, 60)}`, and the recipe has no `variants`",
            "there is nothing to make it from",
            "write an `id` or a `path`, or add `variants` to the recipe",
        )
    for part in ("tokenizer", "processor", "chat_template"):
        if getattr(recipe, part).from_ == "base" and base.id is None and base.path is None:
            yield Contradiction(
                (part, "from"),
                f"`{part}.from` is `base`, and `base` names neither an `id` nor a `path`",
                "there is nothing to take it from",
                "add `base: {id: org/name}` or `base: {path: DIR}`",
            )
    if base.revision is not None and base.id is None:
        yield Contradiction(
            ("base", "revision"),
            "`base.revision` is set, and `base.id` is not",
            "a revision means nothing without its repository",
            "add `id: org/name` to `base`",
        )


# Per kind: keys of `weights` that would have no effect, because its files are taken over as they are.
_INERT = {
    "adapter": ("tie", "vocabulary"),
    "gguf": ("dtype", "keep", "max_shard_size", "rename", "drop", "tie", "vocabulary"),
}


def _weights(recipe: Recipe) -> Iterator[Contradiction]:
    weights = recipe.weights
    for key in _INERT.get(recipe.kind, ()):
        if key in weights.model_fields_set and getattr(weights, key) not in ("auto", (), None):
            yield Contradiction(
                ("weights", key),
                f"`kind` is `{recipe.kind}`, and `weights.{key}` is set",
                "an adapter has no embedding and no head to tie"
                if recipe.kind == "adapter"
                else "GGUF files are published byte for byte",
                f"remove `weights.{key}`, or correct `kind`",
            )
    vocabulary = weights.vocabulary
    if vocabulary is not None and vocabulary.size is None and vocabulary.pad_to_multiple_of is None:
        yield Contradiction(
            ("weights", "vocabulary"),
            "`weights.vocabulary` has neither `size` nor `pad_to_multiple_of`",
            "it asks for nothing",
            "write one of them, or remove `vocabulary`",
        )
    if weights.keep and weights.dtype == "auto" and recipe.kind != "gguf":
        yield Contradiction(
            ("weights", "keep"),
            "`weights.keep` lists tensors that are not to be cast, and `weights.dtype` is `auto`, which casts none",
            "one of the two is not what was meant",
            "write the dtype that the other tensors are to have, or remove `keep`",
        )


def _license(recipe: Recipe) -> Iterator[Contradiction]:
    license_ = recipe.license
    if license_.id != "other":
        return
    if license_.name is None:
        yield Contradiction(
            ("license", "id"),
            "`license.id` is `other`, and `license.name` is not set",
            "the Hub asks for a license_name, and people would not learn which license it is",
            "add `name: my-license-1.0` to `license`",
        )
    if license_.file is None and license_.link is None:
        yield Contradiction(
            ("license", "file"),
            "`license.id` is `other`, `license.file` is null and `license.link` is not set",
            "nobody could read the terms",
            "name the text: `file: LICENSE`, or its URL: `link: https://...`",
        )


def _files(recipe: Recipe) -> Iterator[Contradiction]:
    for index, pattern in enumerate(recipe.files.include):
        if pattern in recipe.files.exclude:
            yield Contradiction(
                ("files", "include", str(index)),
                f"`files` includes and excludes {printable(pattern, 80)!r}",
                "exclude wins, so that nothing would be included",
                "remove it from one of the two",
            )
