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
    num_beam_groups: int | None = Field(None, description="Groups of beams that are kept apart (group beam search).")
    diversity_penalty: float | None = Field(None, description="Penalty on tokens of another group of beams.")
    penalty_alpha: float | None = Field(None, description="Weight of the penalty on repetition (contrastive search).")
    dola_layers: str | list[int] | None = Field(
        None, description="low, high, or numbers of the layers that are contrasted with the last (DoLa)."
    )
    use_mtp: bool | None = Field(None, description="Whether extra layers of the model draft tokens.")

    # Cache
    use_cache: bool | None = Field(None, description="Whether keys and values of earlier tokens are kept.")
    cache_implementation: str | None = Field(None, description="static, dynamic, offloaded, quantized, ...")
    cache_config: dict[str, Any] | None = Field(None, description="Arguments of the cache's class.")
    max_cache_len: int | None = Field(None, description="Tokens.")

    # Logits
    temperature: float | None = Field(None, description="Divides the logits; used only with do_sample.")
    top_k: int | None = Field(None, description="Number of most likely tokens that are sampled from.")
    top_p: float | None = Field(None, description="Probability mass that is sampled from, 0 to 1.")
    min_p: float | None = Field(None, description="Least probability, relative to the most likely token.")
    top_h: float | None = Field(None, description="Fraction of the entropy that is sampled from (top-H).")
    typical_p: float | None = Field(None, description="Mass of locally typical tokens that is sampled from, 0 to 1.")
    epsilon_cutoff: float | None = Field(None, description="Least probability of a token, 0 to 1.")
    eta_cutoff: float | None = Field(None, description="Least probability of a token, adapted to the entropy, 0 to 1.")
    repetition_penalty: float | None = Field(None, description="1.0 is no penalty.")
    encoder_repetition_penalty: float | None = Field(
        None, description="Above 1.0 favours tokens of the encoder's input."
    )
    length_penalty: float | None = Field(None, description="Exponent on the length; used only with beams.")
    no_repeat_ngram_size: int | None = Field(
        None, description="Length of the token sequences that occur once only; 0 for no such limit."
    )
    encoder_no_repeat_ngram_size: int | None = Field(
        None, description="Length of the encoder's token sequences that do not occur; 0 for no such limit."
    )
    bad_words_ids: list[list[int]] | None = Field(None, description="Token sequences that are never generated.")
    force_words_ids: list[list[int] | list[list[int]]] | None = Field(
        None, description="Token sequences that must occur, or alternatives of them."
    )
    forced_bos_token_id: int | None = Field(
        None, description="The first generated token, as the target language of a translation."
    )
    forced_eos_token_id: TokenIds | None = Field(None, description="The last token where max_length is reached.")
    remove_invalid_values: bool | None = Field(None, description="Whether NaN and infinity are replaced in logits.")
    renormalize_logits: bool | None = Field(None, description="Whether logits are normalised after all changes.")
    exponential_decay_length_penalty: list[float] | None = Field(
        None, description="[the token at which the penalty starts, the factor by which it grows]."
    )
    suppress_tokens: list[int] | None = Field(None, description="Token ids that are never generated.")
    begin_suppress_tokens: list[int] | None = Field(None, description="Token ids that are not generated first.")
    forced_decoder_ids: list[list[int | None]] | None = Field(None, description="[[position, token id], ...].")
    sequence_bias: list[Any] | dict[str, Any] | None = Field(
        None, description="[[token ids, bias], ...]: what is added to the logits of sequences."
    )
    token_healing: bool | None = Field(None, description="Whether the last tokens of the prompt are generated anew.")
    guidance_scale: float | None = Field(
        None, description="Weight of the prompt over no prompt (classifier-free guidance); 1 for none."
    )
    watermarking_config: dict[str, Any] | None = Field(None, description="{greenlist_ratio, bias, hashing_key, ...}.")
    low_memory: bool | None = Field(None, description="Whether beams are computed one after the other.")

    # Output
    num_return_sequences: int | None = Field(None, description="Texts that are generated for a prompt.")
    output_attentions: bool | None = Field(None, description="Whether attention weights are returned.")
    output_hidden_states: bool | None = Field(None, description="Whether the outputs of all layers are returned.")
    output_scores: bool | None = Field(None, description="Whether logits after all changes are returned.")
    output_logits: bool | None = Field(None, description="Whether logits as the model computed them are returned.")
    return_dict_in_generate: bool | None = Field(
        None, description="Whether an object with names is returned instead of token ids."
    )

    # Token ids
    pad_token_id: int | None = Field(None, description="The token that fills a batch.")
    bos_token_id: int | None = Field(None, description="The token that begins a text.")
    eos_token_id: TokenIds | None = Field(None, description="One id, or each id that ends a generation.")
    decoder_start_token_id: TokenIds | None = Field(
        None, description="The first token of a decoder; one per text of a batch, or one."
    )

    # Assisted generation
    is_assistant: bool | None = Field(None, description="Whether the model drafts tokens for another.")
    num_assistant_tokens: int | None = Field(None, description="Tokens that are drafted at a time.")
    num_assistant_tokens_schedule: str | None = Field(None, description="constant, heuristic or heuristic_transient.")
    assistant_confidence_threshold: float | None = Field(
        None, description="Probability below which drafting stops, 0 to 1."
    )
    assistant_early_exit: int | None = Field(None, description="The layer whose output drafts tokens.")
    assistant_lookbehind: int | None = Field(
        None, description="Tokens of the assistant that are re-encoded where tokenizers differ."
    )
    assistant_ensemble_weight: float | None = Field(None, description="Between 0 and 1, both excluded.")
    target_lookbehind: int | None = Field(
        None, description="Tokens of the model that are re-encoded where tokenizers differ."
    )
    prompt_lookup_num_tokens: int | None = Field(None, description="Tokens of the prompt that are drafted at a time.")
    max_matching_ngram_size: int | None = Field(
        None, description="Longest token sequence that is looked for in the prompt."
    )
    speculation_type: str | None = Field(None, description="How tokens are drafted.")

    # Performance
    compile_config: dict[str, Any] | None = Field(None, description="Arguments of torch.compile.")
    disable_compile: bool | None = Field(None, description="Whether the forward pass is not compiled.")
    prefill_chunk_size: int | None = Field(None, description="Tokens.")

    transformers_version: str | None = Field(None, description="The version that wrote the file.")
    from_model_config: bool | None = Field(
        None, alias="_from_model_config", description="Whether the values were taken over from config.json."
    )
