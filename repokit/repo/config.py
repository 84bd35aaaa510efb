"""config.json: what to build, with the sub-configs of composed models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from repokit.formats.tensors import TORCH_NAMES
from repokit.repo.document import Document

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG: Final = "config.json"

# Where the text model of a composed model keeps its config (transformers configuration_utils.py `get_text_config`,
# and the names that remote code uses for the same thing).
_TEXT_KEYS: Final = ("text_config", "text_encoder", "decoder", "generator", "llm_config", "language_config")

# Config keys that hold a token id of the text model. `image_token_index` and its kin are the older spelling.
TOKEN_ID_KEYS: Final = (
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "cls_token_id",
    "mask_token_id",
    "decoder_start_token_id",
    "image_token_id",
    "image_token_index",
    "video_token_id",
    "video_token_index",
    "audio_token_id",
    "audio_token_index",
    "vision_start_token_id",
    "vision_end_token_id",
    "boi_token_index",
    "eoi_token_index",
)


class Config(Document):
    """The whole config.json."""

    @property
    def model_type(self) -> str | None:
        return self.string("model_type")

    @property
    def architectures(self) -> tuple[str, ...]:
        return self.strings("architectures")

    @property
    def text(self) -> Document:
        """The config of the text model: this one, or the sub-config that composed models keep it in."""
        for key in _TEXT_KEYS:
            if (nested := self.mapping(key)) is not None:
                return nested
        return self

    @property
    def levels(self) -> Iterator[Document]:
        """This object, then every nested `*_config` object, outermost first."""
        pending: list[Document] = [self]
        while pending:
            level = pending.pop(0)
            yield level
            nested = (level.mapping(key) for key in level.raw if key.endswith("_config") or key in _TEXT_KEYS)
            pending.extend(document for document in nested if document is not None)

    @property
    def vocab_size(self) -> int | None:
        """Rows that the text model's embedding must have."""
        size = self.text.integer("vocab_size")
        return self.integer("vocab_size") if size is None else size

    @property
    def tie_word_embeddings(self) -> bool | None:
        """Whether the output head is the embedding; None where no level says so."""
        flag = self.flag("tie_word_embeddings")
        return self.text.flag("tie_word_embeddings") if flag is None else flag

    @property
    def dtype(self) -> str | None:
        """The declared dtype as a header spells it (`BF16`), from `dtype` or the older `torch_dtype`.

        `dtype` wins where both are present (transformers 5 configuration_utils.py).
        """
        for level in (self, self.text):
            for key in ("dtype", "torch_dtype"):
                if (name := level.string(key)) is not None:
                    return TORCH_NAMES.get(name)
        return None

    @property
    def quantization(self) -> Document | None:
        """`quantization_config` of this level or of the text model."""
        return self.mapping("quantization_config") or self.text.mapping("quantization_config")
