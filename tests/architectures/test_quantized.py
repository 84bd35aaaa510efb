"""From the weights of a model to the tensors of a quantized checkpoint: which modules, which tensors, which shapes."""

from __future__ import annotations

import json

import pytest

from repokit.architectures.comparison import compare
from repokit.architectures.completion import Completed
from repokit.architectures.expansion import Expanded
from repokit.architectures.grammar import expression
from repokit.architectures.member import ClassFacts, Evidence, Kind, Template, member
from repokit.architectures.quantized import NotTransformed, declared, stored
from repokit.architectures.skeleton import Skeleton, skeleton
from repokit.linter.examples import tensors_of
from repokit.linter.examples_quantized import METHODS
from repokit.repo.config import CONFIG
from repokit.repo.weights import SINGLE

LAYER = "model.layers.0.self_attn.q_proj"


def example(method):
    """The skeleton, config and tensors (dtype, shape) of the tiny model as a method stores it."""
    files = METHODS[method]()
    config = json.loads(files[CONFIG])
    return skeleton(config), config, dict(tensors_of(files[SINGLE]))


def shapes(tensors):
    return {name: tuple(shape) for name, (_, shape) in tensors.items()}


def exact(whole, config, held):
    return compare(stored(whole, config, held).as_skeleton, held).exact


def handmade(tensors, prefix="model", **other):
    """A skeleton of these tensors: name -> (shape, kind); numbers between dots become indices of the template."""
    expanded = Expanded()
    for name, (shape, kind) in tensors.items():
        parts = name.split(".")
        numbers = iter("ijklm")
        template = ".".join(f"{{{next(numbers)}}}" if part.isdigit() else part for part in parts)
        expanded.shapes[name] = shape
        expanded.templates[name] = Template(template, tuple(expression(str(size)) for size in shape), Kind(kind))
    facts = ClassFacts("Made", Evidence.VERIFIED, 25, (), None, {"prefix": prefix, **other})
    return Skeleton("Made", "made", Evidence.VERIFIED, Completed(), expanded, facts, member("llama"))


LINEAR = {
    "model.embed_tokens.weight": ((96, 64), "e"),
    "model.layers.0.self_attn.q_proj.weight": ((128, 64), "l"),
    "model.layers.1.self_attn.q_proj.weight": ((128, 64), "l"),
    "model.layers.1.mlp.gate.weight": ((4, 64), "p"),
    "model.norm.weight": ((64,), "n"),
    "lm_head.weight": ((96, 64), "l"),
}


def parts_of(whole, quantization, held=None, module=LAYER):
    """What stands in the place of a module's weight: suffix -> shape."""
    found = stored(whole, {"quantization_config": quantization}, held).shapes
    return {name.removeprefix(f"{module}."): shape for name, shape in found.items() if name.startswith(f"{module}.")}


def asked_for(whole, config):
    """What must be there, as a file would hold it."""
    return dict(stored(whole, config).shapes)


# ---------------------------------------------------------------- whole checkpoints


@pytest.mark.parametrize("method", METHODS)
def test_a_checkpoint_of_each_method_is_exact(method):
    whole, config, tensors = example(method)
    assert exact(whole, config, shapes(tensors))


@pytest.mark.parametrize("method", METHODS)
def test_dtypes_are_those_of_the_method(method):
    whole, config, tensors = example(method)
    found = stored(whole, config, shapes(tensors)).dtypes
    assert {name for name, dtypes in found.items() if tensors[name][0] not in dtypes} == set()


@pytest.mark.parametrize("method", METHODS)
def test_a_lost_tensor_is_seen(method):
    whole, config, tensors = example(method)
    held = shapes(tensors)
    passed = [name for name in held if exact(whole, config, {other: held[other] for other in held if other != name})]
    assert [name for name in passed if not name.endswith(".g_idx")] == []  # not needed where columns are in order


@pytest.mark.parametrize("method", METHODS)
def test_a_tensor_of_another_shape_is_seen(method):
    whole, config, tensors = example(method)
    held = shapes(tensors)
    passed = [
        name
        for name, shape in held.items()
        if exact(whole, config, {**held, name: (shape[0] + 1, *shape[1:]) if shape else (2,)})
    ]
    assert [name for name in passed if ".quant_state." not in name] == []  # JSON of any length


@pytest.mark.parametrize("method", METHODS)
def test_a_tensor_too_many_is_seen(method):
    whole, config, tensors = example(method)
    assert not exact(whole, config, {**shapes(tensors), "model.layers.0.mlp.up_proj.scale_of_nothing": (1,)})


def test_a_stale_declaration_asks_for_plain_weights():
    whole, config, _ = example("gptq")
    assert stored(whole, config, dict(whole.shapes)).shapes == whole.shapes


def test_weights_that_loaders_turn_back_may_be_plain():
    whole, config, _ = example("fp8")
    config["quantization_config"]["dequantize"] = True
    assert exact(whole, config, dict(whole.shapes))


def test_without_a_file_what_the_config_leaves_open_is_optional():
    whole, config, _ = example("gptq")
    found = stored(whole, config)
    assert f"{LAYER}.g_idx" in found.optional
    assert f"{LAYER}.qweight" in found.shapes


# ---------------------------------------------------------------- declarations


def test_nothing_is_declared():
    assert declared({"model_type": "llama"}) is None


@pytest.mark.parametrize(
    ("config", "method"),
    [
        ({"quantization_config": {"quant_method": "GPTQ"}}, "gptq"),
        ({"quantization_config": {"load_in_4bit": True}}, "bitsandbytes"),
        ({"compression_config": {"config_groups": {}}}, "compressed-tensors"),
        ({"quantization_config": {"quant_algo": "FP8"}}, "modelopt"),
        ({"text_config": {"quantization_config": {"quant_method": "awq"}}}, "awq"),
        ({"quantization": {"bits": 4, "group_size": 64}}, "mlx"),
        ({"quantization": {"bits": 4, "group_size": 64}, "quantization_config": {"bits": 4, "group_size": 64}}, "mlx"),
        ({"quantization": {"bits": 4}, "quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
    ],
)
def test_the_method_of_a_config(config, method):
    assert declared(config)[0] == method


@pytest.mark.parametrize(
    ("document", "method"),
    [
        ({"bits": 4, "group_size": 128, "desc_act": False}, "gptq"),
        ({"w_bit": 4, "q_group_size": 128, "version": "GEMM"}, "awq"),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}, "modelopt"),
    ],
)
def test_the_method_of_a_file_beside(document, method):
    assert declared({}, document)[0] == method


@pytest.mark.parametrize("method", ["hqq", "torchao", "quanto", "eetq", "aqlm", "higgs", "of my own"])
def test_a_method_whose_layout_is_not_known_is_not_transformed(method):
    with pytest.raises(NotTransformed):
        stored(handmade(LINEAR), {"quantization_config": {"quant_method": method}})


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "gptq", "bits": "four"},
        {"quant_method": "gptq", "bits": 4, "group_size": 0},
        {"quant_method": "gptq", "bits": 4, "group_size": True},
        {"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"},
        {"quant_method": "gptq", "bits": 4, "modules_in_block_to_quantize": 7},
        {"quant_method": "gptq", "bits": 4, "dynamic": []},
        {"quant_method": "awq", "bits": 4, "version": "llm-awq"},
        {"quant_method": "awq", "bits": 4, "modules_to_not_convert": "lm_head"},
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "int4"},
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": True},
        {"quant_method": "fp8", "weight_block_size": [128]},
        {"quant_method": "fp8", "weight_block_size": [0, 128]},
        {"quant_method": "fp8", "weight_block_size": [10**30, 128]},
        {"quant_method": "compressed-tensors", "config_groups": {"W8A8": ["Linear"]}},
        {"quant_method": "compressed-tensors", "config_groups": {}, "format": "marlin-24"},
        {"quant_method": "compressed-tensors", "config_groups": {}, "sparsity_config": {"format": "sparse-bitmask"}},
        {"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"},
        {"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:exllamav2"},
    ],
    ids=lambda values: json.dumps(values)[:60],
)
def test_settings_that_are_not_known_are_not_transformed(quantization):
    with pytest.raises(NotTransformed):
        stored(handmade(LINEAR), {"quantization_config": quantization})


def test_lists_that_take_for_ever_are_given_up():
    evil = [f"model.*{'.*' * 2}x{number}" for number in range(20_000)]
    many = {f"model.layers.{number}.q_proj.weight": ((64, 64), "l") for number in range(2_000)}
    with pytest.raises(NotTransformed):
        stored(handmade(many), {"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": evil}})


# ---------------------------------------------------------------- GPTQ


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32}


def test_gptq_packs_along_the_inputs():
    held = {f"{LAYER}.{part}": (1,) for part in ("qweight", "qzeros", "scales", "g_idx")}
    assert parts_of(handmade(LINEAR), GPTQ, held) == {
        "qweight": (8, 128),
        "qzeros": (2, 16),
        "scales": (2, 128),
        "g_idx": (64,),
    }


def test_three_bits_are_packed_across_words():
    assert parts_of(handmade(LINEAR), {**GPTQ, "bits": 3})["qweight"] == (6, 128)


def test_a_group_of_minus_one_is_a_whole_row():
    assert parts_of(handmade(LINEAR), {**GPTQ, "group_size": -1})["scales"] == (1, 128)


def test_ordered_columns_need_their_order():
    assert "g_idx" in parts_of(handmade(LINEAR), {**GPTQ, "desc_act": True})


def test_asymmetric_weights_need_zero_points():
    assert "qzeros" in parts_of(handmade(LINEAR), {**GPTQ, "sym": False})


def test_conv1d_of_gpt2_is_packed_along_its_inputs():
    whole = handmade({"transformer.h.0.attn.c_attn.weight": ((64, 192), "t")}, prefix="transformer")
    assert parts_of(whole, GPTQ, module="transformer.h.0.attn.c_attn")["qweight"] == (8, 192)


def test_gptq_leaves_what_stands_outside_the_layers():
    found = stored(handmade(LINEAR), {"quantization_config": GPTQ}).shapes
    assert {"model.embed_tokens.weight", "lm_head.weight", "model.layers.1.mlp.gate.weight"} <= found.keys()


def test_gptq_quantizes_the_head_when_told():
    assert parts_of(handmade(LINEAR), {**GPTQ, "lm_head": True}, module="lm_head")["qweight"] == (8, 96)


def test_only_listed_modules_of_a_block():
    listed = {**GPTQ, "modules_in_block_to_quantize": [["self_attn.k_proj"]]}
    assert parts_of(handmade(LINEAR), listed) == {"weight": (128, 64)}


def test_dynamic_settings_of_one_module():
    own = {**GPTQ, "dynamic": {r"+:.*\.0\..*q_proj": {"bits": 8, "group_size": 64}}}
    assert parts_of(handmade(LINEAR), own)["scales"] == (1, 128)
    assert parts_of(handmade(LINEAR), own, module="model.layers.1.self_attn.q_proj")["scales"] == (2, 128)


def test_dynamic_leaves_a_module_alone():
    assert parts_of(handmade(LINEAR), {**GPTQ, "dynamic": {r"-:.*\.0\.": {}}}) == {"weight": (128, 64)}


def test_an_expression_that_is_not_run_leaves_the_choice_to_the_file():
    own = {**GPTQ, "dynamic": {r"-:(.+)+x": {}}}
    plain = {**{name: shape for name, (shape, _) in LINEAR.items()}}
    packed = {f"model.layers.1.self_attn.q_proj.{part}": (1,) for part in ("qweight", "scales")}
    found = stored(handmade(LINEAR), {"quantization_config": own}, {**plain, **packed}).shapes
    assert f"{LAYER}.weight" in found
    assert "model.layers.1.self_attn.q_proj.qweight" in found


def test_a_router_may_be_packed_or_not():
    whole = handmade({**LINEAR, "model.layers.0.mlp.router.weight": ((64, 64), "l")})
    name = "model.layers.0.mlp.router"
    plain = {f"{LAYER}.qweight": (8, 128), f"{name}.weight": (64, 64)}
    assert parts_of(whole, GPTQ, plain, module=name) == {"weight": (64, 64)}
    packed = {f"{name}.qweight": (8, 64)}
    assert parts_of(whole, GPTQ, packed, module=name)["qweight"] == (8, 64)


def test_a_bias_of_older_versions_may_be_there():
    whole = handmade(LINEAR)
    held = {**asked_for(whole, {"quantization_config": GPTQ}), f"{LAYER}.bias": (128,)}
    assert exact(whole, {"quantization_config": GPTQ}, held)


# ---------------------------------------------------------------- AWQ


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}


def test_awq_packs_along_the_outputs():
    assert parts_of(handmade(LINEAR), AWQ) == {"qweight": (64, 16), "qzeros": (2, 16), "scales": (2, 128)}


def test_awq_gemv_pads_its_groups():
    found = parts_of(handmade(LINEAR), {**AWQ, "version": "GEMV"})
    assert found == {"qweight": (128, 8), "qzeros": (128, 4), "scales": (128, 32)}


def test_awq_gemv_fast_interleaves_rows():
    found = parts_of(handmade(LINEAR), {**AWQ, "version": "gemv_fast"})
    assert found == {"qweight": (32, 64), "qzeros": (32, 128), "scales": (32, 128)}


def test_awq_leaves_the_head_by_default():
    assert parts_of(handmade(LINEAR), AWQ, module="lm_head") == {"weight": (96, 64)}


def test_awq_leaves_what_is_listed():
    found = parts_of(handmade(LINEAR), {**AWQ, "modules_to_not_convert": ["self_attn.q_proj"]})
    assert found == {"weight": (128, 64)}


def test_scales_of_an_activation_may_be_there():
    found = stored(handmade(LINEAR), {"quantization_config": AWQ})
    assert found.may_be_there("transformer.h.0.mlp.act.scales")


# ---------------------------------------------------------------- AutoRound


def test_auto_round_has_the_layout_that_it_names():
    quantization = {"quant_method": "auto-round", "bits": 4, "group_size": 32, "packing_format": "auto_round:auto_awq"}
    assert parts_of(handmade(LINEAR), quantization, {f"{LAYER}.qweight": (64, 16)})["qweight"] == (64, 16)


def test_auto_round_keeps_modules_of_sixteen_bits():
    quantization = {"quant_method": "auto-round", "bits": 4, "extra_config": {LAYER: {"bits": 16}}}
    held = {"model.layers.1.self_attn.q_proj.qweight": (8, 128)}
    assert parts_of(handmade(LINEAR), quantization, held) == {"weight": (128, 64)}


# ---------------------------------------------------------------- bitsandbytes


BNB = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
STATE = "weight.quant_state.bitsandbytes__nf4"


def test_four_bits_have_scales_for_blocks_of_64():
    assert parts_of(handmade(LINEAR), BNB) == {
        "weight": (4096, 1),
        "weight.absmax": (128,),
        "weight.quant_map": (16,),
        STATE: (None,),
    }


def test_blocks_of_128_are_taken_too():
    assert parts_of(handmade(LINEAR), BNB, {f"{LAYER}.weight.absmax": (64,)})["weight.absmax"] == (64,)


def test_scales_may_be_quantized_too():
    found = parts_of(handmade(LINEAR), {**BNB, "bnb_4bit_use_double_quant": True})
    assert (found["weight.nested_absmax"], found["weight.nested_quant_map"]) == ((1,), (256,))


def test_packed_weights_in_words_of_two_bytes():
    assert parts_of(handmade(LINEAR), {**BNB, "bnb_4bit_quant_storage": "bfloat16"})["weight"] == (2048, 1)


def test_eight_bits_have_a_scale_for_each_row():
    found = parts_of(handmade(LINEAR), {"quant_method": "bitsandbytes", "load_in_8bit": True})
    assert found == {"weight": (128, 64), "SCB": (128,)}


def test_the_head_stays_where_no_list_names_it():
    assert parts_of(handmade(LINEAR), BNB, module="lm_head") == {"weight": (96, 64)}


def test_with_a_list_the_file_decides_about_the_head():
    quantization = {**BNB, "llm_int8_skip_modules": ["visual"]}
    packed = {"lm_head.weight": (3072, 1), "lm_head.weight.absmax": (96,)}
    assert parts_of(handmade(LINEAR), quantization, packed, module="lm_head")["weight"] == (3072, 1)


def test_modules_that_stay_in_32_bits_may_be_packed_or_not():
    whole = handmade({"encoder.block.0.layer.1.wo.weight": ((64, 64), "l"), **LINEAR}, fp32=["wo"])
    held = {"encoder.block.0.layer.1.wo.weight": (64, 64), f"{LAYER}.weight.absmax": (128,)}
    assert parts_of(whole, BNB, held, module="encoder.block.0.layer.1.wo") == {"weight": (64, 64)}


# ---------------------------------------------------------------- FP8


FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [64, 32]}


def test_a_scale_for_each_block():
    held = {f"{LAYER}.weight_scale_inv": (2, 2)}
    assert parts_of(handmade(LINEAR), FP8, held) == {"weight": (128, 64), "weight_scale_inv": (2, 2)}


def test_the_last_blocks_may_be_smaller():
    whole = handmade({LAYER + ".weight": ((100, 70), "l")})
    held = {f"{LAYER}.weight": (100, 70), f"{LAYER}.weight_scale_inv": (2, 3)}
    assert parts_of(whole, FP8, held)["weight_scale_inv"] == (2, 3)


def test_the_scales_have_the_name_that_the_file_gives_them():
    assert "scale" in parts_of(handmade(LINEAR), FP8, {f"{LAYER}.scale": (2, 2)})


@pytest.mark.parametrize("shape", [(), (1,), (128, 1)])
def test_without_blocks_a_scale_is_for_the_weight_or_its_rows(shape):
    quantization = {"quant_method": "fp8", "weight_block_size": None}
    assert parts_of(handmade(LINEAR), quantization, {f"{LAYER}.weight_scale": shape})["weight_scale"] == shape


def test_static_activations_have_scales():
    found = parts_of(handmade(LINEAR), {**FP8, "activation_scheme": "static"}, {f"{LAYER}.weight_scale_inv": (2, 2)})
    assert found["activation_scale"] == ()


def test_experts_of_four_bits():
    name = "model.layers.0.mlp.experts.0.up_proj"
    whole = handmade({f"{name}.weight": ((128, 64), "l")})
    found = parts_of(whole, {**FP8, "expert_dtype": "fp4"}, module=name)
    assert found == {"weight": (128, 32), "weight_scale_inv": (128, 2)}


def test_fbgemm_has_a_scale_for_each_row():
    found = parts_of(handmade(LINEAR), {"quant_method": "fbgemm_fp8"})
    assert found == {"weight": (128, 64), "weight_scale": (128, 1)}


def test_the_fused_experts_of_llama_4_have_scales_for_their_outputs():
    name = "model.layers.0.feed_forward.experts.gate_up_proj"
    whole = handmade({name: ((4, 64, 256), "p")})
    found = stored(whole, {"quantization_config": {"quant_method": "fbgemm_fp8"}}).shapes
    assert found == {name: (4, 64, 256), f"{name}_scale": (4, 1, 256)}


# ---------------------------------------------------------------- ModelOpt


def test_nvfp4_has_scales_in_two_steps():
    quantization = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}
    found = parts_of(handmade(LINEAR), quantization)
    assert found == {"weight": (128, 32), "weight_scale": (128, 4), "weight_scale_2": ()}


def test_excluded_modules_may_be_wildcards():
    quantization = {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["model.layers.0*"]}
    assert parts_of(handmade(LINEAR), quantization) == {"weight": (128, 64)}
    assert "weight_scale" in parts_of(handmade(LINEAR), quantization, module="model.layers.1.self_attn.q_proj")


# ---------------------------------------------------------------- MXFP4 and MLX


def test_mxfp4_packs_the_experts_of_gpt_oss():
    name = "model.layers.0.mlp.experts"
    whole = handmade({f"{name}.gate_up_proj": ((4, 64, 128), "p"), f"{name}.gate_up_proj_bias": ((4, 128), "p")})
    found = stored(whole, {"quantization_config": {"quant_method": "mxfp4"}}).shapes
    assert found == {
        f"{name}.gate_up_proj_blocks": (4, 128, 2, 16),
        f"{name}.gate_up_proj_scales": (4, 128, 2),
        f"{name}.gate_up_proj_bias": (4, 128),
    }


def test_mxfp4_leaves_experts_that_are_listed():
    name = "model.layers.0.mlp.experts.down_proj"
    whole = handmade({name: ((4, 64, 128), "p")})
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.mlp.experts"]}
    assert stored(whole, {"quantization_config": quantization}).shapes == {name: (4, 64, 128)}


MLX = {"bits": 4, "group_size": 64}


def test_mlx_packs_embeddings_too():
    found = stored(handmade(LINEAR), {"quantization": MLX}).shapes
    name = "model.embed_tokens"
    assert [found[f"{name}.{part}"] for part in ("weight", "scales", "biases")] == [(96, 8), (96, 1), (96, 1)]


def test_mlx_settings_of_one_module():
    own = {**MLX, LAYER: {"bits": 8, "group_size": 32}, "lm_head": False}
    found = stored(handmade(LINEAR), {"quantization": own}).shapes
    assert found[f"{LAYER}.weight"] == (128, 16)
    assert found["lm_head.weight"] == (96, 64)


def test_mlx_has_no_biases_in_the_modes_of_floats():
    found = stored(handmade(LINEAR), {"quantization": {**MLX, "mode": "mxfp4", "group_size": 32}}).shapes
    assert f"{LAYER}.biases" not in found


def test_mlx_quantizes_the_modules_whose_scales_are_there():
    whole = handmade(LINEAR)
    held = {**asked_for(whole, {"quantization": MLX}), "lm_head.weight": (96, 64)}
    held = {name: shape for name, shape in held.items() if not name.startswith(("lm_head.s", "lm_head.b"))}
    assert exact(whole, {"quantization": MLX}, held)


def test_mlx_has_its_own_names_for_composed_models():
    whole = handmade(
        {
            "model.language_model.layers.0.mlp.up_proj.weight": ((128, 64), "l"),
            "model.visual.patch_embed.proj.weight": ((8, 3, 2, 14, 14), "c"),
            "lm_head.weight": ((96, 64), "l"),
        }
    )
    found = stored(whole, {"quantization": MLX}).shapes
    assert found["language_model.model.layers.0.mlp.up_proj.scales"] == (128, 1)
    assert found["language_model.lm_head.weight"] == (96, 8)
    assert found["vision_tower.patch_embed.proj.weight"] == (None,) * 5


def test_stacked_experts_of_mlx_are_not_judged():
    name = "model.layers.0.mlp"
    whole = handmade({**LINEAR, f"{name}.experts.0.up_proj.weight": ((128, 64), "l")})
    found = stored(whole, {"quantization": MLX})
    assert found.may_be_there(f"{name}.switch_mlp.up_proj.scales")
    assert f"{name}.experts.0.up_proj.weight" not in found.shapes


def test_mlx_names_that_are_not_known_are_not_judged():
    with pytest.raises(NotTransformed):
        stored(handmade(LINEAR), {"quantization": MLX}, {f"blocks.{number}.scales": (1,) for number in range(9)})


def test_a_quantized_file_has_no_second_form():
    """Experts that are one tensor in memory are not what a quantizer wrote."""
    config = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_hidden_layers": 1}
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    whole = skeleton(config)
    assert whole.memory is not None
    assert stored(whole, config).as_skeleton.memory is None
