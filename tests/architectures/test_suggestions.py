"""One explanation where one explains all; none where none does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from repokit.architectures import Skeleton, skeleton
from repokit.architectures.comparison import compare
from repokit.architectures.prefixes import Rename
from repokit.architectures.suggestions import Budget, Cause, Suggestion, claimed_by_others, repair_names, suggest

Toy = Callable[..., Skeleton]
Config = Callable[..., dict[str, Any]]
Shapes = dict[str, tuple[int, ...]]


def held_by(wanted: Skeleton) -> Shapes:
    return {name: tuple(size or 1 for size in shape) for name, shape in wanted.shapes.items()}


def suggested(config: dict[str, Any], held: Shapes) -> Suggestion | None:
    wanted = skeleton(config)
    return suggest(wanted, config, held, compare(wanted, held))


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("wrapper", ["module.", "_orig_mod.", "base_model.model.", "net.", "transformer.decoder."])
def test_a_prefix_is_to_go(toy: Toy, toy_config: Config, wrapper: str) -> None:
    found = suggested(toy_config(), {wrapper + name: shape for name, shape in held_by(toy()).items()})
    assert found is not None
    assert (found.cause, found.renames, found.left) == (Cause.NAMES, (Rename(wrapper, ""),), 0)


def test_a_wrapper_in_the_middle_is_to_go(toy: Toy, toy_config: Config) -> None:
    held = {name.replace(".attn.", "._orig_mod.attn."): shape for name, shape in held_by(toy()).items()}
    found = suggested(toy_config(), held)
    assert found is not None
    assert found.text == "with '_orig_mod.' removed everything matches"


def test_a_prefix_is_another_one(toy: Toy, toy_config: Config) -> None:
    held = {name.replace("model.layers", "decoder.blocks"): shape for name, shape in held_by(toy()).items()}
    found = suggested(toy_config(), held)
    assert found is not None
    assert found.text == "with 'decoder.blocks.' renamed to 'model.layers.' everything matches"


def test_two_prefixes(toy: Toy, toy_config: Config) -> None:
    held = {
        name.replace("model.layers", "blocks").replace("model.embed", "text.embed"): shape
        for name, shape in held_by(toy()).items()
    }
    found = suggested(toy_config(), held)
    assert found is not None
    assert len(found.renames) == 2


def test_what_a_prefix_leaves_is_counted(toy: Toy, toy_config: Config) -> None:
    held = {f"module.{name}": shape for name, shape in held_by(toy()).items()}
    del held["module.lm_head.weight"]
    found = suggested(toy_config(), held)
    assert found is not None
    assert found.text == "with the prefix 'module.' removed all but 1 tensor matches"


def test_two_names_never_become_one(toy: Toy) -> None:
    wanted = toy()
    held = {f"module.{name}": shape for name, shape in held_by(wanted).items()} | held_by(wanted)
    assert repair_names(wanted, held, compare(wanted, held)) is None


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", 3),
        ("num_hidden_layers", 7),
        ("num_experts", 2),
        ("num_experts", 16),
        ("intermediate_size", 24),
        ("vocab_size", 21),
        ("hidden_size", 16),
        ("num_key_value_heads", 2),
        ("attention_bias", True),
        ("tie_word_embeddings", True),
    ],
)
def test_a_value_of_the_config(toy: Toy, toy_config: Config, key: str, value: object) -> None:
    found = suggested(toy_config(), held_by(toy(**{key: value})))
    assert found is not None
    assert (found.cause, found.key, found.value) == (Cause.VALUE, key, value)


def test_a_value_that_the_config_leaves_to_the_class(toy: Toy, toy_config: Config) -> None:
    found = suggested(toy_config(), held_by(toy(head_dim=16)))
    assert found is not None
    assert "head_dim 16 (not 4)" in found.text


def test_the_number_of_labels(toy: Toy, toy_config: Config) -> None:
    labels = {"id2label": {"0": "a", "1": "b", "2": "c"}}
    held = held_by(toy("ToyForSequenceClassification", id2label={"0": "a"}))
    found = suggested(toy_config("ToyForSequenceClassification", **labels), held)
    assert found is not None
    assert (found.key, found.value) == ("num_labels", 1)


def test_a_key_in_its_other_spelling(toy: Toy, toy_config: Config) -> None:
    config = toy_config()
    config["num_local_experts"] = config.pop("num_experts")
    found = suggested(config, held_by(toy(num_experts=5)))
    assert found is not None
    assert found.value == 5


# ---------------------------------------------------------------- classes


def test_another_class_of_the_type(toy: Toy, toy_config: Config) -> None:
    found = suggested(toy_config("ToyForSequenceClassification"), held_by(toy()))
    assert found is not None
    assert (found.cause, found.architecture, found.part) == (Cause.ARCHITECTURE, "ToyForCausalLM", None)


def test_the_text_model_of_a_composed_one(toy: Toy, toy_config: Config) -> None:
    inner = {**toy_config(), "num_hidden_layers": 2}
    del inner["architectures"]
    found = suggested(toy_config(text_config=inner), held_by(toy("ToyForSequenceClassification", num_hidden_layers=2)))
    assert found is not None
    assert (found.architecture, found.part) == ("ToyForSequenceClassification", "text_config")


def test_names_that_another_class_has(toy: Toy, toy_config: Config) -> None:
    claimed = claimed_by_others(toy(), toy_config(), ["score.weight", "other.weight"])
    assert claimed == {"score.weight": "ToyForSequenceClassification"}


# ---------------------------------------------------------------- nothing


def test_nothing_is_said_where_nothing_differs(toy: Toy, toy_config: Config) -> None:
    assert suggested(toy_config(), held_by(toy())) is None


def test_nothing_is_said_of_a_lost_matrix(toy: Toy, toy_config: Config) -> None:
    held = held_by(toy())
    del held["model.layers.1.attn.q_proj.weight"]
    assert suggested(toy_config(), held) is None


def test_nothing_is_said_of_two_faults(toy: Toy, toy_config: Config) -> None:
    held = held_by(toy(num_hidden_layers=3))
    held["model.layers.0.attn.q_proj.weight"] = (5, 5)
    assert suggested(toy_config(), held) is None


def test_nothing_is_said_without_a_budget(toy: Toy, toy_config: Config) -> None:
    held = held_by(toy(num_hidden_layers=3))
    wanted = toy()
    assert suggest(wanted, toy_config(), held, compare(wanted, held), budget=Budget(tries=0)) is None
