"""Rotary embeddings: the spellings of two generations, families with names of their own."""

from __future__ import annotations

from typing import Any

import pytest

from repokit.linter.engine import lint
from repokit.linter.examples import DELETE, Example
from repokit.linter.rules.rope import version
from repokit.linter.selection import Selection
from repokit.repo.repository import Repository

OF_ROPE = Selection(select=("CFG108", "CFG109", "CFG111", "CFG205", "CFG303"))


def codes(**config: Any) -> list[str]:
    repository = Repository(Example("", {"config.json": config}).source())
    return sorted(finding.code for finding in lint(repository, OF_ROPE).findings)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "phi3", "rope_scaling": {"type": "su", "short_factor": [1.0], "long_factor": [1.0]}},
        {"model_type": "qwen2_vl", "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}},
        {"model_type": "of_tomorrow", "rope_parameters": {"rope_type": "of_tomorrow"}},
        {
            "model_type": "gemma3_text",
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
        {"model_type": "qwen3_5_text", "rope_parameters": {"rope_type": "default", "rope_theta": 1e7}},
        {"rope_parameters": DELETE, "rope_theta": 500000.0, "rope_scaling": None},
        {"rope_parameters": "default"},
    ],
    ids=["Phi-3", "Qwen2-VL", "unknown family", "one a kind of layer", "only in 5", "only in 4", "wrong type"],
)
def test_what_loads_is_left_alone(config: dict[str, Any]) -> None:
    assert codes(**config) == []


def test_an_object_for_a_kind_of_layer_is_judged_too() -> None:
    assert codes(model_type="gemma3_text", rope_parameters={"full_attention": {"rope_type": "linear"}}) == ["CFG109"]


def test_sub_configs_are_judged_too() -> None:
    text = {"model_type": "llama", "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}
    assert codes(text_config=text) == ["CFG205"]


def test_rope_scaling_wins_where_both_are_there() -> None:
    assert codes(model_type="qwen3", rope_scaling={"type": "linear"}) == ["CFG109"]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("5.24.0", (5, 24)), ("transformers 4.57.6, models/*", (4, 57)), ("5.0.0.dev0", (5, 0)), ("", (0,))],
)
def test_versions_are_compared_by_two_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert version(text) == numbers
