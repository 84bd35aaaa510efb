"""Hundreds of names as a few lines."""

from __future__ import annotations

from hypothesis import given, strategies as st

from repokit.architectures.grouping import grouped, summary

PARTS = ("attn.q_proj.weight", "attn.q_proj.bias", "norm.weight")
LAYERS = [f"model.layers.{layer}.{part}" for layer in range(12) for part in PARTS]
EXPERTS = [
    f"model.layers.{layer}.experts.{expert}.{part}.weight"
    for layer in range(4)
    for expert in range(8)
    for part in ("up", "down")
]
MODEL = ["model.embed_tokens.weight", *LAYERS, *EXPERTS, "lm_head.weight"]


def of_layers(*layers: int) -> list[str]:
    return [name for name in LAYERS if int(name.split(".")[2]) in layers]


def test_one_name_is_itself() -> None:
    assert summary(["lm_head.weight"], MODEL) == "lm_head.weight"


def test_everything_is_told_as_such() -> None:
    assert summary(MODEL, MODEL) == f"all {len(MODEL)} tensors"


def test_whole_layers_are_a_range() -> None:
    assert summary(of_layers(8, 9, 10, 11), MODEL) == "model.layers.{8-11}: all 3 tensors of each"


def test_layers_apart_are_listed() -> None:
    assert summary(of_layers(5, 8, 9, 10), MODEL) == "model.layers.{5,8-10}: all 3 tensors of each"


def test_one_tensor_of_every_layer_keeps_its_name() -> None:
    names = [name for name in LAYERS if name.endswith(".bias")]
    assert summary(names, MODEL) == "model.layers.{0-11}.attn.q_proj.bias: 12 tensors"


def test_experts_of_one_layer() -> None:
    names = [name for name in EXPERTS if "layers.2.experts.3." in name or "layers.2.experts.7." in name]
    assert summary(names, MODEL) == "model.layers.2.experts.{3,7}: all 2 tensors of each"


def test_the_same_expert_of_every_layer() -> None:
    names = [name for name in EXPERTS if "experts.7." in name]
    assert summary(names, MODEL) == "model.layers.{0-3}.experts.7: all 2 tensors of each"


def test_different_experts_of_different_layers_are_not_multiplied() -> None:
    names = [name for name in EXPERTS if "layers.0.experts.1.up" in name or "layers.2.experts.3.up" in name]
    assert summary(names, MODEL) == "model.layers.0.experts.1.up.weight; model.layers.2.experts.3.up.weight"


def test_a_module_is_told_by_its_name() -> None:
    tower = ["visual.blocks.0.weight", "visual.patch.weight"]
    assert summary(tower, [*MODEL, *tower]) == "visual: all 2 tensors"


def test_names_outside_of_the_model_count_as_among_it() -> None:
    assert summary(["visual.patch.weight", "visual.patch.bias"], MODEL) == "visual: all 2 tensors"


def test_the_largest_group_comes_first() -> None:
    assert summary(["lm_head.weight", *of_layers(8, 9)], MODEL).endswith("; lm_head.weight")


def test_a_summary_is_short() -> None:
    names = [f"part{letter}.{number}.weight" for letter in "abcdefgh" for number in range(0, 400, 2)]
    among = [*names, *(f"part{letter}.{number}.weight" for letter in "abcdefgh" for number in range(1, 400, 2))]
    assert summary(names, among).endswith("; 800 more")
    assert len(summary(names, among)) < 400


@given(st.sets(st.sampled_from(MODEL)))
def test_every_name_is_in_one_group(names: set[str]) -> None:
    assert sum(group.tensors for group in grouped(sorted(names), MODEL)) == len(names)


@given(st.sets(st.sampled_from(MODEL)), st.randoms())
def test_the_order_of_the_model_does_not_matter(names: set[str], random: object) -> None:
    shuffled = list(MODEL)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert grouped(sorted(names), shuffled) == grouped(sorted(names), MODEL)


@given(st.sets(st.text("ab.01", max_size=8), max_size=12))
def test_any_names_are_grouped(names: set[str]) -> None:
    assert sum(group.tensors for group in grouped(sorted(names), [])) == len(names)
