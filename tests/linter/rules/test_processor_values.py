"""PRC: settings with which a class stops, and those that contradict each other or the model."""

from __future__ import annotations

import pytest

from repokit.linter.examples import Example
from repokit.linter.rules.processor import IMAGE_PROCESSOR, MismatchedProcessor, vit
from repokit.linter.rules.processor_parts import (
    LLAVA,
    SIGLIP,
    MismatchedImageTokens,
    MissingProcessorPart,
    MissingProcessorSetting,
    UnknownMediaToken,
)
from repokit.linter.rules.processor_sizes import MismatchedImageSize, MismatchedSpectrogram
from repokit.linter.rules.processor_slips import (
    WHOLE,
    ContradictorySpectrogram,
    ImplausibleSound,
    MissingImageSize,
    NullSwitch,
    PillowFilter,
    of_sound,
)
from repokit.linter.rules.processor_values import ImplausibleNormalization, UnusableProcessorValue, of_image
from repokit.repo.processor import PREPROCESSOR, PROCESSOR
from repokit.repo.repository import Repository

QWEN = {
    **WHOLE,
    "image_processor_type": "Qwen2VLImageProcessor",
    "merge_size": 2,
    "patch_size": 14,
    "size": {"longest_edge": 4096, "shortest_edge": 64},
    "temporal_patch_size": 2,
}
IDEFICS = {**WHOLE, "image_processor_type": "Idefics3ImageProcessor", "size": {"longest_edge": 1456}}


def places(rule, change):
    """Where a rule speaks of the base with this change."""
    with Repository(Example("an example", change).source()) as repository:
        return [finding.place for finding in rule.check(repository)]


def without(document, *keys):
    return {key: value for key, value in document.items() if key not in keys}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("image_mean", None),
        ("image_std", None),
        ("resample", None),
        ("size", None),
        ("size", {"height": None, "width": 8}),
        ("image_mean", [0.5, 0.5, 0.5, 0.5]),
    ],
)
def test_a_value_that_the_class_stops_with_is_an_error(key, value):
    found = places(UnusableProcessorValue(), of_image(**{key: value}))
    assert found
    assert all(place.startswith(f"/{key}") for place in found)


@pytest.mark.parametrize(("key", "switch"), [("image_mean", "do_normalize"), ("size", "do_resize")])
def test_a_null_that_nobody_reads_is_none(key, switch):
    assert places(UnusableProcessorValue(), of_image(**{key: None, switch: False})) == []


def test_a_class_that_is_not_known_is_not_judged_by_another():
    assert places(UnusableProcessorValue(), of_image(image_processor_type="OfTomorrow", image_mean=None)) == []


def test_four_channels_are_right_where_the_model_has_four():
    four = vit({**IMAGE_PROCESSOR, "image_mean": [0.5] * 4, "image_std": [0.5] * 4}, num_channels=4)
    assert places(UnusableProcessorValue(), four) == []


@pytest.mark.parametrize("edge", ["longest_edge", "shortest_edge"])
def test_qwen_needs_the_least_and_the_greatest_area(edge):
    size = without(QWEN["size"], edge)
    assert places(UnusableProcessorValue(), {PREPROCESSOR: {**QWEN, "size": size}}) == ["/size"]


def test_an_area_beside_a_size_fills_it_in():
    change = {PREPROCESSOR: {**QWEN, "size": {"shortest_edge": 64}, "max_pixels": 4096}}
    assert places(UnusableProcessorValue(), change) == []


@pytest.mark.parametrize("value", [None, [14], "14"])
def test_a_patch_that_is_no_number_is_an_error(value):
    assert places(UnusableProcessorValue(), {PREPROCESSOR: {**QWEN, "patch_size": value}}) == ["/patch_size"]


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({}, "/max_image_size"),
        ("x", "/max_image_size"),
        ({"edge": 1}, "/max_image_size"),
        ({"longest_edge": 0}, "/max_image_size/longest_edge"),
        ({"longest_edge": "32"}, "/max_image_size/longest_edge"),
    ],
)
def test_an_object_that_the_class_stops_with_is_an_error(value, place):
    assert places(UnusableProcessorValue(), {PREPROCESSOR: {**IDEFICS, "max_image_size": value}}) == [place]


@pytest.mark.parametrize("key", ["chunk_length", "dither", "hop_length", "padding_side", "sampling_rate"])
def test_whisper_stops_at_a_null(key):
    change = {PREPROCESSOR: {**of_sound()[PREPROCESSOR], key: None}}
    assert places(UnusableProcessorValue(), change) == [f"/{key}"]


def test_a_side_that_is_none_is_an_error():
    assert places(UnusableProcessorValue(), of_sound(padding_side="rightx")) == ["/padding_side"]


def test_two_classes_in_one_file_are_not_judged_by_either():
    both = {**of_sound()[PREPROCESSOR], **QWEN, "sampling_rate": None}
    assert places(UnusableProcessorValue(), {PREPROCESSOR: both}) == []


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"image_mean": [0.97, 0.46, 0.41]}, "/image_mean"),
        ({"image_mean": [0.0, 0.46, 0.41]}, "/image_mean"),
        ({"image_std": [0.54, 0.26, 0.28]}, "/image_std"),
        ({"rescale_factor": 2 / 255}, "/rescale_factor"),
    ],
)
def test_normalization_that_no_pictures_have_is_told(settings, place):
    assert places(ImplausibleNormalization(), of_image(**settings)) == [place]


@pytest.mark.parametrize(
    "settings",
    [
        {"image_mean": [0.7072, 0.5787, 0.7036], "image_std": [0.2119, 0.2301, 0.1775]},
        {"rescale_factor": 2 / 255, "image_mean": [1, 1, 1], "image_std": [1, 1, 1]},
        {"rescale_factor": 2 / 255, "image_processor_type": "VivitImageProcessor", "offset": True},
        {"rescale_factor": 2 / 255, "do_normalize": False},
    ],
)
def test_unusual_normalization_that_models_are_published_with_is_not_told(settings):
    assert places(ImplausibleNormalization(), of_image(**settings)) == []


def test_a_null_step_among_other_nulls_without_settings_is_of_transformers_4():
    change = vit({**WHOLE, "image_processor_type": "CLIPImageProcessor", "do_center_crop": None, "crop_size": None})
    assert places(NullSwitch(), change) == []


def test_a_null_step_with_its_settings_is_told():
    crop = {"height": 8, "width": 8}
    change = vit({**WHOLE, "image_processor_type": "CLIPImageProcessor", "do_center_crop": None, "crop_size": crop})
    assert places(NullSwitch(), change) == ["/do_center_crop"]


def test_a_size_that_the_class_guesses_rightly_is_not_missed():
    assert places(MissingImageSize(), vit(without(WHOLE, "size"), image_size=224)) == []


def test_a_short_file_may_leave_the_size_to_its_class():
    assert places(MissingImageSize(), vit(without(IMAGE_PROCESSOR, "size", "image_mean", "image_std"))) == []


def test_the_size_of_the_class_is_held_against_the_model():
    assert places(MismatchedImageSize(), vit({"image_processor_type": "ViTImageProcessor"})) == [None]


@pytest.mark.parametrize("key", ["feature_size", "chunk_length"])
def test_what_whisper_takes_by_itself_is_held_against_the_model(key):
    config = {"model_type": "whisper", "num_mel_bins": 16, "max_source_positions": 100}
    change = of_sound(feature_size=16, chunk_length=2, n_samples=32000, nb_max_frames=200)
    change = {PREPROCESSOR: without(change[PREPROCESSOR], key), "config.json": config}
    assert len(places(MismatchedSpectrogram(), change)) == 1


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000, 96000])
def test_rates_of_recordings_are_plausible(rate):
    assert places(ImplausibleSound(), of_sound(sampling_rate=rate)) == []


def test_samples_that_only_the_file_knows_contradict_nothing():
    change = of_sound(chunk_length=None, n_samples=4800000, nb_max_frames=30000)
    assert places(ContradictorySpectrogram(), change) == []


def test_a_patch_that_the_class_takes_by_itself_is_held_against_the_model():
    change = {"config.json": {"vision_config": {"patch_size": 4}}, PREPROCESSOR: without(QWEN, "patch_size")}
    assert places(MismatchedProcessor(), change) == [None]


@pytest.mark.parametrize("settings", [without(LLAVA, "vision_feature_select_strategy"), LLAVA])
def test_llava_that_is_not_told_to_leave_the_class_token_out_keeps_it(settings):
    change = {
        "config.json": {"vision_feature_select_strategy": "default"},
        PROCESSOR: {**settings, "image_processor": SIGLIP},
    }
    assert bool(places(MismatchedProcessor(), change)) == (settings is not LLAVA)


@pytest.mark.parametrize("part", ["image_processor", "feature_extractor"])
def test_a_part_that_is_null_is_missing_whatever_the_class(part):
    assert places(MissingProcessorPart(), {PROCESSOR: {part: None}}) == [f"/{part}"]


def test_code_of_the_repository_may_keep_its_parts_elsewhere():
    change = {PROCESSOR: {"auto_map": {"AutoProcessor": "code.Mine"}, "processor_class": "LlavaProcessor"}}
    assert places(MissingProcessorPart(), change) == []


def test_a_token_is_not_judged_without_a_vocabulary():
    gone = dict.fromkeys(("tokenizer.json", "tokenizer_config.json"))
    change = {**gone, PROCESSOR: {**LLAVA, "image_processor": SIGLIP, "image_token": "<image>"}}
    assert places(UnknownMediaToken(), change) == []


@pytest.mark.parametrize(("length", "place"), [(None, "/image_processor/image_seq_length"), (4, "none")])
def test_paligemma_needs_the_number_of_tokens_of_an_image(length, place):
    whole = {"image_processor": {**SIGLIP, "image_seq_length": length}, "processor_class": "PaliGemmaProcessor"}
    assert places(MissingProcessorSetting(), {PROCESSOR: whole}) == ([] if place == "none" else [place])


@pytest.mark.parametrize(
    ("config", "whole", "wanted"),
    [
        (
            {"model_type": "paligemma", "vision_config": {"image_size": 8, "patch_size": 4}},
            {"image_processor": {**SIGLIP, "image_seq_length": 5}, "processor_class": "PaliGemmaProcessor"},
            ["/image_processor/image_seq_length"],
        ),
        (
            {"model_type": "idefics3", "scale_factor": 2, "vision_config": {"image_size": 32, "patch_size": 8}},
            {"image_processor": IDEFICS, "image_seq_len": 4, "processor_class": "Idefics3Processor"},
            [],
        ),
        (
            {"model_type": "idefics3", "scale_factor": 2, "vision_config": {"image_size": 32, "patch_size": 8}},
            {"image_processor": IDEFICS, "processor_class": "Idefics3Processor"},
            [None],
        ),
        (
            {"model_type": "idefics3", "scale_factor": 2, "vision_config": {"image_size": 32, "patch_size": 8}},
            {
                "image_processor": {**IDEFICS, "max_image_size": {"longest_edge": 33}},
                "image_seq_len": 4,
                "processor_class": "Idefics3Processor",
            },
            ["/image_processor/max_image_size/longest_edge"],
        ),
    ],
)
def test_placeholders_are_counted_as_the_encoder_counts(config, whole, wanted):
    assert places(MismatchedImageTokens(), {"config.json": config, PROCESSOR: whole}) == wanted


def test_a_flag_in_quotes_counts_as_true():
    donut = {**WHOLE, "do_align_long_axis": "false", "image_processor_type": "DonutImageProcessor"}
    assert places(UnusableProcessorValue(), {PREPROCESSOR: donut}) == ["/do_align_long_axis"]


def test_videos_have_three_colours_too():
    video = {**without(QWEN, "image_processor_type"), "video_processor_type": "Qwen2VLVideoProcessor"}
    video |= {"image_mean": [0.5, 0.5]}
    assert places(UnusableProcessorValue(), {"video_preprocessor_config.json": video}) == ["/image_mean"]


def test_a_file_without_resizing_needs_no_filter():
    assert places(PillowFilter(), vit({**WHOLE, "do_resize": False, "resample": 4})) == []
