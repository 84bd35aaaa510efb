"""Processor files against each other and against config.json."""

from __future__ import annotations

import json
from typing import Any

import pytest

from repokit.repo.memory import Memory
from repokit.repo.processor import PREPROCESSOR, PROCESSOR, VIDEO, Processors
from repokit.repo.repository import Repository

VISION = {"vision_config": {"patch_size": 14, "spatial_merge_size": 2}}


def processors(**files: Any) -> Processors:
    names = {"config": "config.json", "image": PREPROCESSOR, "video": VIDEO, "whole": PROCESSOR}
    return Processors(Repository(Memory({names[key]: json.dumps(raw).encode() for key, raw in files.items()})))


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"architectures": ["ViTForImageClassification"]}, "ViTForImageClassification"),
        ({"architectures": ["Wav2Vec2ForCTC"]}, "Wav2Vec2ForCTC"),
        ({"architectures": ["WhisperForConditionalGeneration"]}, "WhisperForConditionalGeneration"),
        ({"architectures": ["LlavaForConditionalGeneration"], **VISION}, "vision_config"),
        ({"architectures": ["Gemma3ForCausalLM"], **VISION}, None),
        ({"architectures": ["InternVLChatModel"], "auto_map": {}, **VISION}, None),
        ({"architectures": ["LlamaForCausalLM"]}, None),
        ({"architectures": ["BertForTokenClassification"]}, None),
    ],
)
def test_what_takes_images_or_sounds_needs_a_processor(config: dict[str, Any], reason: str | None) -> None:
    assert processors(config=config).missing == reason


@pytest.mark.parametrize("present", ["image", "video", "whole"])
def test_any_processor_file_will_do(present: str) -> None:
    assert processors(config={"architectures": ["ViTForImageClassification"]}, **{present: {}}).missing is None


def test_nested_processors_are_processors_of_their_own() -> None:
    found = processors(whole={"image_processor": {"size": 1}, "processor_class": "X"}, image={"size": 1})
    assert [(document.path, document.pointer) for document in found.single] == [
        (PREPROCESSOR, ""),
        (PROCESSOR, "/image_processor"),
    ]


def test_fields_that_differ_from_the_nested_ones_are_stale() -> None:
    found = processors(whole={"image_processor": {"size": 1, "do_pad": True}}, image={"size": 2, "resample": 3})
    assert [(one.place, one.value, one.other, one.other_value) for one in found.stale] == [
        ("/size", 2, "processor_config.json /image_processor/size", 1)
    ]


def test_the_suffix_of_transformers_4_is_no_difference() -> None:
    found = processors(
        whole={"image_processor": {"image_processor_type": "XImageProcessor"}},
        image={"image_processor_type": "XImageProcessorFast"},
    )
    assert found.stale == ()


@pytest.mark.parametrize(
    ("image", "places"),
    [
        ({"patch_size": 14, "merge_size": 2}, []),
        ({"patch_size": 16, "merge_size": 4}, ["/patch_size", "/merge_size"]),
        ({"patch_size": {"height": 14, "width": 14}}, []),
        ({}, []),
    ],
)
def test_sizes_that_config_json_has_otherwise_are_mismatched(image: dict[str, Any], places: list[str]) -> None:
    assert [one.place for one in processors(config=VISION, image=image).mismatched] == places
