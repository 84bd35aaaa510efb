"""Tensor names as the architecture spells them: wrapper prefixes repaired, renames one-to-one.

torch.compile, DDP, FSDP and activation checkpointing wrap modules, and every wrapper leaves a part in the names of a
checkpoint that was saved through it. A loader finds none of its names and starts from random values.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from repokit.errors import PlanError
from repokit.formats.safetensors import METADATA_KEY
from repokit.printable import count, printable

# How the names of a model with a head begin: the prefixes of transformers' common families, the head, another wrapper.
_WITH_HEAD: Final = re.compile(
    r"(?:module|model|transformer|bert|roberta|deberta|distilbert|electra|gpt_neox|backbone|lm_head|classifier|score)\."
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Parts that only a wrapper leaves: no architecture calls a module so. They may stand anywhere and be nested.
_WRAPPER_PART: Final = re.compile(r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_WRAPPERS: Final = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
# Parts that a module could be called: stripped only where every name begins with them.
_WHOLE_PREFIXES: Final = ("module.", "_forward_module.")


def repaired(names: Iterable[str], *, in_module: bool = False) -> dict[str, str]:
    """Every name with its wrapper prefixes taken off, in any nesting: `module._orig_mod.lm_head` is `lm_head`.

    Args:
        names: As stored.
        in_module: Whether a training framework stored them inside its own module, under an attribute of any name.
    """
    found = {name: name for name in names}
    changed = True
    while changed:
        before = tuple(found.values())
        together = "\n".join(before)  # which tells of 100,000 names in a moment that none has such a part
        if any(part in together for part in _WRAPPERS):
            found = {name: _WRAPPER_PART.sub("", current) for name, current in found.items()}
        for prefix in (*_WHOLE_PREFIXES, *(_attribute(before) if in_module else ())):
            if found and all(current.startswith(prefix) for current in found.values()):
                found = {name: current.removeprefix(prefix) for name, current in found.items()}
        changed = tuple(found.values()) != before
    return found


def _attribute(names: tuple[str, ...]) -> tuple[str, ...]:
    """The attribute of a Lightning module that holds the model, with its dot: `model.` before `model.lm_head.weight`.

    Taken for one only where what follows begins as a model with a head does; `model.layers.0` is a name of its own.
    """
    first = names[0].partition(".")[0] + "." if names else ""
    if len(first) > 1 and all(name.startswith(first) for name in names):
        return (first,) if any(_WITH_HEAD.match(name.removeprefix(first)) for name in names) else ()
    return ()


def renamed(names: Mapping[str, str], rules: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Applies a recipe's renames, in order, to names that may have been repaired.

    Args:
        names: Name in the checkpoint to name so far.
        rules: Regular expressions and their replacements, as `re.sub` takes them.

    Raises:
        PlanError: A rule is not a regular expression, or changes nothing.
    """
    result = dict(names)
    for pattern, replacement in rules:
        before = dict(result)
        try:
            compiled = re.compile(pattern)
            result = {name: compiled.sub(replacement, current) for name, current in result.items()}
        except (re.error, IndexError) as error:
            what = f"weights.rename: {printable(pattern)!r} is not a rename: {printable(error)}"
            raise PlanError(what, hint="write it as Python's re.sub takes it") from None
        if result == before:
            what = f"weights.rename: {printable(pattern)!r} matches none of {count(len(result), 'name')}"
            raise PlanError(what, why="a rename that changes nothing is a mistyped one")
    return result


def check_one_to_one(names: Mapping[str, str]) -> None:
    """Refuses a renaming that loses a tensor.

    Raises:
        PlanError: Two tensors would have one name, or one a name that a file cannot hold.
    """
    taken: dict[str, str] = {}
    for name, final in names.items():
        if final in taken:
            what = f"{printable(name)} would be called '{printable(final)}', and so would {printable(taken[final])}"
            raise PlanError(what, why="one of them would be lost", hint="narrow weights.rename, or drop one by name")
        if not final or final == METADATA_KEY or not final.isprintable():
            what = f"{printable(name)} would be called '{printable(final)}'"
            raise PlanError(what, why="no loader finds a tensor of that name", hint="change weights.rename")
        taken[final] = name
