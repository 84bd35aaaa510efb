"""PRC: what a whole processor is made of, and the tokens that stand for images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.processor import IMAGE_PROCESSOR
from repokit.printable import printable
from repokit.repo.processor import PREPROCESSOR, PROCESSOR, Processors
from repokit.repo.processor_classes import TABLE, classes_of, effective, known_name
from repokit.resources import packed

if TYPE_CHECKING:
    from repokit.repo.config import Config
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

SIGLIP: Final = {
    **IMAGE_PROCESSOR,
    "do_rescale": True,
    "image_processor_type": "SiglipImageProcessor",
    "resample": 3,
    "rescale_factor": 1 / 255,
}
LLAVA: Final = {
    "image_token": "<unk>",
    "num_additional_image_tokens": 1,
    "patch_size": 4,
    "processor_class": "LlavaProcessor",
    "vision_feature_select_strategy": "default",
}


class MissingProcessorPart(Rule):
    """A processor takes images or sounds, and what prepares them is in no file.

    AutoProcessor stops: it looks into processor_config.json and beside it, and finds no image processor or feature
    extractor.
    """

    code = "PRC170"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("the image processor was not saved", {PROCESSOR: LLAVA}),
        Example("it is null", {PROCESSOR: {"image_processor": None, "processor_class": "CLIPProcessor"}}),
    )
    good = (
        Example("nested", {PROCESSOR: {**LLAVA, "image_processor": SIGLIP}}),
        Example("in its own file", {PROCESSOR: LLAVA, PREPROCESSOR: SIGLIP}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        whole = repository.document(PROCESSOR)
        if whole is None or is_of_remote_code(repository, whole) or repository.has(PREPROCESSOR):
            return
        for part in absent_parts(whole):
            message = f"nests no {part}, which {printable(whole.string('processor_class'), 60)} is made of"
            hint = f"copy {PREPROCESSOR} of the base model"
            yield self.finding(PROCESSOR, message, place=whole.at(part) if part in whole else None, hint=hint)


def is_of_remote_code(repository: Repository, document: Document) -> bool:
    """Whether code of the repository reads a processor's file."""
    config = repository.config
    return "auto_map" in document or (config is not None and "auto_map" in config)


PARTS: Final = ("feature_extractor", "image_processor")  # a video processor is made of the image processor's settings


def absent_parts(whole: Document) -> Iterator[str]:
    """The parts of a whole processor's class that processor_config.json does not nest."""
    for part in packed(TABLE)["parts"].get(known_name(whole.string("processor_class")), ()):
        if part in PARTS and whole.mapping(part) is None:
            yield part
    if known_name(whole.string("processor_class")) is None:
        yield from (part for part in PARTS if part in whole and whole.raw[part] is None)


class UnknownMediaToken(Rule):
    """The token that stands for an image, a video or a sound is not in the vocabulary.

    The tokenizer cuts the placeholder into pieces, and the model finds no place for its features: "tokens: 0".
    """

    code = "PRC171"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("another spelling", {PROCESSOR: {**LLAVA, "image_processor": SIGLIP, "image_token": "<image>"}}),
        Example("no token", {PROCESSOR: {**LLAVA, "image_processor": SIGLIP, "image_token": None}}),
    )
    good = (Example("a token of the vocabulary", {PROCESSOR: {**LLAVA, "image_processor": SIGLIP}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        whole, tokenizer = repository.document(PROCESSOR), repository.tokenizer
        if whole is None or tokenizer is None or not tokenizer.ids or is_of_remote_code(repository, whole):
            return
        own = {key: value for name in classes_of(whole) for key, value in packed(TABLE)["defaults"][name].items()}
        for key in ("image_token", "video_token", "audio_token"):
            if key not in whole or key not in own:
                continue
            token = whole.raw[key]
            if token is None:
                yield self.finding(
                    PROCESSOR, f"is null; the class has {printable(own[key], 40)!r}", place=whole.at(key)
                )
            elif isinstance(token, str) and tokenizer.id_of(token) is None:
                message = f"is {printable(token, 40)!r}, which is no token of the vocabulary"
                yield self.finding(PROCESSOR, message, place=whole.at(key))


class MissingProcessorSetting(Rule):
    """A processor computes with a setting that no file gives, and that has no value of its own.

    The first image stops it: a size is divided by nothing.
    """

    code = "PRC172"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "the side of a patch",
            {PROCESSOR: {"image_processor": SIGLIP, "image_token": "<unk>", "processor_class": "LlavaProcessor"}},
        ),
        Example(
            "the number of tokens of an image",
            {PROCESSOR: {"image_processor": SIGLIP, "processor_class": "PaliGemmaProcessor"}},
        ),
    )
    good = (Example("every setting is there", {PROCESSOR: {**LLAVA, "image_processor": SIGLIP}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        whole = repository.document(PROCESSOR)
        if whole is None or is_of_remote_code(repository, whole):
            return
        for name in classes_of(whole):
            for key in packed(TABLE)["required"].get(name, ()):
                if whole.raw.get(key) is None:
                    yield self.finding(PROCESSOR, f"has no {key}, which {name} computes with", place=given(whole, key))
            for document in Processors(repository).images if name == "PaliGemmaProcessor" else ():
                if document.integer(LENGTH) is None:
                    message = f"has no {LENGTH} that is a number, which {name} computes with"
                    yield self.finding(document.path, message, place=given(document, LENGTH))


LENGTH: Final = "image_seq_length"


def given(document: Document, key: str) -> str | None:
    """The place of a key that is there, else of the object that lacks it."""
    return document.at(key) if key in document else document.pointer or None


class MismatchedImageTokens(Rule):
    """A processor writes another number of placeholders for an image than the encoder gives features.

    The model stops at every image: "Image features and image tokens do not match, tokens: 575, features: 576".
    """

    code = "PRC173"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "the class token of the encoder is not counted",
            {
                "config.json": {
                    "model_type": "llava",
                    "vision_config": {"model_type": "clip_vision_model", "image_size": 8, "patch_size": 4},
                },
                PROCESSOR: {**LLAVA, "image_processor": SIGLIP, "num_additional_image_tokens": 0},
            },
        ),
    )
    good = (
        Example(
            "an encoder without a class token",
            {
                "config.json": {
                    "model_type": "llava",
                    "vision_config": {"model_type": "siglip_vision_model", "image_size": 8, "patch_size": 4},
                },
                PROCESSOR: {**LLAVA, "image_processor": SIGLIP, "num_additional_image_tokens": 0},
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config, whole = repository.config, repository.document(PROCESSOR)
        if config is None or whole is None or is_of_remote_code(repository, whole):
            return
        for document, key, wanted in expected_counts(config, whole, Processors(repository).images):
            said = effective(document).get(key)
            if type(said) is int and said != wanted:
                message = f"has {key} {said:,}; the encoder of config.json asks for {wanted:,}"
                yield self.finding(document.path, message, place=given(document, key))


# Encoders whose first feature stands for the whole image, and those without (transformers 5.24 modeling_clip.py,
# modeling_siglip.py).
CLASS_TOKENS: Final = {"clip_vision_model": 1, "siglip_vision_model": 0}


IDEFICS: Final = frozenset({"Idefics3Processor", "SmolVLMProcessor"})


def expected_counts(
    config: Config, whole: Document, images: tuple[Document, ...]
) -> Iterator[tuple[Document, str, int]]:
    """Which object says a number of tokens, by which key, and which number it must be.

    Source: transformers 5.24 models/llava, models/paligemma, models/idefics3: processing_*.py, modeling_*.py.
    """
    vision: Any = config.mapping("vision_config")
    if vision is None:
        return
    size, patch = vision.integer("image_size"), vision.integer("patch_size")
    name = known_name(whole.string("processor_class"))
    if name == "LlavaProcessor" and (extra := CLASS_TOKENS.get(vision.string("model_type") or "")) is not None:
        yield whole, "num_additional_image_tokens", extra
    if not size or not patch or size < patch:
        return
    if name == "PaliGemmaProcessor":
        for document in images:
            yield document, LENGTH, (size // patch) ** 2
    if name in IDEFICS and config.model_type in {"idefics3", "smolvlm"}:
        yield from (
            (edge, "longest_edge", size) for one in images if (edge := one.mapping("max_image_size")) is not None
        )
    factor = config.integer("scale_factor")
    if name in IDEFICS and config.model_type in {"idefics3", "smolvlm"} and factor:
        yield whole, "image_seq_len", (size // patch) ** 2 // factor**2


RULES: Final[tuple[Rule, ...]] = (
    MissingProcessorPart(),
    UnknownMediaToken(),
    MissingProcessorSetting(),
    MismatchedImageTokens(),
)
