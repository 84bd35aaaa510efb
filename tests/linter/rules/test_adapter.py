"""Ranks of adapters, where config and weights must agree, and where they cannot be compared."""

from __future__ import annotations

from typing import Any

import pytest

from repokit.linter.engine import lint
from repokit.linter.examples import Example, edited, lora
from repokit.linter.selection import Selection
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

MODULE = "base_model.model.model.layers.0.self_attn.q_proj"


def codes(change: dict[str, Any]) -> list[str]:
    report = lint(Repository(Example("", change, "lora").source()), Selection(select=("ADP",)))
    return [finding.code for finding in report.findings]


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        ({"r": 4}, []),
        ({"r": 8}, ["ADP104"]),
        ({"r": 8, "rank_pattern": {"self_attn.q_proj": 4, "v_proj": 4}}, []),
        ({"r": 8, "rank_pattern": {"model.layers.0.self_attn.q_proj": 4}}, ["ADP104"]),
        ({"rank_pattern": {r"layers\.1\.self_attn\.v_proj$": 2}}, ["ADP104"]),
        ({"rank_pattern": {"_proj": 2}}, []),  # the pattern stands for whole names
        ({"r": 8, "target_parameters": ["experts.up_proj"]}, []),
        ({"r": 8, "peft_type": "VERA"}, []),
        ({"r": "8"}, []),  # a wrong type is another rule's
        ({"r": 8, "rank_pattern": {"(a+)+$": 4}}, []),  # an expression is not run
    ],
)
def test_ranks(config: dict[str, Any], wrong: list[str]) -> None:
    assert codes({"adapter_config.json": config}) == wrong


def test_factors_that_do_not_fit_each_other() -> None:
    assert codes({"adapter_model.safetensors": edited(add={f"{MODULE}.lora_B.weight": ("F32", (16, 3))})}) == ["ADP104"]


def test_adapters_in_folders_are_judged_too() -> None:
    files = {f"french/{path}": content for path, content in lora().items()}
    example = Example("", {"adapter_config.json": {"base_model_name_or_path": None}}, "lora")
    files["french/adapter_config.json"] = example.files()["adapter_config.json"]
    report = lint(Repository(Memory(files)), Selection(select=("ADP",)))
    assert [(finding.code, finding.path) for finding in report.findings] == [("ADP101", "french/adapter_config.json")]


def test_an_adapter_without_weights_in_safetensors_is_judged_by_its_config() -> None:
    assert codes({"adapter_model.safetensors": None, "adapter_config.json": {"r": 64}}) == []


@pytest.mark.parametrize("base", ["org/name", "gpt2", "org/name.v1-2_x"])
def test_ids_of_the_hub(base: str) -> None:
    assert codes({"adapter_config.json": {"base_model_name_or_path": base}}) == []


@pytest.mark.parametrize("base", ["/data/base", "./base", "~/base", "C:\\base", "a/b/c", "", "None", "org/name.git"])
def test_what_is_no_id_of_the_hub(base: str) -> None:
    assert codes({"adapter_config.json": {"base_model_name_or_path": base}}) == ["ADP101"]
