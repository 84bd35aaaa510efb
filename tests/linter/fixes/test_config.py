"""config.json: values that the weights prove, and values that they do not."""

from __future__ import annotations

import json

from repokit.linter.examples import DELETE, edited, single
from repokit.linter.examples_skeleton import weights_of
from repokit.repo.weights import SINGLE

CONFIG = "config.json"
HEAD = "lm_head.weight"


def test_every_other_byte_of_the_file_stays(mend):
    text = (
        b'{\r\n\t"b": 1e0,\r\n'
        + json.dumps({**json.loads(single()[CONFIG]), "_attn_implementation": "flash_attention_2"}).encode()[1:]
    )
    found = mend("CFG204", {CONFIG: text}).bytes(CONFIG)
    assert found == text.replace(b', "_attn_implementation": "flash_attention_2"', b"")


def test_a_class_of_no_model_type_gives_none(mend):
    change = {CONFIG: {"model_type": DELETE, "architectures": ["LlamaForEverything"]}}
    assert not mend("CFG101", change).changed


def test_code_of_the_repository_may_be_of_any_model_type(mend):
    change = {CONFIG: {"model_type": DELETE, "auto_map": {"AutoModelForCausalLM": "m.X"}}, "m.py": ""}
    assert not mend("CFG101", change).changed


def test_a_class_that_shares_its_tensors_with_another_is_not_chosen(mend):
    bert = {"architectures": ["BertForMultipleChoice"], "model_type": "bert", "id2label": {"0": "score"}}
    change = {CONFIG: {**bert, "architectures": DELETE}, SINGLE: weights_of(bert)}
    assert not mend("CFG201", change).changed


def test_of_two_dtypes_the_stored_one_counts(mend):
    change = {CONFIG: {"dtype": "float16", "torch_dtype": "bfloat16"}}
    assert mend("CFG202", change).json(CONFIG)["dtype"] == "bfloat16"


def test_of_two_dtypes_that_are_both_not_stored_none_counts(mend):
    assert not mend("CFG202", {CONFIG: {"dtype": "float16", "torch_dtype": "float32"}}).changed


def test_both_spellings_of_a_wrong_dtype_are_set(mend):
    found = mend("WGT202", {CONFIG: {"dtype": "float16", "torch_dtype": "float16"}}).json(CONFIG)
    assert (found["dtype"], found["torch_dtype"]) == ("bfloat16", "bfloat16")


def test_a_dtype_inside_of_a_composed_config_is_set_there(mend):
    change = {CONFIG: {"dtype": DELETE, "text_config": {"dtype": "float16", "vocab_size": 32}}}
    found = mend("WGT202", change).json(CONFIG)
    assert ("dtype" in found, found["text_config"]["dtype"]) == (False, "bfloat16")


def test_a_tie_flag_follows_a_head_that_is_stored(mend):
    change = {CONFIG: {"tie_word_embeddings": True, "text_config": {"vocab_size": 32, "tie_word_embeddings": False}}}
    assert mend("CFG110", change).json(CONFIG)["tie_word_embeddings"] is False


def test_a_tie_flag_follows_a_head_that_is_not(mend):
    change = {CONFIG: {"text_config": {"vocab_size": 32, "tie_word_embeddings": False}}}
    assert mend("CFG110", change, "tied").json(CONFIG)["text_config"]["tie_word_embeddings"] is True


def test_a_tie_flag_stays_where_the_head_is_of_another_shape(mend):
    change = {
        CONFIG: {"tie_word_embeddings": True, "text_config": {"vocab_size": 32, "tie_word_embeddings": False}},
        SINGLE: edited(add={HEAD: ("BF16", (40, 16))}),
    }
    assert not mend("CFG110", change).changed


def test_the_two_spellings_of_a_rotary_embedding_say_the_same_afterwards(mend):
    new = {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 4.0, "original_max_position_embeddings": 16}
    found = mend("CFG205", {CONFIG: {"rope_parameters": new}}).json(CONFIG)
    assert {**found["rope_scaling"], "rope_theta": found["rope_theta"]} == new


def test_a_linear_scaling_is_written_as_the_oldest_readers_take_it(mend):
    new = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
    assert mend("CFG205", {CONFIG: {"rope_parameters": new}}).json(CONFIG)["rope_scaling"] == {
        "type": "linear",
        "factor": 2.0,
    }


def test_a_partial_rotary_embedding_is_left_to_a_person(mend):
    new = {"rope_type": "default", "rope_theta": 500000.0, "partial_rotary_factor": 0.5}
    assert not mend("CFG205", {CONFIG: {"rope_parameters": new}}).changed


def test_labels_of_one_name_have_no_inverse(mend):
    from repokit.linter.rules.weights_against_config import CLASSES, CLASSIFIER

    labels = {"id2label": {"0": "no", "1": "no"}, "label2id": {"no": 1, "yes": 0}}
    assert not mend("CFG207", {**CLASSIFIER, CONFIG: {**CLASSES, **labels}}).changed


def test_a_list_of_layers_that_is_too_short_is_not_made_up(mend):
    assert not mend("CFG104", {CONFIG: {"layer_types": ["full_attention"]}}).changed


def test_vocab_size_of_a_text_model_is_set_inside(mend):
    change = {CONFIG: {"vocab_size": DELETE, "text_config": {"model_type": "llama", "vocab_size": -1}}}
    assert mend("CFG105", change).json(CONFIG)["text_config"]["vocab_size"] == 32


def test_a_dtype_in_which_some_matrices_are_stored_stays(mend):
    gates = {f"model.layers.{layer}.mlp.gate_proj.weight": ("F32", (24, 16)) for layer in range(2)}
    assert not mend("WGT202", {CONFIG: {"dtype": "float32"}, SINGLE: edited(add=gates)}).changed


def test_a_key_that_code_of_the_repository_may_read_stays(mend):
    change = {CONFIG: {"attn_implementation": "flash_attention_2", "auto_map": {"AutoConfig": "m.X"}}, "m.py": ""}
    assert not mend("CFG204", change).changed


def test_an_id_of_a_codebook_is_not_taken_from_the_tokenizer_of_texts(mend):
    change = {CONFIG: {"talker_config": {"model_type": "frobnicate", "eos_token_id": -1}}}
    assert not mend("CFG103", change).changed


def test_an_id_that_is_forced_is_not_copied(mend):
    change = {CONFIG: {"forced_eos_token_id": 4}, "generation_config.json": {"eos_token_id": 4}}
    assert not mend("GEN231", change).changed
