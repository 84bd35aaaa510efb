"""What we say of values in config.json against what transformers' config classes say when they read it.

Each field of forty families, and of the parts inside them, gets values of other types. Both must agree in at least 99 of
100 cases, in both directions; a disagreement is shown with both answers.
"""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from repokit.linter.rules.field_values import RULES
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository
from repokit.schema.config import Config
from repokit.schema.field_types import config_problems, levels, refusals, table

pytestmark = pytest.mark.oracle

FAMILIES = (
    *("llama", "mistral", "qwen2", "qwen3_moe", "gemma2", "phi3", "gpt2", "gpt_neox", "falcon", "bloom", "mamba2"),
    *("deepseek_v3", "gpt_oss", "granitemoehybrid", "bert", "roberta", "deberta-v2", "modernbert", "xlm-roberta"),
    *("t5", "bart", "marian", "whisper", "wav2vec2", "hubert", "vits", "encodec", "vit", "swin", "convnext", "resnet"),
    *("dinov2", "segformer", "clip", "siglip", "llava", "qwen2_5_vl", "idefics3", "blip-2", "detr", "sam", "lxmert"),
)
VALUES = (None, True, "x", 3, 1.5, [], ["x"], [1], {"a": 1})
# Fields in each part: parts are made anew each time, which is slow.
MOST_IN_A_PART = 12


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def config_class(model_type):
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return CONFIG_MAPPING[model_type]


def default_of(model_type):
    """What the class writes of a default config, with every value in it."""
    return {**json.loads(config_class(model_type)().to_json_string(use_diff=False)), "model_type": model_type}


def refusal(raw):
    """What transformers says against a config; None where it takes it."""
    from transformers import PreTrainedConfig

    decoded = PreTrainedConfig._decode_special_floats(copy.deepcopy(raw))
    try:
        config_class(raw["model_type"]).from_dict(decoded)
    except Exception as error:  # noqa: BLE001 - whatever a config class raises is its answer
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return None


def findings(raw):
    repository = Repository(Memory({"config.json": json.dumps(raw).encode()}))
    return [finding for rule in RULES for finding in rule.check(repository)]


def changed(raw, path, key, value):
    result = copy.deepcopy(raw)
    part = result
    for step in path:
        part = part[step]
    part[key] = value
    return result


def cases(model_type) -> Iterator[tuple[str, object, dict]]:
    """Place, value and config: each field with each value of another type."""
    raw = default_of(model_type)
    for level in levels(raw):
        fields = [key for key in level.raw if key in level.cls.fields]
        for key in fields[: MOST_IN_A_PART if level.path else None]:
            for value in VALUES:
                if type(value) is not type(level.raw[key]):
                    yield level.at(key), value, changed(raw, level.path, key, value)


def test_the_table_is_of_the_installed_transformers():
    assert table()["source"] == f"transformers {version('transformers')}, its config classes"


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_default_config_is_right(model_type):
    raw = default_of(model_type)
    assert (refusal(raw), config_problems(Config, raw), findings(raw)) == (None, (), [])


def test_values_of_other_types_are_refused_by_both_or_by_neither():
    count, strict, lax = 0, [], []
    for model_type in FAMILIES:
        for place, value, raw in cases(model_type):
            count += 1
            ours, theirs = [*config_problems(Config, raw), *findings(raw)], refusal(raw)
            if ours and theirs is None:
                strict.append((model_type, place, value, ours))
            if theirs is not None and not ours:
                lax.append((model_type, place, value, theirs))
    print(f"{count:,} values: {len(strict)} refused by us alone, {len(lax)} by transformers alone")
    assert count > 5000
    assert len(strict) == 0, strict[:20]
    assert len(lax) <= count // 100, lax[:20]


CONDITIONS = sorted(name for name in table()["refused"] if name in FAMILIES)


@pytest.mark.parametrize("model_type", CONDITIONS)
def test_what_a_condition_refuses_transformers_refuses(model_type):
    raw = default_of(model_type)
    (level, *_) = levels(raw)
    tried = 0
    for key in {name for name in level.raw if any(name in text for text in table()["refused"][model_type])}:
        for value in near(level.raw[key]):
            changed_raw = changed(raw, (), key, value)
            if [text for level in levels(changed_raw) for text, _ in refusals(level)]:
                tried += 1
                assert refusal(changed_raw) is not None, (key, value)
    assert tried


def near(value):
    match value:
        case bool():
            return [not value]
        case int() | float():
            return [value + 1, value * 2 + 1, -value - 1, 3]
        case str():
            return ["nonsense", "a-b-c"]
        case list():
            return [value[:-1], [*value, *value[:1]]]
    return []


# Families with a check of their own that the table has no words for.
UNTOLD = {("modernbert", "layer_types"), ("resnet", "layer_types"), ("swin", "head_dim")}


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize(
    "change",
    [
        {"layer_types": ["nonsense", "nonsense"], "num_hidden_layers": 2},
        {"layer_types": ["attention", "mamba"], "num_hidden_layers": 2},
        {"head_dim": 7},
        {"id2label": {"no": 0}},
        {"problem_type": "single_label_classification", "id2label": {"0": "score"}},
        {"problem_type": "single_label_classification", "num_labels": 1, "id2label": None},
        {"problem_type": "regression", "id2label": {"0": "score"}},
        {"use_return_dict": True},
    ],
    ids=[
        "words",
        "older words",
        "odd head",
        "exchanged labels",
        "one label",
        "one of num_labels",
        "regression",
        "dump",
    ],
)
def test_what_these_rules_say_transformers_says(model_type, change):
    raw = {"model_type": model_type, **change}
    ours, theirs = findings(raw), refusal(raw)
    if (model_type, next(iter(change))) not in UNTOLD:
        assert bool(ours) == (theirs is not None), (ours, theirs)
    else:
        assert (ours, theirs is None) == ([], False)
