"""Layouts of well-known published repositories that come close to a rule: it must stay silent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from repokit.linter.engine import lint
from repokit.linter.examples import CARD, Change, Example, edited, lora, safetensors, single, tensors_of
from repokit.linter.examples_gguf import MODEL, gguf_bytes
from repokit.linter.examples_quantized import everywhere
from repokit.linter.examples_torch import torch_file
from repokit.linter.rules.conversation import BASE_MODEL
from repokit.linter.rules.layouts import embedder, pipeline
from repokit.linter.rules.weights_against_config import classifier
from repokit.repo.repository import Repository

CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER = "adapter_model.safetensors"
README = "README.md"
SINGLE = "model.safetensors"
BIN = "pytorch_model.bin"
QUANTIZED = "quantization_config"
TENSORS = tensors_of(single()[SINGLE])
UP = "model.layers.0.mlp.up_proj"
PLAIN_UP = edited(drop=(f"{UP}.weight_scale", f"{UP}.weight_scale_inv"), add={f"{UP}.weight": ("BF16", (24, 16))})
NETWORK = safetensors({"proj.weight": ("F16", (4, 4))})
DIFFUSERS: dict[str, Change] = dict.fromkeys(single(), None) | {README: "---\nlibrary_name: diffusers\n---\n"}
EMBEDDER: dict[str, Change] = {**embedder(), "modules.json": None}


def of_library(name: str) -> str:
    """The card, with another library."""
    return CARD.replace("library_name: transformers\n", f"library_name: {name}\n")


def headless(content: bytes) -> bytes:
    """An adapter of the model without its head."""
    return edited(rename=lambda name: name.replace("model.model.model.", "model.model."))(content)


@dataclass(frozen=True)
class Published:
    code: str
    title: str
    change: Mapping[str, Change] = field(default_factory=dict)
    base: str = "single"


PUBLISHED = (
    Published(
        "ADP110",
        "Granite Speech keeps the adapter of its class beside the model",
        {path: content for path, content in lora().items() if path.startswith("adapter_")}
        | {CONFIG: {"model_type": "granite_speech", "has_lora_adapter": True}},
    ),
    Published(
        "ADP108",
        "sentence-transformers puts adapters on models without a head",
        {README: of_library("sentence-transformers"), "modules.json": "[]", ADAPTER: headless},
        "lora",
    ),
    Published(
        "ADP115",
        "BOFT scales a convolution along the other axis",
        {
            ADAPTER_CONFIG: json.dumps(
                {
                    "peft_type": "BOFT",
                    "base_model_name_or_path": "example/base",
                    "boft_block_size": 4,
                    "boft_block_num": 0,
                }
            ),
            ADAPTER: safetensors(
                {
                    "base_model.model.conv.boft_R": ("F32", (1, 9, 4, 4)),
                    "base_model.model.conv.boft_s": ("F32", (1, 8)),
                }
            ),
        },
        "lora",
    ),
    Published(
        "ADP115",
        "OFT takes other blocks where those that were asked for do not divide the inputs",
        {
            ADAPTER_CONFIG: json.dumps(
                {"peft_type": "OFT", "base_model_name_or_path": "example/base", "oft_block_size": 4, "r": 0}
            ),
            ADAPTER: safetensors({"base_model.model.conv.oft_R.weight": ("F32", (49, 3))}),
        },
        "lora",
    ),
    Published(
        "FIL127", "a filter in a comment", {".gitattributes": "# *.bin filter=unpack\n*.safetensors filter=lfs\n"}
    ),
    Published(
        "CFG206",
        "the one label of a reranker or reward model is a score",
        {
            SINGLE: classifier(1),
            CONFIG: {
                "architectures": ["LlamaForSequenceClassification"],
                "id2label": {"0": "LABEL_0"},
                "label2id": {"LABEL_0": 0},
            },
        },
    ),
    Published(
        "FIL121", "IP-Adapter has its weights in folders", {**DIFFUSERS, "models/ip-adapter_sd15.safetensors": NETWORK}
    ),
    Published("FIL121", "PhotoMaker is one pickle", {**DIFFUSERS, "photomaker-v1.bin": torch_file(TENSORS)}),
    Published("FIL121", "textual inversions", {**DIFFUSERS, "learned_embeds.bin": torch_file(TENSORS)}),
    Published("FIL121", "a collection of LoRAs", {**DIFFUSERS, "styles/ink.safetensors": NETWORK}),
    Published(
        "FIL122",
        "the spectrogram of Audio Diffusion has settings and no weights",
        pipeline(mel=["audio_diffusion", "Mel"]) | {"mel/mel_config.json": '{"_class_name": "Mel"}'},
    ),
    Published("FIL123", "GGUF files of an embedding model", {README: of_library("sentence-transformers")}, "gguf"),
    Published(
        "FIL123",
        "a reranker that is a language model",
        {"modules.json": None, README: of_library("sentence-transformers").replace("text-generation", "text-ranking")},
    ),
    Published(
        "FIL123", "files of ONNX alone", {**EMBEDDER, CONFIG: None, SINGLE: None, "onnx/model.onnx": b"\x08\x07"}
    ),
    Published(
        "FIL109",
        "the same weights in two precisions",
        {BIN: torch_file({name: ("F32", shape) for name, (_, shape) in TENSORS.items()})},
    ),
    Published(
        "FIL109",
        "a pickle of the class for pretraining, with its heads",
        {BIN: torch_file({**TENSORS, "cls.predictions.transform.dense.weight": ("BF16", (16, 16))})},
    ),
    Published(
        "FIL109",
        "a pickle of the model without its head",
        {
            BIN: torch_file(
                {name.removeprefix("model."): info for name, info in TENSORS.items() if name != "lm_head.weight"}
            )
        },
    ),
    Published(
        "FIL109",
        "masks and frequencies that older versions saved",
        {
            BIN: torch_file(
                {
                    **TENSORS,
                    "model.layers.0.attn.bias": ("F32", (1, 1, 8, 8)),
                    "model.layers.0.rotary.inv_freq": ("F32", (4,)),
                }
            )
        },
    ),
    Published(
        "FIL204",
        "Meta's own format is weights",
        {"original/consolidated.00.pth": torch_file(TENSORS), "original/params.json": '{"dim": 16}'},
    ),
    Published(
        "GGF101",
        "stable-diffusion.cpp writes no metadata",
        {MODEL: gguf_bytes({}, {"model.diffusion_model.double_blocks.0.img_attn.qkv.weight": ((32, 32), 0)})},
        "gguf",
    ),
    Published(
        "GGF205",
        "how it was made",
        {README: lambda card: card + b"\n`llama-quantize example-F16.gguf example-Q4_K_M.gguf Q4_K_M`\n"},
        "gguf",
    ),
    Published(
        "TPL208",
        "a translator into Italian",
        {**BASE_MODEL, README: CARD.replace("# Example", "# opus-mt-en-it")},
    ),
    Published(
        "TPL208",
        "a heading that ends in a pronoun",
        {**BASE_MODEL, README: CARD.replace("# Example", "# How we made it")},
    ),
    Published(
        "WGT203",
        "MLX drops the layers that draft tokens",
        {CONFIG: {"num_nextn_predict_layers": 1}},
        "mlx",
    ),
    Published(
        "QNT103",
        "sparse weights of Marlin have scales of another name",
        {
            CONFIG: {QUANTIZED: {"format": "marlin-24"}},
            SINGLE: edited(
                rename=lambda name: name.replace("weight_scale", "scale_packed").replace("weight_shape", "meta")
            ),
        },
        "pack-quantized",
    ),
    Published(
        "QNT104",
        "the list has the names of a class that the weights are renamed for",
        {CONFIG: {QUANTIZED: {"ignore": ["lm_head", f"model.language_{UP}"]}}, SINGLE: PLAIN_UP},
        "float-quantized",
    ),
    Published(
        "QNT106",
        "the last group of GPTQ may be smaller",
        {
            CONFIG: {QUANTIZED: {"group_size": 10}},
            SINGLE: edited(
                add=everywhere(
                    lambda rows, columns: {
                        "scales": ("F16", (-(-columns // 10), rows)),
                        "qzeros": ("I32", (-(-columns // 10), rows // 8)),
                    }
                )
            ),
        },
        "gptq",
    ),
    Published(
        "QNT106",
        "GPTQModel packs into words of another width",
        {
            CONFIG: {QUANTIZED: {"pack_dtype": "int16"}},
            SINGLE: edited(
                add=everywhere(
                    lambda rows, columns: {
                        "qweight": ("I16", (columns // 4, rows)),
                        "qzeros": ("I16", (columns // 8, rows // 4)),
                    }
                )
            ),
        },
        "gptq",
    ),
)


@pytest.mark.parametrize("published", PUBLISHED, ids=[f"{each.code}: {each.title}" for each in PUBLISHED])
def test_the_rule_is_silent(published: Published) -> None:
    example = Example(published.title, published.change, published.base)
    report = lint(Repository(example.source()))
    assert published.code not in {finding.code for finding in report.findings}
    assert not report.coverage.broken
