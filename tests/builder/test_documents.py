from __future__ import annotations

import json
from datetime import date

import pytest
from hypothesis import given, settings, strategies as st

from repokit.builder.documents import edited_config, merged_generation_config
from repokit.errors import RecipeError
from repokit.repo.config import Config


def edited(raw, *, dtype=None, compat=()):
    content = edited_config(Config("config.json", raw), dtype=dtype, compat=compat)
    return raw if content is None else json.loads(content)


# ------------------------------------------------------------------------------------------------ config.json


def test_what_nothing_changes_is_not_written():
    assert edited_config(Config("config.json", {"dtype": "bfloat16"}), dtype="bfloat16", compat=()) is None


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_the_dtype_keeps_its_spelling(key):
    assert edited({key: "float32"}, dtype="bfloat16") == {key: "bfloat16"}


def test_both_spellings_change():
    raw = {"dtype": "float32", "torch_dtype": "float32"}
    assert edited(raw, dtype="bfloat16") == dict.fromkeys(raw, "bfloat16")


@pytest.mark.parametrize("raw", [{}, {"dtype": None}, {"torch_dtype": None, "a": 1}])
def test_a_dtype_that_is_not_stated_is_added(raw):
    assert edited(raw, dtype="bfloat16") == {**raw, "dtype": "bfloat16"}


def test_nested_configs_change_where_they_state_a_dtype():
    raw = {
        "dtype": "float32",
        "text_config": {"dtype": "float32", "model_type": "llama"},
        "vision_config": {"torch_dtype": "float32", "deep_config": {"dtype": "float32"}},
        "audio_config": {"model_type": "x", "dtype": None},
        "encoder": {"model_type": "bert", "dtype": "float32"},
        "label": {"dtype": "not a model"},
    }
    assert edited(raw, dtype="float16") == {
        "dtype": "float16",
        "text_config": {"dtype": "float16", "model_type": "llama"},
        "vision_config": {"torch_dtype": "float16", "deep_config": {"dtype": "float16"}},
        "audio_config": {"model_type": "x", "dtype": None},
        "encoder": {"model_type": "bert", "dtype": "float16"},
        "label": {"dtype": "not a model"},
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
).filter(lambda value: json.loads(json.dumps(value, ensure_ascii=True)) == value)
KEYS = st.sampled_from(
    ["a", "hidden_size", "text_config", "dtype", "torch_dtype", "_name_or_path", "rope_parameters", "z"]
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(KEYS, JSON, max_size=6), st.sampled_from([None, "bfloat16"]))
def test_every_other_key_keeps_its_value_and_its_place(raw, dtype):
    changed = {"dtype", "torch_dtype", "_name_or_path", "text_config"}
    after = edited(raw, dtype=dtype)
    assert [(key, repr(value)) for key, value in after.items() if key not in changed] == [
        (key, repr(value)) for key, value in raw.items() if key not in changed
    ]


@pytest.mark.parametrize("path", ["/home/x/llama", "./out", "C:\\out", "run/checkpoint-5/x"])
def test_a_path_of_the_machine_that_trained_is_taken_out_at_every_level(path):
    raw = {"_name_or_path": path, "a": 1, "text_config": {"_name_or_path": path, "b": 2}}
    assert edited(raw) == {"a": 1, "text_config": {"b": 2}}


@pytest.mark.parametrize("name", ["org/name", "gpt2", "", None])
def test_a_name_on_the_hub_stays(name):
    assert edited({"_name_or_path": name}) == {"_name_or_path": name}


def test_transformers_4_reads_the_older_spellings_too():
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0}
    assert edited({"dtype": "bfloat16", "rope_parameters": rope}, compat=("transformers-4",)) == {
        "dtype": "bfloat16",
        "rope_parameters": rope,
        "torch_dtype": "bfloat16",
        "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
    }


def test_transformers_4_gets_no_scaling_where_there_is_none():
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    assert "rope_scaling" not in edited({"rope_parameters": rope}, compat=("transformers-4",))


def test_older_spellings_that_are_there_stay():
    raw = {"dtype": "bfloat16", "torch_dtype": "float16"}
    assert edited(raw, compat=("transformers-4",)) == raw


# ------------------------------------------------------------------------------------------------ generation_config


def test_values_of_the_recipe_win_and_others_stay():
    raw = {"eos_token_id": 2, "temperature": 0.6, "transformers_version": "5.0"}
    assert json.loads(merged_generation_config(raw, {"temperature": 1.0, "top_k": 5})) == {
        "eos_token_id": 2,
        "temperature": 1.0,
        "transformers_version": "5.0",
        "top_k": 5,
    }


@pytest.mark.parametrize("values", [{}, {"a": 1}])
def test_values_that_change_nothing_write_nothing(values):
    assert merged_generation_config({"a": 1}, values) is None


def test_a_file_that_is_not_there_is_made():
    assert merged_generation_config(None, {"do_sample": True}) == b'{\n  "do_sample": true\n}\n'


def test_no_file_and_no_values_are_no_file():
    assert merged_generation_config(None, {}) is None


def test_true_is_not_1():
    assert json.loads(merged_generation_config({"do_sample": 1}, {"do_sample": True})) == {"do_sample": True}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), date(2026, 1, 1), {1, 2}])
def test_a_value_that_json_does_not_have_is_refused(value):
    with pytest.raises(RecipeError, match="JSON does not have"):
        merged_generation_config({}, {"x": value})


# ------------------------------------------------------------------------------------------------ in a build


def test_documents_that_nothing_changes_are_carried_byte_for_byte(workshop):
    odd = b'{"model_type":"llama",  "architectures":["LlamaForCausalLM"],"x":1.50,"y":1E3,"dtype":"float32"}'
    source = workshop.checkpoint(files={"config.json": odd, "generation_config.json": b'{"a":   1}'})
    workshop.build()
    assert workshop.read("config.json") == (source / "config.json").read_bytes()
    assert workshop.read("generation_config.json") == b'{"a":   1}'


def test_generation_config_is_merged(workshop):
    workshop.checkpoint(files={"generation_config.json": '{"eos_token_id": 2}'})
    workshop.build(generation_config={"temperature": 0.5})
    assert json.loads(workshop.read("generation_config.json")) == {"eos_token_id": 2, "temperature": 0.5}


def test_a_document_that_is_excluded_is_left_out(workshop):
    workshop.checkpoint(files={"generation_config.json": "{}"})
    workshop.build(files={"exclude": ["generation_config.json"]})
    assert not (workshop.output / "generation_config.json").exists()
