"""Tensors against the architecture: one cause is told once, by the rule with the closest view of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from repokit.architectures import Evidence
from repokit.architectures.member import member
from repokit.linter.engine import lint
from repokit.linter.examples import Change, Example, edited
from repokit.linter.examples_skeleton import weights_of
from repokit.linter.finding import Finding, Report
from repokit.linter.rules.weights import prefixed
from repokit.repo.repository import Repository
from repokit.repo.weights import SINGLE

CONFIG = "config.json"
HEAD = "lm_head.weight"
BERT = {"architectures": ["BertModel"], "model_type": "bert"}
MASKED = {"architectures": ["BertForMaskedLM"], "model_type": "bert"}
NO_CHAT: dict[str, Change] = {"chat_template.jinja": None, "generation_config.json": None}


def reported(change: dict[str, Change], base: str = "single") -> Report:
    return lint(Repository(Example("", change, base).source()))


def about_tensors(change: dict[str, Change], base: str = "single") -> dict[str, Finding]:
    """What the rules about tensors say, by code."""
    return {one.code: one for one in reported(change, base).findings if one.code.startswith(("WGT", "CFG"))}


# ---------------------------------------------------------------- one cause, told once


@pytest.mark.parametrize("wrapper", ["module.", "_orig_mod.", "base_model.model."])
def test_a_wrapper_is_told_by_the_rule_of_wrappers(wrapper: str) -> None:
    assert set(about_tensors({SINGLE: prefixed(wrapper)})) == {"WGT103"}


def test_what_is_missing_behind_a_wrapper_is_told_beside() -> None:
    names = ("module.model.layers.0.mlp.up_proj.weight",)
    bare = edited(drop=("model.layers.0.mlp.up_proj.weight",))
    found = about_tensors({SINGLE: lambda content: prefixed("module.")(bare(content))})
    assert set(found) == {"WGT103", "WGT111"}
    assert found["WGT111"].names == (names[0].removeprefix("module."),)


def test_a_lost_layer_is_told_by_the_rule_of_layers_with_the_value_that_would_fit() -> None:
    found = about_tensors({CONFIG: {"num_hidden_layers": 5}})
    assert set(found) == {"WGT104"}
    assert found["WGT104"].hint == "with num_hidden_layers 2 (not 5) in config.json everything matches"


def test_rows_of_embedding_and_head_are_one_finding() -> None:
    assert set(about_tensors({CONFIG: {"vocab_size": 40}})) == {"WGT106"}


def test_a_lost_head_is_told_by_the_rule_of_heads() -> None:
    assert set(about_tensors({SINGLE: edited(drop=(HEAD,))})) == {"WGT107"}


def test_an_impossible_config_is_told_by_the_rules_of_configs() -> None:
    assert set(about_tensors({CONFIG: {"num_attention_heads": 3}})) == {"CFG112"}


def test_a_thousand_tensors_are_one_finding_of_one_line() -> None:
    config = {"num_hidden_layers": 200}
    found = about_tensors({CONFIG: {**config, "mlp_bias": True}, SINGLE: weights_of(config)})
    assert set(found) == {"WGT111"}
    assert len(found["WGT111"].names) == 600
    assert "model.layers.{0-199}.mlp.up_proj.bias: 200 tensors" in found["WGT111"].message
    assert len(found["WGT111"].message) < 300


# ---------------------------------------------------------------- explanations


def test_a_finding_names_the_value_that_explains_it() -> None:
    found = about_tensors({CONFIG: {"intermediate_size": 48}})
    assert found["WGT113"].hint == "with intermediate_size 24 (not 48) in config.json everything matches"


def test_a_finding_without_an_explanation_has_no_hint() -> None:
    assert about_tensors({SINGLE: edited(drop=("model.norm.weight",))})["WGT111"].hint is None


# ---------------------------------------------------------------- heads


def test_an_embedding_model_does_without_a_pooler() -> None:
    drop = ("pooler.dense.weight", "pooler.dense.bias")
    files = {CONFIG: BERT, SINGLE: weights_of(BERT, drop=drop), **NO_CHAT}
    assert {*about_tensors({**files, "modules.json": "[]"})} == set()


def test_another_model_does_not() -> None:
    drop = ("pooler.dense.weight", "pooler.dense.bias")
    assert "WGT111" in about_tensors({CONFIG: BERT, SINGLE: weights_of(BERT, drop=drop), **NO_CHAT})


def test_a_pooler_beside_the_head_of_a_language_model_is_a_note() -> None:
    add = {"bert.pooler.dense.weight": ("BF16", (16, 16)), "bert.pooler.dense.bias": ("BF16", (16,))}
    assert set(about_tensors({CONFIG: MASKED, SINGLE: weights_of(MASKED, add=add), **NO_CHAT})) == {"WGT305"}


# ---------------------------------------------------------------- what is not judged


def unjudged(change: dict[str, Change], base: str = "single") -> tuple[str, ...]:
    return reported(change, base).coverage.unknown


def test_an_architecture_without_a_skeleton_is_said_to_be_unjudged() -> None:
    (line,) = unjudged({CONFIG: {"architectures": ["LlamaForDreams"]}})
    assert line.startswith("the tensors are not held against config.json: ")


def test_so_is_one_that_code_of_the_repository_defines() -> None:
    mapped = {"auto_map": {"AutoModelForCausalLM": "modeling_x.XModel"}}
    (line,) = unjudged({CONFIG: mapped, "modeling_x.py": ""})
    assert line.endswith("LlamaForCausalLM is code of the repository")


def test_an_unknown_model_type_is_said_once() -> None:
    assert len(unjudged({CONFIG: {"model_type": "frobnicate"}})) == 1


def test_a_repository_without_weights_has_nothing_to_judge() -> None:
    assert unjudged({SINGLE: None, CONFIG: {"architectures": ["LlamaForDreams"]}}) == ()


def test_weights_that_are_not_all_there_are_not_judged() -> None:
    report = reported({"model-00002-of-00003.safetensors": None}, "sharded")
    assert {"WGT111", "WGT112", "WGT113"} <= set(report.coverage.not_checked)


# ---------------------------------------------------------------- partial knowledge


@pytest.fixture
def half_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data in which the llama is only partly known: nothing of its biases."""
    llama = member("llama")
    facts = llama.architecture("LlamaForCausalLM")
    blocks = tuple(
        replace(block, condition=None) if any(one.name.endswith("bias") for one in block.templates) else block
        for block in facts.disk
    )
    monkeypatch.setitem(llama.read, facts.name, replace(facts, evidence=Evidence.PARTIAL, disk=blocks))


@pytest.mark.usefixtures("half_known")
def test_what_is_partly_known_is_no_finding_where_it_fits() -> None:
    assert about_tensors({}) == {}


@pytest.mark.usefixtures("half_known")
def test_what_is_partly_known_is_a_warning() -> None:
    assert set(about_tensors({SINGLE: edited(drop=("model.norm.weight",))})) == {"WGT205"}


@pytest.mark.usefixtures("half_known")
def test_what_is_unknown_is_no_finding() -> None:
    biases = {f"model.layers.{layer}.mlp.up_proj.bias": ("BF16", (24,)) for layer in range(2)}
    assert about_tensors({SINGLE: edited(add=biases)}) == {}
