"""Names of tensors, taken apart all at once."""

from __future__ import annotations

from hypothesis import given, strategies as st

from repokit.repo.tensor_names import group_names, layers_of, numbers

# Parts of names as models have them, numbers and nothing among them.
parts = st.sampled_from(
    ["model", "layers", "experts", "0", "7", "12", "weight", "a1", "1a", "*", "", "\u00e9", "999999999999"]
)
names = st.lists(parts, min_size=1, max_size=7).map(".".join)


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
