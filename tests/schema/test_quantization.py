"""quantization_config by method, and the side files of older quantizers."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, strategies as st

from repokit.schema.config import Config
from repokit.schema.document import problems
from repokit.schema.quantization import GptqSideFile, QuantizationConfig, is_known, method_of, model_of
from repokit.schema.quantization_methods import METHODS, Gptq

GPTQ = {
    "quant_method": "gptq",
    "bits": 4,
    "group_size": -1,
    "damp_percent": 0.01,
    "desc_act": True,
    "static_groups": False,
    "sym": True,
    "true_sequential": True,
    "model_file_base_name": "model",
    "checkpoint_format": "gptq",
    "dataset": ["a text"],
    "meta": {"quantizer": ["gptqmodel:4.0.0"]},
}
BNB = {
    "quant_method": "bitsandbytes",
    "_load_in_4bit": True,
    "_load_in_8bit": False,
    "load_in_4bit": True,
    "load_in_8bit": False,
    "bnb_4bit_compute_dtype": "bfloat16",
    "bnb_4bit_quant_storage": "uint8",
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": True,
    "llm_int8_skip_modules": None,
    "llm_int8_threshold": 6.0,
}
WEIGHTS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True, "dynamic": False}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "quantization_status": "compressed",
    "global_compression_ratio": None,
    "ignore": ["lm_head", "re:.*gate.*"],
    "kv_cache_scheme": None,
    "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": WEIGHTS, "input_activations": None, "output_activations": None}
    },
    "sparsity_config": {},
    "transform_config": {},
    "version": "0.12.2",
}
MODELOPT = {
    "quant_method": "modelopt",
    "quant_algo": "NVFP4",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}},
    "ignore": ["lm_head"],
    "producer": {"name": "modelopt", "version": "0.37.0"},
}

LEGAL = [
    GPTQ,
    GPTQ | {"dataset": "c4", "tokenizer": None, "dynamic": {"-:.*gate.*": {}}, "damp_percent": 0},
    BNB,
    {"load_in_8bit": True, "llm_int8_threshold": 6.0},
    COMPRESSED,
    {"quant_method": "compressed-tensors", "config_groups": {"W4A16": ["Linear"]}},
    {"quant_method": "compressed-tensors", "quantization_config": COMPRESSED},
    {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
    {"quant_method": "awq", "version": "GEMM", "modules_to_not_convert": ["visual"]},
    {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]},
    {"quant_method": "fp8", "weight_block_size": None, "ignored_layers": ["lm_head"]},
    {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200, "modules_to_not_convert": []},
    {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
    {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {}}}},
    {"quant_method": "torchao", "quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": 32}},
    {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4}}, "skip_modules": ["lm_head"]},
    {"quant_method": "quanto", "weights": "int8", "activations": None},
    {"quant_method": "vptq", "config_for_layers": {"q_proj": {"num_centroids": [-1, 65536]}}},
    {"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:auto_gptq", "iters": 200},
    {"quant_method": "quark", "export": {"kv_cache_group": []}, "global_quant_config": {"weight": {"dtype": "int4"}}},
    MODELOPT,
]


@pytest.mark.parametrize("raw", LEGAL, ids=lambda raw: raw.get("quant_method", ""))
def test_legal_object(raw):
    assert problems(QuantizationConfig, raw) == ()


def changed(**weights):
    group = {"targets": ["Linear"], "weights": WEIGHTS | weights}
    return COMPRESSED | {"config_groups": {"group_0": group}}


WRONG = [
    (GPTQ | {"bits": "4"}, "/bits"),
    (GPTQ | {"group_size": 128.0}, "/group_size"),
    (GPTQ | {"desc_act": "true"}, "/desc_act"),
    (GPTQ | {"dataset": 5}, "/dataset"),
    (BNB | {"llm_int8_threshold": "6.0"}, "/llm_int8_threshold"),
    (BNB | {"bnb_4bit_use_double_quant": 1}, "/bnb_4bit_use_double_quant"),
    (BNB | {"llm_int8_skip_modules": "lm_head"}, "/llm_int8_skip_modules"),
    ({"load_in_4bit": True, "bnb_4bit_quant_type": 4}, "/bnb_4bit_quant_type"),
    (COMPRESSED | {"ignore": "lm_head"}, "/ignore"),
    (COMPRESSED | {"kv_cache_scheme": {"num_bits": "8"}}, "/kv_cache_scheme/num_bits"),
    (changed(num_bits=4.0), "/config_groups/group_0/weights/num_bits"),
    (changed(block_structure=[128, "128"]), "/config_groups/group_0/weights/block_structure/1"),
    (COMPRESSED | {"config_groups": {"group_0": {"targets": "Linear"}}}, "/config_groups/group_0/targets"),
    ({"quant_method": "fp8", "weight_block_size": 128}, "/weight_block_size"),
    ({"quant_method": "mxfp4", "modules_to_not_convert": "lm_head"}, "/modules_to_not_convert"),
    ({"quant_method": "awq", "version": 1}, "/version"),
    ({"quant_method": "vptq", "config_for_layers": {"q": {"vector_lens": 8}}}, "/config_for_layers/q/vector_lens"),
    ({"quant_method": 4}, "/quant_method"),
]


@pytest.mark.parametrize(("raw", "place"), WRONG, ids=[place for _, place in WRONG])
def test_wrong_value_is_found_at_its_place(raw, place):
    assert [problem.pointer for problem in problems(QuantizationConfig, raw)] == [place]


def test_object_is_judged_where_it_stands_in_config_json():
    raw = {"model_type": "llama", "text_config": {"quantization_config": GPTQ | {"bits": "4"}}}
    assert [problem.pointer for problem in problems(Config, raw)] == ["/text_config/quantization_config/bits"]


def test_each_wrong_value_is_a_problem():
    raw = {"quantization_config": GPTQ | {"bits": "4", "sym": 1}, "vocab_size": "5"}
    assert {problem.pointer for problem in problems(Config, raw)} == {
        "/quantization_config/bits",
        "/quantization_config/sym",
        "/vocab_size",
    }


@pytest.mark.parametrize("name", ["exl3", None])
def test_of_a_method_that_is_not_known_nothing_is_judged(name):
    assert problems(QuantizationConfig, {"quant_method": name, "bits": "4.65"}) == ()


@pytest.mark.parametrize(
    ("raw", "method"),
    [
        ({"quant_method": "gptq"}, "gptq"),
        ({"quant_method": "bitsandbytes_4bit"}, "bitsandbytes"),
        ({"load_in_8bit": True}, "bitsandbytes"),
        ({"load_in_4bit": True, "quant_method": "gptq"}, "bitsandbytes"),
        ({"bits": 4, "group_size": 64}, None),
        ({"quant_method": ["gptq"]}, None),
    ],
)
def test_method(raw, method):
    assert method_of(raw) == method


def test_known_method():
    assert is_known("mxfp4")
    assert not is_known("mxfp2")
    assert model_of({"quant_method": "gptq"}) is Gptq


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        ({"bits": "4"}, "/bits"),
        ({"desc_act": "true"}, "/desc_act"),
        ({"meta": {"quantizer": ["gptqmodel"]}, "per_model_config": {}, "lm_head": 1}, "/lm_head"),
    ],
)
def test_side_file(raw, place):
    assert [problem.pointer for problem in problems(GptqSideFile, raw)] == [place]


def test_schema_has_each_method_and_refers_to_definitions_that_are_there():
    schema = QuantizationConfig.model_json_schema()
    assert [part["if"]["properties"]["quant_method"]["const"] for part in schema["allOf"]] == list(METHODS)
    used = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema)))
    assert used == schema["$defs"].keys()


def test_every_field_of_every_method_is_described():
    fields = [(name, field, info) for name, model in METHODS.items() for field, info in model.model_fields.items()]
    assert [(name, field) for name, field, info in fields if not info.description] == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = sorted({field for model in METHODS.values() for field in model.model_fields} - {"quant_method"})


@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6), st.sampled_from(sorted(METHODS)))
def test_any_object_has_its_problems_inside_it(raw, name):
    raw["quant_method"] = name
    for problem in problems(QuantizationConfig, raw):
        assert problem.pointer.split("/")[1] in raw
