"""Files of a tokenizer: what tokenizer.json proves."""

from __future__ import annotations

import json

import pytest

from repokit.linter.examples import DELETE, VOCABULARY, tokenizer_json
from repokit.linter.rules.token_ids import slow
from repokit.linter.rules.tokenizer import ENCODER

CONFIG = "tokenizer_config.json"
TOKENIZER = "tokenizer.json"


def test_flags_of_a_token_are_kept_where_it_is_marked_as_one(mend):
    change = {CONFIG: {"pad_token": {"content": "<pad>", "lstrip": True}}}
    found = mend("TOK116", change).json(CONFIG)["pad_token"]
    assert found == {"content": "<pad>", "lstrip": True, "__type": "AddedToken"}


def test_a_token_with_keys_that_no_token_takes_becomes_text(mend):
    change = {CONFIG: {"pad_token": {"content": "<pad>", "id": 0}}}
    assert mend("TOK116", change).json(CONFIG)["pad_token"] == "<pad>"


def test_of_a_token_that_is_spelled_out_only_the_text_is_set(mend):
    change = {"special_tokens_map.json": {"eos_token": {"content": "</s>", "lstrip": True}}}
    found = mend("TOK104", change).json("special_tokens_map.json")
    assert found == {"eos_token": {"content": "<|im_end|>", "lstrip": True}}


def test_a_token_that_only_another_file_has_stays(mend):
    change = {CONFIG: {"added_tokens_decoder": {"2": {"content": "<mine>", "special": True}}}}
    assert not mend("TOK108", change).changed


def test_without_tokenizer_json_no_file_is_right(mend):
    assert not mend("TOK108", slow({"<x>": 7})).changed


def test_a_vocabulary_is_written_in_the_order_of_its_ids(mend):
    found = mend("TOK109", {"vocab.json": {"a": 4, "zz": 7}}).json("vocab.json")
    assert list(found.items()) == [(token, number) for number, token in enumerate(VOCABULARY)]


def test_a_vocabulary_with_gaps_is_not_written_in_lines(mend):
    gap = json.loads(tokenizer_json())
    gap["model"]["vocab"]["far"] = 100
    assert not mend("TOK109", {TOKENIZER: json.dumps(gap), "vocab.txt": "a\nb\n"}).changed


@pytest.mark.parametrize(
    ("model_type", "padding", "length"), [("bert", 0, 64), ("roberta", 1, 62), ("roberta", 3, 60), ("mpnet", 3, 62)]
)
def test_positions_behind_the_padding_are_fewer(mend, model_type, padding, length):
    change = ENCODER | {
        "config.json": {"model_type": model_type, "pad_token_id": padding},
        CONFIG: {"model_max_length": DELETE},
    }
    assert mend("TOK216", change).json(CONFIG)["model_max_length"] == length


def test_a_tokenizer_in_python_keeps_its_class(mend):
    assert not mend("TOK302", {CONFIG: {"tokenizer_class": "SentencePieceBackend"}}).changed


def test_a_list_under_both_names_is_one_list(mend):
    change = {CONFIG: {"additional_special_tokens": ["<s>", "</s>"], "extra_special_tokens": ["</s>", "<unk>"]}}
    found = mend("TOK203", change).json(CONFIG)
    assert (found["additional_special_tokens"], "extra_special_tokens" in found) == (["</s>", "<unk>", "<s>"], False)


def test_truncation_that_is_meant_loses_its_stride_alone(mend):
    truncation = {"direction": "Right", "max_length": 16, "strategy": "LongestFirst", "stride": 16}
    found = mend("TOK113", {TOKENIZER: {"truncation": truncation}, "modules.json": "[]"}).json(TOKENIZER)
    assert found["truncation"] == {**truncation, "stride": 0}


def test_every_other_byte_of_tokenizer_json_stays(mend):
    before = tokenizer_json().replace(b'"truncation": null', b'"truncation": {"max_length": 8, "stride": 0}')
    assert mend("TOK201", {TOKENIZER: before}).bytes(TOKENIZER) == tokenizer_json()
