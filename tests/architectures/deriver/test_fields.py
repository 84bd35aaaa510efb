"""The keys of a config class, and what the object makes of them."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

import transformers

from repokit.architectures.deriver.base_config import default_inventory
from repokit.architectures.deriver.fields import ABSENT, effective, inventory, keyword_arguments

pytestmark = pytest.mark.oracle


def test_defaults_are_those_of_the_class():
    assert inventory(transformers.LlamaConfig()).defaults["hidden_size"] == 4096


def test_a_key_that_only_kwargs_carry_is_found():
    assert inventory(transformers.BloomConfig()).defaults["n_embed"] is ABSENT


def test_a_key_with_a_literal_default_in_the_source_has_it():
    assert inventory(transformers.Gemma4TextConfig()).defaults["global_head_dim"] == 512


def test_keys_of_sub_configs_are_dotted():
    found = inventory(transformers.LlavaConfig())
    assert found.subs["text_config"] == "llama"
    assert found.defaults["text_config.num_hidden_layers"] == 32


def test_both_spellings_of_a_key_are_known():
    assert ("num_experts", "num_local_experts") in inventory(transformers.MixtralConfig()).aliases


def test_an_optional_sub_config_is_marked():
    assert "vision_config" in default_inventory(transformers.Gemma4Config).optional


def test_what_an_absent_sub_config_has_beyond_its_defaults():
    initial = inventory(transformers.DepthAnythingConfig()).initial
    assert initial["backbone_config.reshape_hidden_states"] is False


def test_effective_has_what_post_init_derives():
    assert effective(transformers.LlamaConfig(hidden_size=64, num_attention_heads=4))["head_dim"] == 16


def test_effective_has_one_entry_a_layer_for_overrides():
    seen = effective(transformers.Gemma4TextConfig(num_hidden_layers=6))
    assert seen["head_dim__per_layer"] == (256, 256, 256, 256, 256, 512)


def test_effective_has_properties_of_the_class():
    config = transformers.NemotronHConfig(hybrid_override_pattern="M-M*")
    assert effective(config)["num_hidden_layers"] == 4


def test_arguments_are_nested_with_the_types_of_sub_configs():
    nested = keyword_arguments({"text_config.layer_types": ("a", "b"), "depth": 2}, {"text_config": "llama"})
    assert nested == {"text_config": {"model_type": "llama", "layer_types": ["a", "b"]}, "depth": 2}


def test_a_sub_config_that_is_null_takes_its_keys_along():
    given = {"vision_config": None, "vision_config.depth": 3}
    assert keyword_arguments(given, {"vision_config": "siglip"}) == {"vision_config": None}
