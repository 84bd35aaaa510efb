"""Weights that one process had a part of: the error says which, before anything is written."""

from __future__ import annotations

import pytest

from repokit.errors import MissingInput, UnsupportedSource

LLAMA = {"hidden_size": 8, "intermediate_size": 24, "num_attention_heads": 1, "num_key_value_heads": 1}
SHAPES = {
    "model.embed_tokens.weight": (16, 8),
    "model.layers.0.self_attn.q_proj.weight": (8, 8),
    "model.layers.0.mlp.up_proj.weight": (24, 8),
    "model.norm.weight": (8,),
    "lm_head.weight": (16, 8),
}


@pytest.fixture
def checkpoint(workshop):
    def write(shapes):
        tensors = {name: workshop.tensor("F32", shape) for name, shape in (SHAPES | shapes).items()}
        return workshop.checkpoint(tensors, config=LLAMA)

    return write


def flat(processes):
    return {name: (-(-elements(shape) // processes),) for name, shape in SHAPES.items()}


def elements(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


@pytest.mark.parametrize("shape", [(0,), (0, 8), (16, 0)])
def test_a_weight_without_elements_is_named(checkpoint, workshop, shape):
    checkpoint({"lm_head.weight": shape})
    with pytest.raises(MissingInput, match=r"has 1 weight of no elements: lm_head\.weight") as error:
        workshop.plan()
    assert "ZeRO-3 and FSDP leave them so" in error.value.why


def test_a_weight_without_elements_is_named_without_a_known_architecture(workshop):
    workshop.checkpoint({"encoder.weight": workshop.tensor("F32", (0,))}, config={"model_type": "mine"})
    with pytest.raises(MissingInput, match="has 1 weight of no elements"):
        workshop.plan()


def test_a_buffer_without_elements_is_no_weight(checkpoint, workshop):
    checkpoint({"model.cache": (0,)})
    assert workshop.plan().summary.tensors == len(SHAPES) + 1


@pytest.mark.parametrize("processes", [2, 3, 8])
def test_flat_parts_say_of_how_many_processes(checkpoint, workshop, processes):
    checkpoint(flat(processes))
    with pytest.raises(MissingInput, match=rf"holds what one of {processes} processes had of \d tensors"):
        workshop.plan()


@pytest.mark.parametrize("processes", [2, 4])
def test_rows_say_of_how_many_processes(checkpoint, workshop, processes):
    checkpoint({name: (shape[0] // processes, *shape[1:]) for name, shape in SHAPES.items()})
    with pytest.raises(MissingInput, match=f"holds what one of {processes} processes had of 5 tensors"):
        workshop.plan()


def test_a_whole_model_is_built(checkpoint, workshop):
    checkpoint({})
    assert workshop.plan().summary.tensors == len(SHAPES)


def test_another_vocabulary_is_no_part(checkpoint, workshop):
    """What does not fit config.json is for the linter to say."""
    checkpoint({"model.embed_tokens.weight": (12, 8), "lm_head.weight": (12, 8)})
    assert workshop.plan().summary.tensors == len(SHAPES)


def test_flat_parameters_are_refused(checkpoint, workshop):
    checkpoint({"model.layers.0._fsdp_wrapped_module._flat_param": (64,)})
    with pytest.raises(UnsupportedSource, match="holds 1 flat parameter of FSDP"):
        workshop.plan()
