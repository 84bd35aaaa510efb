"""Prefixes that may have to go, or to come, so that names match: found by laying names side by side at their ends."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Shapes = Mapping[str, tuple[int, ...]]

# What wrappers put into names, at the beginning or in the middle: torch.compile, DistributedDataParallel, FSDP,
# DeepSpeed, activation checkpointing, PEFT.
WRAPPERS: Final = (
    "_orig_mod.",
    "_fsdp_wrapped_module.",
    "_checkpoint_wrapped_module.",
    "_forward_module.",
    "base_model.model.",
    "base_layer.",
    "module.",
)
_SAMPLE: Final = 40
_MOST: Final = 4
_NUMBER: Final = re.compile(r"(?<![^.])\d+(?![^.])")


@dataclass(frozen=True, slots=True)
class Rename:
    """A change of names.

    Attributes:
        old: What goes; empty: nothing, the new text is put before.
        new: What stands in its place.
        anywhere: At every place between dots, not only at the beginning.
    """

    old: str
    new: str
    anywhere: bool = False

    def __str__(self) -> str:
        if self.anywhere:
            return f"{self.old!r} removed"
        if not self.new:
            return f"the prefix {self.old!r} removed"
        return f"the prefix {self.new!r} added" if not self.old else f"{self.old!r} renamed to {self.new!r}"

    def of(self, name: str) -> str:
        """The name after the change."""
        if self.anywhere:
            return re.sub(rf"(?<![^.]){re.escape(self.old)}", self.new, name)
        return self.new + name[len(self.old) :] if name.startswith(self.old) else name


def renamed(held: Shapes, rename: Rename, names: Sequence[str]) -> dict[str, tuple[int, ...]] | None:
    """The tensors of a file with some of their names changed; None where two would have one name."""
    meant = set(names)
    after = {rename.of(name) if name in meant else name: shape for name, shape in held.items()}
    return after if len(after) == len(held) else None


def renames_for(missing: Sequence[str], unexpected: Sequence[str]) -> Iterator[Rename]:
    """Renames that would make unexpected names missing ones, the likeliest first; a handful at most."""
    if not missing or not unexpected:
        return
    some = _sample(unexpected)
    for wrapper in WRAPPERS:
        if any(f".{wrapper}" in name for name in some):
            yield Rename(wrapper, "", anywhere=True)
    votes: Counter[tuple[str, str]] = Counter()
    ends = _by_end(missing, unexpected)
    for name in _sample(missing):
        for other in ends.get(_end(name), ())[:_MOST]:
            votes[_beginnings(other, name)] += 1
    # Of two that explain as many names the shorter text says it more plainly.
    best = sorted(votes, key=lambda pair: (-votes[pair], len(pair[0]) + len(pair[1]), pair))
    yield from (Rename(old, new) for old, new in best[:_MOST])


def _sample(names: Sequence[str]) -> Sequence[str]:
    """Names from all over a list: layers of one stack stand together in it."""
    return names[:: max(1, len(names) // _SAMPLE)][:_SAMPLE]


def _end(name: str) -> tuple[str, ...]:
    return (*_NUMBER.findall(name), *name.rsplit(".", 2)[-2:])


def _by_end(missing: Sequence[str], unexpected: Sequence[str]) -> dict[tuple[str, ...], list[str]]:
    """Unexpected names by end, of the ends that the sample of missing ones has."""
    wanted = {_end(name) for name in _sample(missing)}
    lasts = {end[-1] for end in wanted}
    found: dict[tuple[str, ...], list[str]] = {}
    for name in unexpected:
        if name.rpartition(".")[2] in lasts and (end := _end(name)) in wanted:
            found.setdefault(end, []).append(name)
    return found


def _beginnings(left: str, right: str) -> tuple[str, str]:
    """What two names begin with before the parts that they have in common at the end."""
    one, other = left.split("."), right.split(".")
    while one and other and one[-1] == other[-1]:
        one.pop()
        other.pop()
    return "".join(f"{part}." for part in one), "".join(f"{part}." for part in other)
