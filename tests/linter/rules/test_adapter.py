"""Ranks of adapters, where config and weights must agree, and where they cannot be compared."""

from __future__ import annotations

from typing import Any

import pytest

from repokit.linter.engine import lint
from repokit.linter.examples import Example, edited, lora, safetensors, single
from repokit.linter.selection import Selection
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

MODULE = "base_model.model.model.layers.0.self_attn.q_proj"


def codes(change: dict[str, Any]) -> list[str]:
    report = lint(Repository(Example("", change, "lora").source()), Selection(select=("ADP",)))
    return [finding.code for finding in report.findings]


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        ({"r": 4}, []),
        ({"r": 8}, ["ADP104"]),
        ({"r": 8, "rank_pattern": {"self_attn.q_proj": 4, "v_proj": 4}}, []),
        ({"r": 8, "rank_pattern": {"model.layers.0.self_attn.q_proj": 4}}, ["ADP104"]),
        ({"rank_pattern": {r"layers\.1\.self_attn\.v_proj$": 2}}, ["ADP104"]),
        ({"rank_pattern": {"_proj": 2}}, ["ADP202"]),  # the pattern stands for whole names
        ({"r": 8, "target_parameters": ["experts.up_proj"]}, []),
        ({"r": 8, "peft_type": "XLORA"}, []),
        ({"r": "8"}, []),  # a wrong type is another rule's
        ({"r": 8, "rank_pattern": {"(a+)+$": 4}}, []),  # an expression is not run
    ],
)
def test_ranks(config: dict[str, Any], wrong: list[str]) -> None:
    assert codes({"adapter_config.json": config}) == wrong


def test_factors_that_do_not_fit_each_other() -> None:
    assert codes({"adapter_model.safetensors": edited(add={f"{MODULE}.lora_B.weight": ("F32", (16, 3))})}) == ["ADP104"]


def test_adapters_in_folders_are_judged_too() -> None:
    files = {f"french/{path}": content for path, content in lora().items()}
    example = Example("", {"adapter_config.json": {"base_model_name_or_path": None}}, "lora")
    files["french/adapter_config.json"] = example.files()["adapter_config.json"]
    report = lint(Repository(Memory(files)), Selection(select=("ADP",)))
    assert [(finding.code, finding.path) for finding in report.findings] == [("ADP101", "french/adapter_config.json")]


def test_an_adapter_without_weights_in_safetensors_is_judged_by_its_config() -> None:
    assert codes({"adapter_model.safetensors": None, "adapter_config.json": {"r": 64}}) == []


@pytest.mark.parametrize("base", ["org/name", "gpt2", "org/name.v1-2_x"])
def test_ids_of_the_hub(base: str) -> None:
    assert codes({"adapter_config.json": {"base_model_name_or_path": base}}) == []


@pytest.mark.parametrize("base", ["/data/base", "./base", "~/base", "C:\\base", "a/b/c", "", "None", "org/name.git"])
def test_what_is_no_id_of_the_hub(base: str) -> None:
    assert codes({"adapter_config.json": {"base_model_name_or_path": base}}) == ["ADP101"]


def full_model() -> dict[str, bytes]:
    kept = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    return {path: content for path, content in single().items() if path in kept}


def renamed(old: str, new: str) -> dict[str, Any]:
    return {"adapter_model.safetensors": edited(rename=lambda name: name.replace(old, new))}


@pytest.mark.parametrize(
    ("change", "code", "severity"),
    [
        pytest.param({"adapter_config.json": {"base_model_name_or_path": None}}, "ADP101", "error", id="no base"),
        pytest.param({"adapter_config.json": {"r": 64}}, "ADP104", "error", id="another rank"),
        pytest.param({"adapter_config.json": {"r": 0}}, "ADP111", "error", id="rank 0"),
        pytest.param(
            {
                "adapter_config.json": {"peft_type": "ADALORA", "rank_pattern": {"q_proj.lora_E": [False] * 12}},
                "adapter_model.safetensors": None,
            },
            "ADP111",
            "error",
            id="AdaLoRA pruned to rank 0",
        ),
        pytest.param(full_model(), "ADP110", "error", id="a full model and its adapter in one folder"),
        pytest.param(renamed("model.model.model.", "model.model."), "ADP108", "error", id="one level short"),
        pytest.param(renamed(".weight", ".default_0.weight"), "ADP107", "error", id="the adapter's name in keys"),
        pytest.param(renamed(".weight", ".default.weight"), "ADP107", "error", id="default in keys"),
        pytest.param(renamed("base_model.model.", ""), "ADP106", "error", id="no prefix"),
        pytest.param(
            {"adapter_config.json": {"auto_mapping": {"base_model_class": "Qwen2_5_VLForConditionalGeneration"}}},
            "ADP109",
            "error",
            id="names from before the language model moved",
        ),
        pytest.param({"adapter_config.json": {"enable_lora": None}}, "ADP113", "error", id="a legacy key"),
        pytest.param(
            {
                "adapter_config.json": '{"_from_model_config": true, "eos_token_id": 2, "transformers_version": "5.24.0"}'
            },
            "ADP112",
            "error",
            id="generation settings",
        ),
        pytest.param(
            {"adapter_model.safetensors": edited(add={f"{MODULE}.lora_A.weight": ("F32", (64,))})},
            "ADP103",
            "error",
            id="a flat factor",
        ),
        pytest.param({"adapter_config.json": {"eva_config": None}}, "ADP301", "note", id="a newer key that is null"),
    ],
)
def test_faults(change: dict[str, Any], code: str, severity: str) -> None:
    report = lint(Repository(Example("", change, "lora").source()), Selection(select=("ADP",)))
    assert [(finding.code, finding.severity.word) for finding in report.findings] == [(code, severity)]


def test_an_adapter_that_its_card_calls_a_model() -> None:
    card = Example(
        "", {"README.md": lambda text: text.replace(b"library_name: peft", b"library_name: transformers")}, "lora"
    )
    report = lint(Repository(card.source()), Selection(select=("ADP",)))
    assert [(finding.code, finding.severity.word) for finding in report.findings] == [("ADP201", "warning")]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            {
                "adapter_config.json": {"modules_to_save": ["norm"]},
                "adapter_model.safetensors": edited(
                    add={
                        "base_model.model.model.norm.running_mean": ("F32", (16,)),
                        "base_model.model.model.norm.num_batches_tracked": ("I64", ()),
                    }
                ),
            },
            id="buffers of a module that was trained in full",
        ),
        pytest.param(
            {
                "adapter_config.json": {"target_modules": ["q_proj", "v_proj", "embed_tokens"]},
                "adapter_model.safetensors": edited(
                    add={
                        "base_model.model.model.embed_tokens.base_layer.weight": ("F32", (32, 16)),
                        "base_model.model.model.embed_tokens.lora_embedding_A": ("F32", (4, 32)),
                        "base_model.model.model.embed_tokens.lora_embedding_B": ("F32", (16, 4)),
                    }
                ),
            },
            id="an adapted embedding",
        ),
        pytest.param(
            {
                "adapter_config.json": {"trainable_token_indices": {"embed_tokens": [1, 2]}},
                "adapter_model.safetensors": edited(
                    add={"base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta": ("F32", (2, 16))}
                ),
            },
            id="tokens that were trained",
        ),
        pytest.param(
            {
                "adapter_config.json": {"lora_bias": True},
                "adapter_model.safetensors": edited(add={f"{MODULE}.lora_B.bias": ("F32", (16,))}),
            },
            id="a bias of the factor",
        ),
        pytest.param(
            {"adapter_config.json": {"auto_mapping": {"base_model_class": "LlamaForCausalLM"}}}, id="a class as it is"
        ),
        pytest.param(
            {"adapter_config.json": {"trained_with": None, "peft_type": "IA3"}, "adapter_model.safetensors": None},
            id="IA3",
        ),
        pytest.param(
            {
                "adapter_config.json": '{"config": {"r": 8}, "model_class": "BertModel", "hidden_size": 16}',
                "adapter_model.safetensors": None,
            },
            id="an adapter of the library adapters",
        ),
    ],
)
def test_right_though_it_looks_wrong(change: dict[str, Any]) -> None:
    assert codes(change) == []


@pytest.mark.parametrize(
    ("pattern", "wrong"),
    [
        ({"q_proj.lora_E": [True, False] * 2}, ["ADP115"]),
        ({"q_proj.lora_E": [True] * 4, "v_proj.lora_E": [True] * 4}, []),
    ],
)
def test_ranks_that_adalora_kept(pattern: dict[str, Any], wrong: list[str]) -> None:
    tensors = {}
    for layer in range(2):
        for module, rows in (("q_proj", 16), ("v_proj", 8)):
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}."
            tensors |= {f"{name}lora_A": ("F32", (4, 16)), f"{name}lora_B": ("F32", (rows, 4))}
            tensors[f"{name}lora_E"] = ("F32", (4, 1))
    config = {"peft_type": "ADALORA", "init_r": 4, "rank_pattern": pattern}
    assert codes({"adapter_config.json": config, "adapter_model.safetensors": safetensors(tensors)}) == wrong
