"""Parts of a tensor put together: chunks and slices of parallel training that interleave in the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from repokit.operations import Interleaved, Piece


def interleaved(whole: Interleaved, contents: Callable[[Piece], Iterator[memoryview]]) -> memoryview:
    """The bytes of a tensor. It stands in memory whole, and each part of it in turn.

    Args:
        whole: Its boxes.
        contents: The bytes of a part, in the order of its elements.
    """
    import numpy as np

    # Zeros, not whatever the memory held: a plan that was tampered with could have boxes that overlap, and holes.
    result = np.zeros(whole.shape, dtype=f"<u{whole.itemsize}")
    for box in whole.boxes:
        part = np.empty(box.shape, dtype=result.dtype)
        flat = part.reshape(-1).view(np.uint8)
        done = 0
        for chunk in contents(box.piece):
            flat[done : done + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
            done += len(chunk)
        place = tuple(slice(first, first + length) for first, length in zip(box.offsets, box.shape, strict=True))
        result[place] = part
    return memoryview(result.reshape(-1).view(np.uint8).data)
