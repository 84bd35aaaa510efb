"""Elements that do not lie side by side, brought side by side: views, transposed and expanded tensors of a pickle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from repokit.operations import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Read = Callable[[int, int], memoryview]  # offset from the first element, and a length, in bytes

# Bytes that are read, and that are brought side by side, at once where the elements allow it.
BLOCK: Final = 16 * 1024 * 1024


def gathered(read: Read, view: View) -> Iterator[memoryview]:
    """The elements in the order of their indexes, the last dimension fastest.

    What overlaps or interleaves (a transposed matrix) is read as a whole, and is the largest thing in memory. Where a
    dimension only cuts the tensor into parts that lie one after another, each part is read by itself.

    Args:
        read: Bytes relative to the first element.
        view: How the elements lie.
    """
    if not view.size:
        return
    for offset, part in _parts(view):
        yield from _contiguous(read(offset, part.span), part)


def _parts(view: View) -> Iterator[tuple[int, View]]:
    """The view in parts along its first dimension, as few as keep each within BLOCK; with their offsets in bytes."""
    if not view.shape or view.span <= BLOCK:
        yield 0, view
        return
    (rows, *shape), (stride, *strides) = view.shape, view.strides
    row = View(shape=tuple(shape), strides=tuple(strides), itemsize=view.itemsize)
    step = stride * view.itemsize
    if row.span > step:  # rows overlap or interleave: reading them one by one would read the same bytes again
        yield 0, view
        return
    if step > BLOCK:
        for index in range(rows):
            for offset, part in _parts(row):
                yield index * step + offset, part
        return
    at_once = max(1, BLOCK // step)
    for first in range(0, rows, at_once):
        length = min(at_once, rows - first)
        yield first * step, View(shape=(length, *shape), strides=view.strides, itemsize=view.itemsize)


def _contiguous(span: memoryview, view: View) -> Iterator[memoryview]:
    """Copies in blocks along the first dimensions, so that an expanded tensor never stands in memory whole."""
    import numpy as np

    elements = np.frombuffer(span, dtype=f"<u{view.itemsize}")
    strides = tuple(stride * view.itemsize for stride in view.strides)
    whole = np.lib.stride_tricks.as_strided(elements, view.shape, strides, writeable=False)
    pending = [whole]
    while pending:
        array = pending.pop()
        if array.nbytes <= BLOCK or not array.ndim:
            yield memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            continue
        at_once = max(1, BLOCK * len(array) // array.nbytes)
        blocks = [array[first : first + at_once] for first in range(0, len(array), at_once)]
        # One row that is too large by itself is cut along its own first dimension.
        pending.extend(block[0] if len(block) == 1 and block.nbytes > BLOCK else block for block in reversed(blocks))
