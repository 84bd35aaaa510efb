"""Slices in safetensors, each process its part; what torch writes is in tests/oracles/test_distributed_builds.py."""

from __future__ import annotations

import ctypes
import json

import pytest
import safetensors

from repokit.errors import InputError, MalformedFile, MissingInput
from repokit.formats.tensors import HEADER_NAMES

NAME = "model.embed_tokens.weight"
BYTES = bytes(range(64))  # 4 x 4 of F32
TOP, BOTTOM = BYTES[:32], BYTES[32:]


@pytest.fixture
def sliced(workshop):
    """A checkpoint of files of slices: name -> (dtype, shape, bytes, offsets)."""

    def write(*files, folder="", names=None, config=None):
        root = workshop.checkpoint(config=config)
        (root / "model.safetensors").unlink()
        (root / folder).mkdir(exist_ok=True)
        for rank, slices in enumerate(files, start=1):
            name = f"shard-{rank:05d}-model-00001-of-00001.safetensors"
            save(root / folder / (names or {}).get(rank, name), slices)
        return root

    return write


def save(path, slices, sharding=None):
    buffers = {name: ctypes.create_string_buffer(data, len(data)) for name, (_, _, data, _) in slices.items()}
    table = {
        name: safetensors.TensorSpec(
            dtype=HEADER_NAMES[dtype], shape=shape, data_ptr=ctypes.addressof(buffers[name]), data_len=len(data)
        )
        for name, (dtype, shape, data, _) in slices.items()
    }
    offsets = {name: {"saved_offsets": place} for name, (*_, place) in slices.items()}
    metadata = {"DCP_SHARDING_INFO": json.dumps(offsets) if sharding is None else sharding, "format": "pt"}
    safetensors.serialize_file(table, str(path), metadata)


def rows(**more):
    return {NAME: ("F32", (2, 4), TOP, [0, 0])}, {NAME: ("F32", (2, 4), BOTTOM, [2, 0]), **more}


def built(workshop):
    workshop.build()
    return {name: (shape, data) for name, (_, shape, data) in workshop.tensors().items()}


@pytest.mark.parametrize("folder", ["", "sharded"])
def test_rows_are_put_together(sliced, workshop, folder):
    sliced(*rows(), folder=folder)
    assert built(workshop) == {NAME: ((4, 4), BYTES)}


def test_columns_are_put_together(sliced, workshop):
    left = b"".join(BYTES[row : row + 8] for row in range(0, 64, 16))
    right = b"".join(BYTES[row + 8 : row + 16] for row in range(0, 64, 16))
    sliced({NAME: ("F32", (4, 2), left, [0, 0])}, {NAME: ("F32", (4, 2), right, [0, 2])})
    assert built(workshop) == {NAME: ((4, 4), BYTES)}


def test_a_slice_without_elements_is_none(sliced, workshop):
    sliced({NAME: ("F32", (1, 4), TOP[:16], [0, 0])}, {NAME: ("F32", (0, 4), b"", [1, 0])})
    assert built(workshop) == {NAME: ((1, 4), TOP[:16])}


def test_what_one_process_wrote_alone_is_taken(sliced, workshop):
    sliced(*rows(**{"model.norm.weight": ("BF16", (8,), TOP[:16], [0])}))
    assert built(workshop)["model.norm.weight"] == ((8,), TOP[:16])


def test_that_there_may_be_more_is_a_warning(sliced, workshop):
    sliced(*rows())
    assert "tensors are put together from the slices of 2 processes" in workshop.plan().warnings[0]


def test_whole_tensors_win(workshop):
    """What the writer itself consolidates lies above the slices."""
    root = workshop.checkpoint(shards=2)
    (root / "sharded").mkdir()
    save(root / "sharded" / "shard-00001-model-00001-of-00001.safetensors", rows()[0])
    assert [left.path for left in workshop.plan().left_out] == ["sharded/shard-00001-model-00001-of-00001.safetensors"]


def refusal(workshop, expected=InputError):
    with pytest.raises(expected) as caught:
        workshop.plan()
    return str(caught.value)


def test_a_gap_is_named(sliced, workshop):
    sliced(rows()[1])
    assert f"{NAME}: is not whole: its slices are 8 of 16 elements, none at [0, 0]" in refusal(workshop, MissingInput)


def test_an_overlap_is_named(sliced, workshop):
    sliced(rows()[0], {NAME: ("F32", (2, 4), BOTTOM, [1, 0])})
    assert "the parts at [0, 0] and [1, 0] overlap" in refusal(workshop)


def slice_(rank, number=1, total=1):
    return f"shard-{rank:05d}-model-{number:05d}-of-{total:05d}.safetensors"


def test_the_same_slice_twice_is_one(sliced, workshop):
    sliced(*rows(), rows()[1])
    assert built(workshop) == {NAME: ((4, 4), BYTES)}


def test_a_slice_with_two_values_is_refused_with_both_files(sliced, workshop):
    sliced(*rows(), {NAME: ("F32", (2, 4), TOP, [2, 0])})
    told = refusal(workshop, MalformedFile)
    assert f"{slice_(3)}: holds other values of {NAME} than {slice_(2)}" in told


def test_slices_left_by_a_run_of_more_processes_are_refused_with_both_files(sliced, workshop):
    """Two processes wrote over what four had left: that of the fourth lies within that of the second."""
    sliced(*rows(), {NAME: ("F32", (1, 4), BYTES[48:], [3, 0])})
    told = refusal(workshop, MalformedFile)
    assert f"{slice_(3)}: holds other values of {NAME} than {slice_(2)}" in told


def test_a_longer_slice_at_the_same_place_is_refused(sliced, workshop):
    sliced({NAME: ("F32", (4, 4), BYTES, [0, 0])}, rows()[0])
    assert "overlap" in refusal(workshop, MalformedFile)


def test_slices_of_two_numbers_of_files_are_refused(sliced, workshop):
    sliced(*rows(), names={1: slice_(1), 2: slice_(2, 1, 2)})
    assert "has slices of models in 1, 2 files" in refusal(workshop)


def test_a_file_that_no_process_has_is_missed(sliced, workshop):
    sliced(*rows(), names={1: slice_(1, 1, 3), 2: slice_(2, 3, 3)})
    told = refusal(workshop, MissingInput)
    assert "lacks the slices of 1 file of 3: shard-*-model-00002-of-00003.safetensors" in told


def test_a_process_may_have_nothing_of_a_file(sliced, workshop):
    sliced(*rows()[:1], {"model.norm.weight": ("F32", (8,), TOP, [0])}, names={1: slice_(1, 1, 2), 2: slice_(2, 2, 2)})
    assert set(built(workshop)) == {NAME, "model.norm.weight"}


def test_a_trillion_files_are_refused_at_once(sliced, workshop):
    sliced(*rows()[:1], names={1: slice_(1, 1, 10**12)})
    assert "lacks the slices of 999,999,999,999 files" in refusal(workshop, MissingInput)


def test_two_dtypes_are_refused(sliced, workshop):
    sliced(rows()[0], {NAME: ("I32", (2, 4), BOTTOM, [2, 0])})
    assert "has slices of several dtypes" in refusal(workshop, MalformedFile)


@pytest.mark.parametrize("sharding", ["", "{", "[]", "{}", '{"model.embed_tokens.weight": {"saved_offsets": [-1, 0]}}', '{"model.embed_tokens.weight": {"saved_offsets": [0]}}', '{"model.embed_tokens.weight": 7}'])  # fmt: skip
def test_offsets_that_are_none_are_refused(sliced, workshop, sharding):
    root = sliced(rows()[0])
    save(root / "shard-00001-model-00001-of-00001.safetensors", rows()[0], sharding)
    refusal(workshop, MalformedFile)


def test_a_file_without_offsets_is_refused(workshop):
    root = workshop.checkpoint()
    (root / "model.safetensors").rename(root / "shard-00001-model-00001-of-00001.safetensors")
    assert "has no DCP_SHARDING_INFO" in refusal(workshop, MalformedFile)


def test_the_last_processes_are_missed_where_the_config_says_the_shape(sliced, workshop):
    """vocab_size is 16: the slices of the others would be rows 4 to 15."""
    sliced(*rows(), config={"hidden_size": 4, "intermediate_size": 24, "num_attention_heads": 1})
    assert f"lacks slices of 1 tensor: {NAME}" in refusal(workshop, MissingInput)
