"""The load check on what transformers and peft wrote, and on the same with one fault planted in it.

All of it goes through a few child processes: the import of the libraries costs more than a hundred tiny models.
"""

from __future__ import annotations

import json
import random
import shutil
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from make_models import ADAPTERS, CASES, MODELS

from repokit.verifier.load_check import Target, check_load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from repokit.verifier.load_report import LoadReport

pytestmark = pytest.mark.oracle

# Their processors need torchvision, which need not be there.
NEED_TORCHVISION = {"qwen2_vl", "qwen2_5_vl", "qwen3_vl"}

ALWAYS = (
    "llama-sharded",
    "qwen3-tied-sharded-bf16",
    "gpt_oss",
    "llama-variant-fp16",
    "clip",
    "whisper",
    "gemma3",
    "t5",
)
SAMPLE = sorted({*ALWAYS, *random.Random(3).sample(MODELS, 12)})


def loaded(models: Path, names: Iterable[str]) -> dict[str, LoadReport]:
    targets = [Target(models / name, name, models / (CASES[name].base or name)) for name in names]
    return {report.directory: report for report in check_load(targets)}


def expected(name: str) -> tuple[str, str | None]:
    """The outcome, and the step that decides it where it is not `passed`."""
    if name in NEED_TORCHVISION and find_spec("torchvision") is None:
        return "unchecked", "processor"
    return "passed", None


def found(report: LoadReport) -> tuple[str, str | None]:
    deciding = [*report.of("failed"), *report.of("unchecked")]
    return report.outcome, deciding[0].name if deciding else None


def test_a_sample_of_what_transformers_wrote_loads(models):
    reports = loaded(models, SAMPLE)
    assert {name: found(report) for name, report in reports.items()} == {name: expected(name) for name in SAMPLE}


@pytest.mark.full
def test_everything_that_transformers_wrote_loads(models):
    reports = loaded(models, MODELS)
    assert {name: found(report) for name, report in reports.items()} == {name: expected(name) for name in MODELS}


def test_adapters_load_on_their_base(models):
    reports = loaded(models, ADAPTERS)
    assert {name: report.trouble for name, report in reports.items() if report.exit_code} == {}


# ---------------------------------------------------------------- planted faults


def tensors(repository: Path, change: Callable[[dict], object]) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(repository / "model.safetensors")
    change(weights)
    save_file(weights, repository / "model.safetensors", metadata={"format": "pt"})


def merged(repository: Path, file: str, **values: object) -> None:
    path = repository / file
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **values}))


def without_second_layer(repository: Path) -> None:
    def drop(weights: dict) -> None:
        for name in [name for name in weights if name.startswith("model.layers.1.")]:
            del weights[name]

    tensors(repository, drop)


def with_prefix(repository: Path) -> None:
    def rename(weights: dict) -> None:
        for name in list(weights):
            weights[f"_orig_mod.{name}"] = weights.pop(name)

    tensors(repository, rename)


def with_nan(repository: Path) -> None:
    def poison(weights: dict) -> None:
        weights["model.norm.weight"][3] = float("nan")

    tensors(repository, poison)


def with_half_a_norm(repository: Path) -> None:
    def cut(weights: dict) -> None:
        weights["model.norm.weight"] = weights["model.norm.weight"][:16].clone()

    tensors(repository, cut)


def with_fewer_rows(repository: Path) -> None:
    """The model is in itself consistent, and too small for its tokenizer."""

    def cut(weights: dict) -> None:
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            weights[name] = weights[name][:8].clone()

    tensors(repository, cut)
    merged(repository, "config.json", vocab_size=8, eos_token_id=2)


def truncated(repository: Path) -> None:
    weights = repository / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


# What is done to a copy of an oracle, the step that must say so, and what must be named there or among the keys.
FAULTS: Mapping[str, tuple[Callable[[Path], object], str, str]] = {
    "a layer is missing": (without_second_layer, "weights", "model.layers.1.mlp.up_proj.weight"),
    "the prefix of a wrapper": (with_prefix, "weights", "_orig_mod.model.norm.weight"),
    "the head is lost": (
        lambda repository: tensors(repository, lambda weights: weights.pop("lm_head.weight")),
        "weights",
        "lm_head.weight",
    ),
    "a tensor has another shape": (with_half_a_norm, "weights", "model.norm.weight"),
    "tensors that no one asked for": (
        lambda repository: tensors(
            repository, lambda weights: weights.update({"v_head.weight": weights["model.norm.weight"].clone()})
        ),
        "weights",
        "v_head.weight",
    ),
    "vocab_size is not the number of rows": (
        lambda repository: merged(repository, "config.json", vocab_size=508),
        "weights",
        "model.embed_tokens.weight",
    ),
    "the tokenizer has ids beyond the embedding": (with_fewer_rows, "generation", "8 rows"),
    "the vocabulary is missing": (
        lambda repository: (repository / "tokenizer.json").unlink(),
        "tokenizer",
        "there is no vocabulary",
    ),
    "the vocabulary is broken": (
        lambda repository: (repository / "tokenizer.json").write_text('{"model": {"type": "BPE"'),
        "tokenizer",
        "JSONDecodeError",
    ),
    "the chat template fails": (
        lambda repository: (repository / "chat_template.jinja").write_text("{{ messages[7].content }}"),
        "generation",
        "chat template",
    ),
    "the chat template is none": (
        lambda repository: (repository / "chat_template.jinja").write_text("{% for message in messages %}"),
        "generation",
        "chat template",
    ),
    "another class": (
        lambda repository: merged(repository, "config.json", architectures=["BertForMaskedLM"]),
        "weights",
        "bert.embeddings.word_embeddings.weight",
    ),
    "a value is not a number": (with_nan, "weights", "model.norm.weight"),
    "a dtype that torch has not": (
        lambda repository: merged(repository, "config.json", dtype="float99"),
        "config",
        "float99",
    ),
    "heads that do not divide the model": (
        lambda repository: merged(repository, "config.json", num_attention_heads=5),
        "config",
        "5",
    ),
    "an end of text that is no id": (
        lambda repository: merged(repository, "generation_config.json", eos_token_id="</s>"),
        "generation",
        "invalid data type 'str'",
    ),
    "a generation config that is refused": (
        lambda repository: merged(repository, "generation_config.json", early_stopping="sometimes"),
        "weights",
        "sometimes",
    ),
    "a generation config that is not JSON": (
        lambda repository: (repository / "generation_config.json").write_text("{"),
        "generation",
        "generation_config.json",
    ),
    "the file ends too early": (truncated, "weights", "incomplete metadata"),
    "the weights are not there": (
        lambda repository: (repository / "model.safetensors").unlink(),
        "weights",
        "model.safetensors",
    ),
}


@pytest.fixture(scope="module")
def planted(models, tmp_path_factory) -> Mapping[str, LoadReport]:
    root = tmp_path_factory.mktemp("planted")
    for number, (plant, _, _) in enumerate(FAULTS.values()):
        plant(shutil.copytree(models / "llama", root / str(number)))
    targets = [Target(root / str(number), name) for number, name in enumerate(FAULTS)]
    return {report.directory: report for report in check_load(targets)}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(planted, fault):
    assert found(planted[fault]) == ("failed", FAULTS[fault][1])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(planted, fault):
    report, named = planted[fault], FAULTS[fault][2]
    assert named in f"{report.trouble} {' '.join(report.keys.all())}"


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_told_is_one_line_without_the_path_of_the_copy(planted, fault):
    told = [step.what for step in planted[fault].steps]
    assert not [what for what in told if "\n" in what or "Traceback" in what or "planted0" in what]


# ---------------------------------------------------------------- what cannot be checked


def with_code(repository: Path) -> None:
    canary = repository.with_name("canary")
    (repository / "code.py").write_text(f"open({str(canary)!r}, 'w')\n")
    auto = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}
    merged(repository, "config.json", model_type="homemade", auto_map=auto, architectures=["HomemadeForCausalLM"])


# What is done to a copy, the step that says that it could not be checked, and what it says.
UNCHECKED: Mapping[str, tuple[Callable[[Path], object], str, str]] = {
    "code of its own": (with_code, "config", "needs its own code, which is not run here"),
    "a newer model type": (
        lambda repository: merged(repository, "config.json", model_type="llama99"),
        "config",
        "does not know the model type llama99",
    ),
    "a library that is not here": (
        lambda repository: merged(repository, "config.json", quantization_config={"quant_method": "hqq"}),
        "weights",
        "pip install hqq",
    ),
}


@pytest.fixture(scope="module")
def unchecked(models, tmp_path_factory) -> tuple[Path, Mapping[str, LoadReport]]:
    root = tmp_path_factory.mktemp("unchecked")
    for number, (plant, _, _) in enumerate(UNCHECKED.values()):
        plant(shutil.copytree(models / "llama", root / str(number)))
    targets = [Target(root / str(number), name) for number, name in enumerate(UNCHECKED)]
    return root, {report.directory: report for report in check_load(targets)}


@pytest.mark.parametrize("case", UNCHECKED)
def test_what_cannot_be_checked_here_says_why(unchecked, case):
    report = unchecked[1][case]
    assert found(report) == ("unchecked", UNCHECKED[case][1])
    assert UNCHECKED[case][2] in (report.trouble or "")


def test_code_of_a_repository_is_never_run(unchecked):
    assert not (unchecked[0] / "canary").exists()


def test_a_build_of_poisoned_weights_is_not_published(command, checkpoint, tmp_path):
    """What lint cannot see: values."""

    def poison(weights: dict) -> None:
        weights["model.norm.weight"][0] = float("nan")

    tensors(checkpoint, poison)
    recipe = f"version: 1\nsource: {checkpoint}\noutput: ./dist\nlicense: {{id: apache-2.0}}\n"
    (tmp_path / "repokit.yaml").write_text(recipe)
    done = command("build", "--load-check")
    assert done.returncode == 1, done.stderr
    assert "model.norm.weight" in done.stderr
    assert not (tmp_path / "dist").exists()


def test_a_build_that_loads_is_published(command, checkpoint, tmp_path):
    recipe = f"version: 1\nsource: {checkpoint}\noutput: ./dist\nlicense: {{id: apache-2.0}}\n"
    (tmp_path / "repokit.yaml").write_text(recipe)
    done = command("build", "--load-check")
    assert done.returncode == 0, done.stderr
    assert "through the chat template" in done.stderr
    assert (tmp_path / "dist" / "config.json").exists()
