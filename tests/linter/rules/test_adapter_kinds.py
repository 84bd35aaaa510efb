"""Methods of PEFT other than LoRA: what save_pretrained of peft 0.21.2 writes for a two-layer llama of width 32."""

from __future__ import annotations

from typing import Any

import pytest

from repokit.linter.engine import lint
from repokit.linter.examples import DELETE, Example, safetensors
from repokit.linter.selection import Selection
from repokit.repo.repository import Repository

QUERY = "base_model.model.model.layers.0.self_attn.q_proj."
VALUE = "base_model.model.model.layers.0.self_attn.v_proj."
DOWN = "base_model.model.model.layers.0.mlp.down_proj."

Shapes = dict[str, tuple[int, ...]]
WRITTEN: dict[str, tuple[dict[str, Any], Shapes]] = {
    "ADALORA": (
        {"r": 8, "init_r": 12},
        {QUERY + "lora_A": (12, 32), QUERY + "lora_B": (32, 12), QUERY + "lora_E": (12, 1)},
    ),
    "BOFT": ({"boft_block_size": 4, "boft_block_num": 0}, {QUERY + "boft_R": (1, 8, 4, 4), QUERY + "boft_s": (32, 1)}),
    "CPT": ({"num_virtual_tokens": 3, "token_dim": 32}, {"prompt_embeddings": (3, 32)}),
    "DELORA": (
        {"r": 4},
        {
            QUERY + "delora_A": (4, 32),
            QUERY + "delora_B": (32, 4),
            QUERY + "delora_lambda": (1,),
            QUERY + "delora_w_norm": (32,),
        },
    ),
    "FOURIERFT": ({"n_frequency": 50}, {QUERY + "fourierft_spectrum": (50,)}),
    "HIRA": ({"r": 32}, {QUERY + "hira_A": (32, 32), QUERY + "hira_B": (32, 32)}),
    "HRA": ({"r": 4}, {QUERY + "hra_u": (32, 4)}),
    "IA3": ({"feedforward_modules": ["down_proj"]}, {DOWN + "ia3_l": (1, 64), QUERY + "ia3_l": (32, 1)}),
    "LN_TUNING": ({}, {"base_model.model.model.layers.0.input_layernorm.ln_tuning_layers.weight": (32,)}),
    "LOHA": (
        {"r": 4, "rank_pattern": {"v_proj": 2}},
        {
            QUERY + "hada_w1_a": (32, 4),
            QUERY + "hada_w1_b": (4, 32),
            QUERY + "hada_w2_a": (32, 4),
            QUERY + "hada_w2_b": (4, 32),
            VALUE + "hada_w1_a": (16, 2),
            VALUE + "hada_w1_b": (2, 32),
            VALUE + "hada_w2_a": (16, 2),
            VALUE + "hada_w2_b": (2, 32),
        },
    ),
    "LOKR": (
        {"r": 2},
        {QUERY + "lokr_w1": (4, 4), QUERY + "lokr_w2_a": (8, 2), QUERY + "lokr_w2_b": (2, 8)},
    ),
    "MULTITASK_PROMPT_TUNING": (
        {"num_virtual_tokens": 5, "num_transformer_submodules": 1, "token_dim": 32},
        {"prompt_embeddings": (5, 32), "prefix_task_cols": (2, 5, 1), "prefix_task_rows": (2, 1, 32)},
    ),
    "OFT": ({"r": 0, "oft_block_size": 8}, {QUERY + "oft_R.weight": (4, 28)}),
    "POLY": ({"r": 4}, {QUERY + "poly_lora_A": (1, 2, 32, 4), QUERY + "poly_lora_B": (1, 2, 4, 32)}),
    "PREFIX_TUNING": (
        {"num_virtual_tokens": 5, "num_transformer_submodules": 1, "num_layers": 2, "token_dim": 16},
        {"prompt_embeddings": (5, 64)},
    ),
    "PROMPT_TUNING": (
        {"num_virtual_tokens": 5, "num_transformer_submodules": 1, "token_dim": 32},
        {"prompt_embeddings": (5, 32)},
    ),
    "P_TUNING": (
        {"num_virtual_tokens": 5, "num_transformer_submodules": 2, "token_dim": 32},
        {"prompt_embeddings": (10, 32)},
    ),
    "RANDLORA": ({"r": 4}, {QUERY + "randlora_lambda": (4, 8), QUERY + "randlora_gamma": (8, 32)}),
    "TRAINABLE_TOKENS": (
        {"token_indices": [1, 2, 3], "target_modules": ["embed_tokens"]},
        {"base_model.model.model.embed_tokens.trainable_tokens_delta": (3, 32)},
    ),
    "VBLORA": (
        {"r": 4, "num_vectors": 16, "vector_length": 8},
        {
            QUERY + "vblora_logits_A": (4, 4, 16),
            QUERY + "vblora_logits_B": (4, 4, 16),
            "base_model.vblora_vector_bank": (16, 8),
        },
    ),
    "VERA": (
        {"r": 4},
        {
            QUERY + "vera_lambda_b": (32,),
            QUERY + "vera_lambda_d": (4,),
            "base_model.vera_A": (4, 32),
            "base_model.vera_B": (32, 4),
        },
    ),
}


def said(kind: str, config: dict[str, Any], shapes: Shapes) -> list[str]:
    own = {"r": DELETE, "lora_alpha": DELETE, "lora_dropout": DELETE, "peft_type": kind, **config}
    weights = safetensors({name: ("F32", shape) for name, shape in shapes.items()})
    change = {"adapter_config.json": own, "adapter_model.safetensors": weights}
    report = lint(Repository(Example("", change, "lora").source()), Selection(select=("ADP",)))
    assert report.coverage.broken == {}
    return [finding.code for finding in report.findings]


@pytest.mark.parametrize("kind", WRITTEN)
def test_what_peft_writes_is_clean(kind: str) -> None:
    assert said(kind, *WRITTEN[kind]) == []


@pytest.mark.parametrize("kind", sorted(set(WRITTEN) - {"IA3"}))
def test_a_dimension_too_many(kind: str) -> None:
    config, shapes = WRITTEN[kind]
    first = next(name for name in shapes if not name.endswith("lokr_w1"))
    assert said(kind, config, {**shapes, first: (*shapes[first], 2)}) == ["ADP115"]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("ADALORA", {"init_r": 6}),
        ("BOFT", {"boft_block_size": 8}),
        ("FOURIERFT", {"n_frequency": 1000}),
        ("HRA", {"r": 8}),
        ("LOHA", {"r": 8}),
        ("LOKR", {"r": 4}),
        ("OFT", {"oft_block_size": 4}),
        ("OFT", {"r": 2}),
        ("PREFIX_TUNING", {"num_layers": 4}),
        ("PROMPT_TUNING", {"num_virtual_tokens": 20}),
        ("P_TUNING", {"num_transformer_submodules": 1}),
        ("TRAINABLE_TOKENS", {"token_indices": [1]}),
        ("VBLORA", {"num_vectors": 90}),
        ("VERA", {"r": 256}),
    ],
)
def test_a_config_of_another_run(kind: str, change: dict[str, Any]) -> None:
    config, shapes = WRITTEN[kind]
    assert said(kind, {**config, **change}, shapes) == ["ADP115"]


@pytest.mark.parametrize(("kind", "lost"), [("LOHA", "hada_w2_b"), ("VERA", "vera_lambda_d"), ("DELORA", "delora_B")])
def test_a_tensor_of_a_module_is_missing(kind: str, lost: str) -> None:
    config, shapes = WRITTEN[kind]
    kept = {name: shape for name, shape in shapes.items() if name != QUERY + lost}
    assert said(kind, config, kept) == ["ADP115"]


def test_the_tensors_of_another_method() -> None:
    assert said("IA3", {}, WRITTEN["LOHA"][1]) == ["ADP115"]


def test_a_method_that_is_not_known_here_is_not_judged() -> None:
    assert said("GRALORA", {"r": 8}, {QUERY + "gralora_A": (2, 16, 8)}) == []
