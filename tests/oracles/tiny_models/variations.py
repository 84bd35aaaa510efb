"""One model, saved in unusual ways."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tiny_models.case import Case, table
from tiny_models.config import tiny_config
from tiny_models.text import text_case
from tiny_models.tokenizer import CHATML, byte_level, sentencepiece_bpe

if TYPE_CHECKING:
    from pathlib import Path

LARGER: dict[str, Any] = {"num_hidden_layers": 6, "hidden_size": 64, "intermediate_size": 128}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

_llama = partial(text_case, architecture="LlamaForCausalLM", make_tokenizer=sentencepiece_bpe, model_type="llama")


def _generation_config(directory: Path) -> None:
    """Sampling settings that a person chose, and two tokens that end a text."""
    import transformers

    tokenizer = byte_level()
    model = transformers.Qwen2ForCausalLM(tiny_config("qwen2", vocab_size=len(tokenizer)))
    model.generation_config = transformers.GenerationConfig(
        do_sample=True, temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.05, max_new_tokens=64,
        bos_token_id=0, eos_token_id=[1, 2], pad_token_id=2,
    )  # fmt: skip
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _several_chat_templates(directory: Path) -> None:
    import transformers

    tokenizer = byte_level()
    tool_use = CHATML.replace("message['content']", "(message['content'] or '')")
    tokenizer.chat_template = {"default": CHATML, "tool_use": tool_use, "rag": CHATML}
    transformers.Qwen2ForCausalLM(tiny_config("qwen2", vocab_size=len(tokenizer))).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _added_tokens(directory: Path) -> None:
    """Tokens added after training, and embeddings padded to a multiple of 64."""
    import transformers
    from tokenizers import AddedToken

    tokenizer = byte_level()
    model = transformers.Qwen2ForCausalLM(tiny_config("qwen2", vocab_size=len(tokenizer)))
    tokenizer.add_tokens([AddedToken("<|extra_0|>", special=True), AddedToken("<tool_call>", special=False)])
    model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


CASES = table(
    _llama("llama-sharded", "sharded", **LARGER, save={"max_shard_size": "100KB"}),
    text_case(
        "qwen3-tied-sharded-bf16", "sharded", "Qwen3ForCausalLM", byte_level, model_type="qwen3",
        **LARGER, tie_word_embeddings=True, dtype="bfloat16", save={"max_shard_size": "60KB"},
    ),
    text_case(
        "mixtral-sharded", "sharded", "MixtralForCausalLM", sentencepiece_bpe, model_type="mixtral",
        save={"max_shard_size": "30KB"},
    ),
    _llama("llama-fp16", "dtype", dtype="float16"),
    _llama("llama-tied", "tied", tie_word_embeddings=True),
    _llama("llama-untied-embeds-bigger-than-tokenizer", "vocab", vocab_size=512 + 64),
    _llama("llama-variant-fp16", "variant", dtype="float16", save={"variant": "fp16"}, load={"variant": "fp16"}),
    _llama("llama-rope-llama3", "rope", rope_parameters=LLAMA3_ROPE),
    Case("qwen2-generation-config", "generation", _generation_config),
    Case("qwen2-multi-chat-template", "template", _several_chat_templates),
    Case("qwen2-added-tokens-padded-vocab", "vocab", _added_tokens),
)  # fmt: skip
