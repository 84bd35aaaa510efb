"""Tensors that nothing needs, and flags that say what the tensors are."""

from __future__ import annotations

from repokit.linter.examples import edited, safetensors, shard, tensors_of
from repokit.linter.examples_values import copied, one_after_another
from repokit.repo.weights import INDEX, SINGLE

CONFIG = "config.json"
HEAD = "lm_head.weight"
EMBEDDING = "model.embed_tokens.weight"
BOTH = edited(add={HEAD: ("BF16", (32, 16))})


def test_two_matrices_that_differ_are_not_tied(mend):
    assert mend("WGT122", {SINGLE: BOTH}, "tied").json(CONFIG)["tie_word_embeddings"] is False


def test_a_copy_that_is_equal_goes(mend):
    assert HEAD not in mend("WGT221", {SINGLE: one_after_another(BOTH, copied(EMBEDDING, HEAD))}, "tied").names(SINGLE)


def test_other_metadata_stays_where_the_format_is_written(mend):
    found = mend("WGT301", {SINGLE: lambda content: safetensors(tensors_of(content), {"step": "500"})})
    assert found.header(SINGLE).metadata == {"step": "500", "format": "pt"}


def test_no_format_is_written_where_no_config_says_whose_weights_these_are(mend):
    change = {SINGLE: lambda content: safetensors(tensors_of(content), {}), CONFIG: '{"sampling_rate": 24000}'}
    assert not mend("WGT301", change).changed


def test_an_empty_file_that_an_index_names_stays(mend):
    change = {shard(4): safetensors({}), INDEX: {"weight_map": {"x.weight": shard(4)}}}
    assert not mend("WGT102", change, "sharded").changed


def test_buffers_go_out_of_the_index_too(mend):
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    change = {
        shard(2): edited(add={name: ("F32", (4,))}),
        INDEX: {"weight_map": {name: shard(2)}, "metadata": {"total_size": 9888 + 16}},
    }
    found = mend("WGT304", change, "sharded").json(INDEX)
    assert (name in found["weight_map"], found["metadata"]["total_size"]) == (False, 9888)


def test_a_header_is_written_as_safetensors_writes_it(mend):
    from repokit.linter.rules.weights import respelled

    found = mend("WGT201", {SINGLE: lambda content: respelled(content, b" {", b"{")})
    assert found.header(SINGLE).remarks == ()


def test_one_value_of_config_json_is_set_in_every_spelling(mend):
    found = mend("WGT113", {CONFIG: {"intermediate_size": 48}}).json(CONFIG)
    assert found["intermediate_size"] == 24


def test_weights_that_no_single_change_explains_stay(mend):
    assert not mend("WGT113", {CONFIG: {"intermediate_size": 48, "num_key_value_heads": 2}}).changed
