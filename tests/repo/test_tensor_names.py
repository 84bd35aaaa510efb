"""Names of tensors, taken apart one by one and all at once."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from repokit.repo.tensor_names import Name, group_names, layers_of, numbers, split_name

# Parts of names as models have them, numbers and nothing among them.
parts = st.sampled_from(
    ["model", "layers", "experts", "0", "7", "12", "weight", "a1", "1a", "*", "", "\u00e9", "999999999999"]
)
names = st.lists(parts, min_size=1, max_size=7).map(".".join)


@pytest.mark.parametrize(
    ("name", "taken_apart"),
    [
        ("lm_head.weight", Name("", None, None, "lm_head.weight")),
        ("model.layers.3.mlp.up_proj.weight", Name("model.layers", 3, None, "mlp.up_proj.weight")),
        ("model.layers.3.mlp.experts.7.up_proj.weight", Name("model.layers", 3, 7, "mlp.experts.*.up_proj.weight")),
        ("visual.blocks.0.attn.1.bias", Name("visual.blocks", 0, None, "attn.1.bias")),
        ("h.0.experts.3.w.2.b", Name("h", 0, 3, "experts.*.w.2.b")),
    ],
)
def test_a_name_taken_apart(name: str, taken_apart: Name) -> None:
    assert split_name(name) == taken_apart


@given(st.lists(names, unique=True, max_size=12))
def test_groups_hold_every_name_once(listed: list[str]) -> None:
    assert sorted(name for group in group_names(listed).values() for name in group) == sorted(listed)


@given(st.lists(names, unique=True, max_size=12))
def test_a_pattern_and_its_numbers_are_the_name_again(listed: list[str]) -> None:
    plain = [name for name in listed if "*" not in name]
    for pattern, group in group_names(plain).items():
        for name, values in zip(group, numbers(pattern, group), strict="*" in pattern):
            assert pattern.replace("*", "{}").format(*values) == name


@given(st.lists(names, unique=True, max_size=12))
def test_any_names_have_stacks(listed: list[str]) -> None:
    assert all(layers for layers in layers_of(group_names(listed)).values())


def test_layers_of_experts_alone_are_found() -> None:
    groups = group_names([f"layers.{layer}.experts.{expert}.w" for layer in (0, 1) for expert in (0, 1)])
    assert layers_of(groups) == {"layers": {0, 1}}
