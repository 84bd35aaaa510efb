"""Every full model that transformers wrote is built, and transformers loads what was built: the same tensors.

The linter looks at each of them too. What it may stop is listed here, with the reason why it is right.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from loading import differing_tensors, load_report
from make_models import CASES, KNOWN, MODELS

from repokit import api
from repokit.schema.recipe import Recipe

pytestmark = pytest.mark.oracle

# Rules that rightly stop a build of an oracle: transformers itself writes the fault.
TRUE_FAULTS = {
    "CFG103": "special ids beyond the vocabulary",
    "GEN102": "special ids beyond the vocabulary",
    "TOK111": "the eos of the tokenizer is in no eos list: the oracle's model was never told of it",
    "PRC101": "the oracle's composed model has no processor where torchvision is missing",
}
# In every run these, which differ most in how their weights are stored; `-m full` takes every one.
ALWAYS = ("llama-sharded", "qwen3-tied-sharded-bf16", "t5", "gpt_oss", "trainer-output-dir", "clip")
SAMPLE = sorted({*ALWAYS, *random.Random(2).sample(MODELS, 14)})


def built(models: Path, name: str, output: Path, weights: dict[str, object]) -> Path:
    source = models / name
    recipe = Recipe.model_validate(
        {
            "version": 1,
            "source": str(source),
            "output": str(output),
            "license": {"id": "apache-2.0"},
            "weights": weights,
        }
    )
    waived = tuple(api.Ignore(code, reason) for code, reason in TRUE_FAULTS.items())
    plan = api.plan(recipe)
    api.build(plan, gate=api.Gate(api.Selection(ignore=waived)), jobs=2)
    return output


def check_equal(models: Path, name: str, output: Path) -> None:
    wanted = load_report(models / name, **CASES[name].load)
    found = load_report(output)
    assert found.clean, (found.missing, found.unexpected, found.mismatched)
    assert not differing_tensors(found.tensors, wanted.tensors)


@pytest.mark.parametrize("name", MODELS)
def test_transformers_loads_what_was_built(models, tmp_path, name):
    check_equal(models, name, built(models, name, tmp_path / "out", {}))


def small_shards(models: Path, name: str, output: Path) -> Path:
    return built(models, name, output, {"max_shard_size": "20KB"})


@pytest.mark.parametrize("name", SAMPLE)
def test_transformers_loads_what_was_built_in_shards(models, tmp_path, name):
    check_equal(models, name, small_shards(models, name, tmp_path / "out"))


@pytest.mark.full
@pytest.mark.parametrize("name", sorted({*MODELS} - {*SAMPLE}))
def test_transformers_loads_every_model_that_was_built_in_shards(models, tmp_path, name):
    check_equal(models, name, small_shards(models, name, tmp_path / "out"))


def check_cast(models: Path, name: str, output: Path) -> None:
    """As torch casts: loading the source as bfloat16 gives the tensors that the build stored.

    A few architectures keep a gate in float32 whatever is asked for (deepseek_v3): its values are compared as rounded.
    """
    built(models, name, output, {"dtype": "bfloat16"})
    wanted = load_report(models / name, **{**CASES[name].load, "dtype": "bfloat16"})
    found = load_report(output, dtype="bfloat16")
    assert found.clean
    assert not differing_tensors(rounded(found.tensors), rounded(wanted.tensors))


def rounded(tensors):
    import torch

    return {name: value.to(torch.bfloat16) if value.is_floating_point() else value for name, value in tensors.items()}


@pytest.mark.parametrize("name", SAMPLE)
def test_a_cast_gives_what_torch_gives(models, tmp_path, name):
    check_cast(models, name, tmp_path / "out")


@pytest.mark.full
@pytest.mark.parametrize("name", sorted({*MODELS} - {*SAMPLE}))
def test_a_cast_gives_what_torch_gives_for_every_model(models, tmp_path, name):
    check_cast(models, name, tmp_path / "out")


@pytest.mark.parametrize("name", CASES)
def test_only_true_errors_are_found_in_what_transformers_wrote(models, name):
    """The untouched directories: each error is a fault that the library itself wrote."""
    allowed = {"TOK111"}
    if name in KNOWN["special ids beyond the vocabulary"]:
        allowed |= {"CFG103", "GEN102"}
    if name == "trainer-output-dir":
        allowed |= {"FIL201"}
    report = api.lint(models / name).report
    assert not report.coverage.broken
    assert {finding.code for finding in report.at_least(api.Severity.ERROR)} <= allowed


def test_a_rebuild_of_what_was_built_is_the_same(models, tmp_path):
    """A finished repository is a checkpoint like any other, and nothing in it is left to change."""
    first = built(models, "llama-sharded", tmp_path / "first", {})
    second = tmp_path / "second"
    recipe = Recipe.model_validate(
        {"version": 1, "source": str(first), "output": str(second), "license": {"id": "apache-2.0"}}
    )
    api.build(api.plan(recipe))
    weights = sorted(path.name for path in first.glob("*.safetensors*"))
    assert [(second / name).read_bytes() for name in weights] == [(first / name).read_bytes() for name in weights]
