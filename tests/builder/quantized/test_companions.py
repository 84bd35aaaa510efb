"""The tensors of a module stay together, whatever the method calls them."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, strategies as st

from repokit.builder import sharding
from repokit.builder.quantized.companions import brought_together, by_module, module_of, split

# Module, and what each method stores for it: the names of formats.md and of what the libraries write.
MODULES = {
    "gptq": ("model.layers.0.mlp.up_proj", ["qweight", "qzeros", "scales", "g_idx", "bias"]),
    "compressed-tensors": (
        "model.layers.0.mlp.up_proj",
        ["weight_packed", "weight_scale", "weight_shape", "weight_zero_point", "weight_global_scale", "input_scale"],
    ),
    "bitsandbytes": (
        "lm_head",
        [
            "weight",
            "weight.absmax",
            "weight.quant_map",
            "weight.nested_absmax",
            "weight.nested_quant_map",
            "weight.quant_state.bitsandbytes__nf4",
            "SCB",
            "weight_format",
        ],
    ),
    "quanto": ("a.b", ["weight._data", "weight._scale", "weight._shift", "input_scale"]),
    "torchao": ("a.b", ["_weight_qdata", "_weight_scale", "_weight_zero_point", "bias"]),
    "hqq": ("a.b", ["W_q", "scale", "zero", "meta"]),
    "modelopt": ("a.b", ["weight", "weight_scale", "weight_scale_2", "input_scale", "pre_quant_scale"]),
    "mlx": ("a.b", ["weight", "scales", "biases"]),
}
# The experts of a layer in one module: each of its parameters is a module of its own.
FUSED = {
    "gpt-oss": ("l.0.mlp.experts.gate_up_proj", ["_blocks", "_scales", "_bias"]),
    "fp8": ("l.0.mlp.experts.down_proj", ["", "_scale_inv", "_bias"]),
    "compressed-tensors": ("l.0.mlp.experts.w1", ["_weight_scale", "_weight_packed", "_weight_shape"]),
    "bitsandbytes": ("l.0.mlp.experts.down_proj", ["", ".absmax", ".quant_map", ".quant_state.bitsandbytes__nf4"]),
}


@pytest.mark.parametrize("method", MODULES)
def test_the_parts_of_a_module_have_one_module(method):
    module, parts = MODULES[method]
    assert [split(f"{module}.{part}") for part in parts] == [(module, part) for part in parts]


@pytest.mark.parametrize("method", FUSED)
def test_a_parameter_of_fused_experts_is_a_module(method):
    module, endings = FUSED[method]
    assert {module_of(module + ending) for ending in endings} == {module}


def test_torchao_spells_fused_experts_with_an_underscore_before():
    assert split("l.0.mlp.experts._gate_up_proj_qdata") == ("l.0.mlp.experts.gate_up_proj", "qdata")


def test_two_fused_parameters_are_two_modules():
    names = ["e.experts.gate_up_proj_blocks", "e.experts.down_proj_blocks"]
    assert len(by_module(names)) == 2


def test_a_numbered_expert_is_a_module_as_any_other():
    assert split("l.0.mlp.experts.7.up_proj.weight_scale") == ("l.0.mlp.experts.7.up_proj", "weight_scale")


def test_modules_in_two_files_are_counted():
    assert brought_together({"a.weight": "1", "a.weight_scale": "2", "b.weight": "2", "b.bias": "2"}) == 1


NAMES = st.lists(
    st.builds(
        "{}.{}.{}".format,
        st.sampled_from(["layers.0", "layers.10", "layers.2", "experts"]),
        st.sampled_from(["up_proj", "down_proj", "up_proj.inner"]),
        st.sampled_from(["weight", "weight.absmax", "weight_scale", "qweight", "bias"]),
    ),
    unique=True,
    min_size=1,
)


@given(st.data(), NAMES, st.integers(1, 100))
def test_packing_keeps_every_name_once_and_every_module_whole(data, names, limit):
    sizes = {name: data.draw(st.integers(0, 60)) for name in names}
    shards = sharding.packed(sizes, limit, module_of)
    assert sorted(name for shard in shards for name in shard) == sorted(names)
    places = defaultdict(set)
    for number, shard in enumerate(shards):
        for name in shard:
            places[module_of(name)].add(number)
    assert all(len(own) == 1 for own in places.values())


@given(st.data(), NAMES, st.integers(1, 100))
def test_a_file_exceeds_the_limit_only_for_one_module(data, names, limit):
    sizes = {name: data.draw(st.integers(0, 60)) for name in names}
    for shard in sharding.packed(sizes, limit, module_of):
        large = sum(sizes[name] for name in shard) > limit
        assert not large or len({module_of(name) for name in shard}) == 1 or _rest_is_empty(shard, sizes)


def _rest_is_empty(shard: list[str], sizes: dict[str, int]) -> bool:
    """Modules of no bytes fit anywhere."""
    filled = {module_of(name) for name in shard if sizes[name]}
    return len(filled) == 1


@given(NAMES)
def test_without_modules_packing_is_what_it_was(names):
    sizes = dict.fromkeys(names, 1)
    assert sharding.packed(sizes, 1) == [[name] for name in sorted(names, key=sharding.natural)]


@given(st.data(), NAMES)
def test_a_division_brought_together_moves_whole_modules_to_their_largest_tensor(data, names):
    sizes = {name: data.draw(st.integers(0, 60)) for name in names}
    files = {name: data.draw(st.sampled_from(["1", "2", "3"])) for name in names}
    found = sharding.together(sizes, files, module_of)
    assert brought_together(found) == 0
    for own in by_module(names).values():
        assert found[next(iter(own.values()))] in {
            files[name] for name in own.values() if sizes[name] == max(sizes[other] for other in own.values())
        }
