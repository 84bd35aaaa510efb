"""How weights are packed: `quantization_config` in config.json, and the side files of older quantizers.

Source: transformers 5.24 utils/quantization_config.py and quantizers/auto.py; AutoGPTQ and GPTQModel for
quantize_config.json, AutoAWQ for quant_config.json, NVIDIA ModelOpt for hf_quant_config.json. The fields of each method
are in quantization_methods.py, what transformers refuses although its type is right in quantization_limits.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, ModelWrapValidatorHandler, model_validator

from repokit.schema.document import Document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


class QuantizationConfig(Document):
    """`quantization_config`, read by the method that it names. Of a method that is not known only the name is read."""

    quant_method: str | None = Field(None, description="gptq, awq, bitsandbytes, fp8, compressed-tensors, mxfp4, ...")

    @model_validator(mode="wrap")
    @classmethod
    def _by_method(cls, raw: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:  # noqa: ANN401 - anything parsed
        if isinstance(raw, dict) and (model := model_of(raw)) is not None:
            model.model_validate(raw)  # its errors become those of this model, each at its place
        return handler(raw)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The name of the method, and for each method one `if` with its own fields."""
        from repokit.schema.quantization_methods import METHODS

        schema = handler(core)
        handler.resolve_ref_schema(schema)["allOf"] = [
            {
                "if": {"properties": {"quant_method": {"const": name}}, "required": ["quant_method"]},
                "then": handler(_core_schema(model)),
            }
            for name, model in METHODS.items()
        ]
        return schema


def method_of(raw: Mapping[str, Any]) -> str | None:
    """The method of a quantization_config as transformers finds it; None where it names none.

    One of the two flags of bitsandbytes wins over the name (quantizers/auto.py AutoQuantizationConfig.from_dict).
    """
    if raw.get("load_in_4bit") or raw.get("load_in_8bit"):
        return "bitsandbytes"
    name = raw.get("quant_method")
    if not isinstance(name, str):
        return None
    return "bitsandbytes" if name in {"bitsandbytes_4bit", "bitsandbytes_8bit"} else name


def is_known(method: str) -> bool:
    """Whether transformers 5.24 or NVIDIA ModelOpt has a method of that name."""
    from repokit.schema.quantization_methods import METHODS

    return method in METHODS


def model_of(raw: Mapping[str, Any]) -> type[Document] | None:
    """The model of the method; None where it is not known."""
    from repokit.schema.quantization_methods import METHODS

    return METHODS.get(method_of(raw) or "")


def _core_schema(model: type[Document]) -> CoreSchema:
    model.model_rebuild()
    return model.__pydantic_core_schema__


class GptqSideFile(Document):
    """quantize_config.json of AutoGPTQ and GPTQModel. It should agree with config.json.

    Optimum's exporter to ONNX writes files of this name with other keys: {per_channel, per_model_config, ...}.
    """

    quant_method: str | None = Field(None, description="gptq; absent in files of AutoGPTQ.")
    bits: int | None = Field(None, description="Bits per weight.")
    group_size: int | None = Field(None, description="Weights that share a scale; -1 for a whole column.")
    desc_act: bool | None = Field(None, description="Whether columns were ordered by activation (needs g_idx).")
    static_groups: bool | None = Field(None, description="Whether groups were fixed before columns were ordered.")
    sym: bool | None = Field(None, description="Whether zero points are in the middle.")
    true_sequential: bool | None = Field(None, description="Whether the modules of a block were quantized in turn.")
    damp_percent: float | None = Field(None, description="Dampening of the Hessian, between 0 and 1.")
    checkpoint_format: str | None = Field(None, description="gptq, gptq_v2, marlin, ...; also spelled `format`.")
    format: str | None = Field(None, description="checkpoint_format as GPTQModel spells it.")
    model_name_or_path: str | None = Field(None, description="Where the base was; often a path.")
    model_file_base_name: str | None = Field(None, description="Name of the weight file without its ending.")
    meta: dict[str, Any] | None = Field(None, description="Which program quantized: {quantizer: [name:version]}.")
    dynamic: dict[str, Any] | None = Field(None, description="Pattern of a module path -> settings that differ there.")

    lm_head: bool | None = Field(None, description="Whether the output head is quantized.")
    pack_dtype: str | None = Field(None, description="dtype into which weights are packed: int32.")


class AwqSideFile(Document):
    """quant_config.json of AutoAWQ. It should agree with config.json."""

    zero_point: bool | None = Field(None, description="Whether there are zero points (asymmetric).")
    q_group_size: int | None = Field(None, description="group_size as AWQ spells it.")
    w_bit: int | None = Field(None, description="Bits per weight.")
    version: str | None = Field(None, description="GEMM or GEMV.")


class ModelOptQuantization(Document):
    """What ModelOpt did."""

    quant_algo: str | None = Field(None, description="FP8, NVFP4, W4A16_AWQ, ...")
    kv_cache_quant_algo: str | None = Field(None, description="FP8, NVFP4 or null.")
    group_size: int | None = Field(None, description="Weights that share a scale.")
    exclude_modules: list[str] | None = Field(
        None, description="Modules that keep their dtype: names or patterns with `*`."
    )


class ModelOptSideFile(Document):
    """hf_quant_config.json of NVIDIA ModelOpt. It should agree with config.json."""

    producer: dict[str, Any] | None = Field(None, description="{name, version}.")
    quantization: ModelOptQuantization | None = Field(None, description="What was done.")
