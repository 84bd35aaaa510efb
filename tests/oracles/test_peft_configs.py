"""adapter_config.json against PEFT: what each of its config classes writes is legal, and the table is that of PEFT."""

from __future__ import annotations

import json
import sys
import warnings
from types import ModuleType

import pytest

from repokit.schema.adapter import AdapterConfig
from repokit.schema.adapter_types import adapter_type, source, type_names, unknown_keys
from repokit.schema.document import problems

pytestmark = pytest.mark.oracle

# Arguments without which a class is not made.
NEEDED = {
    "ADALORA": {"total_step": 10},
    "CPT": {"task_type": "CAUSAL_LM", "cpt_token_ids": [1], "cpt_mask": [1], "cpt_tokens_type_mask": [1]},
}

NAMES = type_names()

# A value for each type that a field may have.
FILLED = {
    "target_modules": ["q_proj"],
    "modules_to_save": ["lm_head"],
    "layers_to_transform": [0, 1],
    "layers_pattern": "layers",
    "rank_pattern": {"q_proj": 4},
    "alpha_pattern": {"q_proj": 8},
    "exclude_modules": "v_proj",
}


@pytest.fixture(autouse=True)
def _scikit_learn(monkeypatch):
    """AdaMSS only looks whether it is there when a config is made."""
    import peft  # noqa: F401 - transformers, below it, asks for the versions of what it finds

    monkeypatch.setitem(sys.modules, "sklearn", ModuleType("sklearn"))


def peft_classes():
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    return {kind.value: made for kind, made in PEFT_TYPE_TO_CONFIG_MAPPING.items()}


def written(name, folder, **values):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of some methods PEFT says that they are new
        peft_classes()[name](**NEEDED.get(name, {}) | values).save_pretrained(folder)
    return json.loads((folder / "adapter_config.json").read_bytes())


def test_the_table_is_of_the_installed_peft():
    import peft

    assert source() == f"peft {peft.__version__}", "run: python repokit/data/renew/peft_types.py"


def test_the_table_has_every_method():
    assert set(NAMES) == peft_classes().keys()


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_legal_and_no_key_is_unknown(name, tmp_path):
    raw = written(name, tmp_path)
    assert problems(AdapterConfig, raw) == ()
    assert unknown_keys(raw) == ()


@pytest.mark.parametrize("name", NAMES)
def test_fields_that_are_set_are_legal(name, tmp_path):
    fields = adapter_type(name).fields
    values = {key: value for key, value in FILLED.items() if key in fields and fields[key] != "str"}
    assert problems(AdapterConfig, written(name, tmp_path, task_type="CAUSAL_LM", **values)) == ()


@pytest.mark.parametrize("name", NAMES)
def test_file_holds_no_field_that_the_table_lacks_and_the_other_way_round(name, tmp_path):
    assert written(name, tmp_path).keys() == adapter_type(name).fields.keys()


def test_configs_of_a_lora_initialisation_are_legal(tmp_path):
    from peft import EvaConfig, LoftQConfig

    raw = written("LORA", tmp_path, init_lora_weights="eva", eva_config=EvaConfig())
    assert problems(AdapterConfig, raw) == ()
    raw = written("LORA", tmp_path, init_lora_weights=True, loftq_config=LoftQConfig())
    assert problems(AdapterConfig, raw) == ()


@pytest.mark.parametrize("method", ["layer_replication", "trainable_token_indices", "target_parameters"])
def test_lists_and_mappings_of_lora_are_legal(method, tmp_path):
    value = {
        "layer_replication": [(0, 2), (1, 3)],
        "trainable_token_indices": {"embed_tokens": [1, 2]},
        "target_parameters": ["mlp.experts.down_proj"],
    }[method]
    assert problems(AdapterConfig, written("LORA", tmp_path, **{method: value})) == ()
