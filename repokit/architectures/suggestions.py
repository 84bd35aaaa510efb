"""One explanation for all that differs between a file and its skeleton, where there is one.

Each is tried, not guessed: the names with another prefix, the config with another value, the other classes of the
model type are compared anew, and only what leaves nothing to explain is said. How much is tried is bounded by the
number of tensors compared, never by a clock, so that the same repository gets the same answer everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from repokit.architectures.comparison import Comparison, Held, compare
from repokit.architectures.errors import ConfigUnusable, NotCovered
from repokit.architectures.member import Evidence
from repokit.architectures.prefixes import Rename, renamed, renames_for
from repokit.architectures.skeleton import Skeleton, covered, evidence, skeleton
from repokit.architectures.solving import changed, fits, values_for
from repokit.printable import count, printable


class Cause(StrEnum):
    """What went wrong, by the explanation."""

    NAMES = "names"
    VALUE = "value"
    ARCHITECTURE = "architecture"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One change after which the file and its config agree.

    Attributes:
        cause: What is to be changed.
        text: As a sentence for a person, without a full stop.
        left: How many tensors it leaves unexplained; only renames may leave any.
        renames: For NAMES: in this order.
        key: For VALUE: dotted key of config.json ...
        value: ... and what it would have to be.
        architecture: For ARCHITECTURE: the class.
        part: For ARCHITECTURE: the key of the nested config that the class is built from, where it is not the whole.
    """

    cause: Cause
    text: str
    left: int = 0
    renames: tuple[Rename, ...] = ()
    key: str | None = None
    value: Any = None
    architecture: str | None = None
    part: str | None = None


@dataclass(slots=True)
class Budget:
    """What may still be tried. A comparison costs as many tensors as it looks at."""

    tensors: int = 250_000
    tries: int = 40

    def spend(self, tensors: int) -> bool:
        """Whether there is enough for a comparison of so many tensors; it is then taken from the budget."""
        self.tensors -= tensors
        self.tries -= 1
        return self.tensors >= 0 and self.tries >= 0


Expand = Callable[[Mapping[str, Any], str], Skeleton]  # config and class -> its skeleton


@dataclass(slots=True)
class _Case:
    """What is to be explained."""

    skeleton: Skeleton
    config: Mapping[str, Any]
    held: Held
    comparison: Comparison
    expand: Expand
    budget: Budget

    def matches(self, config: Mapping[str, Any], architecture: str) -> bool:
        """Whether the file is one of this config and class."""
        try:
            return compare(self.expand(config, architecture), self.held).exact
        except (NotCovered, ConfigUnusable):
            return False


def suggest(
    wanted: Skeleton,
    config: Mapping[str, Any],
    held: Held,
    comparison: Comparison,
    *,
    expand: Expand = skeleton,
    budget: Budget | None = None,
) -> Suggestion | None:
    """The change that explains a comparison; None where none was found within the budget.

    Args:
        wanted: The skeleton of the config.
        config: config.json, parsed.
        held: Name -> shape of every tensor in the file.
        comparison: The file against the skeleton.
        expand: The skeleton of another config or class; for quantized files, as they are stored.
        budget: How much may be tried.
    """
    if comparison.exact:
        return None
    case = _Case(wanted, config, held, comparison, expand, budget or Budget())
    return _by_names(case) or _by_value(case) or _by_architecture(case)


# ---------------------------------------------------------------- names


def _by_names(case: _Case) -> Suggestion | None:
    found = repair_names(case.skeleton, case.held, case.comparison, case.budget)
    if found is None:
        return None
    renames, after = found
    told = " and ".join(str(rename) for rename in renames)
    left = f"all but {count(after.problems, 'tensor')}" if after.problems else "everything"
    return Suggestion(Cause.NAMES, f"with {told} {left} matches", after.problems, renames=renames)


_MOST_RENAMES: Final = 3
_UNEXPLAINED: Final = 10  # a tenth of the tensors may be wrong for another reason


def repair_names(
    wanted: Skeleton, held: Held, comparison: Comparison, budget: Budget | None = None
) -> tuple[tuple[Rename, ...], Comparison] | None:
    """Renames after which (almost) all tensors match, and what remains; None where there are none.

    Renames never make two names one.
    """
    money = budget or Budget()
    renames: tuple[Rename, ...] = ()
    names, now = held, comparison
    while not now.exact and len(renames) < _MOST_RENAMES:
        better = next(_improvements(wanted, names, now, money), None)
        if better is None:
            break
        rename, names, now = better
        renames = (*renames, rename)
    explained = renames and now.problems * _UNEXPLAINED <= comparison.problems
    return (renames, now) if explained else None


def _improvements(
    wanted: Skeleton, held: Held, comparison: Comparison, budget: Budget
) -> Iterator[tuple[Rename, Held, Comparison]]:
    """Renames that make a fair part of the unexpected names match."""
    for rename in renames_for(comparison.missing, comparison.unexpected):
        names = renamed(held, rename, comparison.unexpected)
        if names is None:
            continue
        if not budget.spend(len(names)):
            return
        after = compare(wanted, names)
        if after.problems < comparison.problems and len(after.unexpected) < len(comparison.unexpected):
            yield rename, names, after


# ---------------------------------------------------------------- a value of the config


def _by_value(case: _Case) -> Suggestion | None:
    found: list[tuple[str, Any]] = []
    for tried, (key, value) in enumerate(values_for(case.skeleton, case.held, case.comparison)):
        if len(found) == _MOST_VALUES or (found and tried > _FURTHER):
            break
        config = changed(case.config, case.skeleton, key, value)
        if not fits(case.skeleton, config, case.comparison):
            continue
        if not case.budget.spend(len(case.held)):
            break
        if case.matches(config, case.skeleton.architecture):
            found.append((key, value))
    if not found:
        return None
    told = " or ".join(f"{key} {_shown(value)} (not {_shown(case.skeleton.environment[key])})" for key, value in found)
    return Suggestion(Cause.VALUE, f"with {told} in config.json everything matches", key=found[0][0], value=found[0][1])


_MOST_VALUES: Final = 2  # several may explain the same shapes: more heads, or wider ones
_FURTHER: Final = 8


def _shown(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case _:
            return printable(value, 60)


# ---------------------------------------------------------------- another class


def _by_architecture(case: _Case) -> Suggestion | None:
    for config, model_type, part in _configs(case):
        for name in covered(model_type):
            if (part is None and name == case.skeleton.architecture) or not _is_verified(model_type, name):
                continue
            if not case.budget.spend(len(case.held)):
                return None
            if case.matches(config, name):
                where = "" if part is None else f", built from {part} alone"
                text = f"the weights are those of {name}{where}"
                return Suggestion(Cause.ARCHITECTURE, text, architecture=name, part=part)
    return None


def _configs(case: _Case) -> Iterator[tuple[Mapping[str, Any], str, str | None]]:
    """The config itself, then each nested one as a model of its own: config, model type, key."""
    yield case.config, case.skeleton.model_type, None
    for key, usual in sorted(
        case.skeleton.member.config.subs.items(), key=lambda item: (item[0] != "text_config", item)
    ):
        nested = case.config.get(key)
        if not isinstance(nested, Mapping):
            continue
        model_type = nested.get("model_type", usual)
        if isinstance(model_type, str):
            tied = {"tie_word_embeddings": case.config[_TIE]} if _TIE in case.config else {}
            yield {**tied, **nested, "model_type": model_type}, model_type, key


_TIE: Final = "tie_word_embeddings"


def _is_verified(model_type: str, architecture: str) -> bool:
    return evidence(model_type, architecture) is Evidence.VERIFIED


def claimed_by_others(wanted: Skeleton, config: Mapping[str, Any], names: list[str]) -> dict[str, str]:
    """Which of these names, unexpected in one class, another verified class of the same type holds: name -> class."""
    found: dict[str, str] = {}
    for name in covered(wanted.model_type):
        if name == wanted.architecture or len(found) == len(names) or not _is_verified(wanted.model_type, name):
            continue
        try:
            other = skeleton(config, name)
        except (NotCovered, ConfigUnusable):
            continue
        canonical = {other.canonical(own) for own in other.shapes}
        for tensor in names:
            if tensor not in found and (tensor in other.shapes or other.canonical(tensor) in canonical):
                found[tensor] = name
    return found
