"""What the tensors of a checkpoint say of themselves: which class they are of, and what is wrong with their names.

Both are tried against skeletons (repokit.architectures), and only what makes the tensors match is taken. What a plan
still lacks or has too much is a finding of the linter, which looks at every plan before one byte is written.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from repokit.architectures import ConfigUnusable, Evidence, NotCovered, covered, skeleton
from repokit.architectures.comparison import compare
from repokit.architectures.suggestions import repair_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.architectures import Skeleton
    from repokit.architectures.comparison import Comparison
    from repokit.architectures.live import Live
    from repokit.repo.config import Config

Shapes = dict[str, tuple[int, ...]]

_GENERATES: Final = re.compile(r"(?:ForCausalLM|LMHeadModel|ForConditionalGeneration)$")
_MASKED: Final = "ForMaskedLM"
_BODY: Final = re.compile(r"Model$")


def wanted_tensors(config: Config | None, live: Live | None = None) -> Skeleton | None:
    """The tensors that a checkpoint of this config must hold; None where nobody knows, of which the linter speaks.

    Args:
        config: config.json.
        live: Asks the installed transformers where the data has no verified skeleton.
    """
    if config is None or "auto_map" in config:
        return None
    try:
        return skeleton(config.raw) if live is None else live.best(config.raw)
    except (NotCovered, ConfigUnusable):
        return None


def fitted(
    names: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]], wanted: Skeleton
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Names with prefixes taken off or put on so that (almost) all are the architecture's; else as they were.

    Args:
        names: Name in the checkpoint to name so far.
        shapes: By name in the checkpoint.
        wanted: The architecture's own; one that is not verified changes nothing.

    Returns:
        The names, and what was changed in them, in words.
    """
    current = dict(names)
    if wanted.evidence is not Evidence.VERIFIED:
        return current, ()
    now = compare(wanted, _held(current, shapes))
    repair = None if now.exact else repair_names(wanted, _held(current, shapes), now)
    if repair is None:
        return current, ()
    for rename in repair[0]:
        meant = set(now.unexpected)
        current = {name: rename.of(final) if final in meant else final for name, final in current.items()}
        now = compare(wanted, _held(current, shapes))
    return current, tuple(map(str, repair[0]))


def _held(names: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]) -> Shapes:
    return {final: shapes[name] for name, final in names.items()}


def classes(config: Config, shapes: Shapes) -> tuple[str, ...]:
    """The classes of config.json's model type that these are exactly the tensors of, the likeliest alone.

    Several where nothing tells them apart: two classifiers of one shape; () where there is none.

    Args:
        config: What is known; its own `architectures` are not looked at.
        shapes: By name.
    """
    if config.model_type is None or "auto_map" in config:
        return ()
    ranks: dict[str, tuple[bool, int]] = {}
    for name in covered(config.model_type):
        if (found := _exact(config, name, shapes)) is not None:
            # A body that was saved alone has names without the prefix that it has inside a model with a head.
            ranks[name] = (bool(found.renamed), _rank(name, decoder=config.flag("is_decoder") is True))
    best = min(ranks.values(), default=None)
    return tuple(name for name, rank in ranks.items() if rank == best)


def _exact(config: Config, name: str, shapes: Shapes) -> Comparison | None:
    try:
        wanted = skeleton(config.raw, name)
    except (NotCovered, ConfigUnusable):
        return None
    found = compare(wanted, shapes) if wanted.evidence is Evidence.VERIFIED else None
    return found if found is not None and found.exact else None


def _rank(name: str, *, decoder: bool) -> int:
    """Of classes with the same tensors: BERT's head for masked words is its head for the next one."""
    if name.endswith(_MASKED):
        return 2 if decoder else 0
    if _GENERATES.search(name):
        return 1
    return 4 if _BODY.search(name) else 3
