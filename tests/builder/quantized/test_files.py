"""Whatever a quantizer's documents hold, a plan is made of them or says what is wrong: never another error."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from repokit.builder.checkpoints.sources import open_checkpoint
from repokit.builder.planner import make_plan
from repokit.builder.quantized.files import declaration_of, is_declared
from repokit.builder.quantized.private import is_path, is_token, published_config
from repokit.builder.quantized.words import words
from repokit.errors import RepokitError
from repokit.linter.examples_quantized import METHODS
from repokit.schema.recipe import QuantizationRecipe, Recipe

SIDES = ("quantize_config.json", "quant_config.json", "hf_quant_config.json", "quantization_config.json")
KEYS = st.sampled_from(
    [
        *("bits", "group_size", "quant_method", "desc_act", "sym", "w_bit", "q_group_size", "version", "meta"),
        *("config_groups", "g", "weights", "num_bits", "strategy", "quantization", "quant_algo", "producer", "name"),
        *("format", "dataset", "nsamples", "weight_block_size", "quant_type", "default", "quant_config", "quantizer"),
    ]
)
SCALARS = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=6) | st.floats(allow_nan=False)
METHOD = st.sampled_from(["gptq", "awq", "fp8", "compressed-tensors", "modelopt", "bitsandbytes", "torchao", "hqq"])
VALUES = st.recursive(
    SCALARS | METHOD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=6)


@pytest.fixture(scope="module")
def checkpoint_of():
    """A checkpoint of packed weights with these documents."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "model.safetensors").write_bytes(METHODS["gptq"]()["model.safetensors"])

        def write(declared, side, path, recipe):
            for name in (*SIDES, "recipe.yaml"):
                (root / name).unlink(missing_ok=True)
            config = json.loads(METHODS["gptq"]()["config.json"])
            del config["quantization_config"]
            if declared is not None:
                config["quantization_config"] = declared
            (root / "config.json").write_text(json.dumps(config))
            (root / path).write_text(json.dumps(side))
            (root / "recipe.yaml").write_text(json.dumps(recipe))
            return open_checkpoint(root)

        yield write


@settings(max_examples=150, deadline=None)
@given(st.none() | OBJECTS, OBJECTS, st.sampled_from(SIDES), OBJECTS)
def test_documents_are_read_or_refused(checkpoint_of, declared, side, path, recipe):
    checkpoint = checkpoint_of(declared, side, path, {"default_stage": recipe})
    with contextlib.suppress(RepokitError):
        is_declared(checkpoint)
        spelled = words(declaration_of(checkpoint), QuantizationRecipe())
        assert all(isinstance(part, str) and part for part in spelled[:3])


@settings(max_examples=60, deadline=None)
@given(st.none() | OBJECTS, OBJECTS, st.sampled_from(SIDES))
def test_they_are_planned_or_refused(checkpoint_of, declared, side, path):
    root = checkpoint_of(declared, side, path, {}).root
    recipe = {"version": 1, "source": ".", "output": "../out", "license": {"id": "mit"}, "kind": "quantized"}
    with contextlib.suppress(RepokitError):
        assert make_plan(Recipe.model_validate(recipe), folder=root).summary.quantized


RANDOM = "Zk3Qw8LmRt5pXvBnHd2fJsCaEu7oTyNbKaPq"  # after the beginning of a token it is one
PRIVATE = st.sampled_from(["/home/me", "./data", "~/x", "C:\\data", "hf_" + RANDOM, "sk-" + RANDOM])
HELD = st.recursive(
    PRIVATE | SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def texts(value, key=""):
    """Every text of an object with the key above it."""
    if isinstance(value, str):
        yield key, value
    for name, item in value.items() if isinstance(value, dict) else []:
        yield from texts(item, name)
    for item in value if isinstance(value, list) else []:
        yield from texts(item, key)


@given(st.dictionaries(KEYS, HELD, max_size=6))
def test_nothing_private_is_left_in_a_config(raw):
    found = published_config({"quantization_config": raw, "text_config": {"quantization_config": raw}})
    assert not [text for key, text in texts(found) if is_path(key, text) or is_token(key, text)]


@pytest.mark.parametrize(
    "raw", [{"ignore": ["re:model\\.layers\\.0"]}, {"ignore": [r".*\.gate"]}, {"pad_token": "<pad>"}]
)
def test_what_is_not_private_stays(raw):
    assert published_config({"quantization_config": raw}) == {"quantization_config": raw}
