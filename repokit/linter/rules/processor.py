"""PRC: processors of images, videos and sounds."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from repokit.linter.examples import CARD, Change, Example, safetensors
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.token_ids import with_added, with_rows
from repokit.printable import count, printable
from repokit.repo.processor import CLASS_KEYS, PREPROCESSOR, PROCESSOR, Processors
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

IMAGE_PROCESSOR: Final[Mapping[str, Any]] = {
    "do_normalize": True,
    "do_resize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_processor_type": "ViTImageProcessor",
    "image_std": [0.5, 0.5, 0.5],
    "size": {"height": 8, "width": 8},
}
VIT_CONFIG: Final[Mapping[str, Any]] = {
    "architectures": ["ViTForImageClassification"],
    "dtype": "bfloat16",
    "hidden_size": 16,
    "image_size": 8,
    "intermediate_size": 24,
    "model_type": "vit",
    "num_attention_heads": 2,
    "num_channels": 3,
    "num_hidden_layers": 1,
    "patch_size": 4,
}


def _vit() -> bytes:
    block = "vit.encoder.layer.0."
    shapes = {
        "vit.embeddings.cls_token": (1, 1, 16),
        "vit.embeddings.position_embeddings": (1, 5, 16),
        "vit.embeddings.patch_embeddings.projection.weight": (16, 3, 4, 4),
        "vit.embeddings.patch_embeddings.projection.bias": (16,),
        **{f"{block}attention.attention.{name}.weight": (16, 16) for name in ("query", "key", "value")},
        **{f"{block}attention.attention.{name}.bias": (16,) for name in ("query", "key", "value")},
        f"{block}attention.output.dense.weight": (16, 16),
        f"{block}attention.output.dense.bias": (16,),
        f"{block}intermediate.dense.weight": (24, 16),
        f"{block}intermediate.dense.bias": (24,),
        f"{block}output.dense.weight": (16, 24),
        f"{block}output.dense.bias": (16,),
        **{f"{block}layernorm_{place}.{part}": (16,) for place in ("before", "after") for part in ("weight", "bias")},
        **{f"vit.layernorm.{part}": (16,) for part in ("weight", "bias")},
        "classifier.weight": (2, 16),
        "classifier.bias": (2,),
    }
    return safetensors({name: ("BF16", shape) for name, shape in shapes.items()})


def vit(processor: Change = IMAGE_PROCESSOR, **config: object) -> dict[str, Change]:
    """A change that makes the base an image classifier with this preprocessor_config.json."""
    from repokit.formats.strict_json import dumps

    gone = dict.fromkeys(("generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"))
    return {
        **gone,
        "README.md": CARD.replace("text-generation", "image-classification"),
        "config.json": dumps({**VIT_CONFIG, **config}),
        "model.safetensors": _vit(),
        PREPROCESSOR: processor,
    }


class MissingProcessor(Rule):
    """A model for images or sounds comes without the settings of its processor.

    AutoProcessor stops; whoever guesses sizes, means and sampling rates feeds the model what it was not trained on.
    """

    code = "PRC101"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a training checkpoint without its processor", vit(None)),)
    good = (
        Example("an image classifier with its settings", vit()),
        Example("the text-only member of a family", {"config.json": {"vision_config": {"hidden_size": 8}}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        if reason := Processors(repository).missing:
            message = f"has {printable(reason, 60)}, and there is no {PREPROCESSOR} or {PROCESSOR}"
            yield self.finding("config.json", message, hint="copy the processor files of the base model")


class UnknownProcessorClass(Rule):
    """A processor file names a class that transformers does not have.

    An unknown image processor stops the load; an unknown processor_class does not: AutoProcessor then gives the
    tokenizer alone, and images are dropped.
    """

    code = "PRC102"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("a misspelt class", vit({**IMAGE_PROCESSOR, "image_processor_type": "VitImageProcessor"})),
        Example("a class of the training code", vit({**IMAGE_PROCESSOR, "processor_class": "MyProcessor"})),
    )
    good = (
        Example("a name of transformers 4", vit({**IMAGE_PROCESSOR, "image_processor_type": "ViTImageProcessorFast"})),
        Example(
            "a class of another library",
            {
                **vit({**IMAGE_PROCESSOR, "processor_class": "ColProcessor"}),
                "README.md": CARD.replace("library_name: transformers", "library_name: colpali").replace(
                    "text-generation", "image-classification"
                ),
            },
        ),
        Example(
            "a model_type that is newer than we are",
            vit({"image_processor_type": "NewImageProcessor"}, model_type="new_vit"),
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        table = data("processor_classes")
        if repository.config is None or not _model_type_is_known(repository) or _of_another_library(repository):
            return
        for document in Processors(repository).documents:
            for key in (*CLASS_KEYS, "processor_class") if "auto_map" not in document else ():
                name = document.string(key)
                if name is not None and not _is_known(name, table["ids"]):
                    near = difflib.get_close_matches(name, table["ids"], n=1, cutoff=0.85)
                    message = f"names the class {printable(name, 60)!r}, which {table['source']} does not have"
                    hint = f"did you mean {near[0]}?" if near else None
                    yield self.finding(document.path, message, place=document.at(key), hint=hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.tokenizer import processor_class

        return processor_class(repository, finding)


class UntypedProcessor(Rule):
    """A processor file does not name its class, and nothing else tells it.

    AutoImageProcessor and AutoFeatureExtractor stop: "Unrecognized image processor".
    """

    code = "PRC103"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "settings alone",
            {**vit({"size": {"height": 8, "width": 8}}), "config.json": None, "model.safetensors": None},
        ),
    )
    good = (Example("settings with their class", vit()),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        if repository.config is None and not _of_another_library(repository):
            for document in _untyped(repository):
                yield self.finding(document.path, "names no class", place=document.pointer or None)


class ImplicitProcessor(Rule):
    """A processor file does not name its class.

    transformers takes the one that belongs to the model_type; readers without that table cannot tell.
    """

    code = "PRC201"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("settings alone", vit({"size": {"height": 8, "width": 8}})),)
    good = (Example("settings with their class", vit()),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        if repository.config is not None and _model_type_is_known(repository):
            for document in _untyped(repository):
                message = f"names no class: {', '.join(CLASS_KEYS[:2])} and their kin are absent"
                yield self.finding(document.path, message, place=document.pointer or None)


class MismatchedMediaToken(Rule):
    """The id of an image, video or audio token in config.json is not the one that the tokenizer gives it.

    The model finds no placeholder to put its features at: "tokens: 0, features: 187".
    """

    code = "PRC104"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example(
            "the id of another token",
            {"config.json": {"image_token_id": 4}, "tokenizer_config.json": {"image_token": "<unk>"}},
        ),
        Example(
            "a token that only its name tells",
            {"config.json": {"image_token_id": 31}, "tokenizer.json": with_added("<image>", 32), **with_rows(64)}
            | {"config.json": {"image_token_id": 31, "vocab_size": 64}},
        ),
    )
    good = (
        Example(
            "the same id", {"config.json": {"image_token_index": 5}, "tokenizer_config.json": {"image_token": "<unk>"}}
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config, tokenizer = repository.config, repository.tokenizer
        if config is None or tokenizer is None:
            return
        for kind in ("image", "video", "audio"):
            token = media_token(repository, kind)
            number = None if token is None else tokenizer.id_of(token)
            for key in (f"{kind}_token_id", f"{kind}_token_index"):
                said = config.integer(key)
                if number is not None and said is not None and said != number:
                    message = f"has {key} {said}; the tokenizer's {printable(token, 40)!r} is {number}"
                    yield self.finding(config.path, message, place=config.at(key))

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.token_ids import media_token

        return media_token(repository, finding)


class StaleProcessor(Rule):
    """preprocessor_config.json differs from what processor_config.json nests.

    transformers 5 reads the nested values, transformers 4 and most servers the file: two models out of one repository.
    """

    code = "PRC202"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "the file of the base model stayed",
            {**vit(), PROCESSOR: {"image_processor": {**IMAGE_PROCESSOR, "image_mean": [0.48, 0.46, 0.41]}}},
        ),
    )
    good = (Example("the same twice", {**vit(), PROCESSOR: {"image_processor": IMAGE_PROCESSOR}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        if stale := Processors(repository).stale:
            fields = [difference.place for difference in stale]
            message = f"differs in {count(len(stale), 'field')} from {stale[0].other}"
            yield self.finding(stale[0].path, message, place=stale[0].place, names=fields)


class MismatchedProcessor(Rule):
    """A processor cuts images in another way than config.json says that the model was built for.

    The processor of the base model was copied, and training had changed it: features land in the wrong places.
    """

    code = "PRC203"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "another grid than in training",
            vit({**IMAGE_PROCESSOR, "image_grid_pinpoints": [[8, 8]]}, image_grid_pinpoints=[[8, 16]]),
        ),
        Example(
            "another number of tokens for an image",
            {
                "config.json": {"mm_tokens_per_image": 64, "vision_config": {"patch_size": 4}},
                "processor_config.json": {"image_seq_length": 256, "processor_class": "Gemma3Processor"},
                PREPROCESSOR: IMAGE_PROCESSOR,
            },
        ),
        Example(
            "patches of another size",
            {
                "config.json": {"vision_config": {"patch_size": 14}},
                "processor_config.json": {"patch_size": 16, "processor_class": "LlavaProcessor"},
                PREPROCESSOR: IMAGE_PROCESSOR,
            },
        ),
    )
    good = (
        Example(
            "the same grid", vit({**IMAGE_PROCESSOR, "image_grid_pinpoints": [[8, 8]]}, image_grid_pinpoints=[[8, 8]])
        ),
        Example(
            "the side of four patches",
            {
                "config.json": {"vision_config": {"patch_size": 14}},
                "processor_config.json": {"patch_size": 28, "processor_class": "AyaVisionProcessor"},
                PREPROCESSOR: IMAGE_PROCESSOR,
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for difference in Processors(repository).mismatched:
            field, value = difference.field, printable(difference.value, 60)
            said = f"has {value}" if difference.place.endswith(f"/{field}") else f"has no {field}, which means {value}"
            message = f"{said}; {difference.other} has {printable(difference.other_value, 60)}"
            yield self.finding(difference.path, message, place=difference.place or None)


RULES: Final = (
    MissingProcessor(),
    UnknownProcessorClass(),
    UntypedProcessor(),
    MismatchedMediaToken(),
    ImplicitProcessor(),
    StaleProcessor(),
    MismatchedProcessor(),
)


# How families write the placeholder, where no file says which token it is (transformers 5.24 models/*/processing_*.py).
PLACEHOLDERS: Final = {
    "image": ("<image>", "<|image_pad|>", "<|image|>", "<image_soft_token>", "<|image_1|>", "[IMG]", "<img>"),
    "video": ("<video>", "<|video_pad|>", "<|video|>"),
    "audio": ("<audio>", "<|AUDIO|>", "<|audio|>", "<audio_soft_token>", "<|audio_pad|>"),
}

OF_KIND: Final = {
    "image": ("image", "img", "vision", "patch", "media"),
    "video": ("video", "vision", "frame", "media"),
    "audio": ("audio", "sound", "speech", "media"),
}


def media_token(repository: Repository, kind: str) -> str | None:
    """The token that stands for an image, a video or a sound: as a file names it, or the only one of that name.

    A name tells only where the token that config.json points at is not of the same kind by its own name.
    """
    tokenizer, config, whole = repository.tokenizer, repository.config, repository.document(PROCESSOR)
    if tokenizer is None or config is None:
        return None
    if named := tokenizer.roles.get(f"{kind}_token"):
        return named.content
    if whole is not None and (token := whole.string(f"{kind}_token")) is not None:
        return token
    pointed = config.integer(f"{kind}_token_id") or config.integer(f"{kind}_token_index")
    owners = [token for token, number in tokenizer.ids.items() if number == pointed]
    named_so = [token for token in PLACEHOLDERS[kind] if token in tokenizer.ids]
    of_kind = any(word in owner.lower() for owner in owners for word in OF_KIND[kind])
    return named_so[0] if owners and not of_kind and len(named_so) == 1 else None


def _model_type_is_known(repository: Repository) -> bool:
    """Whether the names of its classes can be judged; those of a newer model_type, or of remote code, cannot."""
    config = repository.config
    return config is None or ("auto_map" not in config and config.model_type in data("model_types")["model_types"])


def _of_another_library(repository: Repository) -> bool:
    """Whether the card says that something else than transformers loads it."""
    card = repository.card
    return card is not None and card.library_name not in {None, "transformers"}


def _untyped(repository: Repository) -> Iterator[Document]:
    for document in Processors(repository).single:
        named = any(document.raw.get(key) is not None for key in (*CLASS_KEYS, "auto_map"))
        if document.raw and not named and set(document.raw) != {"processor_class"}:
            yield document


def _is_known(name: str, known: list[str]) -> bool:
    """Whether transformers has the class, or takes it for one that it has (image_processing_auto.py)."""
    stem = name.removesuffix("Fast").removesuffix("Pil")
    return not {name, stem, stem.replace("FeatureExtractor", "ImageProcessor")}.isdisjoint(known)
