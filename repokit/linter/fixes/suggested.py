"""What one suggestion of the skeleton explains: a value of config.json, a class, a prefix."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from repokit.architectures.comparison import compare
from repokit.architectures.solving import changed, fits, values_for
from repokit.architectures.suggestions import Cause
from repokit.linter.fix import Fix, SetJson
from repokit.linter.fixes.names import explained, renamed
from repokit.linter.rules.expected_tensors import judgement
from repokit.printable import count, printable
from repokit.repo.config import CONFIG

if TYPE_CHECKING:
    from repokit.linter.finding import Finding
    from repokit.linter.rules.expected_tensors import Judgement
    from repokit.repo.repository import Repository


def by_suggestion(repository: Repository, _finding: Finding) -> Fix | None:
    """The one change after which the weights and config.json agree; None where two would do, or none does."""
    judged = judgement(repository)
    if judged is None or not judged.verified or (found := judged.suggestion) is None or found.left:
        return None
    match found.cause:
        case Cause.NAMES:
            mapping = explained(judged)
            if mapping is None:
                return None
            return renamed(repository, mapping, f"rename {count(len(mapping), 'tensor')}: {found.text}")
        case Cause.VALUE:
            return by_value(judged)
        case _:
            return by_class(repository)


def by_class(repository: Repository, _finding: Finding | None = None) -> Fix | None:
    """`architectures` by the weights, where the whole of config.json is of that class."""
    judged = judgement(repository)
    found = None if judged is None else judged.mistaken
    if found is None or found.architecture is None or found.part is not None or repository.config is None:
        return None
    if len(repository.config.architectures) != 1:
        return None
    title = f"set architectures to {found.architecture}, whose tensors the weights hold"
    return Fix(title, (SetJson(CONFIG, "/architectures/0", found.architecture),))


def by_value(judged: Judgement) -> Fix | None:
    """The one value of config.json with which every tensor matches."""
    solutions = _solutions(judged)
    if len(solutions) != 1:
        return None
    (key, value), after = solutions[0], changed(judged.config, judged.skeleton, *solutions[0])
    edits = [SetJson(CONFIG, place, new) for place, new in _differences(judged.config, after)]
    if not edits or key == "num_labels":
        return None  # what labels are called follows from no shape
    return Fix(f"set {printable(key)} to {printable(json.dumps(value))}, by the shapes of the weights", tuple(edits))


# A comparison costs as many tensors as it looks at. Past this, whether a value is the only one is not known.
_MOST_TRIED: Final = 12
_MOST_TENSORS: Final = 250_000


def _solutions(judged: Judgement) -> list[tuple[str, Any]]:
    """Every value, of those that shapes propose, with which all matches; none where there are too many to try."""
    found: list[tuple[str, Any]] = []
    tried = 0
    for key, value in values_for(judged.skeleton, judged.held, judged.comparison):
        config = changed(judged.config, judged.skeleton, key, value)
        if not fits(judged.skeleton, config, judged.comparison):
            continue
        tried += 1
        if tried > _MOST_TRIED or tried * len(judged.held) > _MOST_TENSORS:
            return []
        if _matches(judged, config):
            found.append((key, value))
    return found


def _matches(judged: Judgement, config: Mapping[str, Any]) -> bool:
    from repokit.architectures import ConfigUnusable, NotCovered

    try:
        return compare(judged.expand(config, judged.skeleton.architecture), judged.held).exact
    except (NotCovered, ConfigUnusable):
        return False


def _differences(before: Mapping[str, Any], after: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """JSON Pointer to new value, of what is set; only objects that are there are gone into."""
    for key, value in after.items():
        pointer = f"{place}/{key.replace('~', '~0').replace('/', '~1')}"
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            yield from _differences(old, value, pointer)
        elif key not in before or old != value or type(old) is not type(value):
            yield pointer, value
