"""Names of tensors: wrappers taken out of every shard, and only where nothing else can be meant."""

from __future__ import annotations

import pytest

from repokit.linter.examples import edited, shard
from repokit.linter.rules.weights import prefixed
from repokit.repo.weights import INDEX, SINGLE

NORM = "model.norm.weight"
UNKNOWN = {"config.json": {"model_type": "unheard_of"}}


def all_shards(rename):
    return {shard(number): edited(rename=rename) for number in (1, 2, 3)}


def test_every_shard_and_the_index_are_renamed(mend):
    wrapped = all_shards(lambda name: f"_orig_mod.{name}")
    change = wrapped | {
        INDEX: lambda content: content.replace(b'"model.', b'"_orig_mod.model.').replace(b'"lm_', b'"_orig_mod.lm_')
    }
    found = mend("WGT103", change, "sharded")
    held = {
        name: place
        for number in (1, 2, 3)
        for name, place in dict.fromkeys(found.names(shard(number)), shard(number)).items()
    }
    assert found.json(INDEX)["weight_map"] == held
    assert NORM in held


def test_wrappers_inside_of_each_other_go_at_once(mend):
    found = mend("WGT103", UNKNOWN | {SINGLE: prefixed("module._orig_mod.")})
    assert (NORM in found.names(SINGLE), len(found.titles)) == (True, 1)


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "base_model.model."])
def test_a_wrapper_around_everything_goes_without_a_skeleton(mend, prefix):
    assert NORM in mend("WGT103", UNKNOWN | {SINGLE: prefixed(prefix)}).names(SINGLE)


def test_a_module_of_that_name_in_one_part_stays_without_a_skeleton(mend):
    inside = edited(rename=lambda name: name.replace("model.layers", "model.module.layers"))
    assert not mend("WGT103", UNKNOWN | {SINGLE: inside}).changed


def test_a_doubled_prefix_stays_without_a_skeleton(mend):
    assert not mend("WGT103", UNKNOWN | {SINGLE: prefixed("language_model.language_model.")}).changed


def test_two_names_never_become_one(mend):
    both = edited(add={f"_orig_mod.{NORM}": ("BF16", (16,))})
    assert not mend("WGT103", {SINGLE: both}).changed


def test_an_adapter_that_was_not_merged_stays(mend):
    lora = {f"base_model.model.model.layers.0.q.lora_{side}.weight": ("BF16", (4, 4)) for side in "AB"}
    change = edited(rename=lambda name: f"base_model.model.{name}", add=lora)
    assert not mend("WGT103", {SINGLE: change}).changed
