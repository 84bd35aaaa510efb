"""compressed-tensors: schemes, targets and formats. Shapes are those that compressed-tensors 0.20.1 writes."""

from __future__ import annotations

import json

import pytest

from repokit.architectures.completion import Completed
from repokit.architectures.expansion import Expanded
from repokit.architectures.grammar import expression
from repokit.architectures.member import ClassFacts, Evidence, Kind, Template, member
from repokit.architectures.quantized import NotTransformed, stored
from repokit.architectures.skeleton import Skeleton

NAMES = ("self_attn.q_proj", "mlp.down_proj")


def llama():
    """Two layers of two modules of 48 outputs and 256 inputs, an embedding and a head."""
    tensors = {f"model.layers.{layer}.{name}.weight": Kind.LINEAR for layer in range(2) for name in NAMES}
    tensors |= {"model.embed_tokens.weight": Kind.EMBEDDING, "lm_head.weight": Kind.LINEAR}
    expanded, sizes = Expanded(), (expression("48"), expression("256"))
    for name, kind in tensors.items():
        template = name.replace(".0.", ".{i}.").replace(".1.", ".{i}.")
        expanded.shapes[name] = (48, 256)
        expanded.templates[name] = Template(template, sizes, kind)
    facts = ClassFacts("Made", Evidence.VERIFIED, 25, (), None, {"prefix": "model"})
    return Skeleton("Made", "made", Evidence.VERIFIED, Completed(), expanded, facts, member("llama"))


def scheme(targets=("Linear",), inputs=None, outputs=None, form=None, **weights):
    return {
        "targets": list(targets),
        "weights": weights or None,
        "input_activations": inputs,
        "output_activations": outputs,
        "format": form,
    }


def transformed(*groups, held=None, **more):
    declaration = {"quant_method": "compressed-tensors", "config_groups": {str(n): g for n, g in enumerate(groups)}}
    return stored(llama(), {"quantization_config": {"ignore": ["lm_head"], **declaration, **more}}, held)


def parts(found, module="model.layers.0.self_attn.q_proj"):
    return {name.removeprefix(f"{module}."): shape for name, shape in found.shapes.items() if name.startswith(module)}


INT = {"type": "int", "symmetric": True}
FLOAT = {"type": "float", "symmetric": True}
STATIC = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False}


@pytest.mark.parametrize(("bits", "words"), [(2, 16), (3, 24), (4, 32), (5, 40), (8, 64)], ids=str)
def test_integers_are_packed_along_the_inputs(bits, words):
    found = parts(transformed(scheme(num_bits=bits, strategy="group", group_size=128, **INT)))
    assert found == {"weight_packed": (48, words), "weight_scale": (48, 2), "weight_shape": (2,)}


@pytest.mark.parametrize(("strategy", "shape"), [("tensor", (1,)), ("channel", (48, 1))], ids=["a tensor", "a channel"])
def test_one_scale_for(strategy, shape):
    assert parts(transformed(scheme(num_bits=4, strategy=strategy, **INT)))["weight_scale"] == shape


def test_zero_points_are_packed_along_the_outputs():
    asymmetric = {"type": "int", "symmetric": False}
    found = parts(transformed(scheme(num_bits=4, strategy="group", group_size=128, **asymmetric)))
    assert found["weight_zero_point"] == (6, 2)


def test_eight_bits_with_activations_are_not_packed():
    found = parts(transformed(scheme(inputs={**STATIC, **INT}, num_bits=8, strategy="channel", **INT)))
    assert found == {"weight": (48, 256), "weight_scale": (48, 1), "input_scale": (1,)}


def test_dynamic_activations_have_no_scales():
    inputs = {**STATIC, "strategy": "token", "dynamic": True}
    assert "input_scale" not in parts(transformed(scheme(inputs=inputs, num_bits=8, strategy="channel", **FLOAT)))


def test_scales_of_what_comes_out():
    found = parts(transformed(scheme(outputs=STATIC, num_bits=8, strategy="tensor", **FLOAT)))
    assert found["output_scale"] == (1,)


def test_blocks_may_be_smaller_at_the_end():
    found = parts(transformed(scheme(num_bits=8, strategy="block", block_structure=[32, 100], **FLOAT)))
    assert found["weight_scale"] == (2, 3)


def test_nvfp4():
    inputs = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "dynamic": "local"}
    found = parts(transformed(scheme(inputs=inputs, num_bits=4, strategy="tensor_group", group_size=16, **FLOAT)))
    assert found == {
        "weight_packed": (48, 128),
        "weight_scale": (48, 16),
        "weight_global_scale": (1,),
        "input_global_scale": (1,),
    }


@pytest.mark.parametrize(("bits", "size"), [(4, 128), (6, 192)])
def test_packed_floats_with_powers_of_two(bits, size):
    found = parts(transformed(scheme(num_bits=bits, strategy="group", group_size=32, **FLOAT)))
    assert found == {"weight_packed": (48, size), "weight_scale": (48, 8)}


def test_a_format_that_is_named_goes_before_what_follows_from_the_scheme():
    named = scheme(form="naive-quantized", num_bits=8, strategy="channel", **INT)
    assert "weight_packed" not in parts(transformed(named))


def test_a_strategy_follows_from_the_group_size():
    assert parts(transformed(scheme(num_bits=4, group_size=64, **INT)))["weight_scale"] == (48, 4)


def test_an_order_of_columns_where_the_file_has_one():
    ordered = scheme(num_bits=4, strategy="group", group_size=128, actorder="group", **INT)
    held = {"model.layers.0.self_attn.q_proj.weight_g_idx": (256,)}
    found = transformed(ordered, held=held)
    assert found.shapes["model.layers.1.mlp.down_proj.weight_g_idx"] == (256,)


def test_activations_alone_leave_the_weight():
    assert parts(transformed(scheme(inputs=STATIC))) == {"weight": (48, 256), "input_scale": (1,)}


# ---------------------------------------------------------------- which modules


W4 = {"num_bits": 4, "strategy": "channel", **INT}


def quantized(found):
    return {name.removesuffix(".weight_packed") for name in found.shapes if name.endswith(".weight_packed")}


EVERY = {f"model.layers.{layer}.{name}" for layer in range(2) for name in NAMES}


def test_a_class_stands_for_all_its_modules():
    assert quantized(transformed(scheme(**W4))) == EVERY


def test_embeddings_are_quantized_where_they_are_targets():
    assert "model.embed_tokens" in quantized(transformed(scheme(["Embedding"], **W4)))


def test_a_name_stands_for_one_module():
    name = "model.layers.1.mlp.down_proj"
    assert quantized(transformed(scheme([name], **W4))) == {name}


def test_an_expression_fits_from_the_start_of_a_name():
    assert quantized(transformed(scheme(["re:layers.*"], **W4))) == set()


def test_an_expression_need_not_fit_to_the_end():
    assert quantized(transformed(scheme([r"re:model\.layers\.1"], **W4))) == {n for n in EVERY if ".1." in n}


def test_what_is_ignored_stays():
    found = transformed(scheme(**W4), ignore=["lm_head", "re:.*down_proj$", "model.layers.0.self_attn.q_proj"])
    assert quantized(found) == {"model.layers.1.self_attn.q_proj"}


def test_an_ignored_name_is_not_one_of_what_lies_below_it():
    assert quantized(transformed(scheme(**W4), ignore=["lm_head", "model.layers"])) == EVERY


def test_a_name_goes_before_a_class():
    name = "model.layers.0.mlp.down_proj"
    found = transformed(scheme(**W4), scheme([name], num_bits=8, strategy="channel", **INT))
    assert found.shapes[f"{name}.weight_packed"] == (48, 64)


def test_an_ignored_name_under_another_prefix_leaves_the_choice_to_the_file():
    own = "model.layers.0.mlp.down_proj"
    other = "model.language_model.layers.0.mlp.down_proj"
    held = {f"{own}.weight": (48, 256), "model.layers.1.mlp.down_proj.weight_packed": (48, 32)}
    assert own not in quantized(transformed(scheme(**W4), ignore=["lm_head", other], held=held))


def test_an_expression_that_is_not_run_leaves_the_choice_to_the_file():
    held = {"model.layers.1.mlp.down_proj.weight_packed": (48, 32)}
    found = transformed(scheme([r"re:(model|layers|\.|\d)*down_proj"], **W4), held=held)
    assert quantized(found) == {"model.layers.1.mlp.down_proj"}


def test_scales_of_a_quantized_cache_may_be_there():
    found = transformed(scheme(**W4), kv_cache_scheme=STATIC)
    names = ("self_attn.k_scale", "self_attn.v_scale", "self_attn.k_proj.output_scale")
    assert all(found.may_be_there(f"model.layers.0.{name}") for name in names)


@pytest.mark.parametrize(
    "weights",
    [
        {"num_bits": 0},
        {"num_bits": "4"},
        {"num_bits": 4, "group_size": 10**40},
        {"num_bits": 8, "block_structure": [0, 1]},
        {"num_bits": 8, "block_structure": "axb"},
        {"num_bits": 4, "type": ["int"]},
    ],
    ids=json.dumps,
)
def test_arguments_that_are_none_are_not_transformed(weights):
    with pytest.raises(NotTransformed):
        transformed(scheme(**weights))
