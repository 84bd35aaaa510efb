"""adapter_config.json of PEFT. Source: peft 0.21.2 tuners/*/config.py; unknown keys are dropped there with a warning.

The common fields and those of LoRA; each of the other 44 methods has its own, which are kept and not judged here.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from repokit.schema.document import Document


class AdapterConfig(Document):
    """adapter_config.json."""

    peft_type: str | None = Field(None, description="The method: LORA, IA3, PREFIX_TUNING, ...")
    task_type: str | None = Field(None, description="CAUSAL_LM, SEQ_CLS, SEQ_2_SEQ_LM, TOKEN_CLS, ... or null.")
    base_model_name_or_path: str | None = Field(None, description="Id of the base on the Hub; often a local path.")
    revision: str | None = Field(None, description="Revision of the base.")
    inference_mode: bool | None = None
    auto_mapping: dict[str, Any] | None = Field(None, description="{base_model_class, parent_library}.")
    peft_version: str | None = Field(None, description="The version that wrote the file.")

    # LoRA
    r: int | None = Field(None, description="Rank.")
    lora_alpha: float | None = Field(None, description="Scale: the update is multiplied by lora_alpha / r.")
    lora_dropout: float | None = None
    target_modules: list[str] | str | None = Field(
        None, description='Names or suffixes of modules, a regular expression, or "all-linear".'
    )
    exclude_modules: list[str] | str | None = None
    target_parameters: list[str] | None = None
    modules_to_save: list[str] | None = Field(None, description="Modules that were trained in full.")
    layers_to_transform: list[int] | int | None = None
    layers_pattern: list[str] | str | None = None
    layer_replication: list[list[int]] | None = Field(None, description="[[first layer, one past the last], ...].")
    rank_pattern: dict[str, int] | None = Field(None, description="Regular expression of a module path -> rank.")
    alpha_pattern: dict[str, float] | None = Field(None, description="Regular expression of a module path -> alpha.")
    trainable_token_indices: list[int] | dict[str, list[int]] | None = Field(None, description="Token ids.")
    bias: str | None = Field(None, description="none, all or lora_only.")
    lora_bias: bool | None = None
    fan_in_fan_out: bool | None = Field(None, description="Whether the base stores weights as (in, out).")
    use_rslora: bool | None = None
    use_dora: bool | None = None
    init_lora_weights: bool | str | None = None

    # Prompt methods
    num_virtual_tokens: int | None = None
    token_dim: int | None = Field(None, description="Width of the base's embeddings.")
    num_layers: int | None = None
    num_attention_heads: int | None = None
