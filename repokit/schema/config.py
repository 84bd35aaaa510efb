"""config.json: what a model is. Field names and types: transformers 5.23, configuration_utils.py and models/*.

Only fields that mean the same in most architectures are typed here. What a field must be for one model_type alone is
in data/field_types.json. Sizes that hierarchical vision models give per stage are an integer or a list of integers.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from repokit.schema.document import Document

# configuration_utils.py `_encode_special_floats`: JSON has no infinity and no NaN.
_SPECIAL_FLOATS = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}


def _special_float(value: object) -> object:
    if isinstance(value, dict) and value.keys() == {"__float__"}:
        spelled = value["__float__"]
        return _SPECIAL_FLOATS.get(spelled, value) if isinstance(spelled, str) else value
    return value


ConfigFloat: TypeAlias = Annotated[
    float,
    BeforeValidator(_special_float),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number"},
                {
                    "type": "object",
                    "properties": {"__float__": {"enum": list(_SPECIAL_FLOATS)}},
                    "required": ["__float__"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
PerStage: TypeAlias = int | list[int]
TokenIds: TypeAlias = int | list[int]


class Config(Document):
    """config.json, and each sub-config inside it (text_config, vision_config, ...)."""

    # Identity: configuration_utils.py PreTrainedConfig
    model_type: str | None = Field(None, description="Key of the architecture family; AutoConfig dispatches on it.")
    architectures: list[str] | None = Field(None, description="Model classes that the weights were saved from.")
    auto_map: dict[str, str | list[str | None]] | None = Field(
        None,
        description="Auto class -> `module.Class` in this repository, or `org/name--module.Class` in another one; for "
        "AutoTokenizer a list of the slow and the fast class.",
    )
    transformers_version: str | None = Field(None, description="The version that wrote the file.")
    name_or_path: str | None = Field(
        None, alias="_name_or_path", description="Where the writer had loaded it from; often a path of its machine."
    )
    dtype: str | dict[str, str] | None = Field(
        None, description="dtype of the weights, a name in torch: bfloat16; per sub-config in composite models."
    )
    torch_dtype: str | dict[str, str] | None = Field(
        None, description="`dtype` as transformers 4 spells it; read by transformers 5 only where `dtype` is absent."
    )
    is_encoder_decoder: bool | None = None
    is_decoder: bool | None = None
    add_cross_attention: bool | None = None
    tie_word_embeddings: bool | None = Field(
        None, description="Whether the output head is the input embedding; the default differs between architectures."
    )
    use_cache: bool | None = Field(None, description="Whether generation keeps keys and values of earlier tokens.")
    output_hidden_states: bool | None = None
    output_attentions: bool | None = None
    return_dict: bool | None = None
    quantization_config: dict[str, Any] | None = Field(
        None, description="How the weights are packed; its own model is schema/quantization.py."
    )
    tokenizer_class: str | None = Field(None, description="Used where tokenizer_config.json names no class.")
    transformers_weights: str | None = Field(
        None, description="Weight file or index to load instead of searching (transformers 5)."
    )

    # Labels: configuration_utils.py; id2label keys are cast with int()
    id2label: dict[str, Any] | None = Field(None, description="Class index, as a decimal string in JSON, -> label.")
    label2id: dict[str, Any] | None = Field(None, description="Label -> class index.")
    num_labels: int | None = Field(None, description="Number of classes; derived from id2label by transformers 5.")
    problem_type: str | None = Field(
        None, description="regression, single_label_classification or multi_label_classification."
    )

    # Text sizes
    vocab_size: int | None = Field(None, description="Rows of the input embedding; tokens, padding rows included.")
    type_vocab_size: int | None = Field(None, description="Number of token types (segments).")
    hidden_size: int | None = Field(None, description="Width of the residual stream.")
    d_model: int | None = Field(None, description="hidden_size in the T5, BART and Whisper families.")
    n_embd: int | None = Field(None, description="hidden_size in the GPT-2 family.")
    embedding_size: int | None = Field(None, description="Width of the embeddings where it differs from hidden_size.")
    intermediate_size: PerStage | None = Field(None, description="Width inside the MLP; per layer in Gemma 3n.")
    moe_intermediate_size: PerStage | None = Field(None, description="Width inside one expert.")
    num_hidden_layers: int | None = Field(None, description="Number of transformer blocks.")
    n_layer: int | None = Field(None, description="num_hidden_layers in the GPT-2 family.")
    encoder_layers: int | None = None
    decoder_layers: int | None = None
    encoder_attention_heads: int | None = None
    decoder_attention_heads: int | None = None
    encoder_ffn_dim: int | None = None
    decoder_ffn_dim: int | None = None
    num_attention_heads: PerStage | None = Field(None, description="Number of query heads.")
    n_head: int | None = Field(None, description="num_attention_heads in the GPT-2 family.")
    num_key_value_heads: PerStage | None = Field(None, description="Number of key and value heads (GQA, MQA).")
    head_dim: int | None = Field(None, description="Width of a head; default hidden_size // num_attention_heads.")
    max_position_embeddings: int | None = Field(None, description="Longest sequence, in tokens.")
    n_positions: int | None = Field(None, description="max_position_embeddings in the GPT-2 family.")
    max_source_positions: int | None = Field(None, description="Longest encoder input: tokens, or frames of audio.")
    max_target_positions: int | None = Field(None, description="Longest decoder sequence, in tokens.")
    sliding_window: int | None = Field(None, description="Tokens that a sliding attention layer looks back.")
    layer_types: list[str] | None = Field(
        None, description="Kind of attention of each layer: full_attention, sliding_attention, linear_attention, ..."
    )
    mlp_layer_types: list[str] | None = Field(None, description="Kind of MLP of each layer: sparse or dense.")

    # Attention and rope: modeling_rope_utils.py
    rope_parameters: dict[str, Any] | None = Field(
        None, description="{rope_type, rope_theta, ...}, or one such object per layer type (transformers 5)."
    )
    rope_scaling: dict[str, Any] | None = Field(
        None, description="As transformers 4 spells rope_parameters, with rope_theta beside it."
    )
    rope_theta: ConfigFloat | None = Field(None, description="Base period of the rotary embedding.")
    partial_rotary_factor: ConfigFloat | None = Field(None, description="Fraction of a head that is rotated, 0 to 1.")
    attention_bias: bool | None = None
    mlp_bias: bool | None = None
    q_lora_rank: int | None = Field(None, description="Rank of the compressed queries (MLA).")
    kv_lora_rank: int | None = Field(None, description="Rank of the compressed keys and values (MLA).")
    qk_nope_head_dim: int | None = Field(None, description="Width of a head's part without rotary embedding (MLA).")
    qk_rope_head_dim: int | None = Field(None, description="Width of a head's part with rotary embedding (MLA).")
    v_head_dim: int | None = Field(None, description="Width of a value head (MLA).")

    # Experts
    num_experts: PerStage | None = None
    num_local_experts: PerStage | None = Field(None, description="num_experts in the Mixtral family.")
    n_routed_experts: int | None = Field(None, description="num_experts in the DeepSeek family.")
    n_shared_experts: int | None = None
    num_experts_per_tok: PerStage | None = None
    first_k_dense_replace: int | None = Field(None, description="Number of leading layers without experts.")
    num_nextn_predict_layers: int | None = Field(None, description="Extra layers that draft tokens (MTP).")
    router_aux_loss_coef: ConfigFloat | None = None
    routed_scaling_factor: ConfigFloat | None = None
    norm_topk_prob: bool | None = None
    output_router_logits: bool | None = None

    # Functions, norms, dropout
    hidden_act: str | None = Field(None, description="Name of the activation function, a key of ACT2FN.")
    initializer_range: ConfigFloat | None = Field(None, description="Standard deviation of the initial weights.")
    layer_norm_eps: ConfigFloat | None = None
    layer_norm_epsilon: ConfigFloat | None = None
    rms_norm_eps: ConfigFloat | None = None
    attention_dropout: ConfigFloat | None = None
    hidden_dropout_prob: ConfigFloat | None = None
    attention_probs_dropout_prob: ConfigFloat | None = None
    classifier_dropout: ConfigFloat | None = None

    # Token ids, all into the vocabulary of the text model
    bos_token_id: TokenIds | None = None
    eos_token_id: TokenIds | None = Field(None, description="One id, or each id that ends a generation.")
    pad_token_id: TokenIds | None = None
    sep_token_id: TokenIds | None = None
    cls_token_id: TokenIds | None = None
    decoder_start_token_id: TokenIds | None = None
    image_token_id: int | None = Field(None, description="The placeholder for image features.")
    image_token_index: int | None = Field(None, description="image_token_id as LLaVA spells it.")
    video_token_id: int | None = None
    audio_token_id: int | None = None

    # Images and audio
    image_size: int | list[int] | dict[str, Any] | None = Field(None, description="Pixels: a side, or height, width.")
    patch_size: int | list[int] | dict[str, Any] | None = Field(None, description="Pixels: a side, or height, width.")
    num_channels: int | None = Field(None, description="Channels of an image.")
    spatial_merge_size: int | None = Field(None, description="Patches a side that become one token.")
    temporal_patch_size: int | list[int] | None = Field(None, description="Frames that become one patch.")
    num_mel_bins: int | None = Field(None, description="Height of a spectrogram, in mel bands.")
    sampling_rate: int | None = Field(None, description="Hz.")

    # Sub-configs, by the keys that transformers 5.24 declares most often in `sub_configs`
    text_config: Config | None = None
    vision_config: Config | None = None
    audio_config: Config | None = None
    backbone_config: Config | None = None
    encoder_config: Config | None = None
    decoder_config: Config | None = None
    qformer_config: Config | None = None
    speech_config: Config | None = None
    llm_config: Config | None = None
    language_config: Config | None = None
    thinker_config: Config | None = None
    talker_config: Config | None = None
    encoder: Config | None = None
    decoder: Config | None = None
