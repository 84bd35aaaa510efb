"""Flat tensors of numbers that say which element they are: the runs bring every parameter back in order."""

from __future__ import annotations

from itertools import count
from math import prod

import pytest
from hypothesis import assume, given, strategies as st

from repokit.formats.zero_partitions import PartitionFault, of_fragment, of_stage_3, of_stages_1_and_2

SHAPES = st.lists(st.lists(st.integers(0, 5), max_size=3).map(tuple), min_size=1, max_size=6)
GROUPS = st.lists(SHAPES, min_size=1, max_size=3)
RANKS = st.integers(1, 9)


def numbered(groups):
    """Shapes by name, and the elements of each parameter: no number twice."""
    numbers, named, held = count(), [], {}
    for group, shapes in enumerate(groups):
        named.append({f"{group}.{place}": shape for place, shape in enumerate(shapes)})
        for name, shape in named[-1].items():
            held[name] = [next(numbers) for _ in range(prod(shape))]
    return named, held


def divided(groups, held, ranks, *, lean, paddings=None):
    """The flat tensors of each rank in stage 1 and 2; -1 is padding."""
    flats = [[] for _ in range(ranks)]
    for number, group in enumerate(groups):
        vector = []
        for place, name in enumerate(group):
            vector += held[name] + [-1] * (paddings[number][place] if paddings else 0)
        needed = len(vector)
        vector += [-1] * (-needed % (2 * ranks))
        part = len(vector) // ranks
        for rank, mine in enumerate(flats):
            end = min((rank + 1) * part, needed) if lean else (rank + 1) * part
            mine.append(vector[rank * part : max(rank * part, end)])
    return flats


def sizes(flats):
    return [[len(flat) for flat in rank] for rank in flats]


def gathered(runs, flats):
    return {
        name: [one for run in found for one in flats[run.rank][run.flat][run.first : run.first + run.elements]]
        for name, found in runs.items()
    }


@given(groups=GROUPS, ranks=RANKS, lean=st.booleans())
def test_groups_are_brought_back(groups, ranks, lean):
    named, held = numbered(groups)
    flats = divided(named, held, ranks, lean=lean)
    assert gathered(of_stages_1_and_2(named, sizes(flats)), flats) == held


@given(groups=GROUPS, ranks=RANKS, lean=st.booleans(), data=st.data())
def test_padding_behind_each_parameter_is_left_out(groups, ranks, lean, data):
    named, held = numbered(groups)
    paddings = [[data.draw(st.integers(0, 7)) for _ in group] for group in named]
    flats = divided(named, held, ranks, lean=lean, paddings=paddings)
    assert gathered(of_stages_1_and_2(named, sizes(flats), paddings), flats) == held


def by_parameter(shapes, held, ranks, cuts):
    """The flat tensors of each rank in stage 3, cut into several at the same parameters."""
    flats = []
    for rank in range(ranks):
        mine = [[]]
        for name, shape in shapes.items():
            if name in cuts:
                mine.append([])
            share = -(-prod(shape) // ranks)
            part = held[name][rank * share : (rank + 1) * share]
            mine[-1] += part + [-1] * (share - len(part))
        flats.append(mine)
    return flats


@given(groups=SHAPES.map(lambda shapes: [shapes]), ranks=RANKS, data=st.data())
def test_parameters_are_brought_back(groups, ranks, data):
    (shapes,), held = numbered(groups)
    flats = by_parameter(shapes, held, ranks, data.draw(st.sets(st.sampled_from(sorted(shapes)))))
    assert gathered(of_stage_3(shapes, sizes(flats)), flats) == held


def test_a_parameter_may_go_on_in_the_next_flat_tensor():
    runs = of_stage_3({"a": (4,), "b": (6,)}, [[3, 2], [3, 2]])
    assert [(run.rank, run.flat, run.first, run.elements) for run in runs["b"]] == [
        (0, 0, 2, 1), (0, 1, 0, 2), (1, 0, 2, 1), (1, 1, 0, 2),
    ]  # fmt: skip


@given(shape=st.lists(st.integers(0, 5), max_size=3).map(tuple), ranks=RANKS)
def test_a_fragment_is_brought_back(shape, ranks):
    share = -(-prod(shape) // ranks)
    runs = of_fragment("frozen", shape, [share] * ranks)
    assert [run.rank * share + place for run in runs for place in range(run.elements)] == list(range(prod(shape)))


# ------------------------------------------------------------------------------------------------ what does not fit


@given(groups=GROUPS, ranks=RANKS, lean=st.booleans(), data=st.data())
def test_a_share_cut_short_is_refused(groups, ranks, lean, data):
    named, held = numbered(groups)
    shares = sizes(divided(named, held, ranks, lean=lean))
    rank = data.draw(st.integers(0, ranks - 1))
    group = data.draw(st.integers(0, len(named) - 1))
    needed = sum(map(prod, named[group].values()))
    assume(shares[rank][group])
    shares[rank][group] -= 1
    # Where padding alone is cut off, nothing is lost; the last rank then has what a newer version would have saved.
    assume(sum(share[group] for share in shares) < needed or rank < ranks - 1)
    with pytest.raises(PartitionFault):
        of_stages_1_and_2(named, shares)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_the_rank_that_was_cut_short_is_named(rank):
    shares = [[4], [4], [3]]
    shares[rank][0] -= 1
    with pytest.raises(PartitionFault) as caught:
        of_stages_1_and_2([{"a": (11,)}], shares)
    assert caught.value.rank == rank


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_in_stage_3_it_is_named_too(rank):
    shares = [[4], [4], [4]]
    shares[rank][0] -= 1
    with pytest.raises(PartitionFault) as caught:
        of_stage_3({"a": (11,)}, shares)
    assert caught.value.rank == rank


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_with_another_fragment_is_named(rank):
    shares = [3, 3]
    shares[rank] = 2
    with pytest.raises(PartitionFault) as caught:
        of_fragment("a", (2, 3), shares)
    assert caught.value.rank == rank


def test_shapes_of_another_model_are_refused():
    with pytest.raises(PartitionFault, match="its share of 40 is 20"):
        of_stages_1_and_2([{"a": (40,)}], [[6], [6]])


def test_a_group_without_a_flat_tensor_is_refused():
    with pytest.raises(PartitionFault, match="1 flat tensor for 2 groups"):
        of_stages_1_and_2([{"a": (4,)}, {"b": (2,)}], [[4]])


@pytest.mark.parametrize("paddings", [[[0]], [[0, 0], [0, 0]], [[0]] * 2])
def test_paddings_of_other_parameters_are_refused(paddings):
    with pytest.raises(PartitionFault, match="paddings"):
        of_stages_1_and_2([{"a": (4,), "b": (2,)}, {"c": (2,)}], [[6, 2]], paddings)


def test_absurd_shapes_are_refused_at_once():
    with pytest.raises(PartitionFault):
        of_stages_1_and_2([{"a": (10**12, 10**12)}], [[6], [6]])
