"""Rotary embeddings in config.json against transformers itself: what it refuses, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from repokit.linter.engine import lint
from repokit.linter.selection import Selection
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository
from repokit.resources import data

transformers = pytest.importorskip("transformers", reason="the oracle of this file is not installed")
torch = pytest.importorskip("torch", reason="the oracle of this file is not installed")
pytestmark = pytest.mark.oracle

SIZES = {
    "hidden_size": 16,
    "intermediate_size": 8,
    "max_position_embeddings": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "num_key_value_heads": 1,
    "vocab_size": 8,
}
FACTORS = st.just([1.0] * 4)
BLOCKS = st.fixed_dictionaries(
    {},
    optional={
        "rope_type": st.sampled_from([*data("rope_types")["types"], "ntk", "lama3"]),
        "rope_theta": st.just(10000.0),
        "factor": st.just(2.0),
        "low_freq_factor": st.just(1.0),
        "high_freq_factor": st.just(4.0),
        "original_max_position_embeddings": st.just(32),
        "short_factor": FACTORS,
        "long_factor": FACTORS,
    },
)


def refused(block: dict[str, Any], spelling: str) -> bool:
    """Whether transformers stops between config.json and the model."""
    try:
        config = transformers.LlamaConfig(**SIZES, **{spelling: dict(block)})
        with torch.device("meta"):
            transformers.LlamaModel(config)
    except (KeyError, TypeError, ValueError):
        return True
    return False


@settings(deadline=None)
@given(
    BLOCKS.filter(lambda block: block.get("rope_type") != "axial"), st.sampled_from(["rope_parameters", "rope_scaling"])
)
def test_the_rules_refuse_what_transformers_refuses(block: dict[str, Any], spelling: str) -> None:
    content = json.dumps({**SIZES, "model_type": "llama", spelling: block}).encode()
    report = lint(Repository(Memory({"config.json": content})), Selection(select=("CFG108", "CFG109")))
    assert bool(report.findings) == refused(block, spelling)


@pytest.mark.parametrize("model_type", data("divided_heads")["ids"])
def test_heads_that_do_not_divide_are_refused(model_type: str) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    with pytest.raises(Exception, match=r"multiple|divisible"):
        CONFIG_MAPPING[model_type](hidden_size=18, num_attention_heads=4)
