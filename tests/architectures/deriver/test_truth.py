"""Ground truth on the meta device against what transformers itself does."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

import transformers

from repokit.architectures.deriver.truth import Refused, in_memory, on_disk, truth

pytestmark = pytest.mark.oracle


def _mixtral(**given):
    return transformers.MixtralConfig(num_hidden_layers=1, num_local_experts=2, **given)


@pytest.mark.parametrize(
    ("class_name", "given"),
    [
        ("LlamaForCausalLM", {"num_hidden_layers": 2}),
        ("MixtralForCausalLM", {"num_hidden_layers": 1, "num_local_experts": 2}),
        ("GPT2LMHeadModel", {"n_layer": 1}),
        ("LlavaForConditionalGeneration", {}),
    ],
)
def test_shapes_are_those_of_the_full_reversal(class_name, given):
    from transformers.core_model_loading import revert_weight_conversion

    model_class = getattr(transformers, class_name)
    found = truth(model_class, model_class.config_class(**given), seconds=20)
    state = {name: tensor for name, tensor in found.model.state_dict().items() if name in found.memory}
    whole = revert_weight_conversion(found.model, state)
    assert found.disk == {name: tuple(tensor.shape) for name, tensor in whole.items()}


def test_fused_experts_come_out_one_by_one():
    names = on_disk(transformers.MixtralForCausalLM, _mixtral(), seconds=10)
    assert "model.layers.0.block_sparse_moe.experts.1.w1.weight" in names


def test_in_memory_experts_stay_fused():
    shapes = in_memory(transformers.MixtralForCausalLM, _mixtral(hidden_size=64, intermediate_size=128), seconds=10)
    assert shapes["model.layers.0.mlp.experts.gate_up_proj"] == (2, 256, 64)


def test_a_tied_copy_is_left_out():
    config = transformers.LlamaConfig(num_hidden_layers=1, tie_word_embeddings=True)
    assert "lm_head.weight" not in on_disk(transformers.LlamaForCausalLM, config, seconds=10)


def test_a_config_that_the_class_does_not_take_is_refused():
    config = transformers.BertConfig(hidden_size=10, num_attention_heads=3)
    with pytest.raises(Refused):
        on_disk(transformers.BertModel, config, seconds=10)


def test_too_many_tensors_are_refused():
    with pytest.raises(Refused, match="tensors"):
        truth(transformers.LlamaModel, transformers.LlamaConfig(num_hidden_layers=1), seconds=10, most=3)


def test_a_class_that_takes_too_long_is_refused():
    class Endless:
        def __init__(self, _config):
            while True:
                pass

    with pytest.raises(Refused, match="took more than"):
        on_disk(Endless, transformers.LlamaConfig(), seconds=0.01)


def test_what_a_model_prints_is_not_seen(capsys):
    class Talking(transformers.LlamaModel):
        def __init__(self, config):
            print("hello")
            super().__init__(config)

    on_disk(Talking, transformers.LlamaConfig(num_hidden_layers=1), seconds=10)
    assert capsys.readouterr() == ("", "")
