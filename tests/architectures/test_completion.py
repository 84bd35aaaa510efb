"""Absent keys, nulls, spellings and nested configs, as a configuration class reads them."""

from __future__ import annotations

from typing import Any

import pytest

from repokit.architectures.completion import MOST_ELEMENTS, complete
from repokit.architectures.errors import ConfigUnusable
from repokit.architectures.grammar import expression
from repokit.architectures.member import ConfigFacts, Derived

HEADS = Derived(given=True, value=expression("heads"))
KINDS = Derived(given=True, value=expression("'full' if i%2==0 else 'sliding'"), length=expression("layers"))


def facts(**changes: Any) -> ConfigFacts:
    known: dict[str, Any] = {
        "name": "TinyConfig",
        "defaults": {"heads": 4, "kv_heads": 2, "layers": 3, "kinds": None, "vision": True, "vision.width": 8},
        "aliases": (("n_head", "heads"),),
        "derived": {"kv_heads": HEADS, "kinds": KINDS},
        "subs": {"vision": "tiny_vision"},
        "initial": {},
        "flat": (),
    }
    return ConfigFacts(**{**known, **changes})


def test_an_absent_key_has_the_default_of_the_class() -> None:
    assert complete(facts(), {})["kv_heads"] == 2


def test_a_null_is_computed() -> None:
    assert complete(facts(), {"kv_heads": None, "heads": 6})["kv_heads"] == 6


def test_a_given_value_counts() -> None:
    assert complete(facts(), {"kv_heads": 1, "heads": 6})["kv_heads"] == 1


def test_a_list_is_computed_element_by_element() -> None:
    assert complete(facts(), {"layers": 4})["kinds"] == ("full", "sliding", "full", "sliding")


def test_another_spelling_of_a_key_counts() -> None:
    assert complete(facts(), {"n_head": 8, "kv_heads": None})["kv_heads"] == 8


def test_a_nested_key_is_read_from_its_config() -> None:
    assert complete(facts(), {"vision": {"width": 16}})["vision.width"] == 16


def test_a_null_in_place_of_a_config_means_its_defaults() -> None:
    completed = complete(facts(), {"vision": None})
    assert (completed["vision"], completed["vision.width"]) == (True, 8)


def test_an_absent_config_can_have_other_values_than_an_empty_one() -> None:
    known = facts(initial={"vision.width": 32})
    assert (complete(known, {})["vision.width"], complete(known, {"vision": {}})["vision.width"]) == (32, 8)


def test_the_number_of_labels_is_that_of_their_names() -> None:
    known = facts(defaults={"num_labels": 2})
    assert complete(known, {"id2label": {"0": "a", "1": "b", "2": "c"}})["num_labels"] == 3


def test_a_key_that_nothing_knows_is_none() -> None:
    assert complete(facts(), {})["unknown"] is None


def test_values_of_single_layers() -> None:
    known = facts(
        defaults={"width": 8, "num_hidden_layers": 3, "width__per_layer": None},
        derived={"width__per_layer": Derived(given=False, value=expression("width"), length=expression("0"))},
    )
    config = {"per_layer_config": {"1": {"width": 16}}}
    assert complete(known, config)["width__per_layer"] == (8, 16, 8)


@pytest.mark.parametrize("config", [{"layers": 10**12}, {"kinds": ["full"] * (MOST_ELEMENTS + 1)}])
def test_a_list_without_end_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigUnusable):
        complete(facts(), config)


@pytest.mark.parametrize("value", ["many", [1], {"a": 1}, -3, 1e400])
def test_values_of_other_types_are_no_crash(value: object) -> None:
    complete(facts(), {"layers": value, "heads": value, "kv_heads": None})
