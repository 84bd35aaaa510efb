"""Samples of small types."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

from repokit.architectures.deriver.sampling import Sampler, Underivable

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def mamba():
    sampler = Sampler("MambaConfig", ["MambaForCausalLM", "MambaModel"])
    sampler.explore(seconds=60)
    return sampler


def test_the_base_comes_first(mamba):
    assert mamba.samples[0].given == {"num_hidden_layers": 4}
    assert mamba.samples[0].shapes.keys() == {"MambaForCausalLM", "MambaModel"}


def test_keys_that_change_a_tensor_are_relevant(mamba):
    assert {"hidden_size", "state_size", "use_conv_bias", "tie_word_embeddings"} <= mamba.inventory.relevant
    assert not {"residual_in_fp32", "time_step_min"} & mamba.inventory.relevant


def test_a_union_is_tried_as_every_type(mamba):
    values = [sample.effective["time_step_rank"] for sample in mamba.samples if sample.changed == "time_step_rank"]
    assert {type(value) for value in values} == {int}


def test_a_single_change_changes_one_key(mamba):
    base = mamba.samples[0].given
    singles = [sample for sample in mamba.samples if sample.changed is not None]
    assert singles
    for sample in singles:
        assert {key for key, value in sample.given.items() if base.get(key) != value} <= {sample.changed}


def test_saved_is_what_config_json_holds(mamba):
    assert mamba.samples[0].saved["model_type"] == "mamba"
    assert mamba.samples[0].saved["num_hidden_layers"] == 4


def test_fresh_configs_are_new_at_every_call(mamba):
    first, second = mamba.fresh(5, seconds=30), mamba.fresh(5, seconds=30)
    given = [repr(sorted(sample.given.items())) for sample in [*mamba.samples, *first, *second]]
    assert len(first) == len(second) == 5
    assert len(set(given[-10:])) == 10
    assert not set(given[-10:]) & set(given[:-10])


def test_the_same_seed_draws_the_same_samples():
    first, second = (Sampler("MambaConfig", ["MambaModel"], seed=3) for _ in range(2))
    for sampler in (first, second):
        sampler.explore(seconds=60)
    assert [sample.given for sample in first.samples] == [sample.given for sample in second.samples]


def test_a_class_that_refuses_the_base_says_why():
    sampler = Sampler("T5GemmaConfig", ["T5GemmaModel", "T5GemmaEncoderModel"])
    assert "encoder-only" in sampler.refusals["T5GemmaEncoderModel"]


def test_a_type_that_needs_another_package_is_underivable():
    with pytest.raises(Underivable, match="detectron2"):
        Sampler("LayoutLMv2Config", ["LayoutLMv2Model"])
