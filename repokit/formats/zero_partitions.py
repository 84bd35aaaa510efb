"""Which elements of a parameter lie where in the flat tensors of ZeRO's ranks.

Stage 1 and 2: the parameters of a group follow one another in one long vector, of which every rank has an equal share;
behind the last one is padding up to a multiple of 2 x ranks, which newer versions cut off before they save.
Stage 3: every parameter is divided by itself: ceil(elements / ranks) for each rank, the last one padded; a rank's
shares follow one another, across the flat tensors that it has.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.printable import count, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_ALIGNED: Final = 2  # x ranks: nccl_start_alignment_factor of stage_1_and_2.py and bf16_optimizer.py


class Run(NamedTuple):
    """Elements that lie side by side in a flat tensor.

    Attributes:
        rank: Whose.
        flat: Which of the rank's.
        first: The first element.
        elements: How many.
    """

    rank: int
    flat: int
    first: int
    elements: int


class PartitionFault(Exception):
    """Shapes and flat tensors do not fit together.

    Attributes:
        what: In words.
        rank: Whose file is at fault; None where only all of them together can be.
        flat: Which of its tensors; None where it is about all of them.
    """

    def __init__(self, what: str, rank: int | None = None, flat: int | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.rank = rank
        self.flat = flat


class _Vector:
    """Flat tensors, one behind the other."""

    def __init__(self, pieces: Sequence[tuple[int, int, int]]) -> None:
        """`pieces`: rank, number of the flat tensor, elements."""
        self._pieces = [piece for piece in pieces if piece[2]]
        self._begins = [0, *accumulate(elements for _, _, elements in self._pieces)]

    def runs(self, offset: int, elements: int) -> Iterator[Run]:
        """Where a number of elements lies; there must be as many."""
        end = offset + elements
        place = bisect_right(self._begins, offset) - 1
        while offset < end:
            rank, flat, _ = self._pieces[place]
            upto = min(end, self._begins[place + 1])
            yield Run(rank, flat, offset - self._begins[place], upto - offset)
            offset, place = upto, place + 1


def of_stages_1_and_2(
    groups: Sequence[Mapping[str, tuple[int, ...]]],
    sizes: Sequence[Sequence[int]],
    paddings: Sequence[Sequence[int]] = (),
) -> dict[str, tuple[Run, ...]]:
    """The runs of every parameter, in the order of its elements.

    Args:
        groups: Shapes by name, of each group.
        sizes: Elements of the flat tensor of each group, for each rank.
        paddings: Elements behind each parameter, of each group; () where there are none.

    Raises:
        PartitionFault: They do not fit together.
    """
    _check_groups(groups, sizes, paddings)
    found = {}
    for number, shapes in enumerate(groups):
        behind = paddings[number] if paddings else [0] * len(shapes)
        needed = sum(map(prod, shapes.values())) + sum(behind)
        shares = [rank[number] for rank in sizes]
        _check_shares(number, shares, needed)
        vector = _Vector([(rank, number, share) for rank, share in enumerate(shares)])
        offset = 0
        for (name, shape), padding in zip(shapes.items(), behind, strict=True):
            found[name] = tuple(vector.runs(offset, prod(shape)))
            offset += prod(shape) + padding
    return found


def _check_groups(
    groups: Sequence[Mapping[str, tuple[int, ...]]],
    sizes: Sequence[Sequence[int]],
    paddings: Sequence[Sequence[int]],
) -> None:
    for rank, flats in enumerate(sizes):
        if len(flats) != len(groups):
            what = f"has {count(len(flats), 'flat tensor')} for {count(len(groups), 'group')} of parameters"
            raise PartitionFault(what, rank)
    if paddings and [len(group) for group in paddings] != [len(group) for group in groups]:
        raise PartitionFault("has paddings for other groups than those of the parameters", 0)


def _check_shares(group: int, shares: Sequence[int], needed: int) -> None:
    """Refuses shares that are not those into which a vector is divided, with its padding or without.

    Raises:
        PartitionFault: Naming the rank whose share is another one, if it can be told.
    """
    ranks = len(shares)
    aligned = -(-needed // (_ALIGNED * ranks)) * _ALIGNED * ranks
    largest = max(shares)
    lean = [max(0, min(largest, needed - rank * largest)) for rank in range(ranks)]
    if needed <= sum(shares) <= aligned and list(shares) in ([largest] * ranks, lean):
        return
    usual = aligned // ranks
    for rank, share in enumerate(shares):
        without = max(0, min(usual, needed - rank * usual))
        if share not in {usual, without}:
            what = f"has {share:,} elements of group {group} where its share of {needed:,} is {without:,}"
            raise PartitionFault(what, rank, group)
    what = f"group {group} has {sum(shares):,} elements in {count(ranks, 'rank')}, and its parameters {needed:,}"
    raise PartitionFault(what)


def of_stage_3(
    shapes: Mapping[str, tuple[int, ...]], sizes: Sequence[Sequence[int]], what: str = "flat tensors"
) -> dict[str, tuple[Run, ...]]:
    """The runs of every parameter, in the order of its elements.

    Args:
        shapes: By name, of all groups in order.
        sizes: Elements of each flat tensor, for each rank.
        what: What they are called in a message.

    Raises:
        PartitionFault: They do not fit together.
    """
    ranks = len(sizes)
    needed = sum(-(-prod(shape) // ranks) for shape in shapes.values())
    for rank, flats in enumerate(sizes):
        if sum(flats) != needed:
            text = f"has {sum(flats):,} elements in its {what} where its share of the parameters is {needed:,}"
            raise PartitionFault(text, rank)
    vectors = [_Vector([(rank, number, size) for number, size in enumerate(flats)]) for rank, flats in enumerate(sizes)]
    found = {}
    offset = 0
    for name, shape in shapes.items():
        share = -(-prod(shape) // ranks)
        found[name] = tuple(run for vector, length in _cut(vectors, prod(shape)) for run in vector.runs(offset, length))
        offset += share
    return found


def _cut(vectors: Sequence[_Vector], elements: int) -> Iterator[tuple[_Vector, int]]:
    """How many elements of a parameter each rank has, without the padding behind the last ones."""
    share = -(-elements // len(vectors))
    for rank, vector in enumerate(vectors):
        length = min(share, elements - rank * share)
        if length > 0:
            yield vector, length


def of_fragment(name: str, shape: tuple[int, ...], sizes: Sequence[int]) -> tuple[Run, ...]:
    """The runs of a frozen parameter, of which in stage 3 every rank has a tensor of its own.

    Raises:
        PartitionFault: A rank has another number of elements than its share.
    """
    share = -(-prod(shape) // len(sizes))
    for rank, size in enumerate(sizes):
        if size != share:
            what = f"has {size:,} elements of {printable(name, 80)} where its share of {list(shape)} is {share:,}"
            raise PartitionFault(what, rank)
    lengths = [min(share, prod(shape) - rank * share) for rank in range(len(sizes))]
    return tuple(Run(rank, 0, 0, length) for rank, length in enumerate(lengths) if length > 0)
