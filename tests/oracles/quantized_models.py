"""Quantized models of a few hundred kilobytes, written by the library of their method, or as its documentation says.

Each maker writes a directory that transformers (or the method's own reader) takes: config.json and weights.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

SIZES: Mapping[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 500,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
# What is in every one of them: the parameters of the llama above.
PARAMETERS = 2 * 500 * 128 + 128 + 2 * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 256 * 128 + 2 * 128)

Make = Callable[["Path"], None]


def llama() -> Any:
    """The model before it is quantized; the same every time."""
    import torch
    import transformers

    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).to(torch.bfloat16)


def linear(state: Mapping[str, Tensor]) -> list[str]:
    """The modules that quantizers change."""
    return [name.removesuffix(".weight") for name in state if name.endswith("_proj.weight")]


def written(root: Path, state: Mapping[str, Tensor], declared: Mapping[str, Any], **config: object) -> None:
    """Weights by safetensors' own writer, and the config of the llama with a quantization_config."""
    from safetensors.torch import save_file

    document = llama().config.to_dict()
    document |= {"architectures": ["LlamaForCausalLM"], "dtype": "bfloat16", "quantization_config": declared, **config}
    (root / "config.json").write_text(json.dumps(document, indent=2))
    save_file(
        {name: tensor.contiguous() for name, tensor in state.items()}, root / "model.safetensors", {"format": "pt"}
    )


# ---------------------------------------------------------------- compressed-tensors, by its own library

PRESETS = (
    "W8A8",
    "W4A16",
    "W4A16_ASYM",
    "W8A16",
    "FP8",
    "FP8_DYNAMIC",
    "FP8_BLOCK",
    "NVFP4A16",
    "NVFP4",
    "MXFP4A16",
    "MXFP8",
)


def compressed(preset: str) -> Make:
    """A preset of compressed-tensors, with scales that belong to the weights."""

    def make(root: Path) -> None:
        from compressed_tensors.compressors import ModelCompressor
        from compressed_tensors.quantization import (
            QuantizationConfig,
            QuantizationStatus,
            apply_quantization_config,
            preset_name_to_scheme,
        )

        model = llama()
        declared = QuantizationConfig(
            config_groups={"group_0": preset_name_to_scheme(preset, ["Linear"])},
            ignore=["lm_head"],
            quantization_status=QuantizationStatus.FROZEN,
        )
        apply_quantization_config(model, declared, show_progress=False)
        for name, parameter in model.named_parameters():
            if name.endswith("_scale"):
                parameter.data.fill_(0.01)
            elif name.endswith("zero_point"):
                parameter.data.zero_()
        compressor = ModelCompressor.from_pretrained_model(model)
        compressor.compress_model(model)
        model.save_pretrained(root)
        compressor.update_config(root)

    return make


# ---------------------------------------------------------------- FP8, as DeepSeek writes it


def fp8(root: Path) -> None:
    """Blocks of 64 x 64, with the inverse of their scale in F32."""
    import torch

    state = dict(llama().state_dict())
    for module in linear(state):
        weight = state.pop(f"{module}.weight").float()
        rows, columns = weight.shape
        blocks = weight.reshape(rows // 64, 64, columns // 64, 64)
        scale = blocks.abs().amax(dim=(1, 3)) / torch.finfo(torch.float8_e4m3fn).max
        packed = (blocks / scale[:, None, :, None]).reshape(rows, columns).to(torch.float8_e4m3fn)
        state |= {f"{module}.weight": packed, f"{module}.weight_scale_inv": scale}
    declared = {"activation_scheme": "dynamic", "quant_method": "fp8", "weight_block_size": [64, 64]}
    written(root, state, {**declared, "modules_to_not_convert": ["lm_head"]})


# ---------------------------------------------------------------- GPTQ and AWQ, as their documentation says


def _nibbles(values: Tensor) -> Tensor:
    """Eight numbers of 4 bits into a word, the first into the lowest bits; along the first dimension."""
    import torch

    words = values.to(torch.int64).reshape(-1, 8, values.shape[1])
    shifts = torch.arange(0, 32, 4).reshape(1, 8, 1)
    packed = (words << shifts).sum(dim=1)
    return (packed - ((packed >> 31) << 32)).to(torch.int32)


def _quantized(weight: Tensor, group: int = 64) -> tuple[Tensor, Tensor]:
    """[inputs, outputs] of 0..15 around 8, and a scale for each group of inputs."""
    import torch

    rows = weight.float().T.reshape(-1, group, weight.shape[0])
    scale = (rows.abs().amax(dim=1) / 7).clamp(min=1e-6)
    values = (rows / scale[:, None]).round().clamp(-8, 7).to(torch.int64) + 8
    return values.reshape(-1, weight.shape[0]), scale.to(torch.float16)


def gptq(root: Path) -> None:
    """AutoGPTQ, format `gptq`: packed along the inputs; zero points are stored minus 1. With its side file."""
    import torch

    state = {name: tensor.to(torch.float16) for name, tensor in llama().state_dict().items()}
    for module in linear(state):
        values, scales = _quantized(state.pop(f"{module}.weight"))
        zeros = torch.full((scales.shape[1], scales.shape[0]), 7)
        order = torch.arange(values.shape[0], dtype=torch.int32) // 64
        state |= {f"{module}.qweight": _nibbles(values), f"{module}.scales": scales, f"{module}.g_idx": order}
        state[f"{module}.qzeros"] = _nibbles(zeros).T
    side = {"bits": 4, "group_size": 64, "desc_act": False, "sym": True, "damp_percent": 0.01, "true_sequential": True}
    written(root, state, {**side, "checkpoint_format": "gptq", "quant_method": "gptq"}, dtype="float16")
    (root / "quantize_config.json").write_text(json.dumps({**side, "model_name_or_path": None}))


def awq(root: Path) -> None:
    """AutoAWQ, version `gemm`: packed along the outputs, in its own order. With its side file alone."""
    import torch

    order = [0, 2, 4, 6, 1, 3, 5, 7]  # AutoAWQ utils/packing_utils.py AWQ_ORDER
    state = {name: tensor.to(torch.float16) for name, tensor in llama().state_dict().items()}
    for module in linear(state):
        values, scales = _quantized(state.pop(f"{module}.weight"))
        mixed = values.T.reshape(-1, 8, values.shape[0])[:, order].reshape(-1, values.shape[0])
        zeros = torch.full((scales.shape[1], scales.shape[0]), 8)
        state |= {f"{module}.qweight": _nibbles(mixed).T, f"{module}.qzeros": _nibbles(zeros).T}
        state[f"{module}.scales"] = scales
    written(root, state, {}, dtype="float16")
    config = json.loads((root / "config.json").read_text())
    del config["quantization_config"]
    (root / "config.json").write_text(json.dumps(config))
    side = {"zero_point": True, "q_group_size": 64, "w_bit": 4, "version": "GEMM"}
    (root / "quant_config.json").write_text(json.dumps(side))


# ---------------------------------------------------------------- MXFP4, as gpt-oss has it


def mxfp4(root: Path) -> None:
    """Experts in blocks of 32 that share an exponent; the rest as it is."""
    import torch
    import transformers
    from safetensors.torch import save_file

    torch.manual_seed(0)
    config = transformers.GptOssConfig(
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_local_experts=4,
        num_experts_per_tok=2,
        vocab_size=500,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=None,
    )
    state = dict(transformers.GptOssForCausalLM(config).to(torch.bfloat16).state_dict())
    for name in [name for name in state if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, inputs, outputs = state.pop(name).shape
        state[f"{name}_blocks"] = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8)
        state[f"{name}_scales"] = torch.randint(120, 124, (experts, outputs, inputs // 32), dtype=torch.uint8)
    skipped = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    document = config.to_dict() | {"architectures": ["GptOssForCausalLM"], "dtype": "bfloat16"}
    document["quantization_config"] = {"modules_to_not_convert": skipped, "quant_method": "mxfp4"}
    (root / "config.json").write_text(json.dumps(document))
    save_file(state, root / "model.safetensors", {"format": "pt"})


# ---------------------------------------------------------------- bitsandbytes and torchao, by their own libraries


def by_transformers(root: Path, settings: object) -> None:
    """transformers quantizes the llama while it loads it, and saves it."""
    import torch
    import transformers

    plain = root / "plain"
    llama().save_pretrained(plain)
    model = transformers.LlamaForCausalLM.from_pretrained(
        plain, quantization_config=settings, dtype=torch.bfloat16, device_map="cpu"
    )
    model.save_pretrained(root)
    for path in plain.iterdir():
        path.unlink()
    plain.rmdir()


def bnb4(root: Path) -> None:
    """NF4."""
    import transformers

    by_transformers(root, transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"))


def bnb4_doubled(root: Path) -> None:
    """FP4, whose scales are quantized too."""
    import transformers

    by_transformers(root, transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_use_double_quant=True))


def bnb8(root: Path) -> None:
    """LLM.int8()."""
    import transformers

    by_transformers(root, transformers.BitsAndBytesConfig(load_in_8bit=True))


def torchao(root: Path) -> None:
    """Eight bits, weights alone."""
    import transformers
    from torchao.quantization import Int8WeightOnlyConfig

    by_transformers(root, transformers.TorchAoConfig(Int8WeightOnlyConfig()))


MODELS: Mapping[str, Make] = {
    **{preset: compressed(preset) for preset in PRESETS},
    "fp8": fp8,
    "gptq": gptq,
    "awq": awq,
    "mxfp4": mxfp4,
    "bnb4": bnb4,
    "bnb4-doubled": bnb4_doubled,
    "bnb8": bnb8,
    "torchao": torchao,
}
# What must be installed to write and to read them, beside transformers.
NEEDS: Mapping[str, str] = {
    **dict.fromkeys(PRESETS, "compressed_tensors"),
    **dict.fromkeys(("bnb4", "bnb4-doubled", "bnb8"), "bitsandbytes"),
    "torchao": "torchao",
}
# What transformers does not load here, so that config and tensors are compared alone: kernels that need a GPU, and
# packed zero points, which transformers 5.24 refuses in what compressed-tensors 0.20 itself wrote.
NOT_LOADED = frozenset({"gptq", "awq", "W4A16_ASYM"})
