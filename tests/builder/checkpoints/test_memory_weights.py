"""A model that is only in memory becomes a repository; the rest of it comes from a directory."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import repokit
from repokit.errors import PlanError, Stopped, UsageError

RECIPE = {"version": 1, "repo": "me/model", "output": "./out", "license": {"id": "mit", "file": None}}


@pytest.fixture
def arrays(checkpoint):
    """The weights of the demo's checkpoint, which are then no longer on the disk."""
    stored = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    return stored


@pytest.fixture
def recipe(tmp_path, checkpoint):
    """A recipe for what is left of it."""
    place = tmp_path / "repokit.yaml"
    place.write_text(json.dumps({**RECIPE, "source": str(checkpoint)}))
    return place


def test_the_weights_in_memory_are_what_is_written(recipe, arrays):
    written = load_file(repokit.build(recipe, tensors=arrays).output / "model.safetensors")
    assert {name: value.tobytes() for name, value in written.items()} == {
        name: value.tobytes() for name, value in arrays.items()
    }


def test_views_are_written_side_by_side(recipe, arrays):
    name = "model.layers.0.self_attn.q_proj.weight"
    arrays[name] = arrays[name].T
    written = load_file(repokit.build(recipe, tensors=arrays).output / "model.safetensors")
    assert np.array_equal(written[name], arrays[name])


def test_a_cast_is_one_of_values_in_memory(recipe, arrays):
    recipe.write_text(json.dumps({**json.loads(recipe.read_text()), "weights": {"dtype": "float16"}}))
    written = load_file(repokit.build(recipe, tensors=arrays).output / "model.safetensors")
    assert np.array_equal(written["lm_head.weight"], arrays["lm_head.weight"].astype(np.float16))


def test_the_config_states_the_dtype_of_the_arrays(recipe, arrays):
    """As save_pretrained does it: the source may be the base, in another dtype."""
    halved = {name: value.astype(np.float16) for name, value in arrays.items()}
    config = json.loads((repokit.build(recipe, tensors=halved).output / "config.json").read_text())
    assert config["dtype"] == "float16"


def test_a_second_build_takes_the_values_of_now(recipe, arrays):
    """A plan of the same names and shapes may be one of other values: nothing of an earlier build is reused."""
    repokit.build(recipe, tensors=arrays)
    changed = {**arrays, "lm_head.weight": arrays["lm_head.weight"] + 1}
    written = load_file(repokit.build(recipe, tensors=changed).output / "model.safetensors")
    assert np.array_equal(written["lm_head.weight"], changed["lm_head.weight"])


def test_a_plan_of_memory_cannot_be_carried_out_without_it(recipe, arrays, tmp_path):
    found = repokit.plan(repokit.read_recipe(recipe), folder=tmp_path, tensors=arrays)
    with pytest.raises(PlanError, match="is a tensor of a program that is not this one"):
        repokit.build(found)


def test_torch_is_not_imported(recipe, arrays, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    assert repokit.build(recipe, tensors=arrays).files


@pytest.mark.parametrize(("given", "what"), [(object(), "is no mapping"), ({}, "there are none")])
def test_what_is_no_mapping_of_arrays_is_refused(recipe, given, what):
    with pytest.raises(UsageError, match=what):
        repokit.build(recipe, tensors=given)


def test_a_stopped_build_says_what_was_found(recipe, arrays):
    del arrays["lm_head.weight"]
    with pytest.raises(Stopped, match="WGT107") as stopped:
        repokit.build(recipe, tensors=arrays)
    assert [finding.code for finding in stopped.value.findings] == ["WGT107"]
