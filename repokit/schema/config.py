"""config.json: what a model is. Field names and types: transformers 5.23, configuration_utils.py and models/*.

Only fields that mean the same in most architectures are typed here. What a field must be for one model_type alone is
in data/field_types.json. Sizes that hierarchical vision models give per stage are an integer or a list of integers.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from repokit.schema.document import Document
from repokit.schema.quantization import QuantizationConfig

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
# In the schema of config.json only an object: the 27 methods have a file of their own.
PackedWeights: TypeAlias = Annotated[
    QuantizationConfig, WithJsonSchema({"additionalProperties": True, "type": "object"})
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
    is_encoder_decoder: bool | None = Field(None, description="Whether the model has an encoder and a decoder.")
    is_decoder: bool | None = Field(
        None, description="Whether a model that is usually an encoder is used as a decoder."
    )
    add_cross_attention: bool | None = Field(None, description="Whether its layers also attend to an encoder's output.")
    tie_word_embeddings: bool | None = Field(
        None, description="Whether the output head is the input embedding; the default differs between architectures."
    )
    use_cache: bool | None = Field(None, description="Whether generation keeps keys and values of earlier tokens.")
    output_hidden_states: bool | None = Field(
        None, description="Whether a forward pass returns the output of every layer."
    )
    output_attentions: bool | None = Field(
        None, description="Whether a forward pass returns attention weights; not with every attention kernel."
    )
    return_dict: bool | None = Field(
        None, description="Whether a forward pass returns an object with names instead of a tuple."
    )
    quantization_config: PackedWeights | None = Field(
        None, description="How the weights are packed; its own schema is quantization_config.schema.json."
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
    encoder_layers: int | None = Field(None, description="Number of blocks of the encoder.")
    decoder_layers: int | None = Field(None, description="Number of blocks of the decoder.")
    encoder_attention_heads: int | None = Field(None, description="Query heads of the encoder.")
    decoder_attention_heads: int | None = Field(None, description="Query heads of the decoder.")
    encoder_ffn_dim: int | None = Field(None, description="Width inside the encoder's MLP.")
    decoder_ffn_dim: int | None = Field(None, description="Width inside the decoder's MLP.")
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
    attention_bias: bool | None = Field(None, description="Whether the projections of attention have biases.")
    mlp_bias: bool | None = Field(None, description="Whether the projections of the MLP have biases.")
    q_lora_rank: int | None = Field(None, description="Rank of the compressed queries (MLA).")
    kv_lora_rank: int | None = Field(None, description="Rank of the compressed keys and values (MLA).")
    qk_nope_head_dim: int | None = Field(None, description="Width of a head's part without rotary embedding (MLA).")
    qk_rope_head_dim: int | None = Field(None, description="Width of a head's part with rotary embedding (MLA).")
    v_head_dim: int | None = Field(None, description="Width of a value head (MLA).")

    # Experts
    num_experts: PerStage | None = Field(None, description="Experts of a layer.")
    num_local_experts: PerStage | None = Field(None, description="num_experts in the Mixtral family.")
    n_routed_experts: int | None = Field(None, description="num_experts in the DeepSeek family.")
    n_shared_experts: int | None = Field(None, description="Experts that every token passes through (DeepSeek family).")
    num_experts_per_tok: PerStage | None = Field(None, description="Experts that a token is routed to.")
    first_k_dense_replace: int | None = Field(None, description="Number of leading layers without experts.")
    num_nextn_predict_layers: int | None = Field(None, description="Extra layers that draft tokens (MTP).")
    router_aux_loss_coef: ConfigFloat | None = Field(
        None, description="Weight of the loss that balances experts; has no effect after training."
    )
    routed_scaling_factor: ConfigFloat | None = Field(None, description="Factor on the output of the routed experts.")
    norm_topk_prob: bool | None = Field(
        None, description="Whether the weights of the chosen experts are made to sum to one."
    )
    output_router_logits: bool | None = Field(
        None, description="Whether a forward pass returns the router's logits, and adds its loss."
    )

    # Functions, norms, dropout
    hidden_act: str | None = Field(None, description="Name of the activation function, a key of ACT2FN.")
    initializer_range: ConfigFloat | None = Field(None, description="Standard deviation of the initial weights.")
    layer_norm_eps: ConfigFloat | None = Field(None, description="Epsilon of the layer norms.")
    layer_norm_epsilon: ConfigFloat | None = Field(None, description="layer_norm_eps in the GPT-2 family.")
    rms_norm_eps: ConfigFloat | None = Field(None, description="Epsilon of the RMS norms.")
    attention_dropout: ConfigFloat | None = Field(
        None, description="Probability, 0 to 1; has no effect after training."
    )
    hidden_dropout_prob: ConfigFloat | None = Field(
        None, description="Probability, 0 to 1; has no effect after training."
    )
    attention_probs_dropout_prob: ConfigFloat | None = Field(
        None, description="Probability, 0 to 1; has no effect after training."
    )
    classifier_dropout: ConfigFloat | None = Field(
        None, description="Probability, 0 to 1, before a classification head; has no effect after training."
    )

    # Token ids, all into the vocabulary of the text model
    bos_token_id: TokenIds | None = Field(None, description="The token that begins a text.")
    eos_token_id: TokenIds | None = Field(None, description="One id, or each id that ends a generation.")
    pad_token_id: TokenIds | None = Field(None, description="The token that fills a batch.")
    sep_token_id: TokenIds | None = Field(None, description="The token between two texts.")
    cls_token_id: TokenIds | None = Field(None, description="The token whose output is classified.")
    decoder_start_token_id: TokenIds | None = Field(None, description="The first token of a decoder.")
    image_token_id: int | None = Field(None, description="The placeholder for image features.")
    image_token_index: int | None = Field(None, description="image_token_id as LLaVA spells it.")
    video_token_id: int | None = Field(None, description="The placeholder for features of a video.")
    audio_token_id: int | None = Field(None, description="The placeholder for features of a sound.")

    # Images and audio
    image_size: int | list[int] | dict[str, Any] | None = Field(None, description="Pixels: a side, or height, width.")
    patch_size: int | list[int] | dict[str, Any] | None = Field(None, description="Pixels: a side, or height, width.")
    num_channels: int | None = Field(None, description="Channels of an image.")
    spatial_merge_size: int | None = Field(None, description="Patches a side that become one token.")
    temporal_patch_size: int | list[int] | None = Field(None, description="Frames that become one patch.")
    num_mel_bins: int | None = Field(None, description="Height of a spectrogram, in mel bands.")
    sampling_rate: int | None = Field(None, description="Hz.")

    # Sub-configs, by the keys that transformers 5.24 declares most often in `sub_configs`
    text_config: Config | None = Field(None, description="The language model of a composite model.")
    vision_config: Config | None = Field(None, description="The vision encoder of a composite model.")
    audio_config: Config | None = Field(None, description="The audio encoder of a composite model.")
    backbone_config: Config | None = Field(
        None, description="The feature extractor of a detection or segmentation model."
    )
    encoder_config: Config | None = Field(None, description="The encoder of a composite model.")
    decoder_config: Config | None = Field(None, description="The decoder of a composite model.")
    qformer_config: Config | None = Field(
        None, description="The querying transformer between vision and text (BLIP family)."
    )
    speech_config: Config | None = Field(None, description="The speech encoder of a composite model.")
    llm_config: Config | None = Field(None, description="text_config in the InternVL family.")
    language_config: Config | None = Field(None, description="text_config in the DeepSeek-VL and Janus families.")
    thinker_config: Config | None = Field(None, description="The part that understands (Qwen-Omni family).")
    talker_config: Config | None = Field(None, description="The part that speaks (Qwen-Omni family).")
    encoder: Config | None = Field(None, description="The encoder of EncoderDecoderModel and its kin.")
    decoder: Config | None = Field(None, description="The decoder of EncoderDecoderModel and its kin.")
