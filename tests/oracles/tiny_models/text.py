"""Decoders, encoders and encoder-decoders: one repository for each architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiny_models.case import Case, Kind, table
from tiny_models.config import tiny_config
from tiny_models.tokenizer import byte_level, roberta, sentencepiece_bpe, unigram, wordpiece

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    MakeTokenizer = Callable[[], PreTrainedTokenizerFast]

SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def text_case(
    name: str,
    kind: Kind,
    architecture: str,
    make_tokenizer: MakeTokenizer,
    *,
    model_type: str | None = None,
    without: Collection[str] = (),
    dtype: str | None = None,
    save: Mapping[str, Any] | None = None,
    load: Mapping[str, str] | None = None,
    **fields: Any,
) -> Case:
    """A model with its tokenizer.

    Args:
        name: The name of the case, and the model type where none is given.
        kind: What the case stands for.
        architecture: The class in transformers.
        make_tokenizer: One of those in tokenizer.py.
        model_type: As in config.json.
        without: See `tiny_config`.
        dtype: Cast the model before it is saved.
        save: What `save_pretrained` is told beside the folder.
        load: What `from_pretrained` must be told beside the folder.
        fields: Of the config.
    """

    def write(directory: Path) -> None:
        import torch

        tokenizer = make_tokenizer()
        model = tiny_model(architecture, model_type or name, tokenizer, without=without, **fields)
        if dtype:
            model = model.to(getattr(torch, dtype))
        model.save_pretrained(directory, **(save or {}))
        tokenizer.save_pretrained(directory)

    return Case(name, kind, write, load=load or {})


def tiny_model(
    architecture: str,
    model_type: str,
    tokenizer: PreTrainedTokenizerFast,
    *,
    without: Collection[str] = (),
    **fields: Any,
) -> PreTrainedModel:
    """A model whose embeddings and special ids fit the tokenizer, as after a training run that set both up."""
    import transformers

    config = tiny_config(model_type, without=without, **({"vocab_size": len(tokenizer)} | fields))
    special_ids = {name: getattr(tokenizer, name) for name in SPECIAL_IDS if getattr(tokenizer, name) is not None}
    for name, value in special_ids.items():
        setattr(config, name, value)
    model: PreTrainedModel = getattr(transformers, architecture)(config)
    if model.can_generate():
        for name, value in special_ids.items():
            setattr(model.generation_config, name, value)
    return model


LABELS: dict[str, Any] = {
    "id2label": {0: "NEG", 1: "POS", 2: "NEU"},
    "label2id": {"NEG": 0, "POS": 1, "NEU": 2},
}


def _causal(name: str, architecture: str, make_tokenizer: MakeTokenizer, **fields: Any) -> Case:
    return text_case(name, "causal", architecture, make_tokenizer, **fields)


def _encoder(name: str, architecture: str, make_tokenizer: MakeTokenizer, **fields: Any) -> Case:
    return text_case(name, "encoder", architecture, make_tokenizer, **fields)


def _seq2seq(name: str, architecture: str, make_tokenizer: MakeTokenizer, **fields: Any) -> Case:
    return text_case(name, "seq2seq", architecture, make_tokenizer, **fields)


CASES = table(
    _causal("llama", "LlamaForCausalLM", sentencepiece_bpe),
    _causal("mistral", "MistralForCausalLM", sentencepiece_bpe),
    _causal("mixtral", "MixtralForCausalLM", sentencepiece_bpe),
    _causal("qwen2", "Qwen2ForCausalLM", byte_level),
    _causal("qwen2_moe", "Qwen2MoeForCausalLM", byte_level),
    _causal("qwen3", "Qwen3ForCausalLM", byte_level, tie_word_embeddings=True),
    _causal("qwen3_moe", "Qwen3MoeForCausalLM", byte_level),
    _causal("gemma", "GemmaForCausalLM", sentencepiece_bpe),
    _causal("gemma2", "Gemma2ForCausalLM", sentencepiece_bpe),
    _causal("gemma3_text", "Gemma3ForCausalLM", sentencepiece_bpe),
    _causal("phi", "PhiForCausalLM", byte_level),
    _causal("phi3", "Phi3ForCausalLM", sentencepiece_bpe, pad_token_id=0),
    _causal("gpt2", "GPT2LMHeadModel", byte_level),
    _causal("gpt_neox", "GPTNeoXForCausalLM", byte_level),
    _causal("gptj", "GPTJForCausalLM", byte_level),
    _causal("gpt_bigcode", "GPTBigCodeForCausalLM", byte_level),
    _causal("opt", "OPTForCausalLM", byte_level),
    _causal("bloom", "BloomForCausalLM", byte_level),
    _causal("falcon", "FalconForCausalLM", byte_level, without=("head_dim",)),
    _causal("mpt", "MptForCausalLM", byte_level),
    _causal("starcoder2", "Starcoder2ForCausalLM", byte_level),
    _causal("olmo2", "Olmo2ForCausalLM", byte_level),
    _causal("granite", "GraniteForCausalLM", byte_level),
    _causal("granitemoe", "GraniteMoeForCausalLM", byte_level),
    _causal("cohere", "CohereForCausalLM", byte_level),
    _causal("stablelm", "StableLmForCausalLM", byte_level),
    _causal("deepseek_v3", "DeepseekV3ForCausalLM", byte_level, num_key_value_heads=4),
    _causal("gpt_oss", "GptOssForCausalLM", byte_level),
    _causal("mamba", "MambaForCausalLM", byte_level),
    _causal("glm4", "Glm4ForCausalLM", byte_level, pad_token_id=2),
    _causal("smollm3", "SmolLM3ForCausalLM", byte_level, pad_token_id=2),
    _causal("exaone4", "Exaone4ForCausalLM", byte_level),
    _causal("ernie4_5", "Ernie4_5ForCausalLM", sentencepiece_bpe),
    _causal("llama4_text", "Llama4ForCausalLM", byte_level, intermediate_size_mlp=64),
    _encoder("bert", "BertForMaskedLM", wordpiece),
    _encoder("distilbert", "DistilBertForSequenceClassification", wordpiece, **LABELS),
    _encoder("roberta", "RobertaForMaskedLM", roberta),
    _encoder("xlm-roberta", "XLMRobertaForTokenClassification", unigram, **LABELS),
    _encoder("albert", "AlbertForMaskedLM", unigram),
    _encoder("electra", "ElectraForPreTraining", wordpiece),
    _encoder("deberta-v2", "DebertaV2ForMaskedLM", unigram),
    _encoder("mpnet", "MPNetForMaskedLM", wordpiece),
    _encoder("modernbert", "ModernBertForMaskedLM", byte_level),
    _seq2seq("t5", "T5ForConditionalGeneration", unigram, feed_forward_proj="gated-gelu", decoder_start_token_id=0),
    _seq2seq("mt5", "MT5ForConditionalGeneration", unigram),
    _seq2seq("bart", "BartForConditionalGeneration", roberta),
    _seq2seq("mbart", "MBartForConditionalGeneration", unigram),
    _seq2seq("m2m_100", "M2M100ForConditionalGeneration", unigram),
    _seq2seq("pegasus", "PegasusForConditionalGeneration", unigram),
    _seq2seq("marian", "MarianMTModel", unigram, pad_token_id=0, decoder_start_token_id=0),
)
