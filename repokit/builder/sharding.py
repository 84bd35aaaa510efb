"""Which tensor goes into which file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Decimal gigabytes, as huggingface_hub counts them. The smallest that keeps a model within 64 files: few enough for
# one commit inside the Hub's 60 seconds, small enough for machines that load shard by shard.
_AUTO_SIZES: Final = tuple(gigabytes * 10**9 for gigabytes in (5, 10, 20, 50))
_AUTO_SHARDS: Final = 64
_DIGITS: Final = re.compile(r"([0-9]+)")


def natural(name: str) -> tuple[tuple[tuple[int, str], ...], str]:
    """A sort key that puts layer 2 before layer 10. No two names have the same one."""
    parts = _DIGITS.split(name)  # text and digits in turn; digits are compared by length, since there may be thousands
    parts[1::2] = [digits.lstrip("0") for digits in parts[1::2]]
    return tuple((len(part) * (index % 2), part) for index, part in enumerate(parts)), name


def packed(sizes: Mapping[str, int], limit: int) -> list[list[str]]:
    """Names in natural order, cut where a file would exceed `limit` bytes; a larger tensor has a file of its own."""
    shards: list[list[str]] = []
    room = 0
    for name in sorted(sizes, key=natural):
        if not shards or sizes[name] > room:
            shards.append([])
            room = limit
        shards[-1].append(name)
        room -= sizes[name]
    return shards


def automatic_limit(total: int) -> int:
    """The largest size of a file, in bytes, for a model of `total` bytes."""
    return next((size for size in _AUTO_SIZES if total <= size * _AUTO_SHARDS), _AUTO_SIZES[-1])


def as_in_source(names: Iterable[str], file_of: Mapping[str, str]) -> list[list[str]]:
    """The source's own division into files: what was uploaded before is not uploaded again."""
    shards: dict[str, list[str]] = {}
    for name in names:
        shards.setdefault(file_of[name], []).append(name)
    return [shards[file] for file in sorted(shards)]


def file_names(shards: Sequence[object]) -> list[str]:
    """`model.safetensors`, or `model-00001-of-00003.safetensors` and so on (huggingface_hub serialization/_base.py)."""
    if len(shards) == 1:
        return ["model.safetensors"]
    return [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
