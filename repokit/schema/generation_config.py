"""generation_config.json: how a model decodes by default. Source: transformers 5.23 generation/configuration_utils.py.

Every field is None unless set; unknown keys are kept by its reader. Values that it refuses at load although their type
is right (early_stopping: "maybe") are rules of the linter.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from repokit.schema.config import TokenIds
from repokit.schema.document import Document


class GenerationConfig(Document):
    """generation_config.json."""

    # Length
    max_length: int | None = Field(None, description="Tokens, prompt included.")
    max_new_tokens: int | None = Field(None, description="Tokens, prompt excluded; wins over max_length.")
    min_length: int | None = Field(None, description="Tokens, prompt included.")
    min_new_tokens: int | None = Field(None, description="Tokens, prompt excluded.")
    early_stopping: bool | str | None = Field(None, description='When beam search stops: a boolean or "never".')
    max_time: float | None = Field(None, description="Seconds.")
    stop_strings: str | list[str] | None = Field(None, description="Texts that end a generation.")

    # Strategy
    do_sample: bool | None = Field(None, description="Sampling (true) or greedy and beam search (false).")
    num_beams: int | None = Field(None, description="Beams; 1 is no beam search.")
    num_beam_groups: int | None = None
    diversity_penalty: float | None = None
    penalty_alpha: float | None = None
    dola_layers: str | list[int] | None = None
    use_mtp: bool | None = None

    # Cache
    use_cache: bool | None = None
    cache_implementation: str | None = Field(None, description="static, dynamic, offloaded, quantized, ...")
    cache_config: dict[str, Any] | None = None
    max_cache_len: int | None = Field(None, description="Tokens.")

    # Logits
    temperature: float | None = Field(None, description="Divides the logits; used only with do_sample.")
    top_k: int | None = Field(None, description="Number of most likely tokens that are sampled from.")
    top_p: float | None = Field(None, description="Probability mass that is sampled from, 0 to 1.")
    min_p: float | None = Field(None, description="Least probability, relative to the most likely token.")
    top_h: float | None = None
    typical_p: float | None = None
    epsilon_cutoff: float | None = None
    eta_cutoff: float | None = None
    repetition_penalty: float | None = Field(None, description="1.0 is no penalty.")
    encoder_repetition_penalty: float | None = None
    length_penalty: float | None = Field(None, description="Exponent on the length; used only with beams.")
    no_repeat_ngram_size: int | None = None
    encoder_no_repeat_ngram_size: int | None = None
    bad_words_ids: list[list[int]] | None = Field(None, description="Token sequences that are never generated.")
    force_words_ids: list[list[int] | list[list[int]]] | None = None
    forced_bos_token_id: int | None = None
    forced_eos_token_id: TokenIds | None = None
    remove_invalid_values: bool | None = None
    renormalize_logits: bool | None = None
    exponential_decay_length_penalty: list[float] | None = Field(
        None, description="[the token at which the penalty starts, the factor by which it grows]."
    )
    suppress_tokens: list[int] | None = None
    begin_suppress_tokens: list[int] | None = None
    forced_decoder_ids: list[list[int | None]] | None = Field(None, description="[[position, token id], ...].")
    sequence_bias: list[Any] | dict[str, Any] | None = None
    token_healing: bool | None = None
    guidance_scale: float | None = None
    watermarking_config: dict[str, Any] | None = None
    low_memory: bool | None = None

    # Output
    num_return_sequences: int | None = None
    output_attentions: bool | None = None
    output_hidden_states: bool | None = None
    output_scores: bool | None = None
    output_logits: bool | None = None
    return_dict_in_generate: bool | None = None

    # Token ids
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: TokenIds | None = Field(None, description="One id, or each id that ends a generation.")
    decoder_start_token_id: TokenIds | None = None

    # Assisted generation
    is_assistant: bool | None = None
    num_assistant_tokens: int | None = None
    num_assistant_tokens_schedule: str | None = None
    assistant_confidence_threshold: float | None = None
    assistant_early_exit: int | None = None
    assistant_lookbehind: int | None = None
    assistant_ensemble_weight: float | None = Field(None, description="Between 0 and 1, both excluded.")
    target_lookbehind: int | None = None
    prompt_lookup_num_tokens: int | None = None
    max_matching_ngram_size: int | None = None
    speculation_type: str | None = None

    # Performance
    compile_config: dict[str, Any] | None = None
    disable_compile: bool | None = None
    prefill_chunk_size: int | None = Field(None, description="Tokens.")

    transformers_version: str | None = Field(None, description="The version that wrote the file.")
    from_model_config: bool | None = Field(
        None, alias="_from_model_config", description="Whether the values were taken over from config.json."
    )
