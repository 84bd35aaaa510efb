"""adapter_config.json by method: the fields of each, at their place, and words for keys that it does not have."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, strategies as st

from repokit.resources import data
from repokit.schema.adapter import AdapterConfig, annotation, model_of
from repokit.schema.adapter_types import MEANINGS, adapter_type, source, type_names, types_with, unknown_keys
from repokit.schema.document import problems

LORA = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": "example/base",
    "inference_mode": True,
    "r": 8,
    "lora_alpha": 16,
    "lora_dropout": 0,
    "target_modules": ["q_proj", "v_proj"],
    "rank_pattern": {},
    "loftq_config": {},
    "revision": None,
}

LEGAL = [
    LORA,
    LORA | {"target_modules": "all-linear", "layers_to_transform": 3, "lora_alpha": 0.5},
    LORA | {"layers_to_transform": [0, 1], "layer_replication": [[0, 2], [1, 3]], "base_model_name_or_path": None},
    LORA | {"rank_pattern": {"q_proj": 4}, "alpha_pattern": {"q_proj": 2.5}, "corda_config": {"use_float16": True}},
    LORA | {"trainable_token_indices": [1, 2]},
    LORA | {"trainable_token_indices": {"embed_tokens": [1, 2]}, "init_lora_weights": "pissa_niter_4"},
    {"peft_type": "ADALORA", "rank_pattern": {"q_proj.lora_E": [True, False]}, "target_r": 8},
    {"peft_type": "IA3", "target_modules": ["k_proj"], "feedforward_modules": "down_proj"},
    {"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 8, "encoder_hidden_size": None, "prefix_projection": False},
    {"peft_type": "OFT", "r": 0, "oft_block_size": 32},
    {"peft_type": "XLORA", "adapters": {"0": "example/adapter"}},
]


@pytest.mark.parametrize("raw", LEGAL)
def test_legal_document(raw):
    assert problems(AdapterConfig, raw) == ()


WRONG = [
    (LORA | {"r": "8"}, "/r"),
    (LORA | {"r": 8.0}, "/r"),
    (LORA | {"revision": 5}, "/revision"),
    (LORA | {"target_modules": ["q_proj", 5]}, "/target_modules/1"),
    (LORA | {"target_modules": {"q": 1}}, "/target_modules"),
    (LORA | {"rank_pattern": {"q": 8.5}}, "/rank_pattern/q"),
    (LORA | {"rank_pattern": []}, "/rank_pattern"),
    (LORA | {"layer_replication": [[0, "2"]]}, "/layer_replication/0/1"),
    (LORA | {"layers_to_transform": "0"}, "/layers_to_transform"),
    (LORA | {"loftq_config": "loftq"}, "/loftq_config"),
    (LORA | {"use_dora": "true"}, "/use_dora"),
    (LORA | {"trainable_token_indices": {"embed_tokens": 1}}, "/trainable_token_indices/embed_tokens"),
    ({"peft_type": "ADALORA", "rank_pattern": {"q_proj.lora_E": ["true"]}}, "/rank_pattern/q_proj.lora_E/0"),
    ({"peft_type": "VERA", "projection_prng_key": "0"}, "/projection_prng_key"),
    ({"peft_type": "PROMPT_TUNING", "num_virtual_tokens": None, "token_dim": "64"}, "/token_dim"),
    ({"peft_type": 5}, "/peft_type"),
    ([], ""),
]


@pytest.mark.parametrize(("raw", "place"), WRONG, ids=[place for _, place in WRONG])
def test_wrong_value_is_found_at_its_place(raw, place):
    assert [problem.pointer for problem in problems(AdapterConfig, raw)] == [place]


def test_a_field_of_another_method_is_not_judged():
    assert problems(AdapterConfig, {"peft_type": "IA3", "r": "8"}) == ()


@pytest.mark.parametrize("name", ["LORA_2", "lora", None])
def test_a_method_that_is_not_known_has_the_common_fields_alone(name):
    assert problems(AdapterConfig, {"peft_type": name, "r": "8"}) == ()
    assert [problem.pointer for problem in problems(AdapterConfig, {"peft_type": name, "revision": 1})] == ["/revision"]


def test_the_table_has_the_45_methods_of_its_peft():
    assert len(type_names()) == 45
    assert re.fullmatch(r"peft \d+\.\d+\.\d+", source())


def test_a_newer_method_is_not_known():
    assert not adapter_type("NEWER").known


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        ("int", int),
        ("list[str] | str", list[str] | str),
        ("dict[str, float | int]", dict[str, float | int]),
        ("dict[str, int | list[bool]]", dict[str, int | list[bool]]),
        ("dict[str, list[int]] | list[int]", dict[str, list[int]] | list[int]),
    ],
)
def test_notation_of_types(spelled, expected):
    assert annotation(spelled) == expected


def test_every_method_has_a_model():
    assert all(model_of(name).model_fields.keys() == adapter_type(name).fields.keys() for name in type_names())


def test_every_meaning_is_that_of_a_field():
    assert {field for field in MEANINGS if not types_with(field)} == set()


def test_every_field_of_lora_has_common_words_or_a_config_of_its_own():
    common = adapter_type("LORA").fields.keys() - data("peft_types")["common"].keys()
    assert {name for name in common - MEANINGS.keys() if not name.endswith(("_config", "_size", "_bdlora"))} == set()


def test_null_of_a_newer_version_is_told_as_such():
    (key,) = unknown_keys(LORA | {"nova_config": None})
    assert (key.key, key.null, key.types) == ("nova_config", True, ())


def test_misspelled_key_is_told_with_what_was_meant():
    (key,) = unknown_keys({"peft_type": "LORA", "lora_aplha": 16})
    assert (key.null, key.meant) == (False, "lora_alpha")


def test_a_field_that_is_there_was_not_meant():
    (key,) = unknown_keys({"peft_type": "LORA", "lora_aplha": 16, "lora_alpha": 8})
    assert key.meant is None


def test_field_of_other_methods_is_told_with_them():
    (key,) = unknown_keys({"peft_type": "IA3", "total_step": 10})
    assert key.types == ("ADALORA",)


@pytest.mark.parametrize("raw", [{"peft_type": "NEWER", "x": 1}, {"x": 1}, {"peft_type": ["LORA"], "x": 1}])
def test_without_a_known_method_no_key_is_unknown(raw):
    assert unknown_keys(raw) == ()


def test_schema_has_each_method_and_refers_to_types_that_are_there():
    schema = AdapterConfig.model_json_schema()
    assert [part["if"]["properties"]["peft_type"]["const"] for part in schema["allOf"]] == list(type_names())
    used = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema)))
    assert used == schema["$defs"].keys()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted(adapter_type("LORA").fields.keys() | adapter_type("ADALORA").fields.keys())


@given(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6), st.sampled_from(["LORA", "ADALORA", "VERA"]))
def test_any_document_has_its_problems_inside_it(raw, name):
    raw["peft_type"] = name
    unknown_keys(raw)
    for problem in problems(AdapterConfig, raw):
        assert problem.pointer.split("/")[1] in raw
