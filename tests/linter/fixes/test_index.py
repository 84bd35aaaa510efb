"""Indexes and shards: rebuilt where headers prove everything, left alone where they do not."""

from __future__ import annotations

from repokit.linter.examples import DELETE, edited, safetensors, shard, sharded, single
from repokit.repo.weights import INDEX, SINGLE

NORM = "model.norm.weight"
HEAD = "lm_head.weight"


def test_shards_under_other_names_are_found(mend):
    renamed = {shard(number): None for number in (1, 2, 3)}
    renamed |= {f"weights-{number}.safetensors": sharded()[shard(number)] for number in (1, 2, 3)}
    index = mend("IDX101", renamed, "sharded").json(INDEX)
    assert set(index["weight_map"].values()) == {f"weights-{number}.safetensors" for number in (1, 2, 3)}


def test_a_file_with_other_tensors_is_not_taken_for_a_missing_shard(mend):
    other = safetensors({NORM: ("BF16", (16,)), "v_head.weight": ("BF16", (1, 16))})
    assert not mend("IDX101", {shard(3): None, "other.safetensors": other}, "sharded").changed


def test_a_missing_shard_is_not_dropped_from_the_index(mend):
    assert not mend("IDX101", {shard(2): None}, "sharded").changed


def test_an_index_with_a_missing_shard_is_not_rebuilt_for_another_reason(mend):
    assert not mend("IDX104", {shard(2): None, INDEX: {"weight_map": {NORM: DELETE}}}, "sharded").changed


def test_a_tensor_that_is_needed_is_not_forgotten(mend):
    assert not mend("IDX103", {shard(3): edited(drop=(NORM,))}, "sharded").changed


def test_a_tensor_that_no_shard_holds_stays_where_nothing_says_that_it_is_spare(mend):
    change = {INDEX: {"weight_map": {"mtp.fc.weight": shard(2)}}, "config.json": {"model_type": "unheard_of"}}
    assert not mend("IDX103", change, "sharded").changed


def test_keys_of_someone_s_own_stay_in_a_rebuilt_index(mend):
    change = {INDEX: {"weight_map": {NORM: DELETE}, "metadata": {"by": "me"}}}
    assert mend("IDX104", change, "sharded").json(INDEX)["metadata"]["by"] == "me"


def test_the_copy_that_the_index_places_stays(mend):
    found = mend("IDX105", {shard(2): edited(add={HEAD: ("F32", (32, 16))})}, "sharded")
    assert (HEAD in found.names(shard(2)), HEAD in found.names(shard(3))) == (False, True)


def test_totals_that_counted_a_copy_are_set_right_with_it(mend):
    change = {
        shard(2): edited(add={HEAD: ("BF16", (32, 16))}),
        INDEX: {"metadata": {"total_size": 9888 + 1024}},
    }
    assert mend("IDX105", change, "sharded").json(INDEX)["metadata"]["total_size"] == 9888


def test_a_single_file_with_other_tensors_stays(mend):
    assert not mend("IDX106", {SINGLE: edited(drop=(HEAD,))(single()[SINGLE])}, "sharded").changed


def test_a_second_set_in_another_dtype_stays(mend):
    other = safetensors({HEAD: ("F32", (32, 16))})
    assert not mend("IDX107", {"other.safetensors": other}, "sharded").changed


def test_metadata_of_an_incomplete_set_has_no_total(mend):
    change = {INDEX: {"metadata": DELETE}, shard(2): None}
    assert mend("IDX108", change, "sharded").json(INDEX)["metadata"] == {}


def test_parameters_are_not_counted_where_buffers_may_be_among_them(mend):
    change = {
        INDEX: {"metadata": {"total_parameters": 7}, "weight_map": {"model.mean": shard(3)}},
        shard(3): edited(add={"model.mean": ("BF16", (16,))}),
    }
    assert not mend("IDX204", change, "sharded").changed
