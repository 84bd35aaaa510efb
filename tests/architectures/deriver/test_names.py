"""The exported names, held against what transformers' own loader makes of every name."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from repokit.architectures.deriver.classes import model_types  # noqa: E402 - needs what may be missing
from repokit.architectures.deriver.names import exported_names, loaded_as  # noqa: E402
from repokit.architectures.deriver.truth import Truth, truth  # noqa: E402
from repokit.architectures.names import Names  # noqa: E402

pytestmark = pytest.mark.oracle

# Renames, prefix changes, groups, converters, weight norm, index arithmetic, renames that are not idempotent.
CLASSES = [
    "AriaForConditionalGeneration",
    "BertForPreTraining",
    "BertModel",
    "Blip2ForConditionalGeneration",
    "CLIPModel",
    "CLIPVisionModel",
    "ColQwen2ForRetrieval",
    "CohereAsrForConditionalGeneration",
    "DFineForObjectDetection",
    "DeepseekV4ForCausalLM",
    "DoryForCausalLM",
    "EncoderDecoderModel",
    "FuyuForCausalLM",
    "Gemma3ForConditionalGeneration",
    "GotOcr2ForConditionalGeneration",
    "GPTNeoXForCausalLM",
    "GraniteMoeForCausalLM",
    "Inkling2ForCausalLM",
    "InternVLForConditionalGeneration",
    "Kimi_K25ForConditionalGeneration",
    "LlamaForCausalLM",
    "LlavaForConditionalGeneration",
    "LlavaModel",
    "LlavaNextForConditionalGeneration",
    "Mistral3ForConditionalGeneration",
    "MixtralForCausalLM",
    "MllamaForConditionalGeneration",
    "NomicBertModel",
    "PaliGemmaForConditionalGeneration",
    "Qwen2AudioForConditionalGeneration",
    "Qwen2VLForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3MoeForCausalLM",
    "RfDetrForObjectDetection",
    "ShieldGemma2ForImageClassification",
    "SiglipModel",
    "TimmWrapperModel",
    "ViTForImageClassification",
    "VideoLlavaForConditionalGeneration",
    "Wav2Vec2ForCTC",
]
_FEW = ("num_hidden_layers", "num_layers", "n_layer", "encoder_layers", "decoder_layers", "depth")


def few_layers(config: Any) -> Any:
    for key in _FEW:
        if isinstance(getattr(config, key, None), int):
            setattr(config, key, 2)
    for value in list(config.__dict__.values()):
        if isinstance(value, transformers.PreTrainedConfig):
            few_layers(value)
    return config


_built: dict[str, Truth] = {}


def built(name: str) -> Truth:
    if not hasattr(transformers, name):
        pytest.skip(f"this transformers has no {name}")
    if name not in _built:
        model_class = getattr(transformers, name)
        try:
            _built[name] = truth(model_class, few_layers(model_class.config_class()), seconds=60)
        except Exception:  # noqa: BLE001 - layer lists that few layers contradict, or a package that is missing
            try:
                _built[name] = truth(model_class, model_class.config_class(), seconds=60)
            except Exception as error:  # noqa: BLE001
                pytest.skip(f"{name} cannot be built here: {error}")
    return _built[name]


def names_of(held: Truth) -> Names:
    data = exported_names(held.model)
    assert data == json.loads(json.dumps(data))
    return Names(data)


@pytest.mark.parametrize("name", CLASSES)
def test_a_file_s_names_mean_what_the_loader_makes_of_them(name: str) -> None:
    held = built(name)
    names = names_of(held).among(held.disk)
    prefix = f"{names.data.get('base')}."

    loaded = loaded_as(held.model, held.disk)

    assert {one: names.canonical(one) for one in loaded} == {one: loaded[one].removeprefix(prefix) for one in loaded}


@pytest.mark.parametrize("name", CLASSES)
def test_no_two_tensors_of_a_file_have_one_name(name: str) -> None:
    held = built(name)
    names = names_of(held).among(held.disk)

    assert max(Counter(map(names.canonical, held.disk)).values()) == 1


@pytest.mark.parametrize("name", CLASSES)
def test_a_model_s_own_names_are_left_as_they_are(name: str) -> None:
    held = built(name)
    names = names_of(held)
    prefix = f"{names.data.get('base')}."
    names = names.among(held.memory)

    wrong = {one: names.canonical(one) for one in held.memory if names.canonical(one) != one.removeprefix(prefix)}

    assert not wrong


# What repositories on the Hub have, and what this version of transformers has in memory.
@pytest.mark.parametrize(
    ("name", "older", "newer"),
    [
        ("LlavaForConditionalGeneration", "language_model.lm_head.weight", "lm_head.weight"),
        (
            "LlavaForConditionalGeneration",
            "language_model.model.layers.0.mlp.up_proj.weight",
            "model.language_model.layers.0.mlp.up_proj.weight",
        ),
        (
            "LlavaForConditionalGeneration",
            "vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight",
            "model.vision_tower.encoder.layers.0.mlp.fc1.weight",
        ),
        (
            "Gemma3ForConditionalGeneration",
            "vision_tower.vision_model.post_layernorm.weight",
            "model.vision_tower.post_layernorm.weight",
        ),
        ("Qwen2VLForConditionalGeneration", "visual.blocks.0.norm1.weight", "model.visual.blocks.0.norm1.weight"),
        (
            "Qwen2_5_VLForConditionalGeneration",
            "model.layers.0.mlp.up_proj.weight",
            "model.language_model.layers.0.mlp.up_proj.weight",
        ),
        (
            "BertForPreTraining",
            "bert.embeddings.LayerNorm.gamma",
            "bert.embeddings.LayerNorm.weight",
        ),
        ("BertModel", "bert.pooler.dense.bias", "pooler.dense.bias"),
        (
            "Wav2Vec2ForCTC",
            "wav2vec2.encoder.pos_conv_embed.conv.weight_g",
            "wav2vec2.encoder.pos_conv_embed.conv.parametrizations.weight.original0",
        ),
        (
            "Wav2Vec2ForCTC",
            "wav2vec2.encoder.pos_conv_embed.conv.weight_v",
            "wav2vec2.encoder.pos_conv_embed.conv.parametrizations.weight.original1",
        ),
        ("GPTNeoXForCausalLM", "embed_out.weight", "lm_head.weight"),
        ("ViTForImageClassification", "vit.encoder.layer.0.intermediate.dense.bias", "vit.layers.0.mlp.fc1.bias"),
    ],
)
def test_an_older_spelling_has_the_name_of_the_newer(name: str, older: str, newer: str) -> None:
    held = built(name)
    names = names_of(held)

    assert newer in held.model.state_dict()
    assert names.canonical(older) == names.canonical(newer)


def test_the_halves_of_a_fused_expert_stay_two_names() -> None:
    names = names_of(built("MixtralForCausalLM"))
    experts = "model.layers.0.block_sparse_moe.experts.0."

    assert names.canonical(f"{experts}w1.weight") != names.canonical(f"{experts}w3.weight")


# Both hold a tensor of the same name with and without the prefix of the base model, so loaders guess, and so do we.
GUESSED = {"PixioBackbone", "RfDetrForInstanceSegmentation"}


def buildable() -> Iterator[Truth]:
    """Every class that its default config, with few layers, can build."""
    for name in sorted({name for names in model_types().values() for name in names} - GUESSED):
        model_class = getattr(transformers, name)
        with contextlib.suppress(Exception):  # what cannot be built has no names
            yield truth(model_class, few_layers(model_class.config_class()), seconds=20)


@pytest.mark.full
def test_the_names_of_all_classes_mean_what_the_loader_makes_of_them() -> None:
    wrong = []
    for held in buildable():
        names = names_of(held).among(held.disk)
        prefix = f"{names.data.get('base')}."
        loaded = loaded_as(held.model, held.disk)
        wrong += [one for one in loaded if names.canonical(one) != loaded[one].removeprefix(prefix)]

    assert not wrong
