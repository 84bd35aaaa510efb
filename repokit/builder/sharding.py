"""Which tensor goes into which file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# Decimal gigabytes, as huggingface_hub counts them. The smallest that keeps a model within 64 files: few enough for
# one commit inside the Hub's 60 seconds, small enough for machines that load shard by shard.
_AUTO_SIZES: Final = tuple(gigabytes * 10**9 for gigabytes in (5, 10, 20, 50))
_AUTO_SHARDS: Final = 64
_DIGITS: Final = re.compile(r"([0-9]+)")


def natural(name: str) -> tuple[str, str]:
    """A sort key that puts layer 2 before layer 10. No two names have the same one."""
    return _DIGITS.sub(_counted, name), name


def _counted(found: re.Match[str]) -> str:
    """Digits behind their number: more of them are the larger one, and there may be thousands."""
    digits = found[1].lstrip("0")
    return f"\0{chr(len(digits))}{digits}"


def packed(sizes: Mapping[str, int], limit: int, module_of: Callable[[str], str] | None = None) -> list[list[str]]:
    """Names in natural order, cut where a file would exceed `limit` bytes; a larger tensor has a file of its own.

    Args:
        sizes: Bytes by name.
        limit: Bytes of a file.
        module_of: What must not be cut apart has one module; None: every tensor may stand alone.
    """
    modules: dict[str, list[str]] = {}
    for name in sorted(sizes, key=natural):
        modules.setdefault(name if module_of is None else module_of(name), []).append(name)
    shards: list[list[str]] = []
    room = 0
    for names in modules.values():
        needed = sum(sizes[name] for name in names)
        if not shards or needed > room:
            shards.append([])
            room = limit
        shards[-1] += names
        room -= needed
    return shards


def together(
    sizes: Mapping[str, int], file_of: Mapping[str, str], module_of: Callable[[str], str]
) -> Mapping[str, str]:
    """A division into files with every module whole: in the file that holds its largest tensor.

    Args:
        sizes: Bytes by name.
        file_of: The source's own division.
        module_of: The module of a tensor.
    """
    largest: dict[str, str] = {}
    for name in sizes:
        module = module_of(name)
        if module not in largest or sizes[name] > sizes[largest[module]]:
            largest[module] = name
    return {name: file_of[largest[module_of(name)]] for name in sizes}


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
