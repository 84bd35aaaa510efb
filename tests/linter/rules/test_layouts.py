"""Layouts of other libraries, as they are published."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from repokit.linter.engine import lint
from repokit.linter.examples import safetensors
from repokit.linter.selection import Selection
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

LAYOUTS = Selection(select=("FIL121", "FIL122", "FIL123", "FIL124", "FIL220"))
WEIGHTS = safetensors({"x": ("F16", (2, 2))})
CARD = b"---\nlibrary_name: diffusers\n---\n"


def codes(files: Mapping[str, bytes]) -> list[str]:
    return [finding.code for finding in lint(Repository(Memory(files)), LAYOUTS).findings]


def index(**parts: object) -> bytes:
    return json.dumps({"_class_name": "XPipeline", "_diffusers_version": "0.35.0", **parts}).encode()


@pytest.mark.parametrize(
    "files",
    [
        {"README.md": CARD, "flux-lora.safetensors": WEIGHTS},
        {"README.md": CARD, "modular_model_index.json": b"{}"},
        {"README.md": CARD, "unet/config.json": b'{"_class_name": "UNet2DConditionModel"}'},
        {"README.md": b"---\nlibrary_name: transformers\n---\n"},
        {
            "model_index.json": index(
                tokenizer=["transformers", "CLIPTokenizer"],
                requires_safety_checker=False,
                force_zeros_for_empty_prompt=True,
                image_encoder=[None, None],
                sizes=[1, 2],
            ),
            "tokenizer/merges.txt": b"",
        },
        {
            "model_index.json": index(text_encoder=["transformers", "CLIPTextModel"]),
            "text_encoder/config.json": b"{}",
            "text_encoder/pytorch_model.bin": b"PK\x03\x04",
        },
    ],
    ids=["a LoRA", "a modular pipeline", "a part", "another library", "settings beside the parts", "pickled weights"],
)
def test_what_diffusers_loads(files: dict[str, bytes]) -> None:
    assert codes(files) == []


def test_every_part_that_is_missing_is_a_finding() -> None:
    parts = {name: ["diffusers", "AutoencoderKL"] for name in ("vae", "decoder")}
    assert codes({"model_index.json": index(**parts)}) == ["FIL122", "FIL122"]


@pytest.mark.parametrize(
    "modules",
    [[], {}, [1, {"path": 3, "type": "sentence_transformers.models.Pooling"}], [{"path": "x", "type": "mine.Module"}]],
    ids=["empty", "no list", "wrong types", "a class of one's own"],
)
def test_modules_that_are_not_judged(modules: object) -> None:
    assert codes({"modules.json": json.dumps(modules).encode()}) == []
