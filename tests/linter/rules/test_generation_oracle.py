"""generation_config.json against transformers itself: what it refuses to load and to save, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from repokit.linter.engine import lint
from repokit.linter.rules.generation import CACHES
from repokit.linter.selection import Selection
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

transformers = pytest.importorskip("transformers", reason="the oracle of this file is not installed")
pytestmark = pytest.mark.oracle

WATERMARKS = st.fixed_dictionaries(
    {},
    optional={
        "greenlist_ratio": st.sampled_from([-0.1, 0.0, 0.25, 1.0, 1.1]),
        "seeding_scheme": st.sampled_from(["lefthash", "selfhash", "righthash"]),
        "context_width": st.integers(-1, 3),
    },
)
PROBABILITIES = st.sampled_from([None, 0.0, 0.5, 1.0, 1, 2.0])
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "early_stopping": st.sampled_from([None, True, False, "never", "always"]),
        "max_new_tokens": st.sampled_from([None, -1, 0, 1, 512]),
        "assistant_ensemble_weight": st.sampled_from([None, 0.0, 0.5, 1.0]),
        "cache_implementation": st.sampled_from([None, *CACHES, "radix"]),
        "cache_config": st.sampled_from([None, {"nbits": 4}]),
        "compile_config": st.sampled_from([None, {}]),
        "watermarking_config": WATERMARKS,
        "do_sample": st.sampled_from([None, True, False]),
        "num_beams": st.sampled_from([None, 1, 2, 4]),
        "num_return_sequences": st.sampled_from([None, 1, 2, 3]),
        "temperature": PROBABILITIES,
        "top_p": PROBABILITIES,
        "min_p": PROBABILITIES,
        "top_h": PROBABILITIES,
        "typical_p": PROBABILITIES,
        "top_k": st.sampled_from([None, 0, 20, 50]),
        "epsilon_cutoff": PROBABILITIES,
        "eta_cutoff": PROBABILITIES,
        "length_penalty": PROBABILITIES,
        "use_cache": st.sampled_from([None, True, False]),
        "output_scores": st.booleans(),
        "output_attentions": st.booleans(),
        "return_dict_in_generate": st.sampled_from([None, True, False]),
        "pad_token_id": st.sampled_from([None, -1, 0]),
        "suppress_tokens": st.sampled_from([None, [], [1], [1, 2]]),
        "forced_bos_token_id": st.sampled_from([None, 1, 3]),
        "forced_eos_token_id": st.sampled_from([None, 2, [1, 2], [2, 3], []]),
        "synced_gpus": st.booleans(),
        "_from_model_config": st.booleans(),
        "max_length": st.integers(1, 64),
    },
)


def verdicts(document: dict[str, Any]) -> set[str]:
    source = Memory({"generation_config.json": json.dumps(document).encode()})
    return {finding.code for finding in lint(Repository(source), Selection(select=("GEN101", "GEN201"))).findings}


def loads(document: dict[str, Any]) -> Any:
    """The loaded config, or None where transformers refuses it."""
    try:
        return transformers.GenerationConfig.from_dict(json.loads(json.dumps(document)))
    except ValueError:
        return None


@settings(max_examples=400, deadline=None)
@given(CONFIGS)
def test_what_does_not_load_is_an_error_and_nothing_else(document: dict[str, Any]) -> None:
    assert ("GEN101" in verdicts(document)) is (loads(document) is None)


@settings(max_examples=400, deadline=None)
@given(CONFIGS)
def test_what_loads_and_cannot_be_saved_is_a_warning(document: dict[str, Any]) -> None:
    config = loads(document)
    if config is None:
        return
    try:
        config.validate(strict=True)
    except ValueError:
        assert "GEN201" in verdicts(document)
    else:
        assert "GEN201" not in verdicts(document)
