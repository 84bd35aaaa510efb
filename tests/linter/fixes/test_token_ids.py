"""Ids that end, begin and pad, by the tokenizer."""

from __future__ import annotations

from repokit.linter.examples import DELETE
from repokit.linter.rules.token_ids import with_added, with_rows

CONFIG = "config.json"
GENERATION = "generation_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"


def test_the_other_ids_that_end_a_generation_stay(mend):
    change = {GENERATION: {"eos_token_id": [2, 5]}, CONFIG: {"eos_token_id": 2}}
    assert mend("TOK111", change).json(GENERATION)["eos_token_id"] == [2, 5, 4]


def test_without_generation_config_the_id_goes_where_the_others_are(mend):
    change = {GENERATION: None, CONFIG: {"eos_token_id": 2}}
    assert mend("TOK111", change).json(CONFIG)["eos_token_id"] == [2, 4]


def test_a_generation_config_without_ids_takes_those_of_config_json(mend):
    change = {GENERATION: {"eos_token_id": DELETE}, CONFIG: {"eos_token_id": 2}}
    assert mend("TOK111", change).json(GENERATION)["eos_token_id"] == [2, 4]


def test_an_id_beyond_the_embedding_ends_nothing(mend):
    change = {
        "tokenizer.json": with_added("<end>", 32),
        TOKENIZER_CONFIG: {"eos_token": "<end>"},
        "chat_template.jinja": None,
    }
    assert not mend("TOK111", change).changed


def test_only_the_ids_that_no_token_can_have_are_taken_out(mend):
    assert mend("GEN102", {GENERATION: {"eos_token_id": [4, 999, 2, -1]}}).json(GENERATION)["eos_token_id"] == [4, 2]


def test_a_role_that_the_tokenizer_does_not_have_is_not_filled(mend):
    change = {CONFIG: {"pad_token_id": 99}, TOKENIZER_CONFIG: {"pad_token": DELETE}}
    assert not mend("CFG103", change).changed


def test_sampling_that_is_switched_off_stays_off(mend):
    found = mend("GEN201", {GENERATION: {"do_sample": False, "top_p": 0.5}}).json(GENERATION)
    assert (found["do_sample"], "top_p" in found) == (False, False)


def test_a_temperature_of_zero_is_no_sampling(mend):
    assert "temperature" not in mend("GEN201", {GENERATION: {"temperature": 0.0}}).json(GENERATION)


def test_the_id_of_an_image_is_what_the_processor_writes(mend):
    change = {
        **with_rows(64),
        "tokenizer.json": with_added("<image>", 32),
        CONFIG: {"image_token_id": 5, "vocab_size": 64},
    }
    assert mend("PRC104", change).json(CONFIG)["image_token_id"] == 32


def test_the_default_of_the_class_goes_on_ending_a_generation(mend):
    change = {GENERATION: None, CONFIG: {"eos_token_id": DELETE}}
    assert mend("TOK111", change).json(CONFIG)["eos_token_id"] == [2, 4]
