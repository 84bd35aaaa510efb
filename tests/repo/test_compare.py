"""Documents and tokenizers of two repositories side by side."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from repokit.linter.examples import single
from repokit.repo.compare import Changed, ComparedTokenizers, changed_config, compare_tokenizers, ending_ids
from repokit.repo.config import CONFIG, Config
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

KEYS = st.sampled_from(["vocab_size", "rope_theta", "rope_scaling", "rope_parameters", "text_config", "type", "x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def changes(ours: dict[str, object], theirs: dict[str, object]) -> tuple[Changed, ...]:
    return changed_config(Config(CONFIG, ours), Config(CONFIG, theirs))


@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_a_config_is_what_it_is(config):
    assert changes(config, config) == ()


@given(st.dictionaries(KEYS, VALUES, max_size=6), st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_two_configs_can_be_compared(ours, theirs):
    assert all(change.theirs != change.ours for change in changes(ours, theirs))


def test_a_change_inside_a_model_has_its_path():
    found = changes({"vision_config": {"depth": 3}}, {"vision_config": {"depth": 4}})
    assert found == (Changed("vision_config.depth", 4, 3),)


@pytest.mark.parametrize(
    ("files", "ids"),
    [
        ({CONFIG: {"eos_token_id": 1}}, {1}),
        ({CONFIG: {"eos_token_id": 1}, "generation_config.json": {"eos_token_id": [2, 3]}}, {2, 3}),
        ({CONFIG: {"text_config": {"eos_token_id": 4}}}, {4}),
        ({CONFIG: {}}, set()),
        ({}, set()),
    ],
)
def test_what_ends_a_generation(files, ids):
    with Repository(Memory({path: json.dumps(content).encode() for path, content in files.items()})) as repository:
        assert ending_ids(repository) == ids


def test_equal_files_are_equal_without_being_read():
    files = {"tokenizer.json": b"{", "tokenizer_config.json": b"{"}
    with Repository(Memory(files)) as ours, Repository(Memory(files)) as theirs:
        assert compare_tokenizers(ours, theirs) == ComparedTokenizers()


def test_without_a_tokenizer_there_is_nothing_to_compare():
    with Repository(Memory({})) as ours, Repository(Memory(single())) as theirs:
        assert compare_tokenizers(ours, theirs) is None
