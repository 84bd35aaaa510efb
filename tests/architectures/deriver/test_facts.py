"""The facts of a class beside its shapes, as transformers' own objects have them."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from repokit.architectures.deriver.facts import facts, kinds, legacy_buffers, ties  # noqa: E402 - needs what may be missing
from repokit.architectures.deriver.truth import Truth, truth  # noqa: E402

pytestmark = pytest.mark.oracle

_built: dict[str, Truth] = {}
SMALL: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {"num_hidden_layers": 2},
    "GPT2LMHeadModel": {"n_layer": 2},
    "GPTNeoXForCausalLM": {"num_hidden_layers": 2},
    "BertForPreTraining": {"num_hidden_layers": 2},
    "MixtralForCausalLM": {"num_hidden_layers": 2, "num_local_experts": 4},
    "GptOssForCausalLM": {"num_hidden_layers": 2, "num_local_experts": 4},
    "T5ForConditionalGeneration": {"num_layers": 2, "num_decoder_layers": 2},
    "Wav2Vec2ForCTC": {"num_hidden_layers": 2, "vocab_size": 32},
    "ResNetModel": {},
    "DFineForObjectDetection": {},
    "Gemma3ForConditionalGeneration": {},
    "SwinModel": {},
    "DeepseekV3ForCausalLM": {"num_hidden_layers": 4, "n_routed_experts": 8, "n_group": 2, "topk_group": 1},
}


def built(name: str) -> Truth:
    if name not in _built:
        model_class = getattr(transformers, name)
        _built[name] = truth(model_class, model_class.config_class(**SMALL[name]), seconds=60)
    return _built[name]


def facts_of(name: str) -> dict[str, Any]:
    return facts(getattr(transformers, name), [built(name).model])


@pytest.mark.parametrize(
    ("name", "tensor", "kind"),
    [
        ("LlamaForCausalLM", "model.embed_tokens.weight", "e"),
        ("LlamaForCausalLM", "lm_head.weight", "l"),
        ("LlamaForCausalLM", "model.layers.0.self_attn.q_proj.weight", "l"),
        ("LlamaForCausalLM", "model.layers.0.input_layernorm.weight", "n"),
        ("GPT2LMHeadModel", "transformer.h.0.attn.c_attn.weight", "t"),
        ("GPT2LMHeadModel", "transformer.h.0.attn.c_attn.bias", "p"),
        ("BertForPreTraining", "bert.embeddings.LayerNorm.bias", "n"),
        ("MixtralForCausalLM", "model.layers.0.block_sparse_moe.experts.0.w1.weight", "l"),
        ("MixtralForCausalLM", "model.layers.0.block_sparse_moe.gate.weight", "p"),
        ("MixtralForCausalLM", "model.layers.0.mlp.experts.gate_up_proj", "p"),
        ("GptOssForCausalLM", "model.layers.0.mlp.experts.gate_up_proj", "p"),
        ("Wav2Vec2ForCTC", "wav2vec2.feature_extractor.conv_layers.0.conv.weight", "c"),
        ("Wav2Vec2ForCTC", "wav2vec2.encoder.pos_conv_embed.conv.parametrizations.weight.original1", "c"),
        ("ResNetModel", "embedder.embedder.normalization.running_mean", "b"),
        ("ResNetModel", "embedder.embedder.normalization.num_batches_tracked", "B"),
    ],
)
def test_the_kind_of_a_tensor(name: str, tensor: str, kind: str) -> None:
    held = built(name)

    assert kinds(held.model, held.disk, held.memory)[tensor] == kind


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "MixtralForCausalLM", "Gemma3ForConditionalGeneration"])
def test_every_tensor_of_both_forms_has_a_kind(name: str) -> None:
    held = built(name)

    assert kinds(held.model, held.disk, held.memory).keys() == held.disk.keys() | held.memory.keys()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LlamaForCausalLM", [["lm_head.weight", "model.embed_tokens.weight"]]),
        ("GPTNeoXForCausalLM", [["embed_out.weight", "gpt_neox.embed_in.weight"]]),
        (
            "Gemma3ForConditionalGeneration",
            [["language_model.lm_head.weight", "language_model.model.embed_tokens.weight"]],
        ),
        (
            "T5ForConditionalGeneration",
            [
                ["decoder.embed_tokens.weight", "shared.weight"],
                ["encoder.embed_tokens.weight", "shared.weight"],
                ["lm_head.weight", "shared.weight"],
            ],
        ),
    ],
)
def test_ties_are_known_whatever_the_config_says(name: str, expected: list[list[str]]) -> None:
    assert facts_of(name)["tied"] == expected


def test_ties_of_numbered_modules_are_one_template() -> None:
    tied = facts_of("DFineForObjectDetection")["tied"]

    assert ["class_embed.{i}.weight", "model.decoder.class_embed.{i}.weight"] in tied


def test_asking_for_ties_leaves_the_configs_alone() -> None:
    held = built("LlamaForCausalLM")
    before = held.model.config.to_dict()

    ties(held.model)

    assert held.model.config.to_dict() == before


@pytest.mark.parametrize(
    ("name", "older"),
    [
        ("LlamaForCausalLM", "model.layers.7.self_attn.rotary_emb.inv_freq"),
        ("GPT2LMHeadModel", "transformer.h.3.attn.masked_bias"),
        ("GPTNeoXForCausalLM", "gpt_neox.layers.0.attention.masked_bias"),
        ("BertForPreTraining", "bert.embeddings.position_ids"),
        ("SwinModel", "encoder.layers.0.blocks.0.attention.self.relative_position_index"),
    ],
)
def test_buffers_of_older_files_are_known(name: str, older: str) -> None:
    found = facts_of(name)

    assert any(re.search(pattern, older) for pattern in [*found.get("legacy", []), *found.get("ignore_unexpected", [])])


@pytest.mark.parametrize("name", sorted(SMALL))
def test_no_tensor_that_a_file_holds_is_a_legacy_buffer(name: str) -> None:
    held = built(name)
    patterns = legacy_buffers(held.model)

    assert not [one for one in held.memory if any(re.search(pattern, one) for pattern in patterns)]


def test_what_stays_in_float32() -> None:
    assert facts_of("T5ForConditionalGeneration")["fp32"] == ["wo"]


def test_what_stays_in_float32_under_bfloat16_too() -> None:
    assert facts_of("DeepseekV3ForCausalLM")["fp32_strict"] == ["e_score_correction_bias", "gate.weight"]


def test_patterns_that_follow_from_the_config_are_about_every_layer() -> None:
    config = transformers.Gemma3nTextConfig(num_hidden_layers=20, num_kv_shared_layers=10)
    held = truth(transformers.Gemma3nForCausalLM, config, seconds=60)

    assert r"layers.\d+.self_attn.k_proj" in facts(transformers.Gemma3nForCausalLM, [held.model])["ignore_unexpected"]


def test_the_prefix_and_the_auto_classes() -> None:
    found = facts_of("LlamaForCausalLM")

    assert (found["prefix"], found["autos"]) == ("model", ["AutoModelForCausalLM"])
