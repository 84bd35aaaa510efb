from __future__ import annotations

import json

import pytest

from repokit.linter.rules.field_values import RULES
from repokit.linter.rules.misspelt_keys import MisspeltSetting
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

LLAMA = {"model_type": "llama", "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
FULL = ["full_attention"] * 2


def told(raw):
    repository = Repository(Memory({"config.json": json.dumps(raw).encode()}))
    return {(finding.code, finding.place) for rule in RULES for finding in rule.check(repository)}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"initializer_range": 2.0}, {("CFG114", "/initializer_range")}),
        ({"layer_types": ["full_attention", "spiral"]}, {("CFG115", "/layer_types")}),
        ({"layer_types": FULL, "mlp_layer_types": ["dense", "moe"]}, {("CFG115", "/mlp_layer_types")}),
        ({"head_dim": 5}, {("CFG116", "/head_dim")}),
        ({"id2label": {"a": "b"}}, {("CFG117", "/id2label")}),
        ({"problem_type": "single_label_classification", "num_labels": 1}, {("CFG117", "/problem_type")}),
        ({"is_heterogeneous": False}, {("CFG118", "/is_heterogeneous")}),
    ],
)
def test_what_the_class_refuses_is_told(change, expected):
    assert told({**LLAMA, **change}) == expected


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"initializer_range": 1.0},
        {"mlp_layer_types": ["dense", "moe"]},  # which is looked at beside layer_types alone
        {"layer_types": ["attention", "deepseek_sparse_attention"]},
        {"layer_types": None},
        {"layer_types": [3, None]},
        {"head_dim": 3},
        {"head_dim": 7, "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
        {"head_dim": 7, "partial_rotary_factor": 0.5},
        {"head_dim": "7"},
        {"id2label": {" 1 ": "b"}},
        {"id2label": ["a"]},
        {"problem_type": "regression", "num_labels": 1},
        {"problem_type": "single_label_classification", "num_labels": True},
        {"use_return_dict": True, "transformers_version": "9.0.0"},
    ],
)
def test_what_the_class_takes_is_not(change):
    assert told({**LLAMA, **change}) == set()


def test_values_that_an_older_rule_speaks_of_are_told_by_that_one_alone():
    assert told({**LLAMA, "num_attention_heads": 3}) == set()


def test_a_part_is_looked_at():
    assert told({"model_type": "llava", "text_config": {"model_type": "llama", "head_dim": 9}}) == {
        ("CFG116", "/text_config/head_dim")
    }


def test_a_layer_word_is_no_matter_where_no_layers_are_counted():
    assert told({"model_type": "encodec", "layer_types": ["spiral"]}) == set()


def settings(raw):
    repository = Repository(Memory({"generation_config.json": json.dumps(raw).encode()}))
    return {finding.place: finding.hint for finding in MisspeltSetting().check(repository)}


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        ({"max_new_token": 5}, {"/max_new_token": "did you mean max_new_tokens?"}),
        ({"repetition_penalyt": 1.1}, {"/repetition_penalyt": "did you mean repetition_penalty?"}),
        ({"max_new_tokens": 5, "max_new_token": 5}, {}),
        ({"_from_model_config": True}, {}),
        ({"thinking_budget": 5, "topk": 5}, {}),
    ],
)
def test_a_setting_that_is_nearly_one_that_is_read(raw, meant):
    assert settings(raw) == meant
