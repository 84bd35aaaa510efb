"""Processor files: what happens to an image, a video or a sound before a model sees it.

preprocessor_config.json          an image processor or a feature extractor
video_preprocessor_config.json    a video processor
processor_config.json             a whole processor; transformers 5 nests the others in it, and prefers it over them

Source: transformers 5.23 processing_utils.py, image_processing_base.py, feature_extraction_utils.py. Which key sets a
size may have, and whether numbers fit config.json, are rules of the linter.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from pydantic import Field

from repokit.schema.document import Document

Size: TypeAlias = int | list[int] | dict[str, int | None]
PerChannel: TypeAlias = float | list[float]


class Preprocessor(Document):
    """preprocessor_config.json or video_preprocessor_config.json, or the same object inside processor_config.json."""

    image_processor_type: str | None = Field(None, description="Class; no `Fast` suffix in files of transformers 5.")
    feature_extractor_type: str | None = Field(None, description="Class; before 2022 also of image processors.")
    video_processor_type: str | None = Field(None, description="Class.")
    processor_class: str | None = Field(None, description="Class of the whole processor.")
    auto_map: dict[str, str | list[str | None]] | None = Field(
        None, description="Auto class -> `module.Class` in this repository."
    )

    # Images: processing_utils.py ImagesKwargs
    do_convert_rgb: bool | None = Field(None, description="Whether images are converted to RGB.")
    do_resize: bool | None = Field(None, description="Whether images are resized, to `size`.")
    do_center_crop: bool | None = Field(None, description="Whether images are cropped, to `crop_size`.")
    do_rescale: bool | None = Field(None, description="Whether values are multiplied by `rescale_factor`.")
    do_normalize: bool | None = Field(
        None, description="Whether values are normalised, by mean and standard deviation."
    )
    do_pad: bool | None = Field(None, description="Whether images of a batch are padded to one size.")
    size: Size | None = Field(None, description="Pixels after resizing; min and max *area* in the Qwen-VL family.")
    crop_size: Size | None = Field(None, description="Pixels after cropping.")
    pad_size: Size | None = Field(None, description="Pixels after padding.")
    size_divisor: int | None = Field(None, description="Sides become multiples of it, in pixels.")
    resample: int | None = Field(
        None, description="PIL: 0 nearest, 1 lanczos, 2 bilinear, 3 bicubic, 4 box, 5 hamming."
    )
    rescale_factor: float | None = Field(None, description="1/255 maps bytes to 0..1.")
    image_mean: PerChannel | None = Field(None, description="One value per channel, after rescaling.")
    image_std: PerChannel | None = Field(None, description="One value per channel, after rescaling.")
    default_to_square: bool | None = Field(
        None, description="Whether a `size` of one number is that of both sides, or of the shorter one."
    )
    min_pixels: int | None = Field(None, description="Least area of an image, in pixels.")
    max_pixels: int | None = Field(None, description="Greatest area of an image, in pixels.")
    patch_size: int | list[int] | dict[str, int] | None = Field(None, description="Pixels a side.")
    temporal_patch_size: int | None = Field(None, description="Frames.")
    merge_size: int | None = Field(None, description="Patches a side that become one token.")

    # Videos: processing_utils.py VideosKwargs
    do_sample_frames: bool | None = Field(None, description="Whether frames are sampled.")
    fps: float | list[float] | None = Field(None, description="Frames a second.")
    num_frames: int | None = Field(None, description="Frames that are sampled from a video.")
    return_metadata: bool | None = Field(None, description="Whether rate and times of the frames are returned.")

    # Audio: feature_extraction_sequence_utils.py and the feature extractors
    sampling_rate: int | None = Field(None, description="Hz.")
    feature_size: int | None = Field(None, description="Values per frame: mel bands, or 1 for a waveform.")
    num_mel_bins: int | None = Field(None, description="Height of a spectrogram, in mel bands.")
    hop_length: int | None = Field(None, description="Samples between two frames.")
    n_fft: int | None = Field(None, description="Samples of a Fourier window.")
    chunk_length: int | None = Field(None, description="Seconds.")
    n_samples: int | None = Field(None, description="Samples of a chunk: chunk_length * sampling_rate.")
    nb_max_frames: int | None = Field(None, description="Frames of a chunk: n_samples / hop_length.")
    padding_side: str | None = Field(None, description="left or right.")
    padding_value: float | None = Field(None, description="What fills a batch.")
    return_attention_mask: bool | None = Field(None, description="Whether a mask of what is no padding is returned.")
    dither: float | None = Field(
        None, description="Standard deviation of the noise that is added to a waveform; 0 for none."
    )


class Processor(Document):
    """processor_config.json."""

    processor_class: str | None = Field(None, description="Class of the whole processor.")
    auto_map: dict[str, str | list[str | None]] | None = Field(
        None, description="Auto class -> `module.Class` in this repository."
    )
    image_processor: Preprocessor | None = Field(None, description="How images are prepared.")
    video_processor: Preprocessor | None = Field(None, description="How videos are prepared.")
    feature_extractor: Preprocessor | None = Field(None, description="How sounds are prepared.")
    audio_tokenizer: dict[str, Any] | None = Field(
        None, description="{audio_tokenizer_class, audio_tokenizer_name_or_path}."
    )
    chat_template: str | None = Field(None, description="Deprecated here; wins over chat_template.jinja.")
    image_token: str | None = Field(None, description="The placeholder for image features.")
    video_token: str | None = Field(None, description="The placeholder for features of a video.")
    audio_token: str | None = Field(None, description="The placeholder for features of a sound.")
    patch_size: int | None = Field(None, description="Pixels a side.")
    image_seq_length: int | None = Field(None, description="Tokens per image.")
    num_additional_image_tokens: int | None = Field(
        None, description="Tokens of an image beside its patches, as that of the class."
    )
    vision_feature_select_strategy: str | None = Field(None, description="default or full.")
