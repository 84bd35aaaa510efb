"""Boxes of a tensor: whether they hold each of its elements exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from math import prod
from typing import Final

Sizes = tuple[int, ...]
Box = tuple[Sizes, Sizes]  # the place of the first element, and the elements per dimension

MAX_UNORDERED: Final = 1024  # boxes in no grid, each of which is held against every other


def untiled(shape: Sizes, boxes: Sequence[Box]) -> str | None:
    """Why boxes are not a tensor cut into parts, as words; None where they are.

    Args:
        shape: Of the tensor.
        boxes: None of them without elements.
    """
    for offsets, sizes in boxes:
        if any(offset + size > length for offset, size, length in zip(offsets, sizes, shape, strict=True)):
            return f"a part of {list(sizes)} at {list(offsets)} reaches out of {list(shape)}"
    held, wanted = sum(prod(sizes) for _, sizes in boxes), prod(shape)
    if held < wanted:
        return f"{held:,} of {wanted:,} elements{_first_gap(shape, boxes)}"
    return None if len(boxes) <= 1 or (held == wanted and _is_grid(boxes)) else _overlap(boxes)


def _is_grid(boxes: Sequence[Box]) -> bool:
    """Whether the boxes are the cells of a grid, each of them one, as shards over a mesh of devices are.

    Cuts are where a box begins in a dimension: a box that reaches to the next cut in each is a cell.
    """
    cuts = [sorted({offsets[dimension] for offsets, _ in boxes}) for dimension in range(len(boxes[0][0]))]
    if prod(map(len, cuts)) != len(boxes) or len({offsets for offsets, _ in boxes}) != len(boxes):
        return False
    following = [dict(pairwise(places)) for places in cuts]
    # The last cell of a dimension may end anywhere: that all elements are there was seen by their number.
    return all(
        offset + size == following[dimension].get(offset, offset + size)
        for offsets, sizes in boxes
        for dimension, (offset, size) in enumerate(zip(offsets, sizes, strict=True))
    )


def _overlap(boxes: Sequence[Box]) -> str | None:
    if len(boxes) > MAX_UNORDERED:
        return f"{len(boxes):,} parts in no order"
    found = overlapping(boxes)
    return None if found is None else f"the parts at {list(found[0][0])} and {list(found[1][0])} overlap"


def overlapping(boxes: Sequence[Box]) -> tuple[Box, Box] | None:
    """The first two boxes that have an element in common; None where none have, or there are too many to look."""
    if len(boxes) > MAX_UNORDERED:
        return None
    ordered = sorted(boxes)
    for place, (offsets, sizes) in enumerate(ordered):
        for others, other_sizes in ordered[place + 1 :]:
            if offsets and others[0] >= offsets[0] + sizes[0]:
                break
            if all(
                one < other + length and other < one + extent
                for one, extent, other, length in zip(offsets, sizes, others, other_sizes, strict=True)
            ):
                return (offsets, sizes), (others, other_sizes)
    return None


def _first_gap(shape: Sizes, boxes: Sequence[Box]) -> str:
    """`, none at [4, 0]`: the first place behind boxes that none holds; "" where looking for it takes too long."""
    if len(boxes) > MAX_UNORDERED:
        return ""
    ends = [
        sorted({0, *(offsets[d] + sizes[d] for offsets, sizes in boxes)} - {length}) for d, length in enumerate(shape)
    ]
    if prod(map(len, ends)) > MAX_UNORDERED:
        return ""
    for corner in product(*ends):
        if not any(
            all(offset <= place < offset + size for place, offset, size in zip(corner, offsets, sizes, strict=True))
            for offsets, sizes in boxes
        ):
            return f", none at {list(corner)}"
    return ""
