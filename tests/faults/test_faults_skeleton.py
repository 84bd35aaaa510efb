"""Faults of published repositories: tensors that the architecture does not have, lacks, or has in another shape.

Each id is the kind of fault and the public thread that reports it.
"""

from __future__ import annotations

import json
from typing import Final

import pytest

from repokit.linter.examples import DELETE, Example, edited, safetensors, shard
from repokit.linter.examples_skeleton import tensors_under, weights_of
from repokit.linter.finding import Severity
from repokit.repo.weights import INDEX, SINGLE

ERROR: Final = Severity.ERROR
CONFIG: Final = "config.json"
EMBEDDING: Final = "model.embed_tokens.weight"
HEAD: Final = "lm_head.weight"

TEXT: Final = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "model_type": "qwen2_5_vl_text",
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "rope_parameters": {"mrope_section": [1, 1, 2], "rope_theta": 10000.0, "rope_type": "default"},
    "vocab_size": 32,
}
VISION: Final = {
    "depth": 1,
    "fullatt_block_indexes": [0],
    "hidden_size": 16,
    "in_channels": 3,
    "intermediate_size": 24,
    "model_type": "qwen2_5_vl_vision",
    "num_heads": 2,
    "out_hidden_size": 16,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "window_size": 16,
}
VLM: Final = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "text_config": TEXT,
    "vision_config": VISION,
}
BERT: Final = {
    "architectures": ["BertForMaskedLM"],
    "model_type": "bert",
    "num_key_value_heads": DELETE,
    "head_dim": DELETE,
    "type_vocab_size": 2,
}


def vlm(rename=lambda name: name, *, drop=lambda name: False, config=None) -> dict[str, object]:
    """The composed model, with other names, without some of them, under another config."""
    tensors = {rename(name): info for name, info in tensors_under(VLM).items() if not drop(name)}
    return {CONFIG: {**VLM, **(config or {})}, SINGLE: safetensors(tensors)}


def of_index(prefix: str) -> dict[str, object]:
    """An index whose keys got a prefix after training, over the shards as they were."""

    def change(content: bytes) -> bytes:
        document = json.loads(content)
        document["weight_map"] = {prefix + name: path for name, path in document["weight_map"].items()}
        return json.dumps(document).encode()

    return {INDEX: change}


def of_layer(number: int):
    return lambda name: name.startswith(f"model.layers.{number}.")


FAULTS: Final[dict[str, tuple[str, Severity, Example]]] = {
    "KY01 FareedKhan-dev/train-llm-from-scratch#37": (
        "WGT103",
        ERROR,
        Example("compiled", {SINGLE: edited(rename=lambda name: f"_orig_mod.{name}")}),
    ),
    "KY01 FareedKhan-dev/train-llm-from-scratch#37 (in shards)": (
        "WGT103",
        ERROR,
        Example(
            "compiled",
            {
                **of_index("_orig_mod."),
                **{shard(number): edited(rename=lambda name: f"_orig_mod.{name}") for number in (1, 2, 3)},
            },
            "sharded",
        ),
    ),
    "KY01 open-mmlab/mmagic#1959": (
        "WGT103",
        ERROR,
        Example(
            "a wrapped part",
            {SINGLE: edited(rename=lambda name: name.replace("model.layers", "model.module.layers"))},
        ),
    ),
    "KY01 Biohub/esm#333": (
        "WGT112",
        ERROR,
        Example("the prefix of another library", {SINGLE: edited(rename=lambda name: f"esmc.{name}")}),
    ),
    "KY01 (a model in adapters)": (
        "WGT103",
        ERROR,
        Example(
            "never merged",
            {
                SINGLE: edited(
                    rename=lambda name: name.replace("q_proj.", "q_proj.base_layer."),
                    add={"model.layers.0.self_attn.q_proj.lora_A.default.weight": ("BF16", (4, 16))},
                )
            },
        ),
    ),
    "KY01 (a quantized model)": (
        "WGT103",
        ERROR,
        Example("compiled", {SINGLE: edited(rename=lambda name: f"_orig_mod.{name}")}, "awq"),
    ),
    "KY01 (a composed model)": ("WGT103", ERROR, Example("compiled", vlm(lambda name: f"module.{name}"))),
    "KY03 hiyouga/LlamaFactory#8338": (
        "IDX103",
        ERROR,
        Example("an index with other names", of_index("model.language_"), "sharded"),
    ),
    "KY03 huggingface/transformers#45314": (
        "WGT103",
        ERROR,
        Example(
            "a level three times",
            vlm(lambda name: name.replace("model.layers.", "language_model.language_model.language_model.layers.")),
        ),
    ),
    "KY03 Blaizzy/mlx-vlm#1537": (
        "WGT103",
        ERROR,
        Example(
            "a level twice",
            vlm(lambda name: name.replace("model.layers.", "language_model.language_model.model.layers.")),
        ),
    ),
    "KY04 huggingface/peft#894": (
        "WGT104",
        ERROR,
        Example("two of four layers", {CONFIG: {"num_hidden_layers": 4}}),
    ),
    "KY04 huggingface/peft#894 (half a layer)": (
        "WGT111",
        ERROR,
        Example(
            "the second half of a layer",
            {SINGLE: edited(drop=tuple(f"model.layers.1.mlp.{part}_proj.weight" for part in ("gate", "up", "down")))},
        ),
    ),
    "KY04 (quantized)": ("WGT104", ERROR, Example("two of four layers", {CONFIG: {"num_hidden_layers": 4}}, "gptq")),
    "KY04 (the text model of a composed one)": (
        "WGT111",
        ERROR,
        Example("two of four layers", vlm(config={"text_config": {**TEXT, "num_hidden_layers": 4}})),
    ),
    "KY04 (blocks of the image encoder)": (
        "WGT111",
        ERROR,
        Example("one of two blocks", vlm(config={"vision_config": {**VISION, "depth": 2}})),
    ),
    "KY05 huggingface/transformers#33688": (
        "WGT107",
        ERROR,
        Example("a head that is random", {SINGLE: edited(drop=(HEAD,))}),
    ),
    "KY05 huggingface/transformers#33688 (in shards)": (
        "WGT107",
        ERROR,
        Example(
            "a head that is random",
            {shard(3): edited(drop=(HEAD,)), INDEX: {"weight_map": {HEAD: DELETE}}},
            "sharded",
        ),
    ),
    "KY05 RLHFlow/Online-RLHF#4": (
        "WGT114",
        ERROR,
        Example("a classifier without its head", {CONFIG: {"architectures": ["LlamaForSequenceClassification"]}}),
    ),
    "KY05 hiyouga/LlamaFactory#4379": (
        "WGT150",
        ERROR,
        Example(
            "a value head that nothing reads",
            {"value_head.safetensors": safetensors({"v_head.summary.weight": ("BF16", (1, 16))})},
        ),
    ),
    "KY05 (an encoder)": (
        "WGT114",
        ERROR,
        Example(
            "a classifier without its head",
            {
                CONFIG: {**BERT, "architectures": ["BertForSequenceClassification"]},
                SINGLE: weights_of(BERT),
            },
        ),
    ),
    "KY06 jundot/omlx#3698": (
        "WGT111",
        ERROR,
        Example("no image encoder", vlm(drop=lambda name: "visual" in name)),
    ),
    "KY06 jundot/omlx#3698 (no vision_config)": (
        "WGT111",
        ERROR,
        Example(
            "no image encoder and no config of one",
            {
                CONFIG: {**{key: value for key, value in VLM.items() if key != "vision_config"}},
                SINGLE: safetensors({k: v for k, v in tensors_under(VLM).items() if "visual" not in k}),
            },
        ),
    ),
    "KY09 CASIA-LMC-Lab/FLAP#7": (
        "WGT113",
        ERROR,
        Example(
            "pruned, layer by layer",
            {
                SINGLE: edited(
                    add={
                        f"model.layers.1.mlp.{part}_proj.weight": ("BF16", shape)
                        for part, shape in {"gate": (12, 16), "up": (12, 16), "down": (16, 12)}.items()
                    }
                )
            },
        ),
    ),
    "KY09 ggml-org/llama.cpp#5910": ("WGT106", ERROR, Example("a row too few", {CONFIG: {"vocab_size": 33}})),
    "KY09 MiniMax-AI/MiniMax-01#29": (
        "WGT113",
        ERROR,
        Example(
            "heads of another size than hidden_size gives",
            {
                CONFIG: {"head_dim": DELETE},
                SINGLE: edited(
                    add={
                        f"model.layers.{layer}.self_attn.{part}_proj.weight": ("BF16", shape)
                        for layer in range(2)
                        for part, shape in {"q": (32, 16), "k": (16, 16), "v": (16, 16), "o": (16, 32)}.items()
                    }
                ),
            },
        ),
    ),
    "KY09 he-h/ST-MoE-BERT#1": (
        "WGT113",
        ERROR,
        Example(
            "a table of positions of another length",
            {CONFIG: {**BERT, "max_position_embeddings": 72}, SINGLE: weights_of(BERT)},
        ),
    ),
    "KY09 (a composed model)": (
        "WGT113",
        ERROR,
        Example("another width in the text model", vlm(config={"text_config": {**TEXT, "intermediate_size": 32}})),
    ),
    "KY09 (an image encoder)": (
        "WGT113",
        ERROR,
        Example(
            "another width in the image encoder", vlm(config={"vision_config": {**VISION, "intermediate_size": 32}})
        ),
    ),
    "KY09 (quantized)": ("WGT113", ERROR, Example("another width", {CONFIG: {"intermediate_size": 32}}, "awq")),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_known_fault_is_found(fault, report_of):
    code, severity, example = fault
    assert (code, severity) in {(finding.code, finding.severity) for finding in report_of(example).findings}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_no_rule_breaks_over_a_known_fault(fault, report_of):
    assert report_of(fault[2]).coverage.broken == {}
