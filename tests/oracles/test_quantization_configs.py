"""quantization_config against its readers: what their classes write is legal, and they stop where we say they do."""

from __future__ import annotations

import json
import random

import pytest

from repokit.schema.compressed_tensors import refused_values
from repokit.schema.document import problems
from repokit.schema.quantization import QuantizationConfig
from repokit.schema.quantization_limits import refusals
from repokit.schema.quantization_methods import METHODS

pytestmark = pytest.mark.oracle

# Their classes need a library that only runs them, or are made from an object of one.
NOT_MADE_HERE = {"compressed-tensors", "hqq", "quark", "torchao"}
NOT_OF_TRANSFORMERS = {"modelopt"}

# Method -> values to try, beside a config that its class takes.
TRIED = {
    "auto-round": {"bits": [1, 2, 3, 5, 8, 16], "group_size": [-2, -1, 0, 32]},
    "awq": {
        "version": ["gemm", "GEMM", "GEMV_FAST", "marlin", "llm-awq"],
        "format": ["gemm", "Gemm", "x"],
        "backend": ["auto", "AUTO", "autoawq", "llm-awq", "exllama", "marlin"],
    },
    "bitnet": {"linear_class": ["bitlinear", "autobitlinear", "linear"], "quantization_mode": ["online", "off"]},
    "bitsandbytes": {
        "load_in_8bit": [True, False],
        "load_in_4bit": [True, False],
        "llm_int8_threshold": [6, 6.0, 0],
        "bnb_4bit_compute_dtype": ["bfloat16", "float16", "torch.bfloat16", "bf16", "half", "uint16"],
        "bnb_4bit_quant_storage": ["uint8", "bfloat16", "int16", "torch.uint8"],
    },
    "eetq": {"weights": ["int8", "int4"]},
    "fp8": {
        "activation_scheme": ["dynamic", "Static", "token"],
        "weight_block_size": [None, [128, 128], [128], [128, 0], [1, 2, 3]],
        "scale_fmt": ["float", "ue8m0", "e8m0"],
        "expert_dtype": ["fp8", "fp4", "bf16"],
    },
    "fp_quant": {
        "forward_dtype": ["mxfp4", "nvfp4", "fp8"],
        "forward_method": ["abs_max", "quest", "x"],
        "backward_dtype": ["bf16", "mxfp8", "mxfp4", "fp16"],
        "hadamard_group_size": [16, 32, 64, 128, 256, None],
        "transform_init": ["hadamard", "gsr", "x"],
    },
    "gptq": {
        "bits": [2, 3, 4, 5, 8],
        "group_size": [-2, -1, 0, 128],
        "damp_percent": [0, 0.01, 0.5, 1, 1.5],
        "dataset": ["c4", "ptb", ["a text"], None],
    },
    "higgs": {
        "bits": [1, 2, 4, 8],
        "p": [1, 2, 3],
        "group_size": [32, 64, 128, 256],
        "hadamard_size": [64, 512, 100],
    },
    "metal": {"bits": [2, 3, 4, 8], "group_size": [-1, 0, 64]},
    "quanto": {"weights": ["int8", "int4", "float8", "int3"], "activations": [None, "int8", "float16"]},
    "sinq": {"method": ["sinq", "ASINQ", "x"]},
    "spqr": {"bits": [3, 4], "beta1": [16, 8], "beta2": [16, 8]},
    "vptq": {
        "enable_proxy_error": [False, True],
        "config_for_layers": [{}, {"a": {"is_indice_packed": False}}, {"a": {"group_num": 1}}],
    },
}


def configs():
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

    return AUTO_QUANTIZATION_CONFIG_MAPPING


def method_name(name):
    return "bitsandbytes" if name.startswith("bitsandbytes_") else name


def written(name):
    """What the class of a method writes with its defaults."""
    made = configs()["bitsandbytes_4bit" if name == "bitsandbytes" else name]
    flags = {"load_in_4bit": True} if name == "bitsandbytes" else {}
    config = made(**({"bits": 4} if name == "gptq" else flags))
    return json.loads(config.to_json_string(use_diff=False))


def test_every_method_of_transformers_has_a_model_and_no_other():
    assert {method_name(name) for name in configs()} == METHODS.keys() - NOT_OF_TRANSFORMERS


@pytest.mark.parametrize("name", sorted(METHODS.keys() - NOT_MADE_HERE - NOT_OF_TRANSFORMERS))
def test_what_transformers_writes_is_legal_and_refused_by_nobody(name):
    raw = written(name)
    assert problems(QuantizationConfig, raw) == ()
    assert list(refusals(raw)) == []


@pytest.mark.parametrize("name", TRIED)
def test_transformers_refuses_what_we_say_it_refuses(name):
    from transformers.quantizers.auto import AutoQuantizationConfig

    chance = random.Random(name)
    for _ in range(300):
        raw = written(name)
        for key in chance.sample(sorted(TRIED[name]), k=min(2, len(TRIED[name]))):
            raw[key] = chance.choice(TRIED[name][key])
        assert bool(list(refusals(raw))) == refuses(AutoQuantizationConfig.from_dict, raw), raw


def refuses(read, raw):
    try:
        read(json.loads(json.dumps(raw)))
    except Exception:  # noqa: BLE001 - each class has its own way to refuse
        return True
    return False


ARGUMENTS = {
    "num_bits": [4, 5, 6, 8],
    "type": ["int", "float", "INT", "x"],
    "symmetric": [True, False],
    "strategy": ["tensor", "channel", "group", "block", "token", "tensor_group", "attn_head", "Group", "x", None],
    "group_size": [None, -2, -1, 0, 32],
    "block_structure": [None, [128, 128]],
    "dynamic": [True, False, "local", "x"],
    "actorder": [None, "weight", "static", "group", False, True, "x"],
}


def test_compressed_tensors_refuses_what_we_say_it_refuses():
    quantization = pytest.importorskip("compressed_tensors.quantization")
    chance = random.Random("compressed-tensors")
    for _ in range(3000):
        group = {"targets": ["Linear"]}
        for key in ("weights", "input_activations", "output_activations"):
            if chance.random() < 0.5:
                group[key] = {name: chance.choice(ARGUMENTS[name]) for name in ARGUMENTS if chance.random() < 0.3}
        raw = {"config_groups": {"group_0": group}, "quantization_status": chance.choice(["compressed", "x"])}
        assert bool(list(refused_values(raw))) == refuses(quantization.QuantizationConfig.model_validate, raw), raw
