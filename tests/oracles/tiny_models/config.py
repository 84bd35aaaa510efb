"""Any model type of transformers, made tiny."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

    from transformers import PretrainedConfig

# The size fields of all architectures. A config class gets those that it knows under their own names.
TINY = {
    # width and depth
    "hidden_size": 32, "n_embd": 32, "d_model": 32, "dim": 32, "word_embed_proj_dim": 32, "embedding_size": 32,
    "intermediate_size": 64, "n_inner": 64, "d_ff": 64, "ffn_dim": 64, "ffn_hidden_size": 64, "hidden_dim": 64,
    "d_mlp": 64, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "num_decoder_layers": 2,
    "encoder_layers": 2, "decoder_layers": 2, "max_window_layers": 1,
    # attention
    "num_attention_heads": 4, "num_key_value_heads": 2, "n_head": 4, "n_heads": 4, "num_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "head_dim": 8, "d_kv": 8, "rotary_dim": 4, "query_pre_attn_scalar": 8, "sliding_window": 64,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "qk_head_dim": 16,
    "v_head_dim": 8,
    # positions
    "max_position_embeddings": 128, "n_positions": 128, "n_ctx": 128, "max_seq_len": 128,
    "max_source_positions": 64, "max_target_positions": 64,
    # experts
    "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "num_experts": 4, "num_local_experts": 4,
    "num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1,
    # state space
    "state_size": 8, "time_step_rank": 4,
    # images and sounds
    "image_size": 32, "patch_size": 8, "num_channels": 3, "projection_dim": 32, "num_mel_bins": 16,
}  # fmt: skip

# What the towers inside a multimodal config get.
TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
VISION_TOWER = TOWER | {"image_size": 32, "patch_size": 8}


def tiny_config(model_type: str, *, without: Collection[str] = (), **fields: Any) -> PretrainedConfig:
    """The config of a tiny model.

    Args:
        model_type: As in config.json.
        without: Size fields that this architecture knows but must not be given.
        fields: Set last; they win.
    """
    from transformers import CONFIG_MAPPING

    config_class = CONFIG_MAPPING[model_type]
    default = config_class()
    aliases = getattr(config_class, "attribute_map", None) or {}
    known = {
        name: value
        for name, value in TINY.items()
        if name not in without and name not in aliases and hasattr(default, name)
    }
    return config_class(**(known | fields))
