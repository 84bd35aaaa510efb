"""What we say of generation_config.json against what transformers' GenerationConfig says when it reads and saves it."""

from __future__ import annotations

import json
import logging
import random
import warnings

import pytest

from repokit.linter.rules.files import WrongType
from repokit.linter.rules.generation import (
    CACHES,
    OF_GENERATE,
    OF_THE_CLASS,
    RefusedGenerationConfig,
    UnsavableGenerationConfig,
)
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository
from repokit.schema.generation_config import GenerationConfig

pytestmark = pytest.mark.oracle

CASES = 3000
ANY = (None, True, False, 0, 1, 2, -1, 0.0, 0.5, 1.0, 50, "x", "1", [1], [], {})
# Where most values would be of a wrong type, those among which the class chooses.
LIKELY = {
    "assistant_ensemble_weight": (0, 1, 0.5, 0.0, 1.0),
    "cache_config": ({},),
    "cache_implementation": ("static", "dynamic", "radix", "paged"),
    "compile_config": ({}, {"mode": "default"}),
    "do_sample": (True, False),
    "early_stopping": (True, False, "never", "maybe"),
    "eos_token_id": (2, [2, 3], -1),
    "eta_cutoff": (0.0, 0.1),
    "forced_bos_token_id": (1, 2),
    "forced_eos_token_id": (2, [2, 3], []),
    "length_penalty": (1.0, 2.0, 1),
    "max_new_tokens": (0, 1, -1, 100),
    "min_p": (0.0, 0.5),
    "num_beams": (1, 2, 4),
    "num_return_sequences": (1, 2, 3),
    "output_logits": (True, False),
    "output_scores": (True, False),
    "pad_token_id": (0, -1),
    "return_dict_in_generate": (True, False),
    "suppress_tokens": ([1, 2], [2], []),
    "temperature": (1.0, 0.5, 0, 1),
    "top_k": (50, 2),
    "top_p": (1.0, 0.5),
    "typical_p": (1.0, 0.2),
    "use_cache": (True, False),
    "watermarking_config": (
        *({}, {"greenlist_ratio": 1.5}, {"greenlist_ratio": "a"}, {"seeding_scheme": "x"}, {"context_width": 0}),
        *({"bias": 2.0}, {"ratio": 1}, {"context_width": None}),
    ),
}
KEYS = sorted(GenerationConfig.model_fields.keys() - {"from_model_config", "transformers_version"})


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def made(chance):
    """A few settings, most of them of a type that they may have."""
    raw = {}
    for key in [*chance.sample(sorted(LIKELY), chance.randint(1, 4)), *chance.sample(KEYS, chance.randint(0, 2))]:
        raw[key] = chance.choice(LIKELY[key]) if key in LIKELY and chance.random() < 0.8 else chance.choice(ANY)
    if chance.random() < 0.1:
        raw[chance.choice([*OF_GENERATE, "thinking_budget"])] = chance.choice(ANY)
    return raw


def said(rule, raw):
    files = {"generation_config.json": json.dumps(raw).encode(), "config.json": b'{"model_type": "llama"}'}
    return [f"{finding.place}: {finding.message}" for finding in rule.check(Repository(Memory(files)))]


def loading(raw, folder):
    """The config, or what stops it."""
    import transformers

    (folder / "generation_config.json").write_text(json.dumps(raw))
    try:
        return transformers.GenerationConfig.from_pretrained(folder), None
    except Exception as error:  # noqa: BLE001 - whatever a config class raises is its answer
        return None, f"{type(error).__name__}: {error}"[:200]


def saving(config):
    """What stops it from being saved once anything in it was changed."""
    try:
        config.validate(strict=True)
    except ValueError as error:
        return str(error)[:200]
    return None


def test_what_transformers_refuses_we_refuse(tmp_path):
    """Of files in which every type is right; of wrong types we say more than it does."""
    chance, judged, differ = random.Random(5), 0, []
    for _ in range(CASES):
        raw = made(chance)
        if said(WrongType(), raw):
            continue
        judged += 1
        config, stopped = loading(raw, tmp_path)
        refused = said(RefusedGenerationConfig(), raw)
        if bool(refused) != (stopped is not None):
            differ.append((raw, refused, stopped))
        elif config is not None:
            unsavable, kept = said(UnsavableGenerationConfig(), raw), saving(config)
            if bool(unsavable) != (kept is not None):
                differ.append((raw, unsavable, kept))
    print(f"{judged:,} generation configs, {len(differ)} on which we differ")
    assert judged > CASES // 3
    assert differ == []


@pytest.mark.parametrize("key", OF_THE_CLASS)
def test_a_key_of_the_class_stops_it(key, tmp_path):
    import transformers

    (tmp_path / "generation_config.json").write_text(json.dumps({key: 1}))
    with pytest.raises((TypeError, AttributeError)):
        transformers.GenerationConfig.from_pretrained(tmp_path).save_pretrained(tmp_path / "saved")


def test_the_caches_are_those_of_transformers():
    from transformers.generation.configuration_utils import ALL_CACHE_IMPLEMENTATIONS

    assert {*CACHES} == {*ALL_CACHE_IMPLEMENTATIONS, "paged"}
