"""Which tensors an adapter must hold: the rules of PEFT on a small made-up model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from repokit.architectures import NotCovered, Skeleton
from repokit.architectures.adapters import AdapterTensors, adapter, architectures, compare
from repokit.architectures.adapters_blocks import factors, nearest_divisor
from repokit.architectures.adapters_shared import PREFIX
from repokit.architectures.adapters_suggestions import suggestion

Toy = Callable[..., Skeleton]
QUERIES = [f"model.layers.{layer}.attn.q_proj" for layer in range(4)]
KEYS = [f"model.layers.{layer}.attn.k_proj" for layer in range(4)]


def lora(skeleton: Skeleton, **changes: object) -> AdapterTensors:
    return adapter(skeleton, {"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"], **changes})


def held_by(wanted: AdapterTensors) -> dict[str, tuple[int, ...]]:
    return {name: tuple(size or 3 for size in shape) for name, shape in wanted.required.items()}


def shape(wanted: AdapterTensors, name: str) -> tuple[int | None, ...]:
    return wanted.required[PREFIX + name]


# ---------------------------------------------------------------- targets


@pytest.mark.parametrize(
    ("config", "targets"),
    [
        ({"target_modules": ["q_proj"]}, QUERIES),
        ({"target_modules": ["attn.q_proj"]}, QUERIES),
        ({"target_modules": ["tn.q_proj"]}, []),
        ({"target_modules": ["model.layers.1.attn.q_proj"]}, QUERIES[1:2]),
        ({"target_modules": r".*\.[01]\.attn\.q_proj"}, QUERIES[:2]),
        ({"target_modules": r"q_proj"}, []),
        ({"target_modules": ["q_proj"], "exclude_modules": ["0.attn.q_proj"]}, QUERIES[1:]),
        ({"target_modules": ["q_proj"], "exclude_modules": r".*\.[13]\..*"}, QUERIES[::2]),
        ({"target_modules": ["q_proj"], "layers_to_transform": [2]}, QUERIES[2:3]),
        ({"target_modules": ["q_proj"], "layers_to_transform": 3, "layers_pattern": "layers"}, QUERIES[3:]),
        ({"target_modules": ["q_proj"], "layers_to_transform": [0], "layers_pattern": ["blocks"]}, []),
        ({"target_modules": ["q_proj"], "layers_to_transform": []}, QUERIES),
        ({"target_modules": ["q_proj", "k_proj"], "modules_to_save": ["k_proj"]}, QUERIES),
    ],
)
def test_targets_are_chosen_as_peft_chooses_them(toy: Toy, config: dict[str, Any], targets: list[str]) -> None:
    assert list(lora(toy(), **config).targets) == targets


def test_all_linear_leaves_out_the_head_and_embeddings(toy: Toy) -> None:
    assert set(lora(toy("ToyForCausalLM"), target_modules="ALL-linear").targets) == {*QUERIES, *KEYS}


def test_no_targets_are_those_of_peft_for_the_model_type(toy: Toy) -> None:
    with pytest.raises(NotCovered, match="PEFT has no target_modules for toy"):
        lora(toy(), target_modules=None)


def test_an_expression_that_is_not_run_is_not_guessed(toy: Toy) -> None:
    with pytest.raises(NotCovered, match="is not run"):
        lora(toy(), target_modules=r"(.)\1.*")


def test_names_that_no_module_has_are_told(toy: Toy) -> None:
    assert lora(toy(), target_modules=["q_proj", "c_attn"]).unmatched == ("c_attn",)


# ---------------------------------------------------------------- LoRA


def test_factors_have_the_inputs_and_outputs_of_their_module(toy: Toy) -> None:
    wanted = lora(toy(), target_modules=["k_proj"])
    assert (shape(wanted, f"{KEYS[0]}.lora_A.weight"), shape(wanted, f"{KEYS[0]}.lora_B.weight")) == ((2, 8), (4, 2))


@pytest.mark.parametrize(
    ("pattern", "ranks"),
    [
        ({"q_proj": 3}, [3, 3, 3, 3]),
        ({"1.attn.q_proj": 3}, [2, 3, 2, 2]),
        ({r"layers\.[12]\.attn\.q_proj": 3, "q_proj": 4}, [4, 3, 3, 4]),
        ({"_proj": 3}, [2, 2, 2, 2]),
    ],
)
def test_ranks_by_pattern(toy: Toy, pattern: dict[str, int], ranks: list[int]) -> None:
    wanted = lora(toy(), rank_pattern=pattern)
    assert [shape(wanted, f"{path}.lora_A.weight")[0] for path in QUERIES] == ranks


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"use_dora": True}, {"lora_magnitude_vector"}),
        ({"lora_bias": True}, {"lora_B.bias"}),
        ({"kasa_config": {"beta": 1}}, {"lora_diag"}),
        ({"use_rslora": True}, set()),
    ],
)
def test_variants_add_tensors(toy: Toy, config: dict[str, Any], names: set[str]) -> None:
    held = {name.removeprefix(f"{PREFIX}{QUERIES[0]}.") for name in lora(toy(), **config).required}
    assert {name for name in held if not name.startswith(PREFIX)} == {"lora_A.weight", "lora_B.weight", *names}


def test_an_embedding_has_factors_of_its_own(toy: Toy) -> None:
    wanted = lora(toy(), target_modules=["embed_tokens"])
    assert shape(wanted, "model.embed_tokens.lora_embedding_A") == (2, 20)
    assert shape(wanted, "model.embed_tokens.lora_embedding_B") == (8, 2)


def test_modules_trained_in_full_lie_beside_under_their_own_names(toy: Toy) -> None:
    assert shape(lora(toy(), modules_to_save=["lm_head"]), "lm_head.weight") == (20, 8)


def test_tasks_imply_a_head_of_as_many_classes_as_were_trained(toy: Toy) -> None:
    wanted = lora(toy("ToyForSequenceClassification"), task_type="SEQ_CLS")
    assert shape(wanted, "score.weight") == (None, 8)


def test_rows_for_single_tokens(toy: Toy) -> None:
    wanted = lora(toy(), trainable_token_indices=[4, 7, 9])
    assert shape(wanted, "model.embed_tokens.token_adapter.trainable_tokens_delta") == (3, 8)


def test_fused_experts_wrap_their_module_once_each(toy: Toy) -> None:
    wanted = lora(toy(), target_parameters=["experts.up", "experts.down"])
    experts = "model.layers.0.experts"
    assert shape(wanted, f"{experts}.base_layer.lora_A.weight") == (6, 8)
    assert shape(wanted, f"{experts}.base_layer.lora_B.weight") == (12, 6)
    assert shape(wanted, f"{experts}.lora_A.weight") == (6, 12)


def test_single_experts_of_older_versions_are_adapted_one_by_one(toy: Toy) -> None:
    wanted = lora(toy(), target_modules=["up"])
    assert shape(wanted, "model.layers.3.experts.2.up.lora_A.weight") == (2, 8)


def test_layers_that_were_stacked_anew_have_the_numbers_of_the_new_stack(toy: Toy) -> None:
    wanted = lora(toy(), layer_replication=[[0, 3], [1, 4]])
    assert [path for path in wanted.targets if path not in QUERIES] == [
        "model.layers.4.attn.q_proj",
        "model.layers.5.attn.q_proj",
    ]


@pytest.mark.parametrize(
    "config",
    [
        {"use_bdlora": {"a": 1}},
        {"monteclora_config": {"a": 1}},
        {"layer_replication": [[0, 10**9]]},
        {"layer_replication": [["a", 2]]},
        {"peft_type": "SHADOW"},
        {"peft_type": "FROBNICATE"},
        {"peft_type": None},
    ],
)
def test_what_is_not_worked_out_is_not_covered(toy: Toy, config: dict[str, Any]) -> None:
    with pytest.raises(NotCovered):
        lora(toy(), **config)


@pytest.mark.parametrize(
    "config",
    [
        {"r": "four"},
        {"r": -1},
        {"rank_pattern": {"q_proj": "many"}},
        {"target_modules": [1, None]},
        {"modules_to_save": 3},
        {"trainable_token_indices": {"embed_tokens": None}},
        {"peft_type": "LOKR", "r": 0},
        {"peft_type": "C3A", "block_size": 0},
        {"peft_type": "OFT", "r": 10**30},
        {"peft_type": "OSF", "effective_rank": "half"},
        {"peft_type": "ROAD", "group_size": 8, "variant": "road_9"},
        {"peft_type": "SUPERTUNING", "sparsity": None},
        {"peft_type": "TINYLORA", "weight_tying": "yes"},
        {"peft_type": "ADALORA", "rank_pattern": {"q_proj.lora_E": "all"}},
    ],
)
def test_senseless_values_give_no_exception(toy: Toy, config: dict[str, Any]) -> None:
    assert isinstance(lora(toy(), **config), AdapterTensors)


# ---------------------------------------------------------------- comparison


def test_what_must_be_there_is_clean(toy: Toy) -> None:
    wanted = lora(toy())
    assert compare(wanted, held_by(wanted)).clean


def test_each_tensor_that_is_deleted_is_missing(toy: Toy) -> None:
    wanted = lora(toy(), target_modules="all-linear", use_dora=True, modules_to_save=["lm_head"])
    held = held_by(wanted)
    without = {name: compare(wanted, {other: held[other] for other in held if other != name}) for name in held}
    assert {name: found.missing for name, found in without.items()} == {name: (name,) for name in held}


def test_each_tensor_that_is_reshaped_is_misshapen(toy: Toy) -> None:
    wanted = lora(toy(), target_modules="all-linear", use_dora=True, modules_to_save=["lm_head"])
    held = held_by(wanted)
    changed = {name: compare(wanted, {**held, name: (*held[name][:-1], held[name][-1] + 1)}) for name in held}
    assert [name for name, found in changed.items() if [one[0] for one in found.misshapen] != [name]] == []


def test_a_tensor_of_a_module_that_is_not_adapted_is_unexpected(toy: Toy) -> None:
    wanted = lora(toy())
    extra = f"{PREFIX}{KEYS[0]}.lora_A.weight"
    assert compare(wanted, {**held_by(wanted), extra: (2, 8)}).unexpected == (extra,)


@pytest.mark.parametrize(
    "name", ["model.embed_tokens.weight", "model.embed_tokens.base_layer.weight", "lm_head.weight"]
)
def test_resized_embeddings_may_lie_beside(toy: Toy, name: str) -> None:
    wanted = lora(toy())
    assert compare(wanted, {**held_by(wanted), PREFIX + name: (23, 8)}).clean


def test_names_that_transformers_renames_count_as_the_new_ones(toy: Toy) -> None:
    skeleton = toy()
    skeleton.facts.other["names"]["renames"].append([r"^(model\.)?decoder\.", "model."])
    try:
        wanted = lora(skeleton)
        held = {name.replace("model.layers", "decoder.layers"): size for name, size in held_by(wanted).items()}
        assert compare(wanted, held).clean
    finally:
        skeleton.facts.other["names"]["renames"].pop()


# ---------------------------------------------------------------- classes


@pytest.mark.parametrize(
    ("config", "first"),
    [
        ({}, "ToyForCausalLM"),
        ({"task_type": "CAUSAL_LM"}, "ToyForCausalLM"),
        ({"task_type": "SEQ_CLS"}, "ToyForSequenceClassification"),
        ({"auto_mapping": {"base_model_class": "ToyDoubtful"}, "task_type": "SEQ_CLS"}, "ToyDoubtful"),
        ({"task_type": "TOKEN_CLS"}, None),
    ],
)
def test_the_class_is_that_of_the_task(
    toys: object, toy_config: Callable[..., dict[str, Any]], config: dict[str, Any], first: str | None
) -> None:
    assert next(iter(architectures(toy_config(), config)), None) == first


# ---------------------------------------------------------------- causes


def told(wanted: AdapterTensors, held: dict[str, tuple[int, ...]]) -> str | None:
    found = suggestion(wanted, compare(wanted, held))
    return None if found is None else found.text


def test_a_level_too_few_is_told(toy: Toy) -> None:
    wanted = lora(toy())
    held = {name.replace(f"{PREFIX}model.", PREFIX): size for name, size in held_by(wanted).items()}
    assert told(wanted, held) == "put model. after base_model.model."


def test_a_level_too_many_is_told(toy: Toy) -> None:
    wanted = lora(toy())
    held = {name.replace(PREFIX, f"{PREFIX}inner."): size for name, size in held_by(wanted).items()}
    assert told(wanted, held) == "take inner. out of the names"


def test_another_width_is_told(toy: Toy) -> None:
    wanted, other = lora(toy()), lora(toy(hidden_size=16))
    assert told(wanted, held_by(other)) == "the adapter is of a base with hidden_size 16, this one has 8"


def test_more_layers_are_told(toy: Toy) -> None:
    wanted, other = lora(toy()), lora(toy(num_hidden_layers=6))
    assert told(wanted, held_by(other)) == "the adapter is of a base with at least 6 layers, this one has 4"


def test_a_model_saved_whole_is_told(toy: Toy) -> None:
    wanted = lora(toy())
    whole = {PREFIX + name: (1,) for name in (f"{path}.weight" for path in KEYS)}
    assert (told(wanted, {**held_by(wanted), **whole}) or "").startswith("these are tensors of the base model")


def test_several_causes_are_not_told_as_one(toy: Toy) -> None:
    wanted = lora(toy())
    assert told(wanted, {**held_by(wanted), "a.weight": (1,), f"{PREFIX}b.lora_A.weight": (1,)}) is None


# ---------------------------------------------------------------- numbers of other methods


@pytest.mark.parametrize(
    ("size", "factor", "expected"),
    [
        (256, -1, (16, 16)),
        (128, -1, (8, 16)),
        (127, -1, (1, 127)),
        (128, 4, (4, 32)),
        (88, 5, (4, 22)),
        (1, -1, (1, 1)),
    ],
)
def test_factors_of_a_kronecker_product(size: int, factor: int, expected: tuple[int, int]) -> None:
    assert factors(size, factor) == expected


@pytest.mark.parametrize(
    ("width", "wanted", "expected"), [(32, 8, 8), (32, 12, 8), (32, 13, 16), (32, 64, 32), (88, 7, 8), (7, 3, 1)]
)
def test_block_sizes_are_adjusted_to_a_divisor(width: int, wanted: int, expected: int) -> None:
    assert nearest_divisor(width, wanted) == expected
