"""What went wrong with an adapter, where one cause explains all: a level of the names, another base, a full model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from repokit.architectures.adapters import AdapterComparison, AdapterTensors
from repokit.architectures.adapters_shared import PREFIX

_NUMBERS: Final = re.compile(r"(?<![^.])([0-9]+)(?![^.])")
# Keys whose value a size of a matrix may be, with what people call them.
_SIZES: Final = ("hidden_size", "intermediate_size", "n_embd", "d_model", "d_ff", "n_inner")


class Suggestion(NamedTuple):
    """One cause.

    Attributes:
        text: What to do, or what was done.
        names: Only names are wrong: what seems to be missing is there under another.
    """

    text: str
    names: bool = False


def suggestion(wanted: AdapterTensors, found: AdapterComparison) -> Suggestion | None:
    """The one cause of all that differs; None where there is none."""
    if not found.unexpected:
        text = _other_sizes(wanted, found)
    elif level := _other_level(wanted, found):
        return Suggestion(level, names=True)
    else:
        text = _full_model(wanted, found) or _more_layers(wanted, found)
    return None if text is None else Suggestion(text)


def _full_model(wanted: AdapterTensors, found: AdapterComparison) -> str | None:
    """The tensors of the base itself, saved with the adapter."""
    own = {f"{path}.{name}" for path, module in wanted.modules.found.items() for name in module.own}
    plain = [name.removeprefix(PREFIX).replace(".base_layer.", ".") for name in found.unexpected]
    if all(name in own for name in plain):
        return "these are tensors of the base model: save the adapter with save_pretrained of PEFT, not the whole state"
    return None


def _other_level(wanted: AdapterTensors, found: AdapterComparison) -> str | None:
    """One start of all names that has to be another."""
    starts = _start(found.unexpected[0], wanted.required)
    if starts is None:
        return None
    old, new = starts
    if _NUMBERS.search(old + new):
        return None
    names = [name.removeprefix(PREFIX) for name in found.unexpected]
    if not all(name.startswith(old) and f"{PREFIX}{new}{name[len(old) :]}" in wanted.required for name in names):
        return None
    if not old:
        return f"put {new} after {PREFIX}"
    return f"take {old} out of the names" if not new else f"write {PREFIX}{new} for {PREFIX}{old}"


def _start(name: str, required: Iterable[str]) -> tuple[str, str] | None:
    """The start of a name that ends like a required one, and the start of that one."""
    held = name.removeprefix(PREFIX).split(".")
    best: tuple[int, tuple[str, str]] | None = None
    for other in required:
        parts = other.removeprefix(PREFIX).split(".")
        same = 0
        while same < min(len(held), len(parts)) and held[-1 - same] == parts[-1 - same]:
            same += 1
        if same and (best is None or same > best[0]):
            old, new = held[: len(held) - same], parts[: len(parts) - same]
            best = same, ("".join(f"{part}." for part in old), "".join(f"{part}." for part in new))
    return None if best is None else best[1]


def _more_layers(wanted: AdapterTensors, found: AdapterComparison) -> str | None:
    """Layers beyond the last of the base."""
    shapes = {_NUMBERS.sub("#", name) for name in wanted.required}
    if not all(_NUMBERS.sub("#", name) in shapes for name in found.unexpected):
        return None
    held, own = (_layers(names) for names in (found.unexpected, wanted.required))
    if not held or not own or held <= own:
        return None
    return f"the adapter is of a base with at least {held} layers, this one has {own}"


def _layers(names: Iterable[str]) -> int:
    return max((int(match[1]) for name in names if (match := _NUMBERS.search(name)) is not None), default=-1) + 1


def _other_sizes(wanted: AdapterTensors, found: AdapterComparison) -> str | None:
    """Sizes that are those of another base throughout."""
    pairs: Counter[tuple[int, int]] = Counter()
    for _, held, expected in found.misshapen:
        if len(held) != len(expected):
            return None
        pairs.update(
            (size, length) for length, size in zip(held, expected, strict=True) if size is not None and size != length
        )
    mapped = dict(pairs.keys())
    if not mapped or len(mapped) != len(pairs):
        return None
    (expected_size, held_size), _ = pairs.most_common(1)[0]
    value = wanted.modules.value
    names = (key for key in _SIZES if expected_size in (value(key), value(f"text_config.{key}")))
    name = next(names, None)
    what = f"{name} {held_size:,}" if name else f"size {held_size:,}"
    return f"the adapter is of a base with {what}, this one has {expected_size:,}"
