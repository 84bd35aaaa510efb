"""Weights against config.json: where names and shapes do not tell, nothing is said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from repokit.linter.engine import lint
from repokit.linter.examples import Example, Tensors, edited, safetensors
from repokit.linter.finding import Finding
from repokit.linter.rules.weights_against_config import filled
from repokit.linter.selection import Selection
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

FAMILY = Selection(select=("WGT",))


def repository(config: dict[str, Any], tensors: Tensors) -> Repository:
    files = {"config.json": json.dumps(config).encode(), "model.safetensors": safetensors(tensors)}
    return Repository(Memory(files))


def found(config: dict[str, Any], tensors: Tensors) -> list[Finding]:
    return [*lint(repository(config, tensors), FAMILY).findings]


def blocks(stack: str, layers: range | set[int], parts: int = 3) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {f"{stack}.{layer}.part{part}.weight": ("F32", (2, 2)) for layer in layers for part in range(parts)}


def test_all_missing_layers_are_one_finding() -> None:
    (finding,) = found({"num_hidden_layers": 300}, blocks("model.layers", range(14)))
    assert (finding.code, len(finding.names), finding.place) == ("WGT104", 286, "model.layers.14")


def test_more_layers_than_declared_are_no_gap() -> None:
    assert found({"num_hidden_layers": 2}, blocks("model.layers", range(3))) == []


@pytest.mark.parametrize(
    "config",
    [
        {"num_hidden_layers": 9, "is_encoder_decoder": True},
        {"num_hidden_layers": 9, "vision_config": {"num_hidden_layers": 2}},
        {"num_layers": 9, "depths": [2]},
        {},
    ],
)
def test_layers_of_composed_models_are_not_counted(config: dict[str, Any]) -> None:
    assert found(config, blocks("encoder.layers", range(2))) == []


def test_two_stacks_are_not_counted() -> None:
    tensors = {**blocks("encoder.layers", range(2)), **blocks("decoder.layers", range(3))}
    assert found({"num_hidden_layers": 9}, tensors) == []


def test_a_gap_in_a_composed_model_is_one() -> None:
    tensors = {**blocks("model.layers", range(3)), **blocks("visual.blocks", {0, 2})}
    assert [finding.names for finding in found({"vision_config": {}}, tensors)] == [("visual.blocks.1",)]


def test_a_chain_of_convolutions_has_gaps_by_right() -> None:
    """EnCodec: layers 0 and 2 are convolutions, 1 is a residual block with other names."""
    tensors = {f"encoder.layers.{layer}.conv.{part}": ("F32", (2, 2)) for layer in (0, 3) for part in ("weight", "g")}
    tensors |= {f"encoder.layers.1.block.{part}.weight": ("F32", (2, 2)) for part in (1, 3)}
    assert found({}, tensors) == []


def test_an_expression_in_a_name_is_only_text() -> None:
    assert filled("a{b}.*.experts.*.w", (3, 12)) == "a{b}.3.experts.12.w"


def experts(*there: tuple[int, int]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {f"model.layers.{layer}.mlp.experts.{expert}.up.weight": ("F32", (2, 2)) for layer, expert in there}


def test_layers_with_fewer_experts_lack_some_only_by_config() -> None:
    tensors = experts((0, 0), (0, 1), (0, 2), (1, 0))
    assert found({}, tensors) == []
    (finding,) = found({"num_experts": 3}, tensors)
    assert finding.names == ("model.layers.1.mlp.experts.1.up.weight", "model.layers.1.mlp.experts.2.up.weight")


def test_a_list_of_expert_counts_is_not_one_number() -> None:
    assert found({"num_experts": [3, 1]}, experts((0, 0), (0, 1), (0, 2), (1, 0))) == []


def test_a_hostile_config_does_not_set_the_length_of_a_loop() -> None:
    config = {"num_experts": 10**12, "num_hidden_layers": 10**12, "vocab_size": 10**15}
    assert {finding.code for finding in found(config, {**experts((0, 0)), **blocks("model.layers", range(1))})} == {
        "WGT104",
        "WGT105",
    }


def test_rows_of_a_quantized_embedding_are_not_compared() -> None:
    tensors = {"model.embed_tokens.weight": ("U8", (16, 1))}
    assert found({"vocab_size": 32}, tensors) == []


def test_rows_are_compared_where_only_one_embedding_can_be_meant() -> None:
    tensors = {"a.embed_tokens.weight": ("F32", (10, 2)), "b.embed_tokens.weight": ("F32", (12, 2))}
    assert found({"vocab_size": 99}, tensors) == []
    assert [finding.code for finding in found({"vocab_size": 99}, {"a.wte.weight": ("F32", (10, 2))})] == ["WGT106"]


@pytest.mark.parametrize("extra", [0, 8])
def test_rows_that_a_config_adds(extra: int) -> None:
    tensors = {"model.embed_tokens.weight": ("F32", (32 + extra, 2))}
    assert found({"vocab_size": 32, "additional_vocab_size": 8}, tensors) == []


@pytest.mark.parametrize("method", [{"quantization_config": {}}, {"quantization": {"bits": 4}}])
def test_dtypes_of_quantized_weights_are_not_compared(method: dict[str, Any]) -> None:
    assert found({"dtype": "bfloat16", **method}, {"model.norm.weight": ("F32", (4, 4))}) == []


def test_packed_weights_are_recognised_without_a_config() -> None:
    tensors = {"a.qweight": ("I32", (8, 8)), "a.scales": ("F32", (8, 8))}
    assert found({"dtype": "bfloat16"}, tensors) == []


def test_a_mask_of_four_dimensions_is_not_packed() -> None:
    tensors = {"h.0.attn.bias": ("U8", (1, 1, 4, 4)), "wte.weight": ("F32", (8, 8))}
    assert [finding.code for finding in found({"dtype": "float16"}, tensors)] == ["WGT108"]


def test_the_older_key_is_named_where_it_stands() -> None:
    (finding,) = found({"torch_dtype": "float16"}, {"wte.weight": ("BF16", (8, 8))})
    assert (finding.code, finding.place) == ("WGT202", "/torch_dtype")


def test_weights_that_are_not_all_there_are_not_judged_by_what_lacks() -> None:
    """The shard with the layers is missing: that is said once, and the rest is not checked."""
    example = Example("", {"model-00002-of-00003.safetensors": None}, "sharded")
    report = lint(Repository(example.source()), FAMILY)
    assert report.findings == ()
    assert {"WGT104", "WGT105", "WGT107"} <= set(report.coverage.not_checked)


@pytest.mark.parametrize(
    "head",
    ["lm_head.weight", "transformer.output_layer.weight", "embed_out.weight", "output.weight", "head.weight"],
)
def test_a_head_may_have_any_name(head: str) -> None:
    config = {"architectures": ["XForCausalLM"], "tie_word_embeddings": False, "vocab_size": 16}
    tensors = {"model.embed_tokens.weight": ("F32", (16, 2)), head: ("F32", (16, 2))}
    assert found(config, tensors) == []


def test_a_quantized_head_is_one() -> None:
    config = {"architectures": ["XForCausalLM"], "tie_word_embeddings": False, "vocab_size": 16}
    tensors = {"model.embed_tokens.weight": ("F32", (16, 2)), "lm_head.qweight": ("I32", (2, 2))}
    assert found(config, tensors) == []


@pytest.mark.parametrize("tie", [True, None])
def test_a_head_is_asked_for_only_where_the_config_says_so(tie: object) -> None:
    config = {"architectures": ["XForCausalLM"], "tie_word_embeddings": tie, "vocab_size": 16}
    assert found(config, {"model.embed_tokens.weight": ("F32", (16, 2))}) == []


def test_a_renamed_prefix_is_named_with_all_its_tensors() -> None:
    example = Example("", {"model.safetensors": edited(rename=lambda name: f"_orig_mod.{name}")})
    findings = lint(Repository(example.source()), Selection(select=("WGT103",))).findings
    assert [len(finding.names) for finding in findings] == [21]
