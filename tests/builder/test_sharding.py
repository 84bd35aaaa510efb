from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given, settings, strategies as st

from repokit.builder.sharding import as_in_source, automatic_limit, file_names, natural, packed

NAMES = st.one_of(st.text(max_size=6), st.from_regex(r"layers\.[0-9]{1,3}\.w", fullmatch=True))
SIZES = st.dictionaries(NAMES, st.integers(0, 100), max_size=20)
LIMITS = st.integers(1, 150)


@settings(max_examples=300, deadline=None)
@given(SIZES, LIMITS)
def test_every_tensor_is_in_exactly_one_file(sizes, limit):
    assert sorted(name for shard in packed(sizes, limit) for name in shard) == sorted(sizes)


@settings(max_examples=300, deadline=None)
@given(SIZES, LIMITS)
def test_a_file_keeps_the_limit_or_holds_one_tensor(sizes, limit):
    assert all(sum(map(sizes.get, shard)) <= limit or len(shard) == 1 for shard in packed(sizes, limit))


@settings(max_examples=300, deadline=None)
@given(SIZES, LIMITS)
def test_no_file_is_empty(sizes, limit):
    assert all(packed(sizes, limit))


@settings(max_examples=300, deadline=None)
@given(SIZES, LIMITS)
def test_a_new_file_begins_only_where_the_old_one_is_full(sizes, limit):
    shards = packed(sizes, limit)
    assert all(sum(map(sizes.get, one)) + sizes[other[0]] > limit for one, other in pairwise(shards))


@settings(max_examples=300, deadline=None)
@given(SIZES, LIMITS, st.randoms(use_true_random=False))
def test_the_order_of_the_source_does_not_matter(sizes, limit, rng):
    items = list(sizes.items())
    rng.shuffle(items)
    assert packed(dict(items), limit) == packed(sizes, limit)


@settings(max_examples=300, deadline=None)
@given(st.lists(NAMES, unique=True))
@example(["²", "1²", "x.²"])
@example(["9" * 5000, "1" * 5000])
@example(["a.1", "a.01", "a.001"])
def test_no_two_names_have_the_same_place(names):
    assert len({natural(name) for name in names}) == len(names)


def test_layers_follow_each_other():
    names = [f"model.layers.{number}.w" for number in (0, 1, 2, 9, 10, 11, 100)]
    assert sorted([*names[3:], *names[:3]], key=natural) == names


@pytest.mark.parametrize("total", [0, 1, 5 * 10**9, 64 * 5 * 10**9, 64 * 5 * 10**9 + 1, 10**12, 3 * 10**12])
def test_the_automatic_limit_keeps_a_model_within_64_files(total):
    assert -(-total // automatic_limit(total)) <= 64


def test_files_are_numbered_from_one():
    assert file_names([[], [], []]) == [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]


def test_one_file_has_no_number():
    assert file_names([[]]) == ["model.safetensors"]


def test_the_division_of_the_source_is_kept():
    assert as_in_source(["b", "a", "c"], {"a": "2", "b": "1", "c": "1"}) == [["b", "c"], ["a"]]


def test_a_build_keeps_the_division_of_the_source(workshop):
    tensors = workshop.model()
    source = workshop.checkpoint(tensors, shards=3)
    workshop.build()
    assert {path.name: set(workshop.read_safetensors(path)) for path in workshop.output.glob("*.safetensors")} == {
        path.name: set(workshop.read_safetensors(path)) for path in source.glob("*.safetensors")
    }


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("limit", ["100", "512", "1KB", "1.5KB", "1GB"])
def test_a_build_divides_anew_and_loses_nothing(workshop, shards, limit):
    tensors = workshop.model()
    workshop.checkpoint(tensors, shards=shards)
    workshop.build(weights={"max_shard_size": limit})
    assert workshop.tensors() == tensors


def test_the_index_names_every_tensor_where_it_is(workshop):
    workshop.checkpoint()
    workshop.build(weights={"max_shard_size": "1KB"})
    weight_map = json.loads(workshop.read("model.safetensors.index.json"))["weight_map"]
    assert weight_map == {
        name: path.name for path in workshop.output.glob("*.safetensors") for name in workshop.read_safetensors(path)
    }


def test_the_index_counts_bytes_and_parameters(workshop):
    tensors = workshop.model()
    workshop.checkpoint(tensors)
    workshop.build(weights={"max_shard_size": "1KB"})
    metadata = json.loads(workshop.read("model.safetensors.index.json"))["metadata"]
    size = sum(len(data) for _, _, data in tensors.values())
    parameters = sum(len(data) // (8 if dtype == "I64" else 4) for dtype, _, data in tensors.values())
    assert metadata == {"total_size": size, "total_parameters": parameters}


def test_a_single_file_has_no_index(workshop):
    workshop.checkpoint(shards=3)
    workshop.build(weights={"max_shard_size": "1GB"})
    assert sorted(path.name for path in workshop.output.glob("*safetensors*")) == ["model.safetensors"]
