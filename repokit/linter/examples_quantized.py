"""The tiny model of the examples as quantizers store it: one base for each method.

Names, dtypes and shapes are those that the tools write: bitsandbytes 0.50 and compressed-tensors 0.20 through
transformers 5.24; AutoGPTQ, AutoAWQ, DeepSeek's FP8, gpt-oss, MLX and ModelOpt as their loaders read them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from repokit.formats.strict_json import dumps
from repokit.linter.examples import merged, safetensors, single, tensors_of
from repokit.repo.config import CONFIG
from repokit.repo.weights import SINGLE

if TYPE_CHECKING:
    from repokit.linter.examples import Tensors

GROUP: Final = 8  # inputs that share a scale: divides the widths 16 and 24
PER_WORD: Final = 8  # 4-bit weights in 32 bits

Parts = Mapping[str, tuple[str, tuple[int, ...]]]  # part of a module to dtype and shape


# ---------------------------------------------------------------- modules: parts by rows (outputs), columns (inputs)


def gptq_parts(rows: int, columns: int) -> Parts:
    """AutoGPTQ, 4 bits, format `gptq`: packed along the inputs."""
    return {
        "qweight": ("I32", (columns // PER_WORD, rows)),
        "qzeros": ("I32", (columns // GROUP, rows // PER_WORD)),
        "scales": ("F16", (columns // GROUP, rows)),
        "g_idx": ("I32", (columns,)),
    }


def awq_parts(rows: int, columns: int) -> Parts:
    """AutoAWQ, 4 bits, version `gemm`: packed along the outputs."""
    return {
        "qweight": ("I32", (columns, rows // PER_WORD)),
        "qzeros": ("I32", (columns // GROUP, rows // PER_WORD)),
        "scales": ("F16", (columns // GROUP, rows)),
    }


def fp8_parts(rows: int, columns: int) -> Parts:
    """DeepSeek's FP8 with blocks of 8 x 8."""
    blocks = (-(-rows // GROUP), -(-columns // GROUP))
    return {"weight": ("F8_E4M3", (rows, columns)), "weight_scale_inv": ("F32", blocks)}


def bnb4_parts(rows: int, columns: int) -> Parts:
    """NF4 of bitsandbytes with blocks of 64."""
    return {
        "weight": ("U8", (rows * columns // 2, 1)),
        "weight.absmax": ("F32", (-(-rows * columns // 64),)),
        "weight.quant_map": ("F32", (16,)),
        "weight.quant_state.bitsandbytes__nf4": ("U8", (77,)),
    }


def bnb8_parts(rows: int, columns: int) -> Parts:
    """LLM.int8() of bitsandbytes."""
    return {"weight": ("I8", (rows, columns)), "SCB": ("F32", (rows,)), "weight_format": ("U8", ())}


def packed_parts(rows: int, columns: int) -> Parts:
    """compressed-tensors pack-quantized, 4 bits in groups, symmetric."""
    return {
        "weight_packed": ("I32", (rows, columns // PER_WORD)),
        "weight_scale": ("BF16", (rows, columns // GROUP)),
        "weight_shape": ("I64", (2,)),
    }


def float_parts(rows: int, columns: int) -> Parts:
    """compressed-tensors float-quantized, a scale per channel."""
    return {"weight": ("F8_E4M3", (rows, columns)), "weight_scale": ("BF16", (rows, 1))}


def int_parts(rows: int, columns: int) -> Parts:
    """compressed-tensors int-quantized, a scale per channel."""
    return {"weight": ("I8", (rows, columns)), "weight_scale": ("BF16", (rows, 1))}


def mlx_parts(rows: int, columns: int) -> Parts:
    """MLX, 4 bits, mode `affine`."""
    groups = (rows, columns // GROUP)
    return {"weight": ("U32", (rows, columns // PER_WORD)), "scales": ("BF16", groups), "biases": ("BF16", groups)}


def nvfp4_parts(rows: int, columns: int) -> Parts:
    """ModelOpt NVFP4; real groups are of 16, which 24 inputs do not divide into."""
    return {
        "weight": ("U8", (rows, columns // 2)),
        "weight_scale": ("F8_E4M3", (rows, columns // GROUP)),
        "weight_scale_2": ("F32", ()),
        "input_scale": ("F32", ()),
    }


# The linear modules of a layer of the llama: outputs and inputs.
LINEAR: Final = {
    "self_attn.q_proj": (16, 16),
    "self_attn.k_proj": (8, 16),
    "self_attn.v_proj": (8, 16),
    "self_attn.o_proj": (16, 16),
    "mlp.gate_proj": (24, 16),
    "mlp.up_proj": (24, 16),
    "mlp.down_proj": (16, 24),
}


def everywhere(parts_of: Callable[[int, int], Parts]) -> Tensors:
    """Parts of every linear module of both layers, to add to a base."""
    return {
        f"model.layers.{layer}.{module}.{part}": info
        for layer in range(2)
        for module, shape in LINEAR.items()
        for part, info in parts_of(*shape).items()
    }


# ---------------------------------------------------------------- configs


def scheme(form: str, inputs: Mapping[str, Any] | None = None, /, **weights: Any) -> dict[str, Any]:  # noqa: ANN401 - values of a JSON object
    """A quantization_config of compressed-tensors with one group; `weights` are its arguments."""
    arguments = {"dynamic": False, "group_size": None, "symmetric": True, **weights}
    group = {
        "format": form,
        "input_activations": inputs,
        "output_activations": None,
        "targets": ["Linear"],
        "weights": arguments,
    }
    return {
        "config_groups": {"group_0": group},
        "format": form,
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
    }


_TOKEN: Final = {"dynamic": True, "group_size": None, "strategy": "token", "symmetric": True}

GPTQ: Final = {
    "bits": 4,
    "checkpoint_format": "gptq",
    "damp_percent": 0.01,
    "desc_act": False,
    "group_size": GROUP,
    "quant_method": "gptq",
    "sym": True,
    "true_sequential": True,
}
AWQ: Final = {
    "bits": 4,
    "group_size": GROUP,
    "modules_to_not_convert": None,
    "quant_method": "awq",
    "version": "gemm",
    "zero_point": True,
}
FP8: Final = {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "weight_block_size": [GROUP, GROUP],
}
BNB: Final = {
    "bnb_4bit_compute_dtype": "bfloat16",
    "bnb_4bit_quant_storage": "uint8",
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": False,
    "llm_int8_enable_fp32_cpu_offload": False,
    "llm_int8_has_fp16_weight": False,
    "llm_int8_skip_modules": None,
    "llm_int8_threshold": 6.0,
    "load_in_4bit": True,
    "load_in_8bit": False,
    "quant_method": "bitsandbytes",
}
PACKED: Final = scheme("pack-quantized", group_size=GROUP, num_bits=4, strategy="group", type="int")
_FLOAT8: Final = {"num_bits": 8, "type": "float"}
_INT8: Final = {"num_bits": 8, "type": "int"}
FLOAT: Final = scheme("float-quantized", {**_TOKEN, **_FLOAT8}, strategy="channel", **_FLOAT8)
INT: Final = scheme("int-quantized", {**_TOKEN, **_INT8}, strategy="channel", **_INT8)
_NVFP4: Final = {"dynamic": False, "group_size": GROUP, "num_bits": 4, "type": "float"}
MODELOPT: Final = {
    "config_groups": {"group_0": {"input_activations": _NVFP4, "targets": ["Linear"], "weights": _NVFP4}},
    "ignore": ["lm_head"],
    "producer": {"name": "modelopt", "version": "0.37.0"},
    "quant_algo": "NVFP4",
    "quant_method": "modelopt",
}
MLX: Final = {"bits": 4, "group_size": GROUP, "mode": "affine"}


# ---------------------------------------------------------------- repositories


def packed(tensors: Tensors, parts_of: Callable[[int, int], Parts], floats: str) -> Tensors:
    """The tensors with every linear module of the layers packed, and the rest in a float dtype."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, (_, shape) in tensors.items():
        if ".layers." in name and len(shape) == 2:
            module = name.removesuffix(".weight")
            found |= {f"{module}.{part}": info for part, info in parts_of(*shape).items()}
        else:
            found[name] = (floats, shape)
    return found


def quantized(
    parts_of: Callable[[int, int], Parts], config: Mapping[str, Any], floats: str = "BF16"
) -> Mapping[str, bytes]:
    """The llama of the examples, packed; `config` is merged into config.json."""
    files = single()
    tensors = packed(tensors_of(files[SINGLE]), parts_of, floats)
    dtype = {"F16": "float16", "BF16": "bfloat16"}[floats]
    document = merged(json.loads(files[CONFIG]), {"dtype": dtype, **config})
    return {**files, CONFIG: dumps(document), SINGLE: safetensors(tensors)}


@cache
def gptq() -> Mapping[str, bytes]:
    return quantized(gptq_parts, {"quantization_config": GPTQ}, "F16")


@cache
def awq() -> Mapping[str, bytes]:
    return quantized(awq_parts, {"quantization_config": AWQ}, "F16")


@cache
def fp8() -> Mapping[str, bytes]:
    return quantized(fp8_parts, {"quantization_config": FP8})


@cache
def bnb4() -> Mapping[str, bytes]:
    return quantized(bnb4_parts, {"quantization_config": BNB})


@cache
def bnb8() -> Mapping[str, bytes]:
    config = {**BNB, "load_in_4bit": False, "load_in_8bit": True}
    return quantized(bnb8_parts, {"quantization_config": config})


@cache
def pack_quantized() -> Mapping[str, bytes]:
    return quantized(packed_parts, {"quantization_config": PACKED})


@cache
def float_quantized() -> Mapping[str, bytes]:
    return quantized(float_parts, {"quantization_config": FLOAT})


@cache
def int_quantized() -> Mapping[str, bytes]:
    return quantized(int_parts, {"quantization_config": INT})


@cache
def mlx() -> Mapping[str, bytes]:
    return quantized(mlx_parts, {"quantization": MLX, "quantization_config": MLX})


@cache
def modelopt() -> Mapping[str, bytes]:
    return quantized(nvfp4_parts, {"quantization_config": MODELOPT})


# A gpt-oss of two layers and two experts; MXFP4 packs the experts alone, in blocks of 32 inputs.
_OSS: Final = {
    "architectures": ["GptOssForCausalLM"],
    "experts_per_token": 1,
    "head_dim": 8,
    "hidden_size": 32,
    "intermediate_size": 32,
    "layer_types": ["sliding_attention", "full_attention"],
    "model_type": "gpt_oss",
    "num_attention_heads": 4,
    "num_experts_per_tok": 1,
    "num_key_value_heads": 2,
    "num_local_experts": 2,
    "rope_parameters": {"rope_theta": 150000.0, "rope_type": "default"},
    "quantization_config": {
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"],
        "quant_method": "mxfp4",
    },
    "sliding_window": 8,
}


def _oss_layer(block: str) -> Tensors:
    attention = {"q_proj": (32, 32), "k_proj": (16, 32), "v_proj": (16, 32), "o_proj": (32, 32)}
    found: dict[str, tuple[str, tuple[int, ...]]] = {
        block + "input_layernorm.weight": ("BF16", (32,)),
        block + "post_attention_layernorm.weight": ("BF16", (32,)),
        block + "self_attn.sinks": ("BF16", (4,)),
        block + "mlp.router.weight": ("BF16", (2, 32)),
        block + "mlp.router.bias": ("BF16", (2,)),
    }
    for name, shape in attention.items():
        found[f"{block}self_attn.{name}.weight"] = ("BF16", shape)
        found[f"{block}self_attn.{name}.bias"] = ("BF16", shape[:1])
    for name, rows in (("gate_up_proj", 64), ("down_proj", 32)):
        found[f"{block}mlp.experts.{name}_blocks"] = ("U8", (2, rows, 1, 16))
        found[f"{block}mlp.experts.{name}_scales"] = ("U8", (2, rows, 1))
        found[f"{block}mlp.experts.{name}_bias"] = ("BF16", (2, rows))
    return found


@cache
def mxfp4() -> Mapping[str, bytes]:
    """gpt-oss with MXFP4 experts."""
    files = single()
    llama = json.loads(files[CONFIG])
    rows = llama["vocab_size"]
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {
        "model.embed_tokens.weight": ("BF16", (rows, 32)),
        "model.norm.weight": ("BF16", (32,)),
        "lm_head.weight": ("BF16", (rows, 32)),
    }
    for layer in range(2):
        tensors |= _oss_layer(f"model.layers.{layer}.")
    return {**files, CONFIG: dumps(merged(llama, _OSS)), SINGLE: safetensors(tensors)}


METHODS: Final[Mapping[str, Callable[[], Mapping[str, bytes]]]] = {
    "gptq": gptq,
    "awq": awq,
    "fp8": fp8,
    "bnb4": bnb4,
    "bnb8": bnb8,
    "pack-quantized": pack_quantized,
    "float-quantized": float_quantized,
    "int-quantized": int_quantized,
    "mxfp4": mxfp4,
    "mlx": mlx,
    "modelopt": modelopt,
}
