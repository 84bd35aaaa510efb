"""Repositories that look faulty and are not: published, working, and told in public threads that took them for faults.

None may have an error. Where a warning would be right too, its code stands beside the repository.
"""

from __future__ import annotations

import json
from typing import Final

import pytest

from repokit.linter.examples import DELETE, Example, edited, safetensors, shard, single, tensors_of
from repokit.linter.examples_skeleton import weights_of
from repokit.linter.finding import Severity
from repokit.linter.rules.card import with_lines
from repokit.linter.rules.token_ids import with_rows
from repokit.linter.rules.tokenizer import ENCODER
from repokit.repo.weights import ADAPTER, INDEX, SINGLE

CONFIG: Final = "config.json"
CARD: Final = "README.md"
TOKENIZER: Final = "tokenizer_config.json"
OVERLAY: Final = "model-overlay-00001.safetensors"
QUERY: Final = "model.layers.{}.self_attn.q_proj.weight"
QUERIES: Final = {QUERY.format(layer): ("BF16", (16, 16)) for layer in range(2)}
MISTRAL: Final = {
    "consolidated.safetensors": safetensors({"layers.0.attention.wq.weight": ("BF16", (16, 16))}),
    "params.json": '{"dim": 16, "n_layers": 2, "n_heads": 2, "vocab_size": 32}',
    "tekken.json": '{"config": {}, "vocab": []}',
}
BATCH_NORM: Final = {
    f"base_model.model.model.bn.{part}": (dtype, shape)
    for part, dtype, shape in (
        ("running_mean", "F32", (16,)),
        ("running_var", "F32", (16,)),
        ("num_batches_tracked", "I64", ()),
    )
}
SCALED: Final = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 10000.0}
NO_CHAT: Final = {
    "chat_template.jinja": None,
    CARD: with_lines("tags: [conversational]\n"),
}
FUSED: Final = {
    "architectures": ["Phi3ForCausalLM"],
    "model_type": "phi3",
}


def fused_projections(content: bytes) -> bytes:
    """Queries, keys and values in one tensor, gate and up in another, as Phi-3 has them."""
    apart = tuple(
        f"model.layers.{layer}.{part}_proj.weight"
        for layer in range(2)
        for part in ("self_attn.q", "self_attn.k", "self_attn.v", "mlp.gate", "mlp.up")
    )
    together = {
        f"model.layers.{layer}.{part}.weight": ("BF16", shape)
        for layer in range(2)
        for part, shape in {"self_attn.qkv_proj": (32, 16), "mlp.gate_up_proj": (48, 16)}.items()
    }
    return edited(drop=apart, add=together)(content)


GEMMA: Final = {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text"}

CONTROLS: Final[dict[str, tuple[set[str], Example]]] = {
    "tok-lt-embed-padding OpenHelix-Team/ReconVLA#7": (set(), Example("rows without a token", with_rows(40))),
    "tied-head-absent turboderp-org/exllamav2#408": (set(), Example("tied", base="tied")),
    "preproc-optional hiyouga/LlamaFactory#8450": (
        set(),
        Example(
            "text alone",
            {
                CONFIG: {**GEMMA, "rope_parameters": {"rope_theta": 1000000.0}},
                SINGLE: weights_of(GEMMA),
            },
        ),
    ),
    "tok-gt-embed OpenNMT/CTranslate2#1415": (
        {"TOK207", "TOK209"},
        Example("a token of another tokenizer", {"added_tokens.json": {"[PAD]": 32}}),
    ),
    "tok-gt-embed OpenNMT/CTranslate2#1415 (by another id)": (
        {"TOK207", "TOK208"},
        Example("an older id", {"added_tokens.json": {"<pad>": 32}}),
    ),
    "st-zero-size promptfoo/modelaudit#1607": (
        set(),
        Example("a marker", {SINGLE: edited(add={"scaled_fp8": ("F8_E4M3", (0,))})}),
    ),
    "st-zero-size promptfoo/modelaudit#1607 (all of it)": (
        set(),
        Example(
            "a file of ComfyUI",
            {
                CONFIG: None,
                SINGLE: None,
                "wan-fp8.safetensors": safetensors(
                    {"blocks.0.ffn.0.weight": ("F8_E4M3", (16, 16)), "scaled_fp8": ("F8_E4M3", (0,))}
                ),
                **dict.fromkeys(("generation_config.json", "tokenizer.json", TOKENIZER, "chat_template.jinja")),
                CARD: "---\nlicense: apache-2.0\nlibrary_name: diffusion-single-file\n---\n# Video\n",
            },
        ),
    ),
    "dup-tensor-across-shards JustVugg/colibri#1479": (
        {"IDX201", "IDX203", "IDX204"},
        Example(
            "new queries over old ones",
            {OVERLAY: safetensors(QUERIES), INDEX: {"weight_map": dict.fromkeys(QUERIES, OVERLAY)}},
            "sharded",
        ),
    ),
    "mistral-dual-format vllm-project/vllm#40765": (set(), Example("two formats", MISTRAL, "sharded")),
    "mtp-unquantized vllm-project/vllm#37667": (
        {"QNT202", "QNT203"},
        Example(
            "a draft layer in 16 bits",
            {
                CONFIG: {"num_nextn_predict_layers": 1},
                SINGLE: edited(add={"mtp.fc.weight": ("BF16", (16, 32)), "mtp.norm.weight": ("BF16", (16,))}),
            },
            "pack-quantized",
        ),
    ),
    "st-modules-missing AnswerDotAI/ModernBERT#168": (
        set(),
        Example("an encoder", ENCODER),
    ),
    "model-type-missing huggingface/transformers.js#921": (
        set(),
        Example(
            "another library",
            {
                CONFIG: '{"sampling_rate": 24000}',
                CARD: "---\nlicense: apache-2.0\nlibrary_name: openvoice\n---\n# Voice\n",
            },
        ),
    ),
    "model-type-newer huggingface/transformers#44496": (
        set(),
        Example(
            "newer than we are",
            {CONFIG: {"model_type": "olmo_hybrid_next", "transformers_version": "9.1.0"}},
        ),
    ),
    "gguf-only-no-config FudanDISC/DISC-MedLLM#20": (
        set(),
        Example("a word of a config", {CONFIG: '{"model_type": "llama"}'}, "gguf"),
    ),
    "tok-model-max-length-undefined jzhang38/TinyLlama#23": (
        set(),
        Example("no limit", {TOKENIZER: {"model_max_length": 1000000000000000019884624838656}}),
    ),
    "pos-embed-mismatch huggingface/sentence-transformers#3347": (
        set(),
        Example(
            "shorter by choice",
            {
                **ENCODER,
                "sentence_bert_config.json": '{"max_seq_length": 32, "do_lower_case": false}',
                "modules.json": json.dumps(
                    [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
                ),
            },
        ),
    ),
    "bos-null-in-tokenizer QwenLM/Qwen3#369": (set(), Example("no beginning", {TOKENIZER: {"bos_token": None}})),
    "buffers-extra huggingface/peft#3481": (
        set(),
        Example(
            "statistics of a layer",
            {ADAPTER: edited(add=BATCH_NORM), "adapter_config.json": {"modules_to_save": ["bn"]}},
            "lora",
        ),
    ),
    "buffers-extra huggingface/peft#3481 (of a model)": (
        set(),
        Example(
            "buffers of older versions",
            {SINGLE: edited(add={"model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", (4,))})},
        ),
    ),
    "head-extra-value OpenRLHF/OpenRLHF#542": (
        set(),
        Example("a value head", {SINGLE: edited(add={"value_head.weight": ("BF16", (1, 16))})}),
    ),
    "rope-yarn-max-pos vllm-project/vllm#55116": (
        set(),
        Example(
            "scaled already",
            {
                CONFIG: {
                    "rope_parameters": SCALED,
                    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
                    "rope_theta": 10000.0,
                }
            },
        ),
    ),
    "rope-yarn-max-pos vllm-project/vllm#55116 (the other convention)": (
        set(),
        Example(
            "not scaled",
            {
                CONFIG: {
                    "rope_parameters": DELETE,
                    "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
                    "rope_theta": 10000.0,
                }
            },
        ),
    ),
    "tok-files-missing ggml-org/llama.cpp#3968": (set(), Example("tokenizer.json alone", {CONFIG: {}})),
    "chat-template-missing vllm-project/vllm#29849": (
        set(),
        Example("an encoder in Python", {**NO_CHAT, "encoding/encoding_x.py": "def encode_messages(): ...\n"}),
    ),
    "chat-template-missing vllm-project/vllm#29849 (and nothing else)": ({"TPL208"}, Example("a tag alone", NO_CHAT)),
    "ids and sizes in the text model": (
        set(),
        Example(
            "a composed model",
            {
                CONFIG: {
                    **dict.fromkeys(("vocab_size", "num_hidden_layers", "bos_token_id", "eos_token_id"), DELETE),
                    "architectures": ["LlavaLlamaForCausalLM"],
                    "model_type": "llava",
                    "text_config": {"model_type": "llama", "vocab_size": 32, "bos_token_id": 1, "eos_token_id": 4},
                }
            },
        ),
    ),
    "total_size is a float": (set(), Example("a float", {INDEX: {"metadata": {"total_size": 9888.0}}}, "sharded")),
    "total_size is not there": (set(), Example("none", {INDEX: {"metadata": {"total_size": DELETE}}}, "sharded")),
    "an index by MLX": (
        set(),
        Example(
            "one file",
            {
                INDEX: {
                    "metadata": {"total_size": 9888},
                    "weight_map": dict.fromkeys(tensors_of(single()[SINGLE]), SINGLE),
                }
            },
            "single",
        ),
    ),
    # What every version of transformers 5 writes cannot be a fault, although readers of 4 look for torch_dtype.
    "dtype alone unslothai/unsloth-zoo#286": (set(), Example("the newer spelling", {CONFIG: {"dtype": "bfloat16"}})),
    "both spellings of one fact": (
        set(),
        Example(
            "equal",
            {
                CONFIG: {"torch_dtype": "bfloat16", "rope_theta": 10000.0},
                TOKENIZER: {"chat_template": single()["chat_template.jinja"].decode()},
            },
        ),
    ),
    "fused projections": (set(), Example("one tensor for three", {CONFIG: FUSED, SINGLE: fused_projections})),
    "shards that count from 0": (
        set(),
        Example(
            "three of two",
            {
                INDEX: lambda old: (
                    old.replace(b"model-00001-of-00003", b"model-00000-of-00002")
                    .replace(b"model-00002-of-00003", b"model-00001-of-00002")
                    .replace(b"model-00003-of-00003", b"model-00002-of-00002")
                ),
                **{shard(number): None for number in (1, 2, 3)},
                **{
                    shard(number - 1, 2): content
                    for number, content in (
                        (number, Example("", base="sharded").files()[shard(number)]) for number in (1, 2, 3)
                    )
                },
            },
            "sharded",
        ),
    ),
}


@pytest.mark.parametrize("control", CONTROLS.values(), ids=CONTROLS.keys())
def test_nothing_is_wrong_with_it(control, report_of):
    allowed, example = control
    said = {finding.code: finding.message for finding in report_of(example).at_least(Severity.WARNING)}
    errors = [finding.code for finding in report_of(example).at_least(Severity.ERROR)]
    assert ({code: message for code, message in said.items() if code not in allowed}, errors) == ({}, [])


@pytest.mark.parametrize("control", CONTROLS.values(), ids=CONTROLS.keys())
def test_no_rule_breaks_over_it(control, report_of):
    assert report_of(control[1]).coverage.broken == {}
