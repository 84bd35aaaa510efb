"""PRC: the sizes of images and sounds that a processor makes, against those that the model takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.processor import IMAGE_PROCESSOR, vit
from repokit.linter.rules.processor_parts import given
from repokit.printable import printable
from repokit.repo.processor import PREPROCESSOR, Processors
from repokit.repo.processor_classes import classes_of, effective

if TYPE_CHECKING:
    from repokit.repo.config import Config
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

# Encoders with a table of positions, which refuse images of another size unless they are told to interpolate
# (transformers 5.24 models/*/modeling_*.py "doesn't match model").
FIXED: Final = frozenset(
    {"clip_vision_model", "siglip_vision_model", "clip", "siglip", "vit", "deit", "vit_mae", "vit_msn", "beit"}
)
# Composed models that hand images to their encoder as they are, in one size.
OF_ONE_SIZE: Final = frozenset(
    {"clip", "siglip", "gemma3", "llava", "vipllava", "paligemma", "chinese_clip", "clipseg"}
)

# Image processors that do not cut where nothing says so (transformers 5.24, defaults of the classes).
_UNCUT: Final = ("ViTImage", "ViTFeature", "SiglipImage", "BeitImage", "Gemma3Image")


class MismatchedImageSize(Rule):
    """The processor makes images of another size than the image encoder has positions for.

    The model refuses every image that its own processor has made: "doesn't match model".
    """

    code = "PRC150"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("the processor of a smaller model", vit({**IMAGE_PROCESSOR, "size": {"height": 4, "width": 4}})),
        Example(
            "a cut of another size",
            vit(
                {
                    **IMAGE_PROCESSOR,
                    "size": {"shortest_edge": 8},
                    "do_center_crop": True,
                    "crop_size": {"height": 16, "width": 16},
                }
            ),
        ),
    )
    good = (
        Example("the size of the encoder", vit()),
        Example("one number for both sides", vit({**IMAGE_PROCESSOR, "size": 8})),
        Example(
            "a cut that is switched off",
            vit({**IMAGE_PROCESSOR, "do_center_crop": False, "crop_size": {"height": 16, "width": 16}}),
        ),
        Example("the shortest edge says nothing of the other", vit({**IMAGE_PROCESSOR, "size": {"shortest_edge": 4}})),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.config
        vision = None if config is None else fixed_encoder(config)
        wanted = None if vision is None else vision.integer("image_size")
        if vision is None or not wanted:
            return
        for document in Processors(repository).single:
            made = made_size(document)
            if made is not None and made[1] != (wanted, wanted):
                key, (height, width) = made
                message = f"makes images of {height} x {width}; {vision.path} {vision.at('image_size')} is {wanted}"
                yield self.finding(document.path, message, place=given(document, key))
            elif made is None and (edge := uncut_edge(document)) is not None:
                message = f"makes images whose shorter edge is {edge}; {vision.path} takes squares of {wanted}"
                yield self.finding(document.path, message, place=document.at("do_center_crop"))


def fixed_encoder(config: Config) -> Document | None:
    """The part of config.json that is an image encoder of one size; None where there is none, or two."""
    if "auto_map" in config:
        return None
    found = [level for level in config.levels if level.string("model_type") in FIXED and "image_size" in level]
    composed = config.mapping("vision_config") is not None
    return found[0] if len(found) == 1 and (not composed or config.model_type in OF_ONE_SIZE) else None


def made_size(document: Document) -> tuple[str, tuple[int, int]] | None:
    """Which field of an image processor says what size comes out, and that size; None where none says both sides."""
    if document.string("feature_extractor_type") not in {None, "CLIPFeatureExtractor", "ViTFeatureExtractor"}:
        return None
    settings = effective(document)
    crops = settings.get("do_center_crop")
    crop, size = sides(settings.get("crop_size")), sides(settings.get("size"))
    if crops is True and crop is not None:
        return "crop_size", crop
    kind = document.string("image_processor_type") or document.string("feature_extractor_type") or ""
    uncut = crops is False or (crops is None and kind.startswith(_UNCUT))
    resized = document.flag("do_resize") is not False and uncut
    return ("size", size) if resized and size is not None else None


def uncut_edge(document: Document) -> int | None:
    """The shorter edge that CLIP's processor makes where it is told not to cut squares; None where it is not told."""
    size, settings = document.mapping("size"), effective(document)
    told = document.flag("do_center_crop") is False and settings.get("do_resize") is True
    is_one_edge = size is not None and size.raw.keys() == {"shortest_edge"}
    return size.integer("shortest_edge") if size and is_one_edge and told and classes_of(document) == CLIP else None


CLIP: Final = ("CLIPImageProcessor",)


def sides(value: object) -> tuple[int, int] | None:
    """Height and width of a size, which older processors write as one number."""
    match value:
        case bool():
            return None
        case int():
            return (value, value)
        case {"height": int() as height, "width": int() as width}:
            return (height, width)
    return None


class MismatchedSpectrogram(Rule):
    """The feature extractor makes spectrograms of another size than the model takes.

    The first layer is built for `num_mel_bins` rows, and stops with an error about channels; Whisper also refuses
    another length than it has positions for.
    """

    code = "PRC151"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "the extractor of large-v2 beside large-v3",
            {
                "config.json": {"audio_config": {"model_type": "qwen2_audio_encoder", "num_mel_bins": 128}},
                PREPROCESSOR: {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 80},
            },
        ),
    )
    good = (
        Example(
            "the same number",
            {
                "config.json": {"audio_config": {"model_type": "qwen2_audio_encoder", "num_mel_bins": 128}},
                PREPROCESSOR: {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 128},
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.config
        levels = [] if config is None else [level for level in config.levels if "num_mel_bins" in level]
        if len(levels) != 1:
            return
        for document in Processors(repository).single:
            if document.string("feature_extractor_type") == "WhisperFeatureExtractor":
                yield from self._compared(document, levels[0])

    def _compared(self, document: Document, model: Document) -> Iterator[Finding]:
        # Two frames of a spectrogram make a position; other models than Whisper cut longer sounds into pieces.
        positions = model.integer("max_source_positions") if model.string("model_type") == "whisper" else None
        pairs = (
            ("feature_size", "num_mel_bins", model.integer("num_mel_bins")),
            ("nb_max_frames", "max_source_positions", None if positions is None else positions * 2),
        )
        for key, name, wanted in pairs:
            # transformers computes the frames anew, from a chunk of its own length where the file has none.
            is_said = key in document and (key == "feature_size" or "chunk_length" in document)
            made = document.integer(key) if is_said else class_makes(document, key)
            if made is not None and wanted is not None and made != wanted:
                of_model = printable(f"{model.path} {model.at(name)}", 80)
                message = f"has {key} {made:,}; {of_model} asks for {wanted:,}"
                yield self.finding(document.path, message, place=given(document, key))


def class_makes(document: Document, key: str) -> int | None:
    """A number that the class has by itself, or computes, where the file lacks it."""
    settings = effective(document)
    chunk, rate, hop = (settings.get(name) for name in ("chunk_length", "sampling_rate", "hop_length"))
    if key == "nb_max_frames":
        return chunk * rate // hop if type(chunk) is type(rate) is type(hop) is int and hop else None
    number = settings.get(key)
    return number if type(number) is int else None


RULES: Final = (MismatchedImageSize(), MismatchedSpectrogram())
