"""What a recipe must not say at the same time, although each part of it is allowed."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import PurePath, PurePosixPath
from typing import TYPE_CHECKING

from repokit.printable import printable
from repokit.schema.license import license_ids

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


def inputs(recipe: Recipe) -> Iterator[tuple[tuple[str, ...], str]]:
    """Paths and addresses that a build reads, each after its place in the recipe."""
    yield ("source",), recipe.source
    if recipe.base.path is not None:
        yield ("base", "path"), recipe.base.path
    for part in ("config", "tokenizer", "processor", "chat_template"):
        if (origin := getattr(recipe, part).from_) not in {"source", "base"}:
            yield (part, "from"), origin
    for number, adapter in enumerate(recipe.merge.adapters):
        yield ("merge", "adapters", str(number), "path"), adapter.path
    if recipe.license.file not in {None, "auto"}:
        yield ("license", "file"), str(recipe.license.file)


def located(folder: Path, text: str) -> PurePath:
    """Where a word of a recipe leads: links are followed, so that two names of one folder are seen to be one.

    Args:
        folder: What its paths are relative to.
        text: A path or an address; of an address the query does not count, and `file://` is a path.
    """
    protocol, separator, rest = text.partition("://")
    if separator and protocol.lower() != "file":
        return PurePosixPath(f"{protocol.lower()}:/", rest.partition("?")[0])
    path = folder / (rest if separator else text)
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links: the build says so when it opens it
        return path


def _paths(recipe: Recipe, folder: Path) -> Iterator[Contradiction]:
    output = located(folder, recipe.output)
    for steps, text in inputs(recipe):
        place = located(folder, text)
        name = _dotted(steps)
        if place == output or output in place.parents:
            relation = "are the same" if place == output else f"overlap: `{name}` lies inside `output`"
            yield Contradiction(
                ("output",),
                f"`{name}` ({printable(text, 80)}) and `output` ({printable(recipe.output, 80)}) {relation}",
                "the output directory is replaced as a whole, and what the build reads would go with it",
                f"write an `output` outside `{name}`: ./dist/{printable(place.name or 'name', 60)}",
            )


def _dotted(steps: tuple[str, ...]) -> str:
    """`merge.adapters[0].path`."""
    return "".join(f"[{step}]" if step.isdecimal() else f".{step}" for step in steps).removeprefix(".")


def _recipe_itself(recipe: Recipe, folder: Path) -> Iterator[Contradiction]:
    output, home = located(folder, recipe.output), located(folder, ".")
    if home == output or output in home.parents:
        yield Contradiction(
            ("output",),
            f"the recipe lies inside its own `output` ({printable(recipe.output, 80)})",
            "the output directory is replaced as a whole, and the recipe would go with it",
            "write an `output` below the recipe or beside it: ./dist/name",
        )


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
    if license_.id and license_.id not in license_ids():
        yield Contradiction(
            ("license", "id"),
            f"`license.id` is {printable(license_.id, 60)!r}, which is none of the Hub's license ids",
            "the Hub refuses a card with another one",
            _nearest_license(license_.id),
        )
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


def _nearest_license(text: str) -> str:
    spelled = "-".join(text.lower().replace("license", "").replace("_", " ").split())
    near = difflib.get_close_matches(spelled, license_ids(), n=1)
    return f"did you mean `{near[0]}`?" if near else "write `id: other` and `name: its-name`, or one of the Hub's ids"


def _files(recipe: Recipe) -> Iterator[Contradiction]:
    for index, pattern in enumerate(recipe.files.include):
        if pattern in recipe.files.exclude:
            yield Contradiction(
                ("files", "include", str(index)),
                f"`files` includes and excludes {printable(pattern, 80)!r}",
                "exclude wins, so that nothing would be included",
                "remove it from one of the two",
            )
