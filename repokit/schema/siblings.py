"""What the variants of one recipe are to each other: which is made from which, and what no two of them may share."""

from __future__ import annotations

import difflib
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from repokit.printable import printable, some
from repokit.schema.contradictions import Contradiction, inputs, located
from repokit.schema.variants import ALL, NAME, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from repokit.schema.recipe import Recipe

    Document = Mapping[str, Any]


def misnamed(names: Sequence[str]) -> Iterator[Contradiction]:
    """Names that are none, or that a file system or the Hub would take for another's. Their keys are the places."""
    seen: dict[str, str] = {}
    for name in names:
        place = ("variants", name)
        shown = printable(name, 60)
        if name == ALL:
            what, hint = f"`{ALL}` is the name of no variant", "give it another name: --variant all means every one"
            yield Contradiction(place, what, "nobody could say which of the two is meant", hint)
        elif not NAME.fullmatch(name):
            why = "it becomes part of a folder's name and of a repository's"
            hint = "use letters, digits, `-`, `_` and `.`, with at least one letter, 64 at most: fp8, gguf, 4bit"
            yield Contradiction(place, f"`{shown}` is no name for a variant", why, hint)
        elif (other := seen.setdefault(name.lower(), name)) != name:
            what = f"the variants {printable(other, 60)} and {shown} differ in upper and lower case alone"
            why = "the Hub and many file systems do not tell such names apart"
            yield Contradiction(place, what, why, "rename one of them")


def unknown_bases(document: Document) -> Iterator[Contradiction]:
    """Bases that are no other variant of the recipe, or two things at once."""
    variants: Document = document["variants"]
    for name in variants:
        base = _base(document, name)
        wanted = base.get("variant")
        if wanted is None:
            continue
        place = place_of(document, name, ("base", "variant"))
        if wanted not in variants:
            near = difflib.get_close_matches(wanted, variants, n=1)
            what = f"{_place(place)} is `{printable(wanted, 60)}`, and no variant has that name"
            hint = f"did you mean `{near[0]}`?" if near else f"there are {some(list(variants), 10)}"
            yield Contradiction(place, what, "there is nothing to make it from", hint)
        elif wanted == name:
            what, why = f"the variant {printable(name, 60)} is its own base", "it cannot be built before itself"
            yield Contradiction(place, what, why, "write the base that it has: `base: {id: org/name}`")
        elif base.get("id") is not None:
            what = f"{_place(place)} and `base.id` both say what it is made from"
            why = "`variant` is the repository of another variant, and what it builds"
            yield Contradiction(place, what, why, "remove one of the two")


def _base(document: Document, name: str) -> Document:
    """What a variant or the top says of its base; a base that is replaced says nothing."""
    own = (document["variants"][name] or {}).get("base") or {}
    if not own.keys().isdisjoint({"id", "variant"}):
        return own
    return {**(document.get("base") or {}), **own}


def _place(steps: tuple[str, ...]) -> str:
    return f"`{'.'.join(steps)}`"


def needs_of(document: Document, recipes: Mapping[str, Recipe], folder: Path) -> dict[str, frozenset[str]]:
    """Which of the others each variant is made from: as its base, or by a path that leads into what they build."""
    return {name: _needs(document, name, recipes, folder) for name in recipes}


def circles(document: Document, needs: Mapping[str, frozenset[str]]) -> Iterator[Contradiction]:
    """Variants that are made from each other."""
    if left := [name for name in needs if name not in in_order(needs)]:
        yield _circle(document, needs, left)


def in_order(needs: Mapping[str, frozenset[str]]) -> list[str]:
    """Names in the order in which they are built, each after what it is made from, else as they stand.

    Those that can never be built, because they wait for each other, are not among them.
    """
    done: list[str] = []
    while (ready := next((name for name in needs if name not in done and needs[name] <= set(done)), None)) is not None:
        done.append(ready)
    return done


def _needs(document: Document, name: str, recipes: Mapping[str, Recipe], folder: Path) -> frozenset[str]:
    recipe, named = recipes[name], _base(document, name).get("variant")
    reads = [located(folder, text) for _, text in inputs(recipe)]
    outputs = {other: located(folder, found.output) for other, found in recipes.items() if other != name}
    inside = (other for other, output in outputs.items() if any(output in (path, *path.parents) for path in reads))
    return frozenset([*([str(named)] if named in recipes else []), *inside])


def _circle(document: Document, needs: Mapping[str, frozenset[str]], left: Sequence[str]) -> Contradiction:
    """Of variants that wait for each other, the one that stands first and its way back to itself."""
    way = [left[0]]
    while way[-1] not in way[:-1]:
        way.append(min(needs[way[-1]] & set(left), key=left.index))
    way = way[way.index(way[-1]) :]
    place = place_of(document, way[0], ("base", "variant"))
    what = f"variants are made from each other: {' needs '.join(printable(name, 60) for name in way)}"
    return Contradiction(place, what, "none of them can be built first", "name another base for one of them")


def shared_places(document: Document, recipes: Mapping[str, Recipe], folder: Path) -> Iterator[Contradiction]:
    """Variants that would be written to one place, here or on the Hub."""
    yield from _shared_outputs(document, recipes, folder)
    yield from _shared_repositories(document, recipes)


def _shared_outputs(document: Document, recipes: Mapping[str, Recipe], folder: Path) -> Iterator[Contradiction]:
    outputs = {name: located(folder, recipe.output) for name, recipe in recipes.items()}
    for name, output in outputs.items():
        for other, place in outputs.items():
            if name == other or output not in (place, *place.parents):
                continue
            first, second = sorted((name, other), key=list(recipes).index)
            told = f"the variants {printable(first, 60)} and {printable(second, 60)}"
            shown = printable(recipes[name].output, 80)
            what = f"{told} are built in one place: {shown}" if output == place else f"{told} overlap: {shown}"
            why = "an output is replaced as a whole, and one would take the other with it"
            yield Contradiction(place_of(document, second, ("output",)), what, why, "write an `output` for one of them")


def _shared_repositories(document: Document, recipes: Mapping[str, Recipe]) -> Iterator[Contradiction]:
    """One repository holds several variants on branches of their own; a tag is of one commit."""
    by_repo: dict[str, list[str]] = defaultdict(list)
    for name, recipe in recipes.items():
        if recipe.repo is not None:
            by_repo[recipe.repo.lower()].append(name)
    for names in by_repo.values():
        for key, default in (("revision", "main"), ("tag", None)):
            places: dict[str, str] = {}
            for name in names:
                place = getattr(recipes[name].push, key) or default
                if place is None or (first := places.setdefault(place, name)) == name:
                    continue
                told = f"the variants {printable(first, 60)} and {printable(name, 60)}"
                at = f"{recipes[name].repo}, {key} {printable(place, 80)}"
                steps = place_of(document, name, ("push", key) if recipes[name].push.model_dump()[key] else ("repo",))
                hint = f"write a `repo` for one of them, or a `push.{key}`"
                why = "the second push would take the place of the first" if key == "revision" else "tags never move"
                yield Contradiction(steps, f"{told} are published in one place: {at}", why, hint)
