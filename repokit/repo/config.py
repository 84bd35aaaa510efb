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

# Keys of objects in config.json that describe no further model.
_NO_MODELS: Final = frozenset({"quantization_config", "compression_config"})

# Rows that a family's code adds to the vocabulary (transformers 5.24 models/*/modeling_*.py, nn.Embedding).
_EXTRA_ROWS: Final = {"mllama": 8, "mllama_text_model": 8, "moshi": 1}

# Speech models whose embedding holds text and codebooks together, and a decoder of actions without a text at all.
_SEVERAL_VOCABULARIES: Final = frozenset({"csm", "kyutai_speech_to_text", "decision_transformer"})

# How families call the number of blocks in their one stack.
_LAYER_KEYS: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")

# How families call the number of experts of a layer.
_EXPERT_KEYS: Final = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")

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
            keys = (key for key in level.raw if key.endswith("_config") or key in _TEXT_KEYS)
            nested = (level.mapping(key) for key in keys if key not in _NO_MODELS)
            pending.extend(document for document in nested if document is not None)

    @property
    def composed(self) -> bool:
        """Whether it describes more than one stack: an encoder and a decoder, or models inside the model."""
        return self.flag("is_encoder_decoder") is True or len(list(self.levels)) > 1

    @property
    def layers(self) -> int | None:
        """Blocks of the one stack of a model that is not composed; None where they are counted by stage (`depths`)."""
        if "depths" in self:
            return None
        return next((number for key in _LAYER_KEYS if (number := self.integer(key)) is not None), None)

    @property
    def experts(self) -> int | None:
        """Experts in a layer of the text model, where all layers have the same number of them."""
        return next((number for key in _EXPERT_KEYS if (number := self.text.integer(key)) is not None), None)

    @property
    def labels(self) -> int:
        """Classes of a classifier: `num_labels` wins over `id2label`, and without both there are two.

        Transformers 5 configuration_utils.py `__post_init__`.
        """
        names = self.mapping("id2label")
        return self.integer("num_labels") or (2 if names is None else len(names.raw))

    @property
    def embedding_rows(self) -> tuple[int, ...]:
        """How many rows the text model's embedding may have; () where config.json does not say. The most come last."""
        size = self.vocab_size
        if size is None or size < 1 or self.model_type in _SEVERAL_VOCABULARIES:
            return ()
        size += max(_EXTRA_ROWS.get(level.model_type or "", 0) for level in (self, Config(self.path, self.text.raw)))
        more = self.text.integer("additional_vocab_size") or self.integer("additional_vocab_size") or 0
        return tuple(sorted({size, size + more}))

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
        name = self._declared_dtype[0]
        return None if name is None else TORCH_NAMES.get(name)

    @property
    def dtype_place(self) -> str | None:
        """The JSON Pointer of the value behind `dtype`."""
        return self._declared_dtype[1]

    @property
    def _declared_dtype(self) -> tuple[str | None, str | None]:
        for level in (self, self.text):
            for key in ("dtype", "torch_dtype"):
                if (name := level.string(key)) is not None:
                    return name, level.at(key)
        return None, None

    @property
    def quantization(self) -> Document | None:
        """`quantization_config` of this level or of the text model."""
        return self.mapping("quantization_config") or self.text.mapping("quantization_config")
