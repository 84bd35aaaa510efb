"""Rules over values: what is said once, what is zero or infinite by right, what cannot be compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from repokit.linter.engine import lint
from repokit.linter.examples import Example, Tensors, edited, shard, single, tensors_of
from repokit.linter.examples_torch import torch_file
from repokit.linter.examples_values import (
    INFINITY,
    NAN,
    copied,
    one_after_another,
    planted,
    zero_row,
    zero_rows,
    zeroed,
)
from repokit.linter.finding import Finding, Report
from repokit.linter.rule import Reads
from repokit.linter.rules import RULES
from repokit.repo.directory import Directory
from repokit.repo.repository import Repository
from repokit.repo.weights import ADAPTER, SINGLE

HEAD = "lm_head.weight"
EMBEDDING = "model.embed_tokens.weight"
BOTH = edited(add={HEAD: ("BF16", (32, 16))})
CODE = {"config.json": {"auto_map": {"AutoModelForCausalLM": "modeling_x.XModel"}}, "modeling_x.py": ""}
DEEP = tuple(rule for rule in RULES if rule.reads is Reads.TENSORS)


def deep(example: Example) -> Report:
    repository = Repository(example.source())
    if example.against is not None:
        repository.base_model = Repository(Example("base", base=example.against).source())
    return lint(repository, rules=DEEP, deep=True)


def codes(change: dict[str, object], base: str = "single", against: str | None = None) -> list[str]:
    return [finding.code for finding in deep(Example("case", change, base, against=against)).findings]


def added(tensors: Tensors, *changes: Callable[[bytes], bytes]) -> dict[str, object]:
    """Tensors that only code of the repository knows, and their values."""
    return {**CODE, SINGLE: one_after_another(edited(add=tensors), *changes)}


# ---------------------------------------------------------------- not finite


def only(report: Report) -> Finding:
    (found,) = report.findings
    return found


def test_the_first_broken_value_is_placed() -> None:
    found = only(deep(Example("NaN", {SINGLE: planted(NAN, 5, "model.layers.1.mlp.up_proj.weight")})))
    assert (found.place, found.message.rpartition(": ")[2]) == (
        "model.layers.1.mlp.up_proj.weight",
        "model.layers.1.mlp.up_proj.weight has 1 NaN of 384, the first at [0, 5]",
    )


def test_each_shard_is_told() -> None:
    broken = {shard(number): planted(NAN, 0, "weight") for number in (1, 3)}
    report = deep(Example("NaN", broken, "sharded"))
    assert [finding.path for finding in report.findings] == [shard(1), shard(3)]


@pytest.mark.parametrize(
    "name",
    [
        "attn.masked_bias",
        "attn.attn_mask",
        "model.causal_mask",
        "q_proj.input_max",
        "post_process.min_val",
        "final_logits_bias",
        "cls.predictions.bias",
    ],
)
def test_infinity_may_be_meant(name: str) -> None:
    assert codes(added({name: ("F32", (4,))}, planted(INFINITY, 1, name))) == []


@pytest.mark.parametrize("name", ["mask_decoder.weight", "min.weight", "mask_token", "norm.bias", "experts.down_proj"])
def test_infinity_is_no_weight(name: str) -> None:
    assert codes(added({name: ("F32", (4,))}, planted(INFINITY, 1, name))) == ["WGT120"]


def test_nan_is_meant_nowhere() -> None:
    assert codes(added({"causal_mask": ("F32", (4,))}, planted(NAN, 1, "causal_mask"))) == ["WGT120"]


# ---------------------------------------------------------------- zeros


@pytest.mark.parametrize(
    "name",
    [
        "roberta.embeddings.token_type_embeddings.weight",
        "encoder.relative_position_bias_table",
        "embeddings.mask_token",
        "embeddings.position_embeddings.weight",
        "blocks.{}.adaLN_modulation.1.weight",
        "controlnet_down_blocks.{}.weight",
        "v_head.summary.weight",
        "score.weight",
        "layers.{}.mlp.experts.gate_up_proj_bias",
        "layers.{}.self_attn.q_proj.lora_B.speech.weight",
        "final_logits_bias",
        "multi_modal_projector.mm_input_projection_weight",
    ],
)
def test_what_may_be_zero_is_not_told(name: str) -> None:
    names = [name.format(layer) for layer in range(2)]
    assert codes(added(dict.fromkeys(names, ("F32", (4, 16))), zeroed(*names))) == []


@pytest.mark.parametrize("names", [("experts.{}.w1.weight",), ("experts.gate_up_proj",), ("fc1.weight", "fc2.weight")])
def test_lost_matrices_are_an_error(names: tuple[str, ...]) -> None:
    zero = [f"layers.{layer}.{name.format(layer)}" for layer in range(2) for name in names]
    assert codes(added(dict.fromkeys(zero, ("F32", (4, 16))), zeroed(*zero))) == ["WGT121"]


@pytest.mark.parametrize("shape", [(1, 16), (16,), (16, 1)])
def test_what_is_one_output_is_no_matrix(shape: tuple[int, ...]) -> None:
    assert codes(added({"layers.0.g.weight": ("F32", shape)}, zeroed("g.weight"))) == []


def test_a_module_is_counted_once() -> None:
    change = {SINGLE: zeroed("layers.0.self_attn.q_proj.qweight", "layers.0.self_attn.q_proj.scales")}
    found = deep(Example("zero", change, "gptq")).findings
    assert [len(finding.names) for finding in found] == [2]  # `qweight` and, by its scales, `weight`


def test_zero_matrices_of_two_shards_are_lost() -> None:
    report = deep(Example("zero", {shard(1): zeroed(EMBEDDING), shard(3): zeroed(HEAD)}, "sharded"))
    assert {(finding.code, finding.path) for finding in report.findings} == {("WGT121", shard(1)), ("WGT121", shard(3))}


def test_the_ending_token_of_a_head_with_a_bias_is_left_alone() -> None:
    zero = one_after_another(zero_row(4, HEAD), zero_row(2, HEAD))
    assert codes(added({"lm_head.bias": ("BF16", (32,))}, zero)) == []


def test_the_ending_token_that_is_the_padding_may_be_zero() -> None:
    zero = one_after_another(zero_row(4, EMBEDDING), zero_row(2, EMBEDDING))
    assert codes({"config.json": {"pad_token_id": 4}, SINGLE: zero}, "tied") == []


# ---------------------------------------------------------------- tied


def everything(example: Example) -> set[str]:
    return {finding.code for finding in lint(Repository(example.source()), deep=True).findings}


@pytest.mark.parametrize(
    ("values", "code"), [(BOTH, "WGT122"), (one_after_another(BOTH, copied(EMBEDDING, HEAD)), "WGT221")]
)
def test_a_tied_copy_is_told_by_one_rule(values: Callable[[bytes], bytes], code: str) -> None:
    assert everything(Example("copy", {SINGLE: values}, "tied")) & {"WGT122", "WGT221", "WGT303"} == {code}


def test_a_tied_copy_that_cannot_be_compared_is_told_by_its_header() -> None:
    head = edited(add={HEAD: ("F32", (32, 16))})
    assert everything(Example("copy", {SINGLE: head}, "tied")) & {"WGT122", "WGT221", "WGT303"} == {"WGT303"}


def test_a_class_that_nobody_knows_is_judged_by_its_flag() -> None:
    config = {"architectures": ["NewForCausalLM"], "model_type": "new", "tie_word_embeddings": True}
    assert codes({"config.json": config}) == ["WGT122"]


def test_code_of_the_repository_may_tie_what_it_likes() -> None:
    assert codes({**CODE, "config.json": {**CODE["config.json"], "tie_word_embeddings": True}}) == []  # type: ignore[dict-item]


# ---------------------------------------------------------------- adapters


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("rank", [0, 1])
def test_the_part_of_any_process_is_found(ranks: int, rank: int) -> None:
    size = 8 // ranks
    part = one_after_another(
        zero_rows(0, rank * size, "lora_B.weight"), zero_rows((rank + 1) * size, 8, "lora_B.weight")
    )
    found = only(deep(Example("part", {ADAPTER: part}, "lora")))
    assert (found.code, f"1 of {ranks} parts" in found.message) == ("ADP120", True)


def test_different_shares_are_not_the_parts_of_processes() -> None:
    half, quarter = zero_rows(4, 8, "q_proj.lora_B.weight"), zero_rows(2, 8, "v_proj.lora_B.weight")
    assert codes({ADAPTER: one_after_another(half, quarter)}, "lora") == []


def test_parts_that_begin_between_two_shares_are_not_of_processes() -> None:
    assert (
        codes({ADAPTER: one_after_another(zero_rows(0, 1, "lora_B.weight"), zero_rows(5, 8, "lora_B.weight"))}, "lora")
        == []
    )


def test_modules_that_were_not_reached_do_not_count() -> None:
    part = one_after_another(zeroed("layers.0.self_attn.v_proj.lora_B.weight"), zero_rows(1, 8, "lora_B.weight"))
    assert codes({ADAPTER: part}, "lora") == ["ADP120"]


# ---------------------------------------------------------------- pickles, bases


def test_an_equal_pickle_has_equal_values() -> None:
    pickle = torch_file(tensors_of(single()[SINGLE]))
    assert codes({"pytorch_model.bin": pickle}) == []


def test_a_pickle_is_compared_with_all_shards() -> None:
    tensors = tensors_of(single()[SINGLE])
    pickle = torch_file(tensors, names={HEAD: EMBEDDING})
    report = deep(Example("pickle", {"pytorch_model.bin": pickle}, "sharded"))
    assert [finding.names for finding in report.findings] == [(HEAD,)]


def test_a_pickle_of_another_dtype_is_not_compared() -> None:
    pickle = torch_file({name: ("F16", shape) for name, (_, shape) in tensors_of(single()[SINGLE]).items()})
    assert codes({"pytorch_model.bin": pickle}) == []


def test_a_model_that_was_split_anew_is_unchanged() -> None:
    assert codes({}, "sharded", against="single") == ["WGT222"]


def test_what_a_quantizer_left_as_it_was_is_the_bases_by_right() -> None:
    assert codes({"config.json": {"quantization_config": {"quant_method": "fp8"}}}, against="single") == []


def test_an_adapter_is_not_its_base() -> None:
    assert codes({}, "lora", against="lora") == []


def test_a_model_with_tensors_of_its_own_is_no_copy() -> None:
    assert codes(added({"value_head.weight": ("BF16", (2, 16))}), against="single") == []


def test_a_folder_is_not_compared_with_itself(tmp_path: Path) -> None:
    for path, content in single().items():
        (tmp_path / path).write_bytes(content)
    repository = Repository(Directory(tmp_path))
    repository.base_model = Repository(Directory(tmp_path / "."))
    assert lint(repository, rules=DEEP, deep=True).findings == ()


# ---------------------------------------------------------------- what could not be read


def test_an_unreadable_shard_is_no_clean_one() -> None:
    broken = {shard(1): b"no safetensors file", shard(3): zeroed(HEAD)}
    report = deep(Example("broken", broken, "sharded"))
    assert ([finding.code for finding in report.findings], "WGT120" in report.coverage.not_checked) == (
        ["WGT220"],
        True,
    )


def test_without_deep_no_value_is_read() -> None:
    report = lint(Repository(Example("NaN", {SINGLE: planted(NAN, 5, HEAD)}).source()))
    assert not {rule.code for rule in DEEP} & {*report.coverage.checked, *report.coverage.not_checked}
