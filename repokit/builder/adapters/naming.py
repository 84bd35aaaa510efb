"""The names of an adapter's tensors as PEFT saves them, whatever they were stored under.

A training stores the names of its memory: with wrappers around them, with the adapter's own name inside, without
`base_model.model.` before them. PEFT then looks for its own names in vain: the adapter does nothing, with a warning
among others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from repokit.builder.naming import repaired
from repokit.errors import PlanError
from repokit.printable import count, printable, some
from repokit.repo.adapter_kinds import PROMPTS
from repokit.repo.adapter_names import NAMED, PARTS, PREFIX, is_shared

if TYPE_CHECKING:
    from collections.abc import Iterable

# A module that was trained whole, beside the one that it stands for (peft 0.21 utils/other.py ModulesToSaveWrapper).
_COPY: Final = re.compile(r"\.modules_to_save(?=\.)")
_ORIGINAL: Final = re.compile(r"\.original_module\.")
_MAGNITUDE: Final = re.compile(r"(?<=\.lora_magnitude_vector)\.weight$")
_BIAS: Final = re.compile(r"(?:^|\.)bias$")
# What PEFT saves of the base with an adapter on it (peft 0.21 save_and_load.py `embedding_is_targeted`).
_EMBEDDING: Final = re.compile(r"\.(?:embed_tokens|lm_head)\.base_layer\.weight$")
# How a module of transformers begins below the class with a head, twice `model.`: one is that of a module around it.
_HALF: Final = re.compile(r"model\.model\.layers\.[0-9]+\.")


@dataclass(frozen=True)
class AdapterNames:
    """What becomes of stored names.

    Attributes:
        final: Stored name to the one that PEFT looks for; the tensors of the base are not among them.
        of_base: Stored names of the base model's own tensors.
    """

    final: dict[str, str]
    of_base: tuple[str, ...]


def saved_names(names: Iterable[str], method: str, *, bias: str = "none", whole: bool = False) -> AdapterNames:
    """The names under which PEFT saves, by those that are stored.

    Args:
        names: As stored.
        method: The peft_type.
        bias: What the config says of biases: `none`, `all` or `<method>_only`.
        whole: Whether the tensors of the base may be among them.

    Raises:
        PlanError: They are of several adapters.
    """
    current = repaired(names)
    current = {name: _below_attribute(now) for name, now in current.items()}
    original = [name for name, now in current.items() if _ORIGINAL.search(now)]
    kept = {name: now for name, now in current.items() if name not in set(original)}
    of_base = list(original)
    if whole and method not in PROMPTS:
        adapted = {module for now in kept.values() if (module := _module(now, method)) is not None}
        others = [name for name, now in kept.items() if not _is_trained(now, method, bias, adapted)]
        of_base += others
        kept = {name: now for name, now in kept.items() if name not in set(others)}
    kept = _without_adapter_name(kept, method)
    if whole and method != "RANDLORA":  # of which PEFT saves them once for every module
        kept = _without_shared(kept, method)
    if method not in PROMPTS:
        kept = _prefixed(kept)
    return AdapterNames(kept, tuple(of_base))


def _below_attribute(name: str) -> str:
    """Without the attribute under which a training module holds the model: `model.base_model.model.x`."""
    _, root, after = name.partition(".base_model.")
    return name if not root or name.startswith("base_model.") else f"base_model.{after}"


def _module(name: str, method: str) -> str | None:
    """The module that a tensor of the method is for."""
    module, part, _ = name.partition("." + PARTS.get(method, "\0"))
    return module if part else None


def _without_shared(names: dict[str, str], method: str) -> dict[str, str]:
    """Without what every module has of the adapter as a whole: in memory they are one and the same tensor."""
    part = PARTS.get(method, "\0")
    shared = {now.removeprefix("base_model.") for now in names.values() if now.startswith(f"base_model.{part}")}
    return {
        name: now
        for name, now in names.items()
        if now.startswith(f"base_model.{part}") or f"{part}{now.partition(f'.{part}')[2]}" not in shared
    }


def _is_trained(name: str, method: str, bias: str, adapted: set[str]) -> bool:
    part = PARTS.get(method, "\0")
    if f".{part}" in f".{name}" or "modules_to_save." in name or "trainable_tokens_delta" in name:
        return True
    if method != "TRAINABLE_TOKENS" and _EMBEDDING.search(name) and name.removesuffix(".base_layer.weight") in adapted:
        return True
    if not _BIAS.search(name) or bias == "none":
        return False
    return bias == "all" or name.rpartition(".")[0].removesuffix(".base_layer") in adapted


def _without_adapter_name(names: dict[str, str], method: str) -> dict[str, str]:
    """Takes the adapter's name out of every name.

    Raises:
        PlanError: They have different ones.
    """
    default = re.compile(rf"\.{PARTS.get(method, 'lora_')}\w+(?:\.\w+)*?(?P<adapter>\.default)(?=\.|$)")
    found = {name: _taken_apart(now, default) for name, now in names.items()}
    adapters = {adapter for _, adapter in found.values() if adapter}
    if len(adapters) > 1:
        what = f"holds the tensors of {count(len(adapters), 'adapter')} in one file: {some(sorted(adapters))}"
        one = printable(max(adapters), 60)
        raise PlanError(what, hint=f'leave all but one out: weights.drop: ["*.{one}.*", "*.{one}"]')
    return {name: now for name, (now, _) in found.items()}


def _taken_apart(name: str, default: re.Pattern[str]) -> tuple[str, str]:
    """A name as it is saved, and the name of its adapter; "" where it has none.

    Args:
        name: As stored.
        default: Finds the usual name in parameters of the method that NAMED does not list.
    """
    match = NAMED.search(name)
    if match is not None:
        adapter = match["adapter"]
        name = name[: match.start("adapter") - 1] + name[match.end("adapter") :]
        return _COPY.sub("", _MAGNITUDE.sub("", name)), adapter
    match = default.search(name)
    if match is not None:
        return name[: match.start("adapter")] + name[match.end("adapter") :], "default"
    return _COPY.sub("", name), ""


def _prefixed(names: dict[str, str]) -> dict[str, str]:
    """Puts `base_model.model.` before every name once."""
    bare = [now for now in names.values() if not now.startswith("base_model.")]
    half = any(_HALF.match(now) for now in bare) and all(now.startswith("model.") for now in bare)
    return {name: _placed(now, half=half) for name, now in names.items()}


def _placed(name: str, *, half: bool) -> str:
    """`half`: one level of what is there is the prefix's."""
    while name.startswith(PREFIX * 2):
        name = name.removeprefix(PREFIX)
    if name.startswith("base_model.") and (name.startswith(PREFIX) or is_shared(name)):
        return name
    return PREFIX + (name.removeprefix("model.") if half else name)
