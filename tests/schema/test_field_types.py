"""The table of field types, and what a value must be to fit one."""

from __future__ import annotations

import math

import pytest

from repokit.schema.config import Config
from repokit.schema.field_types import (
    Level,
    accepts,
    class_of,
    config_problems,
    levels,
    refusals,
    root_class,
    sentence,
    table,
)

LLAMA = {"model_type": "llama", "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}


def told(raw):
    return {problem.pointer: problem.message for problem in config_problems(Config, raw)}


def test_every_class_can_be_read():
    assert [name for name in table()["classes"] if class_of(name) is None] == []


def test_every_class_has_fields():
    assert [name for name in table()["classes"] if not class_of(name).fields] == []


@pytest.mark.parametrize(
    ("spelled", "value"),
    [
        ("int", 3),
        ("float", 0.5),
        ("float", {"__float__": "Infinity"}),
        ("float", math.inf),
        ("bool", True),
        ("str", ""),
        ("int|null", None),
        ("int|list[int]", [1, 2]),
        ("list[int]", []),
        ("list[list[int]]", [[1], [2, 3]]),
        ("list", [1, "a", None]),
        ("dict", {"a": 1}),
        ("dict[str,int]", {"a": 1}),
        ('dict["full_attention"|"sliding_attention",dict]', {"full_attention": {}}),
        ('"default"|"full"', "full"),
        ("any", object()),
    ],
)
def test_a_value_that_fits(spelled, value):
    assert accepts(spelled, value)


@pytest.mark.parametrize(
    ("spelled", "value"),
    [
        ("int", True),
        ("int", 1.0),
        ("int", "1"),
        ("int", None),
        ("float", 1),
        ("float", True),
        ("float", {"__float__": "many"}),
        ("bool", 1),
        ("str", 1),
        ("int|list[int]", [1, 2.0]),
        ("list[list[int]]", [1]),
        ("dict[str,int]", {"a": "b"}),
        ('dict["full_attention",dict]', {"other": {}}),
        ('"default"|"full"', "half"),
        ('"default"|"full"', 1),
        ("nothing", [1, 2]),
    ],
)
def test_a_value_that_does_not_fit(spelled, value):
    assert not accepts(spelled, value)


@pytest.mark.parametrize(
    ("spelled", "value", "words"),
    [
        ("float", 1, "is an integer, must be a float"),
        ("int|null", "1", "is a string, must be an integer"),
        ("int|list[int]", 1.5, "is a float, must be an integer or a list of integers"),
        ("int|list[int]", [1.5], "holds another type, must be an integer or a list of integers"),
        ('"default"|"full"', "half", 'is a string, must be "default" or "full"'),
    ],
)
def test_a_sentence_says_what_is_and_what_must_be(spelled, value, words):
    assert sentence(spelled, value) == words


def test_a_field_of_the_wrong_type_is_told_once():
    assert told({**LLAMA, "hidden_size": "16"}) == {"/hidden_size": "is a string, must be an integer"}


def test_null_is_told_of_a_field_that_cannot_be_null():
    assert told({**LLAMA, "num_hidden_layers": None}) == {"/num_hidden_layers": "is null, must be an integer"}


def test_null_is_allowed_where_the_class_fills_it_in():
    assert told({**LLAMA, "num_key_value_heads": None}) == {}


def test_a_key_that_the_class_does_not_have_is_free():
    assert told({**LLAMA, "my_setting": [1, "a"]}) == {}


def test_what_the_class_takes_is_right_whatever_other_families_say():
    assert told({"model_type": "swin", "num_heads": [3, 6], "hidden_size": 96, "depths": [2, 2]}) == {}


def test_a_part_is_judged_by_its_own_class():
    raw = {"model_type": "llava", "text_config": {"model_type": "qwen2", "rms_norm_eps": 1}}
    assert told(raw) == {"/text_config/rms_norm_eps": "is an integer, must be a float"}


def test_a_part_without_a_model_type_has_the_class_that_the_whole_gives_it():
    assert [level.cls.name for level in levels({"model_type": "clip", "vision_config": {}})] == [
        "clip",
        "clip_vision_model",
    ]


def test_a_part_whose_model_type_is_not_known_is_not_judged():
    raw = {"model_type": "llava", "text_config": {"model_type": "spiral", "hidden_size": 4096}}
    assert [level.path for level in levels(raw)] == [()]


def test_code_of_the_repository_is_not_judged():
    assert root_class({**LLAMA, "auto_map": {"AutoConfig": "configuration_x.X"}}) is None


def test_code_for_the_model_alone_leaves_the_config_to_transformers():
    assert root_class({**LLAMA, "auto_map": {"AutoModel": "modeling_x.X"}}) is not None


def test_a_file_of_a_newer_transformers_is_judged_by_what_all_families_share():
    raw = {**LLAMA, "rms_norm_eps": 1, "vocab_size": "32", "transformers_version": "9.1.0"}
    assert told(raw) == {"/vocab_size": "is a string, must be an integer"}


def test_mistral_with_layer_types_is_read_as_another_family():
    assert root_class({"model_type": "mistral", "layer_types": ["full_attention"]}).name == "ministral"


@pytest.mark.parametrize("raw", [{}, {"model_type": 3}, {"model_type": ["llama"]}, {"model_type": "spiral"}, []])
def test_what_is_no_config_of_a_known_class_is_judged_by_the_schema(raw):
    assert all(problem.message for problem in config_problems(Config, raw))


def test_parts_within_parts_come_to_an_end():
    raw = {"model_type": "llava"}
    for _ in range(50):
        raw = {"model_type": "llava", "text_config": raw}
    assert len(list(levels(raw))) < 20


# ---------------------------------------------------------------- conditions


def refused(raw):
    return [text for level in levels(raw) for text, _ in refusals(level)]


def test_a_condition_that_holds_is_told():
    assert refused({**LLAMA, "num_attention_heads": 3}) == ["hidden_size % num_attention_heads != 0"]


def test_a_condition_is_held_against_the_default_of_the_class():
    assert refused({"model_type": "llama", "hidden_size": 4097}) == ["hidden_size % num_attention_heads != 0"]


def test_a_condition_that_config_json_has_no_part_in_is_not_looked_at():
    assert refused({"model_type": "llama"}) == []


def test_an_alias_is_read_as_its_field():
    level = Level((), {"d_model": 16, "num_heads": 3}, class_of("llama"))
    assert [text for text, _ in refusals(level)] == []


def test_a_value_of_the_wrong_type_is_no_value_of_a_condition():
    assert refused({**LLAMA, "num_attention_heads": "3"}) == []


def test_nothing_is_computed_with_a_word_that_stands_for_a_number():
    assert refused({"model_type": "bamba", "mamba_d_head": "auto", "hidden_size": 4096}) == []
