"""Adapters: ranks and names as the weights have them."""

from __future__ import annotations

from hypothesis import given, strategies as st

from repokit.linter.examples import edited
from repokit.linter.fixes.adapter import rank_pattern
from repokit.repo.weights import ADAPTER

CONFIG = "adapter_config.json"
LAYER = "base_model.model.model.layers."


def ranked(**ranks: int):
    """The base's adapter with other ranks for some kinds of module, or for `q0`, one module alone."""
    tensors = {}
    for layer in range(2):
        for module, rows in (("q_proj", 16), ("v_proj", 8)):
            rank = ranks.get(f"{module}{layer}", ranks.get(module, 4))
            tensors[f"{LAYER}{layer}.self_attn.{module}.lora_A.weight"] = ("F32", (rank, 16))
            tensors[f"{LAYER}{layer}.self_attn.{module}.lora_B.weight"] = ("F32", (rows, rank))
    return edited(add=tensors)


def test_a_kind_of_module_gets_one_pattern(mend):
    assert mend("ADP104", {ADAPTER: ranked(q_proj=8)}, "lora").json(CONFIG)["rank_pattern"] == {"q_proj": 8}


def test_one_module_of_a_kind_gets_its_path(mend):
    found = mend("ADP104", {ADAPTER: ranked(q_proj1=8)}, "lora").json(CONFIG)
    assert found["rank_pattern"] == {"model.layers.1.self_attn.q_proj": 8}


def test_a_pattern_that_is_right_stays_as_it_is_written(mend):
    change = {ADAPTER: ranked(q_proj=8, v_proj=2), CONFIG: {"rank_pattern": {"self_attn.q_proj": 8}}}
    assert mend("ADP104", change, "lora").json(CONFIG)["rank_pattern"] == {"self_attn.q_proj": 8, "v_proj": 2}


def test_alpha_is_never_changed(mend):
    assert mend("ADP104", {CONFIG: {"r": 64}}, "lora").json(CONFIG)["lora_alpha"] == 8


def test_an_expression_is_left_to_a_person(mend):
    change = {ADAPTER: ranked(q_proj=8), CONFIG: {"rank_pattern": {"[qk]_proj": 4}}}
    assert not mend("ADP104", change, "lora").changed


@given(
    st.dictionaries(
        st.sampled_from([f"base_model.model.m.{n}.{k}" for n in range(12) for k in "qv"]), st.integers(1, 3), min_size=1
    )
)
def test_every_module_has_its_rank_by_the_first_pattern_that_fits(ranks):
    patterns = rank_pattern(ranks, 1, {})
    said = {
        module: next((rank for key, rank in patterns.items() if f".{module}".endswith(f".{key}")), 1)
        for module in ranks
    }
    assert said == ranks


def test_names_of_two_adapters_stay(mend):
    def rename(name: str) -> str:
        return name.replace(".weight", ".one.weight" if "layers.0" in name else ".two.weight")

    assert not mend("ADP107", {ADAPTER: edited(rename=rename)}, "lora").changed


def test_levels_are_not_guessed_without_a_task(mend):
    change = {ADAPTER: edited(rename=lambda name: name.removeprefix("base_model.model.")), CONFIG: {"task_type": None}}
    assert not mend("ADP106", change, "lora").changed


def test_parts_of_a_fused_matrix_are_not_forgotten(mend):
    assert not mend("ADP113", {CONFIG: {"enable_lora": [True, False, True]}}, "lora").changed


def test_a_key_that_is_there_under_both_names_stays(mend):
    assert not mend("ADP203", {CONFIG: {"lora_alpa": 16}}, "lora").changed


def test_weights_of_lora_have_one_method(mend):
    from repokit.linter.examples import DELETE

    assert mend("ADP112", {CONFIG: {"peft_type": DELETE}}, "lora").json(CONFIG)["peft_type"] == "LORA"


def test_the_foundation_of_several_is_not_chosen(mend):
    card = {"README.md": lambda card: card.replace(b"base_model: example/base", b"base_model: [a/b, c/d]")}
    assert not mend("ADP101", card | {CONFIG: {"base_model_name_or_path": "/data/base"}}, "lora").changed
