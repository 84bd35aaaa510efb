"""Nested configs that older files keep flat."""

from __future__ import annotations

from typing import Any

from repokit.architectures.member import ConfigFacts
from repokit.architectures.nested_configs import flattened, nested_config

FACTS = ConfigFacts(
    name="",
    defaults={"text_config.hidden_size": 8, "vision_config.depth": 2},
    aliases=(),
    derived={},
    subs={"text_config": "text", "vision_config": "vision"},
    flat=("text_config",),
    initial={},
)


def test_flat_keys_are_put_in_their_place() -> None:
    config = flattened({"hidden_size": 64, "vision_config": {"depth": 3}}, FACTS)

    assert config["text_config"] == {"hidden_size": 64}


def test_other_nested_configs_stay_as_they_are() -> None:
    config = flattened({"hidden_size": 64, "vision_config": {"depth": 3}}, FACTS)

    assert config["vision_config"] == {"depth": 3}


def test_a_nested_config_that_is_there_counts() -> None:
    config = flattened({"hidden_size": 64, "text_config": {"hidden_size": 32}}, FACTS)

    assert config["text_config"] == {"hidden_size": 32}


def test_a_nested_config_that_may_not_stand_flat_is_not_made_up() -> None:
    config = flattened({"depth": 7}, FACTS)

    assert "vision_config" not in config


def test_a_null_is_no_nested_config() -> None:
    config = flattened({"hidden_size": 64, "text_config": None}, FACTS)

    assert config["text_config"] == {"hidden_size": 64}


def test_the_given_config_is_not_changed() -> None:
    given: dict[str, Any] = {"hidden_size": 64}

    flattened(given, FACTS)

    assert given == {"hidden_size": 64}


def test_a_nested_config_is_found_by_its_path() -> None:
    assert nested_config({"a": {"b": {"c": 1}}}, "a.b") == {"c": 1}


def test_a_path_that_leads_nowhere_finds_none() -> None:
    assert nested_config({"a": [1]}, "a.b") is None
