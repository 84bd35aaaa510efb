"""Faults of published repositories: model cards, layouts of other libraries, secrets.

Each id is the kind of fault and the public thread that reports it.
"""

from __future__ import annotations

from typing import Final

import pytest

from repokit.linter.examples import CARD, Example, edited, safetensors
from repokit.linter.finding import Severity
from repokit.linter.rules.card import with_lines
from repokit.linter.rules.card_values import RESULTS
from repokit.linter.rules.security import FAKE_TOKEN
from repokit.linter.rules.tokenizer import ENCODER
from repokit.repo.weights import SINGLE

ERROR, WARNING = Severity.ERROR, Severity.WARNING
README: Final = "README.md"
WEIGHTS: Final = safetensors({"conv_in.weight": ("F16", (4, 4))})


def front_matter(key: str, lines: str) -> dict[str, object]:
    """A change to the card: one key gets other lines."""
    return {README: with_lines(lines, drop=key)}


FAULTS: Final[dict[str, tuple[str, Severity, Example]]] = {
    "MC01 huggingface/huggingface_hub#4218": (
        "LIC101",
        ERROR,
        Example("an id of SPDX", front_matter("license", "license: gpl-2.0-or-later\n")),
    ),
    "MC02 huggingface/hub-docs#1256": (
        "LIC202",
        WARNING,
        Example("other", front_matter("license", "license: other\n")),
    ),
    "MC02 (a file and no key)": ("LIC201", WARNING, Example("a LICENSE file", front_matter("license", ""))),
    "MC03 huggingface/transformers#33922": (
        "CRD103",
        ERROR,
        Example("a folder", front_matter("base_model", "base_model: /home/u/llama\n")),
    ),
    "MC03 huggingface/peft#2124": (
        "CRD103",
        ERROR,
        Example(
            "a folder in both files",
            {
                "adapter_config.json": {"base_model_name_or_path": "/home/u/llama"},
                README: with_lines("base_model: /home/u/llama\n", drop="base_model"),
            },
            "lora",
        ),
    ),
    "MC03 huggingface/autotrain-advanced#648": (
        "CRD103",
        ERROR,
        Example("a dataset on a disk", front_matter("datasets", 'datasets: ["/var/hf/images/"]\n')),
    ),
    "MC04 huggingface/peft#938": (
        "CRD204",
        WARNING,
        Example("an adapter of what?", {README: with_lines(drop="base_model")}, "lora"),
    ),
    "MC05 espnet/espnet_model_zoo#94": (
        "CRD104",
        ERROR,
        Example("a word", front_matter("language", "language: noinfo\n")),
    ),
    "MC05 espnet/espnet_model_zoo#94 (a country)": (
        "CRD104",
        ERROR,
        Example("a country", front_matter("language", "language: jp\n")),
    ),
    "MC05 espnet/espnet_model_zoo#102": ("CRD102", ERROR, Example("nothing", front_matter("language", "language:\n"))),
    "MC05 espnet/espnet_model_zoo#102 (prose)": (
        "CRD103",
        ERROR,
        Example("a dataset in words", front_matter("datasets", 'datasets: ["librispeech 960h"]\n')),
    ),
    "MC06 embeddings-benchmark/mteb#912": (
        "CRD105",
        ERROR,
        Example("a metric", {README: with_lines(RESULTS.replace("metrics:", "metric:"))}),
    ),
    "LY01 huggingface/diffusers#2185": (
        "FIL121",
        ERROR,
        Example(
            "a checkpoint for a pipeline",
            {
                **dict.fromkeys(
                    (
                        "config.json",
                        "generation_config.json",
                        "tokenizer.json",
                        "tokenizer_config.json",
                        "chat_template.jinja",
                        SINGLE,
                    )
                ),
                README: CARD.replace("transformers", "diffusers").replace("text-generation", "text-to-image"),
                **{
                    f"checkpoint-4000/{name}": b"PK\x03\x04"
                    for name in ("optimizer.bin", "random_states_0.pkl", "pytorch_model.bin")
                },
            },
        ),
    ),
    "LY01 (a component is not there)": (
        "FIL122",
        ERROR,
        Example(
            "the decoder was not uploaded",
            {
                "model_index.json": {
                    "_class_name": "StableDiffusionPipeline",
                    "_diffusers_version": "0.30.0",
                    "unet": ["diffusers", "UNet2DConditionModel"],
                    "vae": ["diffusers", "AutoencoderKL"],
                },
                "unet/config.json": {"_class_name": "UNet2DConditionModel"},
                "unet/diffusion_pytorch_model.safetensors": WEIGHTS,
            },
        ),
    ),
    "LY02 huggingface/sentence-transformers#2779": (
        "FIL123",
        ERROR,
        Example(
            "a card for embeddings",
            {
                **ENCODER,
                README: CARD.replace("library_name: transformers", "library_name: sentence-transformers").replace(
                    "text-generation", "sentence-similarity"
                ),
                SINGLE: edited(drop=("lm_head.weight",)),
            },
        ),
    ),
    "LY02 (a module is not there)": (
        "FIL124",
        ERROR,
        Example(
            "pooling was not uploaded",
            {
                "modules.json": '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},'
                '{"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]'
            },
        ),
    ),
    "LY04 mistralai/mistral-inference#140": (
        "FIL220",
        WARNING,
        Example(
            "weights without parameters", {"consolidated.safetensors": safetensors({"norm.weight": ("BF16", (16,))})}
        ),
    ),
    "SE01 huggingface/autotrain-advanced#762": (
        "SEC101",
        ERROR,
        Example("the arguments of a run", {"training_params.json": {"token": FAKE_TOKEN}}),
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_known_fault_is_found(fault, report_of):
    code, severity, example = fault
    assert (code, severity) in {(finding.code, finding.severity) for finding in report_of(example).findings}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_no_rule_breaks_over_a_known_fault(fault, report_of):
    assert report_of(fault[2]).coverage.broken == {}
