"""What the libraries themselves write and replace, against what is worked out from config.json."""

from __future__ import annotations

import json

import pytest

from repokit.architectures.quantized import stored
from repokit.architectures.skeleton import skeleton

pytestmark = pytest.mark.oracle

SIZES = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 96,
    "attention_bias": True,
}
PRESETS = (
    "W8A8",
    "W4A16",
    "W4A16_ASYM",
    "W3A16",
    "W8A16",
    "W4A8",
    "FP8",
    "FP8_DYNAMIC",
    "FP8_BLOCK",
    "NVFP4A16",
    "NVFP4",
    "MXFP4A16",
    "MXFP4",
    "MXFP8",
)
NAMES = {
    "float32": "F32",
    "bfloat16": "BF16",
    "int8": "I8",
    "uint8": "U8",
    "int32": "I32",
    "int64": "I64",
    "float8_e4m3fn": "F8_E4M3",
}


@pytest.fixture
def llama():
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).to(torch.bfloat16)


@pytest.mark.parametrize("preset", PRESETS)
def test_compressed_tensors_writes_what_is_expected(llama, preset, tmp_path):
    quantization = pytest.importorskip("compressed_tensors.quantization")
    compressors = pytest.importorskip("compressed_tensors.compressors")
    scheme = quantization.preset_name_to_scheme(preset, ["Linear"])
    declared = quantization.QuantizationConfig(
        config_groups={"group_0": scheme},
        ignore=["lm_head", "re:.*1.mlp.up_proj$"],
        quantization_status=quantization.QuantizationStatus.FROZEN,
    )
    quantization.apply_quantization_config(llama, declared, show_progress=False)
    for name, parameter in llama.named_parameters():
        if name.endswith("_scale"):
            parameter.data.fill_(0.01)
    compressor = compressors.ModelCompressor.from_pretrained_model(llama)
    compressor.compress_model(llama)
    llama.config.architectures = ["LlamaForCausalLM"]
    llama.config.save_pretrained(tmp_path)
    compressor.update_config(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    held = {name: tuple(tensor.shape) for name, tensor in llama.state_dict().items()}
    found = stored(skeleton(config), config, held)
    dtypes = {name: NAMES[str(tensor.dtype).removeprefix("torch.")] for name, tensor in llama.state_dict().items()}
    assert found.shapes == held
    assert {name for name, taken in found.dtypes.items() if dtypes[name] not in taken} == set()


@pytest.mark.parametrize(
    "listed",
    [None, [], ["lm_head"], ["model.layers.1"], ["layers.1", "k_proj"], ["model.layers.*.mlp", "o_proj"]],
    ids=str,
)
def test_transformers_replaces_the_modules_that_are_expected(llama, listed):
    fp8 = pytest.importorskip("transformers.integrations.finegrained_fp8")
    base = pytest.importorskip("transformers.quantizers.base")
    transformers = pytest.importorskip("transformers")
    declared = {"quant_method": "fp8", "weight_block_size": [64, 64], "modules_to_not_convert": listed}
    skipped = base.HfQuantizer.get_modules_to_not_convert(llama, listed, llama._keep_in_fp32_modules)
    settings = transformers.FineGrainedFP8Config(weight_block_size=(64, 64))
    fp8.replace_with_fp8_linear(llama, skipped, settings, pre_quantized=True)
    held = {name: tuple(tensor.shape) for name, tensor in llama.state_dict().items()}
    config = {**SIZES, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "quantization_config": declared}
    assert stored(skeleton(config), config, held).shapes == held
