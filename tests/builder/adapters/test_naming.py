"""Names that trainings store, and the ones under which PEFT saves."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from repokit.builder.adapters.naming import saved_names
from repokit.errors import PlanError

MODULE = "base_model.model.model.layers.0.self_attn.q_proj"
A, B = f"{MODULE}.lora_A.weight", f"{MODULE}.lora_B.weight"


def final(*names: str, method: str = "LORA", **arguments: object) -> list[str]:
    return list(saved_names(names, method, **arguments).final.values())


STORED = {
    "torch.compile": lambda name: f"_orig_mod.{name}",
    "torch.compile inside": lambda name: name.replace("model.model.model.", "model.model._orig_mod.model."),
    "DDP": lambda name: f"module.{name}",
    "DDP around torch.compile": lambda name: f"module._orig_mod.{name}",
    "FSDP anywhere": lambda name: name.replace("layers.0.", "layers.0._fsdp_wrapped_module."),
    "activation checkpoints": lambda name: name.replace("layers.0.", "layers.0._checkpoint_wrapped_module."),
    "the adapter's name": lambda name: name.replace(".weight", ".default.weight"),
    "another name": lambda name: name.replace(".weight", ".sql_2.weight"),
    "no prefix": lambda name: name.removeprefix("base_model.model."),
    "half a prefix": lambda name: name.removeprefix("base_model."),
    "twice the prefix": lambda name: f"base_model.model.{name}",
    "a Lightning module": lambda name: f"model.{name}",
    "an attribute of a Lightning module": lambda name: f"net.policy.{name.replace('.weight', '.default.weight')}",
}


@pytest.mark.parametrize("how", STORED)
def test_names_become_those_that_peft_saves(how):
    assert final(*map(STORED[how], (A, B))) == [A, B]


def test_half_a_prefix_before_a_head_too():
    found = final("model.model.layers.0.self_attn.q_proj.lora_A.weight", "model.lm_head.weight")
    assert found == [A, "base_model.model.lm_head.weight"]


def test_names_that_are_right_stay():
    assert final(A, B) == [A, B]


OTHERS = {
    ("LORA", "M.lora_embedding_A.default"): "M.lora_embedding_A",
    ("LORA", "M.lora_magnitude_vector.default.weight"): "M.lora_magnitude_vector",
    ("LORA", "M.lora_magnitude_vector"): "M.lora_magnitude_vector",
    ("LORA", "M.lora_B.default.bias"): "M.lora_B.bias",
    ("LORA", "M.lora_B.bias"): "M.lora_B.bias",
    ("LORA", "lm_head.modules_to_save.default.weight"): "lm_head.weight",
    ("LORA", "score.modules_to_save.default.dense.bias"): "score.dense.bias",
    ("LORA", "lm_head.modules_to_save.weight"): "lm_head.weight",
    ("LORA", "embed_tokens.token_adapter.trainable_tokens_delta.default"): "embed_tokens.token_adapter.trainable_tokens_delta",
    ("IA3", "M.ia3_l.default"): "M.ia3_l",
    ("ADALORA", "M.lora_E.default"): "M.lora_E",
    ("C3A", "M.c3a_kernel.default"): "M.c3a_kernel",
    ("ROAD", "M.road_theta.default"): "M.road_theta",
    ("LN_TUNING", "norm.ln_tuning_layers.default.weight"): "norm.ln_tuning_layers.weight",
}  # fmt: skip


@pytest.mark.parametrize(("method", "stored"), OTHERS)
def test_the_adapters_name_is_taken_out_of_every_method(method, stored):
    prefix = "base_model.model."
    assert final(prefix + stored, method=method) == [prefix + OTHERS[method, stored]]


def test_what_all_modules_share_has_its_own_prefix():
    assert final("base_model.vera_A.default", method="VERA") == ["base_model.vera_A"]


def test_the_one_tensor_of_a_prompt_has_no_prefix():
    assert final("module.prompt_embeddings", method="PROMPT_TUNING") == ["prompt_embeddings"]


def test_several_adapters_in_one_file_are_refused():
    with pytest.raises(PlanError, match="holds the tensors of 2 adapters in one file: default, reference") as caught:
        saved_names([f"{MODULE}.lora_A.{name}.weight" for name in ("default", "reference")], "LORA")
    assert '"*.reference.*"' in caught.value.hint


# ------------------------------------------------------------------------------------------------ among those of a base

WHOLE = {
    f"{MODULE}.lora_A.default.weight": True,
    f"{MODULE}.base_layer.weight": False,
    f"{MODULE}.base_layer.bias": False,
    "base_model.model.model.norm.weight": False,
    "base_model.model.lm_head.modules_to_save.default.weight": True,
    "base_model.model.lm_head.original_module.weight": False,
    "loss.weight": False,
}


def test_only_the_adapters_own_is_taken_out_of_the_state_of_a_model():
    found = saved_names(WHOLE, "LORA", whole=True)
    assert found.final.keys() == {name for name, own in WHOLE.items() if own}
    assert set(found.of_base) == {name for name, own in WHOLE.items() if not own}


@pytest.mark.parametrize(("bias", "names"), [("none", []), ("lora_only", [MODULE]), ("all", [MODULE, "norm"])])
def test_biases_that_were_trained_are_taken_too(bias, names):
    stored = [f"{MODULE}.lora_A.default.weight", f"{MODULE}.base_layer.bias", "base_model.model.norm.bias"]
    found = saved_names(stored, "LORA", bias=bias, whole=True)
    assert len(found.final) == 1 + len(names)


def test_the_copy_of_a_module_that_was_trained_is_never_the_original():
    found = saved_names([f"{MODULE}.original_module.weight", A], "LORA")
    assert (list(found.final), found.of_base) == ([A], (f"{MODULE}.original_module.weight",))


# ------------------------------------------------------------------------------------------------ whatever is stored

WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(WRAPPERS)), max_size=6), st.integers(0, 3))
def test_wrappers_are_taken_off_in_any_nesting(wraps, modules):
    def wrapped(name: str) -> str:
        parts = name.split(".")
        for place, wrapper in wraps:
            parts.insert(min(place, len(parts) - 3), wrapper.rstrip("."))
        return "module." * modules + ".".join(parts)

    assert final(wrapped(A), wrapped(B)) == [A, B]


@given(st.lists(st.text(st.sampled_from("abm.01_"), min_size=1), unique=True), st.sampled_from(["LORA", "IA3", "VERA"]))
def test_names_do_not_change_twice(names, method):
    once = final(*names, method=method)
    assert final(*once, method=method) == once
