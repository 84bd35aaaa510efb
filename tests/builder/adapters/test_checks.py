"""Adapters that are of no use are refused before a byte is written, with what to do."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from repokit.errors import InputError, MalformedFile, MissingInput, PlanError, RepokitError

PINNED = {"id": "example/base", "revision": "0e9e39f249a16976918f6564b8830bc894c89659"}

ADAPTER, CONFIG = "adapter_model.safetensors", "adapter_config.json"
QUERY = "base_model.model.model.layers.0.self_attn.q_proj"


def lacking(adapters, name):
    return {other: held for other, held in adapters.lora().items() if other != name}


@pytest.mark.parametrize("factor", ["lora_A", "lora_B"])
def test_one_of_two_factors_is_refused(adapters, factor):
    adapters.adapter(lacking(adapters, f"{QUERY}.{factor}.weight"))
    with pytest.raises(PlanError, match=r"has one of two factors in 1 module: .*q_proj"):
        adapters.plan()


def test_a_flat_part_is_refused_with_what_to_do(adapters):
    adapters.adapter({**adapters.lora(), f"{QUERY}.lora_A.weight": adapters.tensor("F32", (32,))})
    with pytest.raises(MalformedFile, match=r"holds 1 factor that is flat: .*lora_A") as caught:
        adapters.plan()
    assert "get_state_dict" in caught.value.hint


def test_tensors_without_elements_are_refused(adapters):
    adapters.adapter(dict.fromkeys(adapters.lora(), ("F32", (0,), b"")))
    with pytest.raises(MalformedFile, match=r"holds 8 tensors without elements") as caught:
        adapters.plan()
    assert "ZeRO-3" in (caught.value.why or "")


def test_an_adapter_without_tensors_is_refused(adapters):
    adapters.adapter({})
    with pytest.raises(MissingInput, match=r"adapter_model\.safetensors: holds no tensor") as caught:
        adapters.plan()
    assert "gathering" in (caught.value.why or "")


def test_tensors_of_another_method_are_refused(adapters):
    adapters.adapter(config={"peft_type": "IA3"})
    with pytest.raises(PlanError, match="holds no tensor of IA3"):
        adapters.plan()


def zeroed(tensors, end):
    return {
        name: (dtype, shape, bytes(len(data))) if name.endswith(end) else (dtype, shape, data)
        for name, (dtype, shape, data) in tensors.items()
    }


def test_an_adapter_that_changes_nothing_is_refused(adapters):
    adapters.adapter(zeroed(adapters.lora(), "lora_B.weight"))
    with pytest.raises(PlanError, match="changes nothing: 4 tensors of nothing but zeros"):
        adapters.plan()


def test_negative_zeros_change_nothing_either(adapters):
    tensors = {
        name: (dtype, shape, b"\0\0\0\x80" * (len(data) // 4)) if "lora_B" in name else (dtype, shape, data)
        for name, (dtype, shape, data) in adapters.lora().items()
    }
    adapters.adapter(tensors)
    with pytest.raises(PlanError, match="changes nothing"):
        adapters.plan()


def test_one_module_that_was_trained_is_enough(adapters):
    tensors = zeroed(adapters.lora(), "lora_B.weight")
    adapters.adapter({**tensors, f"{QUERY}.lora_B.weight": adapters.lora()[f"{QUERY}.lora_B.weight"]})
    assert adapters.plan().summary.tensors == 8


def test_a_module_that_was_trained_whole_is_enough(adapters):
    head = {"base_model.model.lm_head.weight": adapters.tensor("F32", (8, 16))}
    adapters.adapter({**zeroed(adapters.lora(), "lora_B.weight"), **head}, config={"modules_to_save": ["lm_head"]})
    assert adapters.plan().summary.tensors == 9


def test_an_adapter_of_another_base_is_refused(adapters):
    adapters.adapter()
    adapters.base(rows=24)
    with pytest.raises(PlanError, match=r"q_proj: is 16 x 16 in the adapter and 24 x 16 in"):
        adapters.plan(base={"id": "org/base", "path": "./base"})


def test_an_adapter_of_its_base_is_not(adapters):
    adapters.adapter()
    adapters.base()
    assert adapters.plan(base={"id": "org/base", "path": "./base"}).summary.tensors == 8


# ------------------------------------------------------------------------------------------------ whole parts of the model

BESIDE = {
    "lm_head.weight": "modules that were trained whole",
    "model.embed_tokens.weight": "embeddings that adapter_config.json does not name",
    "model.layers.0.self_attn.q_proj.base_layer.weight": "weights of the base under adapted modules",
    "model.layers.0.mlp.up_proj.weight": "tensors that adapter_config.json does not name",
    "model.layers.0.self_attn.q_proj.bias": "biases",
}


@pytest.mark.parametrize("name", BESIDE)
def test_whole_parts_of_the_model_are_told_with_their_size(adapters, name):
    held = adapters.tensor("F32", (64, 16) if name.endswith("weight") else (1024,))
    adapters.adapter({**adapters.lora(), f"base_model.model.{name}": held}, config={"modules_to_save": ["lm_head"]})
    (told,) = adapters.plan(base=PINNED).warnings
    assert f"4.1 kB of 5.9 kB are {BESIDE[name]}" in told


# ------------------------------------------------------------------------------------------------ broken files


@pytest.mark.parametrize("name", [ADAPTER, "adapter_model.bin"])
@pytest.mark.parametrize("left", [0, 7, 100, -1])
def test_a_truncated_file_is_refused(adapters, name, left):
    weights = adapters.adapter(weights=name) / name
    weights.write_bytes(weights.read_bytes()[:left])
    with pytest.raises(MalformedFile, match=name):
        adapters.plan()


def test_a_config_without_weights_is_refused(adapters):
    (adapters.adapter() / ADAPTER).unlink()
    with pytest.raises(MissingInput, match="lies there without weights"):
        adapters.plan()


def test_one_of_several_adapters_without_weights_is_refused(adapters):
    adapters.adapter()
    (adapters.adapter(folder="sql") / "sql" / ADAPTER).unlink()
    with pytest.raises(MissingInput, match=r"sql/adapter_config\.json: lies there without weights"):
        adapters.plan()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": NaN}', '{"a": 1, "a": 1}'])
def test_a_config_that_is_none_is_refused(adapters, content):
    (adapters.adapter() / CONFIG).write_text(content)
    with pytest.raises(MalformedFile, match=r"adapter_config\.json"):
        adapters.plan()


@pytest.mark.parametrize("raw", [{}, {"fine_tune_type": "lora"}, {"peft_type": None}, {"peft_type": 7}])
def test_a_config_of_another_library_is_refused(adapters, raw):
    (adapters.adapter() / CONFIG).write_text(json.dumps(raw))
    with pytest.raises(InputError, match="names no peft_type"):
        adapters.plan()


def test_a_config_that_leads_elsewhere_is_refused(adapters, tmp_path):
    config = adapters.adapter() / CONFIG
    (tmp_path / "secret.json").write_bytes(config.read_bytes())
    config.unlink()
    config.symlink_to(tmp_path / "secret.json")
    with pytest.raises(MissingInput, match="link"):
        adapters.plan()


def test_weights_that_lead_to_a_larger_disk_are_read(adapters, tmp_path):
    weights = adapters.adapter() / ADAPTER
    weights.rename(tmp_path / "large.safetensors")
    weights.symlink_to(tmp_path / "large.safetensors")
    adapters.build()
    assert adapters.tensors() == adapters.lora()


def test_a_pickle_that_runs_code_is_not_read(adapters):
    from repokit.linter.examples_torch import called, torch_file

    shapes = {name: (dtype, shape) for name, (dtype, shape, _) in adapters.lora().items()}
    (adapters.adapter() / ADAPTER).unlink()
    bad = torch_file(shapes, called("os", "system", "touch stolen"))
    (adapters.folder / "checkpoint" / "adapter_model.bin").write_bytes(bad)
    with pytest.raises(InputError, match="os"):
        adapters.plan()


@given(st.binary(max_size=300))
def test_whatever_lies_there_is_planned_or_refused(tmp_path_factory, content):
    """The config and the weights of any bytes: an error of ours, never another exception."""
    from repokit.builder.planner import make_plan
    from repokit.schema.recipe import Recipe

    folder = tmp_path_factory.mktemp("adapter")
    (folder / "x").mkdir()
    (folder / "x" / CONFIG).write_bytes(b'{"peft_type": "LORA", "base_model_name_or_path": "a/b"}')
    (folder / "x" / ADAPTER).write_bytes(content)
    keys = {"version": 1, "source": "./x", "output": "./out", "license": {"id": "mit"}}
    with pytest.raises(RepokitError):
        make_plan(Recipe.model_validate(keys), folder=folder)
