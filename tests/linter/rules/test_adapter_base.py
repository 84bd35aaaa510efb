"""An adapter against its base: which config counts, which rule speaks, and when none does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from repokit.linter.engine import lint
from repokit.linter.examples import Example, edited, lora, single
from repokit.linter.finding import Report
from repokit.linter.selection import Selection
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

CONFIG: dict[str, Any] = json.loads(single()["config.json"])
WEIGHTS = "adapter_model.safetensors"


def report(change: dict[str, Any], base: dict[str, Any] | None = None) -> Report:
    """A LoRA of a two-layer llama under a change, its base given by the caller."""
    repository = Repository(Example("", change, "lora").source())
    repository.base = base
    return lint(repository, Selection(select=("ADP",)))


def codes(change: dict[str, Any], base: dict[str, Any] | None = None) -> list[str]:
    return [finding.code for finding in report(change, base).findings]


def test_the_base_that_the_caller_gives_counts() -> None:
    assert codes({}, {**CONFIG, "num_hidden_layers": 3}) == ["ADP118"]


def test_the_base_that_the_caller_gives_counts_before_a_config_beside() -> None:
    assert codes({"config.json": {**CONFIG, "num_hidden_layers": 3}}, CONFIG) == []


def test_without_a_base_nothing_is_said() -> None:
    assert (codes({WEIGHTS: edited(drop=tuple(lora_names()[:2]))}), report({}).coverage.unknown) == ([], ())


def lora_names() -> list[str]:
    module = "base_model.model.model.layers.0.self_attn.q_proj."
    return [f"{module}lora_A.weight", f"{module}lora_B.weight"]


def test_a_base_that_is_not_known_is_in_the_coverage() -> None:
    found = report({}, {**CONFIG, "model_type": "frobnicate"})
    assert found.findings == ()
    assert "the adapter is not held against its base: no skeleton" in " ".join(found.coverage.unknown)


def test_a_base_with_code_of_its_own_is_not_judged() -> None:
    assert codes({}, {**CONFIG, "auto_map": {"AutoModel": "x.Y"}, "num_hidden_layers": 3}) == []


def test_a_base_whose_config_cannot_be_expanded_is_not_judged() -> None:
    assert codes({}, {**CONFIG, "num_hidden_layers": 10**12}) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({WEIGHTS: edited(rename=lambda name: name.removeprefix("base_model.model."))}, "ADP106"),
        ({WEIGHTS: edited(rename=lambda name: name.replace(".weight", ".default.weight"))}, "ADP107"),
        ({WEIGHTS: edited(rename=lambda name: name.replace("model.model.model.", "model.model."))}, "ADP108"),
        ({WEIGHTS: edited(drop=(lora_names()[0],))}, "ADP102"),
        ({"adapter_config.json": {"r": 64}}, "ADP104"),
        ({"adapter_config.json": {"target_modules": ["c_attn"]}}, "ADP105"),
    ],
)
def test_what_a_rule_without_the_base_sees_is_its_own(change: dict[str, Any], code: str) -> None:
    assert codes(change, CONFIG) == [code]


def test_names_of_a_level_too_few_say_what_to_do() -> None:
    change = {WEIGHTS: edited(rename=lambda name: name.replace(".model.layers.", ".language_model.layers."))}
    (finding,) = report(change, CONFIG).findings
    assert (finding.code, finding.hint) == (
        "ADP117",
        "write base_model.model.model. for base_model.model.language_model.",
    )


def test_a_model_saved_with_the_adapter_is_told() -> None:
    norm = {"base_model.model.model.norm.weight": ("F32", (16,))}
    (finding,) = report({WEIGHTS: edited(add=norm)}, CONFIG).findings
    assert finding.code == "ADP117"
    assert (finding.hint or "").startswith("these are tensors of the base model")


def test_adapters_in_folders_have_the_config_beside_them() -> None:
    files = {f"french/{path}": content for path, content in lora().items() if path.startswith("adapter_")}
    files |= {f"german/{path.rpartition('/')[2]}": content for path, content in files.items()}
    files["german/config.json"] = json.dumps({**CONFIG, "num_hidden_layers": 3}).encode()
    found = lint(Repository(Memory(files)), Selection(select=("ADP",))).findings
    assert [(finding.code, finding.path) for finding in found] == [("ADP118", f"german/{WEIGHTS}")]


def test_a_task_head_is_looked_for_in_the_class_of_the_task() -> None:
    head = {"base_model.model.score.weight": ("F32", (7, 16))}
    change = {
        "adapter_config.json": {"task_type": "SEQ_CLS", "modules_to_save": ["score"]},
        WEIGHTS: edited(add=head),
    }
    assert codes(change, CONFIG) == []
