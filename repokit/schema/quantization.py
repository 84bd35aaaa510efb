"""How weights are packed: `quantization_config` in config.json, and the side files of older quantizers.

Source: transformers 5.23 utils/quantization_config.py; AutoGPTQ and GPTQModel for quantize_config.json, AutoAWQ for
quant_config.json, NVIDIA ModelOpt for hf_quant_config.json. Which values a method allows are rules of the linter.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from repokit.schema.document import Document


class QuantizationConfig(Document):
    """The fields that the common methods share; the others are kept and not judged here."""

    quant_method: str | None = Field(None, description="gptq, awq, bitsandbytes, fp8, compressed-tensors, mxfp4, ...")
    bits: int | None = Field(None, description="Bits per weight.")
    group_size: int | None = Field(None, description="Weights that share a scale; -1 for a whole column.")
    modules_to_not_convert: list[str] | None = None

    # gptq
    desc_act: bool | None = Field(None, description="Whether columns were ordered by activation (needs g_idx).")
    sym: bool | None = Field(None, description="Whether zero points are in the middle.")
    true_sequential: bool | None = None
    damp_percent: float | None = None
    checkpoint_format: str | None = Field(None, description="gptq, gptq_v2, marlin, ...; also spelled `format`.")

    # awq
    zero_point: bool | None = None
    version: str | None = Field(None, description="gemm, gemv, gemv_fast or llm-awq; also spelled `format`.")

    # bitsandbytes
    load_in_4bit: bool | None = None
    load_in_8bit: bool | None = None
    llm_int8_threshold: float | None = None
    llm_int8_skip_modules: list[str] | None = None
    bnb_4bit_quant_type: str | None = Field(None, description="nf4 or fp4.")
    bnb_4bit_use_double_quant: bool | None = None
    bnb_4bit_compute_dtype: str | None = None
    bnb_4bit_quant_storage: str | None = None

    # fp8
    activation_scheme: str | None = Field(None, description="dynamic or static.")
    weight_block_size: list[int] | None = Field(None, description="[rows, columns] that share a scale.")

    # compressed-tensors 0.20.1
    config_groups: dict[str, Any] | None = Field(None, description="Group -> {targets, weights, input_activations}.")
    ignore: list[str] | None = Field(None, description="Modules that are not quantized: names, or `re:` patterns.")
    quantization_status: str | None = None
    kv_cache_scheme: dict[str, Any] | None = None


class GptqSideFile(QuantizationConfig):
    """quantize_config.json of AutoGPTQ and GPTQModel. It should agree with config.json."""

    lm_head: bool | None = Field(None, description="Whether the output head is quantized.")
    pack_dtype: str | None = None


class AwqSideFile(Document):
    """quant_config.json of AutoAWQ. It should agree with config.json."""

    zero_point: bool | None = None
    q_group_size: int | None = Field(None, description="group_size as AWQ spells it.")
    w_bit: int | None = Field(None, description="Bits per weight.")
    version: str | None = Field(None, description="GEMM or GEMV.")


class ModelOptQuantization(Document):
    """What ModelOpt did."""

    quant_algo: str | None = Field(None, description="FP8, NVFP4, W4A16_AWQ, ...")
    kv_cache_quant_algo: str | None = None
    group_size: int | None = None
    exclude_modules: list[str] | None = None


class ModelOptSideFile(Document):
    """hf_quant_config.json of NVIDIA ModelOpt. It should agree with config.json."""

    producer: dict[str, Any] | None = Field(None, description="{name, version}.")
    quantization: ModelOptQuantization | None = None
