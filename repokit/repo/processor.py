"""The files that say what happens to images, videos and sounds before the model sees them.

preprocessor_config.json and video_preprocessor_config.json hold one processor each; processor_config.json nests the
same objects, and wins over them (transformers 5.24 processing_utils.py; measured).
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.repo.config import Config
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

PREPROCESSOR: Final = "preprocessor_config.json"
VIDEO: Final = "video_preprocessor_config.json"
PROCESSOR: Final = "processor_config.json"

# The object inside processor_config.json that stands for each of the other files.
_NESTED: Final = {"image_processor": PREPROCESSOR, "feature_extractor": PREPROCESSOR, "video_processor": VIDEO}
CLASS_KEYS: Final = ("image_processor_type", "feature_extractor_type", "video_processor_type")

# Classes that take images or sounds and nothing else, by the end of their names (transformers modeling_auto.py).
_MEDIA: Final = re.compile(
    r"(?:For(?:ImageClassification\w*|ObjectDetection|(?:Semantic|Instance|Universal|Image)Segmentation|DepthEstimation"
    r"|MaskGeneration|VideoClassification|ZeroShotObjectDetection|AudioClassification|AudioFrameClassification|XVector"
    r"|SpeechSeq2Seq|MaskedImageModeling)|(?:Wav2Vec2|Hubert|WavLM|UniSpeech|SEW|Data2VecAudio)\w*ForCTC"
    r"|^WhisperFor\w+"
    r"|^(?:Beit|ConvNext(?:V2)?|DeiT|Dinov2(?:WithRegisters)?|DINOv3\w+|Hiera|IJepa|ResNet|Swin(?:v2)?|ViT(?:MAE|MSN)?)Model)$"
)
_TOWERS: Final = ("vision_config", "audio_config")

# Fields of a processor and of vision_config that say the same thing (transformers 5.24).
_SHARED: Final = {
    "patch_size": ("patch_size",),
    "merge_size": ("spatial_merge_size",),
    "temporal_patch_size": ("temporal_patch_size",),
}

# Fields of a processor and of the whole config.json that do: how many tokens stand for one image, and of which.
_OF_MODEL: Final = {
    "image_grid_pinpoints": ("image_grid_pinpoints",),
    "image_seq_length": ("image_seq_length", "mm_tokens_per_image"),
    "vision_feature_select_strategy": ("vision_feature_select_strategy",),
}

# Processors whose own `patch_size` is the encoder's; that of others is the side of several patches (AyaVision: 28).
_COUNTS_PATCHES: Final = ("LlavaProcessor", "LlavaNext", "VideoLlava", "Pixtral")

# Processors that leave the class token out of an image only where they are told to.
_COUNTS_ALL: Final = ("LlavaProcessor", "LlavaNextProcessor", "LlavaNextVideoProcessor")


class Difference(NamedTuple):
    """A field with two values.

    Attributes:
        path: The file that is read, or believed.
        place: JSON Pointer there.
        value: What it says.
        other: Where the other value is: `config.json /vision_config/patch_size`.
        other_value: What that says.
        field: The last part of the place; of a field that is absent, its name, and `place` is that of the object.
    """

    path: str
    place: str
    value: object
    other: str
    other_value: object
    field: str = ""


class Processors:
    """The processors of a repository."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Which of the three files are there."""
        return tuple(path for path in (PREPROCESSOR, VIDEO, PROCESSOR) if self._repository.has(path))

    @cached_property
    def documents(self) -> tuple[Document, ...]:
        """Every file and every object nested in processor_config.json."""
        files = [document for path in self.files if (document := self._repository.document(path)) is not None]
        return (*files, *self._nested.values())

    @cached_property
    def _nested(self) -> Mapping[str, Document]:
        whole = self._repository.document(PROCESSOR)
        found = {key: None if whole is None else whole.mapping(key) for key in _NESTED}
        return {key: document for key, document in found.items() if document is not None}

    @cached_property
    def single(self) -> tuple[Document, ...]:
        """The objects that describe one processor: files and nested objects, without processor_config.json itself."""
        return tuple(document for document in self.documents if document.path != PROCESSOR or document.pointer)

    @cached_property
    def images(self) -> tuple[Document, ...]:
        """Those of them that describe an image processor."""
        nested = "/image_processor"
        return tuple(
            one for one in self.single if one.pointer == nested or one.string("image_processor_type") is not None
        )

    @cached_property
    def missing(self) -> str | None:
        """What in config.json says that images or sounds are taken, where no file says how; None otherwise.

        Code of the repository may do without: with an auto_map nothing is missing.
        """
        config = self._repository.config
        if config is None or self.files or "auto_map" in config:
            return None
        if self._repository.has("tekken.json"):  # mistral-common's tokenizer says how images and sounds are cut
            return None
        if media := next((name for name in config.architectures if _MEDIA.search(name)), None):
            return media
        return next((key for key in _TOWERS if config.mapping(key) is not None and _composed(config)), None)

    @cached_property
    def stale(self) -> tuple[Difference, ...]:
        """Fields that preprocessor_config.json and the object that wins over it have with different values."""
        return tuple(self._stale())

    def _stale(self) -> Iterator[Difference]:
        for key, nested in self._nested.items():
            beside = self._repository.document(_NESTED[key])
            for field in nested.raw if beside is not None else ():
                if beside is not None and field in beside and _differ(beside.raw[field], nested.raw[field]):
                    other = f"{nested.path} {nested.at(field)}"
                    yield Difference(beside.path, beside.at(field), beside.raw[field], other, nested.raw[field])

    @cached_property
    def mismatched(self) -> tuple[Difference, ...]:
        """Fields of the processor that config.json has with another value."""
        return tuple(self._mismatched())

    def _mismatched(self) -> Iterator[Difference]:
        config = self._repository.config
        nested = [] if config is None else [level for level in config.levels if level.pointer.endswith("vision_config")]
        vision = nested[0] if len(nested) == 1 else None  # of two, nothing says which one a processor is for
        of_vision = [(field, vision, name) for field, names in _SHARED.items() for name in names]
        of_model = [(field, config, name) for field, names in _OF_MODEL.items() for name in names]
        for document in self.documents:
            whole = document.path == PROCESSOR and not document.pointer
            counts = not whole or (document.string("processor_class") or "").startswith(_COUNTS_PATCHES)
            for field, level, name in (*(of_vision if counts else ()), *of_model):
                if level is not None and (difference := self._difference(document, field, level, name)) is not None:
                    yield difference

    def _difference(self, document: Document, field: str, level: Document, name: str) -> Difference | None:
        """Between a field, or what the class takes for it, and a field of config.json."""
        ours, theirs = document.raw.get(field), level.raw.get(name)
        if field not in document and self._repository.config is not None and "auto_map" not in self._repository.config:
            from repokit.repo.processor_classes import own_values  # which reads the words of this module

            ours = own_values(document).get(field)
        counts = document.string("processor_class") in _COUNTS_ALL and field == "vision_feature_select_strategy"
        alike = type(ours) is type(theirs) and isinstance(ours, int | list | str)
        if ours == theirs or not (alike or (counts and ours is None and theirs == "default")):
            return None
        place = document.at(field) if field in document else document.pointer
        return Difference(document.path, place, ours, f"{level.path} {level.at(name)}", theirs, field)


def _differ(one: object, other: object) -> bool:
    """Whether two values of one field are two; `XImageProcessorFast` is `XImageProcessor` to transformers 5."""
    if isinstance(one, str) and isinstance(other, str):
        return one.removesuffix("Fast") != other.removesuffix("Fast")
    return one != other


def _composed(config: Config) -> bool:
    """Whether the class is one that takes images or sounds: text-only classes may keep the whole family's config."""
    return not any(name.endswith("ForCausalLM") for name in config.architectures)
