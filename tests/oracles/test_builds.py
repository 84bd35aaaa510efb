"""Every full model that transformers wrote is built, and transformers loads what was built: the same tensors.

The linter looks at each of them too. What it may stop is listed here, with the reason why it is right.
"""

from __future__ import annotations

import contextlib
import random
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loading import differing_tensors, load_report
from make_models import CASES, MODELS

from repokit import api
from repokit.schema.recipe import Recipe

if TYPE_CHECKING:
    from repokit.linter.finding import Report
    from repokit.repo.source import Source

pytestmark = pytest.mark.oracle

# Rules that rightly stop a build of an oracle: transformers itself writes the fault.
TRUE_FAULTS = {
    "CFG103": "special ids beyond the vocabulary",
    "GEN102": "special ids beyond the vocabulary",
    "TOK111": "the eos of the tokenizer is in no eos list: the oracle's model was never told of it",
    "GEN103": "a model made from a config has no tables of languages and tasks",
    "PRC101": "the oracle's composed model has no processor where torchvision is missing",
    "PRC173": "the processor of LLaVA was not told of the class token of its encoder",
}
# In every run these, which differ most in how their weights are stored; `-m full` takes every one.
ALWAYS = ("llama-sharded", "qwen3-tied-sharded-bf16", "t5", "gpt_oss", "trainer-output-dir", "clip")
SAMPLE = sorted({*ALWAYS, *random.Random(2).sample(MODELS, 14)})


class Recording:
    """A gate that stops a build at every error but the true faults, and keeps its reports: of the plan, of the output."""

    def __init__(self) -> None:
        self.reports: list[Report] = []

    def __call__(self, source: Source, stage: str) -> None:
        gate = api.Gate(api.Selection())
        with contextlib.suppress(api.Stopped):
            gate(source, stage)
        assert gate.last is not None
        report = gate.last.report
        assert {finding.code for finding in report.at_least(api.Severity.ERROR)} <= TRUE_FAULTS.keys()
        self.reports.append(report)


def built(models: Path, name: str, output: Path, weights: dict[str, object]) -> tuple[Report, ...]:
    """Builds an oracle; gives what the linter said of the plan and of the output."""
    recipe = Recipe.model_validate(
        {
            "version": 1,
            "source": str(models / name),
            "output": str(output),
            "license": {"id": "apache-2.0"},
            "weights": weights,
        }
    )
    gate = Recording()
    api.build(api.plan(recipe), gate=gate, jobs=2)
    return tuple(gate.reports)


@pytest.fixture(scope="module")
def plainly(models, tmp_path_factory):
    """The directory of a build that changes nothing, and its reports; each oracle is built once."""
    root = tmp_path_factory.mktemp("builds")

    @cache
    def build(name: str) -> tuple[Path, tuple[Report, ...]]:
        return root / name, built(models, name, root / name, {})

    return build


def check_equal(models: Path, name: str, output: Path) -> None:
    wanted = load_report(models / name, **CASES[name].load)
    found = load_report(output)
    assert found.clean, (found.missing, found.unexpected, found.mismatched)
    assert not differing_tensors(found.tensors, wanted.tensors)


@pytest.mark.parametrize("name", MODELS)
def test_transformers_loads_what_was_built(models, plainly, name):
    output, _ = plainly(name)
    check_equal(models, name, output)


@pytest.mark.parametrize("name", MODELS)
def test_the_plan_and_the_output_have_equal_reports(plainly, name):
    _, (before, after) = plainly(name)
    assert (before.findings, before.coverage) == (after.findings, after.coverage)


def test_a_variant_is_built_under_the_plain_name(plainly):
    """The names with a variant need `variant="fp16"` to be loaded; without any other weights they are the model."""
    output, _ = plainly("llama-variant-fp16")
    assert [path.name for path in output.glob("*.safetensors*")] == ["model.safetensors"]


def check_snippet(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the Python of a card where its download would lie."""
    code = re.findall(r"```python\n(.*?)```", (output / "README.md").read_text(encoding="utf-8"), re.DOTALL)[0]
    monkeypatch.chdir(output.parent)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)  # noqa: S102 - our own snippet: that it runs is what is tested
    assert type(names["model"]).__name__ in code


# Their processors cannot be loaded at all where these tests run, from the oracle's own directory either.
NO_PROCESSOR = {
    "gemma3": "its processor asks the tokenizer for image tokens, which the oracle's does not have",
    "qwen2_vl": "its video processor needs torchvision",
    "qwen2_5_vl": "the same",
    "qwen3_vl": "the same",
}
SNIPPETS = (
    "bert",
    "clip",
    "llama",
    "llama-variant-fp16",
    "qwen2-multi-chat-template",
    "t5",
    "trainer-output-dir",
    "vit",
)


@pytest.mark.parametrize("name", SNIPPETS)
def test_the_snippet_of_the_card_runs(plainly, monkeypatch, name):
    check_snippet(plainly(name)[0], monkeypatch)


@pytest.mark.full
@pytest.mark.parametrize("name", sorted({*MODELS} - {*SNIPPETS} - NO_PROCESSOR.keys()))
def test_the_snippet_of_every_card_runs(plainly, monkeypatch, name):
    check_snippet(plainly(name)[0], monkeypatch)


def small_shards(models: Path, name: str, output: Path) -> Path:
    built(models, name, output, {"max_shard_size": "20KB"})
    return output


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


# Every error in the untouched directories. TOK111: a model that was never told of its tokenizer's eos; CFG103, GEN102:
# special ids of the full size above a shrunken vocabulary; FIL201: what the Trainer leaves; PRC173: a processor that was
# not told of the encoder's class token, so that the model refuses its images.
TRUE_ERRORS = {
    "gemma3": {"TOK111"},
    "idefics3": {"TOK111"},
    "llava": {"PRC173", "TOK111"},
    "modernbert": {"CFG103"},
    "paligemma": {"TOK111"},
    "qwen2-added-tokens-padded-vocab": {"TOK111"},
    "qwen2-multi-chat-template": {"TOK111"},
    "qwen2_5_vl": {"CFG103", "GEN102", "TOK111"},
    "qwen2_vl": {"CFG103", "GEN102", "TOK111"},
    "qwen3_vl": {"TOK111"},
    "trainer-output-dir": {"FIL201"},
    "whisper": {"GEN103"},
}


@pytest.mark.parametrize("name", CASES)
def test_only_true_errors_are_found_in_what_transformers_wrote(models, name):
    report = api.lint(models / name).report
    assert not report.coverage.broken
    assert {finding.code for finding in report.at_least(api.Severity.ERROR)} == TRUE_ERRORS.get(name, set())


def test_a_rebuild_of_what_was_built_is_the_same(models, tmp_path):
    """A finished repository is a checkpoint like any other, and nothing in it is left to change."""
    first = tmp_path / "first"
    built(models, "llama-sharded", first, {})
    second = tmp_path / "second"
    recipe = Recipe.model_validate(
        {"version": 1, "source": str(first), "output": str(second), "license": {"id": "apache-2.0"}}
    )
    api.build(api.plan(recipe))
    weights = sorted(path.name for path in first.glob("*.safetensors*"))
    assert [(second / name).read_bytes() for name in weights] == [(first / name).read_bytes() for name in weights]
