"""A tensor cut into boxes holds each element exactly once, or it is said where not."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, strategies as st

from repokit.formats.boxes import overlapping, untiled

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)


@st.composite
def grids(draw):
    """A shape, cut along each dimension."""
    shape = draw(SHAPES)
    cuts = [sorted({0, *draw(st.sets(st.integers(0, length - 1)))}) for length in shape]
    spans = [list(zip(at, [*at[1:], length], strict=True)) for at, length in zip(cuts, shape, strict=True)]
    boxes = [(tuple(one for one, _ in cell), tuple(two - one for one, two in cell)) for cell in product(*spans)]
    return shape, draw(st.permutations(boxes))


@st.composite
def halved(draw):
    """A shape, of which parts were cut in two again and again, along any dimension: boxes that are no grid."""
    shape = draw(SHAPES)
    boxes = [((0,) * len(shape), shape)]
    for _ in range(draw(st.integers(0, 6))):
        offsets, sizes = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        dimension = draw(st.integers(0, len(shape) - 1))
        at = draw(st.integers(0, sizes[dimension]))
        first = tuple(at if d == dimension else size for d, size in enumerate(sizes))
        moved = tuple(offset + (at if d == dimension else 0) for d, offset in enumerate(offsets))
        second = tuple(size - (at if d == dimension else 0) for d, size in enumerate(sizes))
        boxes += [box for box in ((offsets, first), (moved, second)) if 0 not in box[1]]
    return shape, boxes


@st.composite
def any_boxes(draw):
    shape = draw(SHAPES)
    number = draw(st.integers(0, 4))
    boxes = [
        (
            tuple(draw(st.integers(0, length)) for length in shape),
            tuple(draw(st.integers(1, length)) for length in shape),
        )
        for _ in range(number)
    ]
    return shape, boxes


def times_held(shape, boxes):
    """How often each element is held; elements outside count too."""
    held = dict.fromkeys(product(*map(range, shape)), 0)
    for offsets, sizes in boxes:
        for place in product(*(range(offset, offset + size) for offset, size in zip(offsets, sizes, strict=True))):
            held[place] = held.get(place, 1) + 1  # outside: twice
    return set(held.values())


@given(grids())
def test_the_cells_of_a_grid_are_the_tensor(grid):
    assert untiled(*grid) is None


@given(halved())
def test_boxes_in_no_grid_are_the_tensor(cut):
    assert untiled(*cut) is None


@given(st.one_of(any_boxes(), grids(), halved()))
def test_an_answer_is_the_one_of_counting(boxes):
    shape, parts = boxes
    assert (untiled(shape, parts) is None) == (times_held(shape, parts) <= {1})


@given(grids(), st.data())
def test_a_box_that_is_missing_is_noticed(grid, data):
    shape, boxes = grid
    del boxes[data.draw(st.integers(0, len(boxes) - 1))]
    assert "elements" in untiled(shape, boxes)


@given(grids(), st.data())
def test_a_box_that_is_there_twice_is_noticed(grid, data):
    shape, boxes = grid
    assert "overlap" in untiled(shape, [*boxes, data.draw(st.sampled_from(boxes))])


@pytest.mark.parametrize(
    ("shape", "boxes", "words"),
    [
        ((7, 6), [((0, 0), (4, 6))], "24 of 42 elements, none at [4, 0]"),
        ((7, 6), [((0, 0), (4, 6)), ((3, 0), (3, 6))], "the parts at [0, 0] and [3, 0] overlap"),
        ((7, 6), [((0, 0), (8, 6))], "a part of [8, 6] at [0, 0] reaches out of [7, 6]"),
        ((), [], "0 of 1 elements, none at []"),
    ],
)
def test_what_is_wrong_is_said(shape, boxes, words):
    assert untiled(shape, boxes) == words


def test_a_scalar_is_one_box():
    assert untiled((), [((), ())]) is None


def test_a_tensor_without_elements_needs_no_box():
    assert untiled((0, 4), []) is None


def test_a_thousand_ranks_take_no_time():
    """Rows over 4,096 processes: a comparison of all pairs would take minutes."""
    assert untiled((8192, 16), [((row, 0), (2, 16)) for row in range(0, 8192, 2)]) is None


def test_the_boxes_that_overlap_are_given():
    boxes = [((4,), (2,)), ((1,), (2,)), ((0,), (2,))]
    assert overlapping(boxes) == (((0,), (2,)), ((1,), (2,)))


def test_boxes_side_by_side_do_not_overlap():
    assert overlapping([((0,), (2,)), ((2,), (2,))]) is None
