"""`quantization_config` by method: one model for each `quant_method` that transformers loads, and for ModelOpt's.

Source: transformers 5.24 utils/quantization_config.py, whose classes take the keys of the object as arguments. Keys
that a class does not have are ignored by most of them, so they are kept here. compressed-tensors, whose own library
reads its object, is in compressed_tensors.py. Only types are judged: values are in quantization_limits.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import ConfigDict, Field

from repokit.schema.compressed_tensors import CompressedTensors
from repokit.schema.document import Document

if TYPE_CHECKING:
    from collections.abc import Mapping

Modules: TypeAlias = list[str]

_KEPT = "Modules that keep their dtype: names, parts of names, or patterns."
_BITS = "Bits per weight."
_GROUP = "Weights that share a scale; -1 for a whole column."


class QuantizationMethod(Document):
    """What the methods share."""

    model_config = ConfigDict(defer_build=True)  # of the 25 models a repository needs one

    quant_method: str | None = Field(None, description="The method; bitsandbytes may leave it out.")
    modules_to_not_convert: Modules | None = Field(None, description=_KEPT)


class Gptq(QuantizationMethod):
    """GPTQConfig. AutoGPTQ and GPTQModel add keys of their own."""

    bits: int | None = Field(None, description=_BITS)
    group_size: int | None = Field(None, description=_GROUP)
    desc_act: bool | None = Field(None, description="Whether columns were ordered by activation (needs g_idx).")
    act_group_aware: bool | None = Field(None, description="Whether the order of activations stays within groups.")
    static_groups: bool | None = Field(None, description="Whether groups were fixed before columns were ordered.")
    sym: bool | None = Field(None, description="Whether zero points are in the middle.")
    true_sequential: bool | None = Field(None, description="Whether the modules of a block were quantized in turn.")
    damp_percent: float | None = Field(None, description="Dampening of the Hessian, between 0 and 1.")
    format: str | None = Field(None, description="gptq (zero points minus 1) or gptq_v2; also marlin, ...")
    checkpoint_format: str | None = Field(None, description="`format` as AutoGPTQ spells it; wins where both are set.")
    meta: dict[str, Any] | None = Field(None, description="Which program quantized: {quantizer: [name:version]}.")
    backend: str | None = Field(None, description="Kernel that the writer used.")
    lm_head: bool | None = Field(None, description="Whether the output head is quantized.")
    pack_dtype: str | None = Field(None, description="dtype into which weights are packed: int32.")
    dynamic: dict[str, Any] | None = Field(
        None, description="Pattern of a module path -> settings that differ there (GPTQModel); `-:` excludes."
    )
    tokenizer: Any = Field(None, description="Id of the tokenizer that was used to calibrate.")
    dataset: str | list[Any] | None = Field(None, description="What was used to calibrate: a name, or the texts.")
    model_seqlen: int | None = Field(None, description="Longest sequence of the calibration, in tokens.")
    block_name_to_quantize: str | None = Field(None, description="Path of the list of layers.")
    module_name_preceding_first_block: Modules | None = Field(None, description="Modules before the first layer.")
    modules_in_block_to_quantize: list[Modules] | None = Field(
        None, description="Modules of a layer that are quantized, in steps; null for all linear ones."
    )
    batch_size: int | None = Field(None, description="Batch size of the calibration.")
    pad_token_id: int | None = Field(None, description="Token that filled the batches of the calibration.")
    max_input_length: int | None = Field(None, description="Longest input of the exllama kernel, in tokens.")
    cache_block_outputs: bool | None = Field(None, description="Whether the calibration kept outputs of layers.")


class Awq(QuantizationMethod):
    """AwqConfig."""

    bits: int | None = Field(None, description=_BITS)
    group_size: int | None = Field(None, description=_GROUP)
    zero_point: bool | None = Field(None, description="Whether there are zero points (asymmetric).")
    version: str | None = Field(None, description="How weights are packed: gemm, gemv, gemv_fast or llm-awq.")
    format: str | None = Field(None, description="`version` as transformers 5 spells it; `version` wins.")
    backend: str | None = Field(None, description="Kernel that the writer used.")


class AutoRound(QuantizationMethod):
    """AutoRoundConfig."""

    bits: int | None = Field(None, description=_BITS)
    group_size: int | None = Field(None, description=_GROUP)
    sym: bool | None = Field(None, description="Whether zero points are in the middle.")
    data_type: str | None = Field(None, description="int, fp, mx_fp, nv_fp, ...")
    backend: str | None = Field(None, description="Kernel that the writer used.")
    packing_format: str | None = Field(None, description="auto_round:auto_gptq, auto_round:auto_awq, ...")
    autoround_version: str | None = Field(None, description="The version that wrote the object.")
    extra_config: dict[str, Any] | None = Field(None, description="Module -> settings that differ there.")


class BitsAndBytes(QuantizationMethod):
    """BitsAndBytesConfig; it reads one of the two flags as the method where there is no quant_method."""

    load_in_4bit: bool | None = Field(None, description="Weights are NF4 or FP4.")
    load_in_8bit: bool | None = Field(None, description="Weights are LLM.int8().")
    llm_int8_threshold: float | None = Field(
        None, description="Activations above it are computed in 16 bits; transformers takes no integer here."
    )
    llm_int8_skip_modules: Modules | None = Field(None, description=_KEPT)
    llm_int8_enable_fp32_cpu_offload: bool | None = Field(None, description="Whether modules on the CPU stay F32.")
    llm_int8_has_fp16_weight: bool | None = Field(None, description="Whether 16-bit weights are kept for training.")
    bnb_4bit_quant_type: str | None = Field(None, description="nf4 or fp4.")
    bnb_4bit_use_double_quant: bool | None = Field(None, description="Whether absmax is quantized too.")
    bnb_4bit_compute_dtype: str | None = Field(None, description="dtype of the computation, a name in torch.")
    bnb_4bit_quant_storage: str | None = Field(None, description="dtype into which weights are packed: uint8.")


class FineGrainedFp8(QuantizationMethod):
    """FineGrainedFP8Config: `fp8` as DeepSeek writes it, and `mxfp8`."""

    activation_scheme: str | None = Field(None, description="dynamic or static.")
    weight_block_size: list[int] | None = Field(None, description="[rows, columns] that share a scale; null: all.")
    fmt: str | None = Field(None, description="Format of the weights: e4m3.")
    scale_fmt: str | None = Field(None, description="Format of the scales: float or ue8m0.")
    expert_dtype: str | None = Field(None, description="Format of the experts: fp8 or fp4.")
    ignored_layers: Modules | None = Field(None, description="modules_to_not_convert as MiniMax spells it.")
    modules_to_convert: Modules | None = Field(None, description="Modules that are converted too, as embeddings.")
    dequantize: bool | None = Field(None, description="Whether a load turns the weights back.")


class FbgemmFp8(QuantizationMethod):
    """FbgemmFp8Config."""

    activation_scale_ub: float | None = Field(None, description="Upper bound of the activations' scale.")


class Mxfp4(QuantizationMethod):
    """Mxfp4Config: gpt-oss."""

    dequantize: bool | None = Field(None, description="Whether a load turns the weights into BF16.")


class Hqq(QuantizationMethod):
    """HqqConfig; transformers needs both of its keys."""

    quant_config: dict[str, Any] | None = Field(None, description="{weight_quant_params: {nbits, group_size, ...}}.")
    skip_modules: Modules | None = Field(None, description=_KEPT)


class Aqlm(QuantizationMethod):
    """AqlmConfig."""

    in_group_size: int | None = Field(None, description="Inputs that share a code.")
    out_group_size: int | None = Field(None, description="Outputs that share a code.")
    num_codebooks: int | None = Field(None, description="Codebooks whose vectors are added.")
    nbits_per_codebook: int | None = Field(None, description="Bits of a code.")
    linear_weights_not_to_quantize: Modules | None = Field(None, description="Paths of weights that keep their dtype.")


class VptqLayer(Document):
    """VptqLayerConfig."""

    model_config = ConfigDict(defer_build=True)

    in_features: int | None = Field(None, description="Columns of the weight.")
    out_features: int | None = Field(None, description="Rows of the weight.")
    group_num: int | None = Field(None, description="Groups of columns.")
    group_size: int | None = Field(None, description="Columns of a group; -1 for all.")
    outlier_size: int | None = Field(None, description="Columns that are outliers.")
    vector_lens: list[int] | None = Field(None, description="[of outliers, of the others]: length of a vector.")
    num_centroids: list[int] | None = Field(None, description="[of outliers, of the others].")
    num_res_centroids: list[int] | None = Field(None, description="[of outliers, of the others], for residuals.")
    enable_norm: bool | None = Field(None, description="Whether there are a scale and a bias per column.")
    enable_perm: bool | None = Field(None, description="Whether columns are permuted.")
    is_indice_packed: bool | None = Field(None, description="Whether indices are packed; must be true.")
    indices_as_float: bool | None = Field(None, description="Whether indices are stored as floats.")


class Vptq(QuantizationMethod):
    """VptqConfig."""

    config_for_layers: dict[str, VptqLayer] | None = Field(None, description="Module -> its settings.")
    shared_layer_config: dict[str, Any] | None = Field(None, description="Settings that layers share.")
    enable_proxy_error: bool | None = Field(None, description="Must be false.")


class Spqr(QuantizationMethod):
    """SpQRConfig."""

    bits: int | None = Field(None, description="3.")
    beta1: int | None = Field(None, description="Width of a tile: 16.")
    beta2: int | None = Field(None, description="Height of a tile: 16.")
    shapes: dict[str, Any] | None = Field(None, description="Tensor -> its size.")


class Quanto(QuantizationMethod):
    """QuantoConfig."""

    weights: str | None = Field(None, description="float8, int8, int4 or int2.")
    activations: str | None = Field(None, description="int8, float8 or null.")


class Eetq(QuantizationMethod):
    """EetqConfig."""

    weights: str | None = Field(None, description="int8.")


class Higgs(QuantizationMethod):
    """HiggsConfig."""

    bits: int | None = Field(None, description="2, 3 or 4.")
    p: int | None = Field(None, description="Dimension of the grid: 1 or 2.")
    hadamard_size: int | None = Field(None, description="Inputs that are rotated together; a multiple of group_size.")
    group_size: int | None = Field(None, description="64, 128 or 256.")
    tune_metadata: dict[str, Any] | None = Field(None, description="Module -> shapes and GPU of the tuned kernel.")


class FpQuant(QuantizationMethod):
    """FPQuantConfig."""

    forward_dtype: str | None = Field(None, description="mxfp4 or nvfp4.")
    forward_method: str | None = Field(None, description="abs_max; for mxfp4 also quest.")
    backward_dtype: str | None = Field(None, description="bf16; for mxfp4 also mxfp8 and mxfp4.")
    hadamard_group_size: int | None = Field(None, description="Inputs that are rotated together.")
    transform_init: str | None = Field(None, description="hadamard, identity or gsr.")
    store_master_weights: bool | None = Field(None, description="Whether full weights are kept for training.")
    pseudoquantization: bool | None = Field(None, description="Whether the computation is simulated.")


class TorchAo(QuantizationMethod):
    """TorchAoConfig. transformers 4 wrote quant_type as a string, which 5 refuses."""

    quant_type: dict[str, Any] | str | None = Field(None, description="{default: {_type, _data}}, torchao's config.")
    quant_type_kwargs: dict[str, Any] | None = Field(None, description="Arguments of a quant_type that is a string.")
    include_input_output_embeddings: bool | None = Field(None, description="Whether embeddings are quantized.")
    untie_embedding_weights: bool | None = Field(None, description="Whether tied weights were separated.")


class BitNet(QuantizationMethod):
    """BitNetQuantConfig."""

    linear_class: str | None = Field(None, description="bitlinear or autobitlinear.")
    quantization_mode: str | None = Field(None, description="offline or online.")
    use_rms_norm: bool | None = Field(None, description="Whether activations are normed before.")
    rms_norm_eps: float | None = Field(None, description="Epsilon of that norm.")


class Metal(QuantizationMethod):
    """MetalConfig: the layout of MLX."""

    bits: int | None = Field(None, description=_BITS)
    group_size: int | None = Field(None, description=_GROUP)
    dequantize: bool | None = Field(None, description="Whether a load turns the weights back.")


class FourOverSix(QuantizationMethod):
    """FourOverSixConfig."""

    dtype: str | None = Field(None, description="nvfp4 or mxfp4.")
    scale_rule: str | None = Field(None, description="mse, mae, abs_max, static_6 or static_4.")
    weight_scale_2d: bool | None = Field(None, description="Whether weights have scales per block.")
    keep_master_weights: bool | None = Field(None, description="Whether full weights are kept for training.")
    module_config_overrides: dict[str, dict[str, Any]] | None = Field(None, description="Module -> settings there.")


class Sinq(QuantizationMethod):
    """SinqConfig. It converts numbers with int()."""

    nbits: Any = Field(None, description=_BITS)
    group_size: Any = Field(None, description="Weights that share a scale, a multiple of 8.")
    tiling_mode: str | None = Field(None, description="1D or 2D.")
    method: str | None = Field(None, description="sinq or asinq.")


class Gemma(QuantizationMethod):
    """GemmaQuantizationConfig."""

    num_bits: int | None = Field(None, description=_BITS)
    quantize_embeddings: bool | None = Field(None, description="Whether embeddings are quantized.")
    module_quant_configs: dict[str, dict[str, Any]] | None = Field(None, description="Pattern -> {num_bits}.")


class Gguf(QuantizationMethod):
    """GgufConfig: a load from a GGUF file."""

    gguf_file: str | None = Field(None, description="The file.")
    dequantize: bool | None = Field(None, description="Whether a load turns the weights back.")


class ModelOpt(QuantizationMethod):
    """What NVIDIA ModelOpt writes into config.json: vLLM reads it, transformers leaves it alone."""

    quant_algo: str | None = Field(None, description="FP8, NVFP4, W4A16_AWQ, ...")
    kv_cache_scheme: dict[str, Any] | None = Field(None, description="{num_bits, type, dynamic}.")
    config_groups: dict[str, Any] | None = Field(None, description="Group -> {targets, weights, input_activations}.")
    ignore: Modules | None = Field(None, description=_KEPT)
    producer: dict[str, Any] | None = Field(None, description="{name, version}.")


# quant_method -> its model. A method that is not here is none of transformers 5.24: a newer one, or another program's.
METHODS: Mapping[str, type[Document]] = {
    "aqlm": Aqlm,
    "auto-round": AutoRound,
    "awq": Awq,
    "bitnet": BitNet,
    "bitsandbytes": BitsAndBytes,
    "compressed-tensors": CompressedTensors,
    "eetq": Eetq,
    "fbgemm_fp8": FbgemmFp8,
    "fouroversix": FourOverSix,
    "fp8": FineGrainedFp8,
    "fp_quant": FpQuant,
    "gemma": Gemma,
    "gguf": Gguf,
    "gptq": Gptq,
    "higgs": Higgs,
    "hqq": Hqq,
    "metal": Metal,
    "modelopt": ModelOpt,
    "mxfp4": Mxfp4,
    "mxfp8": FineGrainedFp8,
    "nvfp4": QuantizationMethod,
    "quanto": Quanto,
    "quark": QuantizationMethod,  # its object belongs to AMD's library, which changes it from version to version
    "sinq": Sinq,
    "spqr": Spqr,
    "torchao": TorchAo,
    "vptq": Vptq,
}
