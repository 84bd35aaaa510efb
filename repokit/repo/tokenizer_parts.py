"""The steps of a tokenizer.json around its vocabulary: before it, and back from its tokens to a text."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.repo.document import Document
    from repokit.repo.repository import Repository
    from repokit.repo.tokenizer import Tokenizer

SPACE: Final = "\u2581"  # how SentencePiece writes a space
BYTE_SPACE: Final = "\u0120"  # how a byte-level vocabulary writes one
# The lists in which a Sequence holds its steps (tokenizers 0.23 normalizers, pre_tokenizers, processors, decoders).
_LISTS: Final = ("normalizers", "pretokenizers", "processors", "decoders")
# Tokens that begin with a mark: fewer may do so for another reason.
FEW: Final = 10


class TokenizerParts:
    """The steps of one tokenizer.json.

    Attributes:
        model: The algorithm and its settings.
        vocabulary: Token to id, added tokens aside.
    """

    def __init__(self, tokenizer: Tokenizer, document: Document, model: Document) -> None:
        self._document = document
        self.tokenizer = tokenizer
        self.model = model
        self.vocabulary: Mapping[str, int] = tokenizer.vocabulary

    @classmethod
    def of(cls, repository: Repository) -> TokenizerParts | None:
        """The steps of tokenizer.json; None where there is none."""
        tokenizer = repository.tokenizer
        document = None if tokenizer is None else tokenizer.document
        model = None if document is None else document.mapping("model")
        return None if tokenizer is None or document is None or model is None else cls(tokenizer, document, model)

    def place(self, key: str) -> str:
        """The JSON Pointer of a step."""
        return self._document.at(key)

    def steps(self, key: str) -> tuple[Document, ...]:
        """`pre_tokenizer`, or another of the four: its steps in their order, sequences unfolded."""
        outermost = self._document.mapping(key)
        return () if outermost is None else tuple(_unfolded(outermost))

    def types(self, key: str) -> frozenset[str]:
        """The kinds of those steps."""
        return frozenset(step.string("type") or "" for step in self.steps(key))

    @property
    def is_typed(self) -> bool:
        """Whether every step says of which kind it is: those of old files are guessed by their keys."""
        keys = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
        return not any("" in self.types(key) for key in keys)

    @cached_property
    def is_byte_level(self) -> bool:
        """Whether the vocabulary spells bytes as letters, with one for the space."""
        if BYTE_SPACE not in self.vocabulary or SPACE in self.vocabulary:
            return False
        has_step = self.decodes_bytes or self.encodes_bytes
        return has_step or sum(token.startswith(BYTE_SPACE) for token in self.vocabulary) >= FEW

    @property
    def decodes_bytes(self) -> bool:
        return "ByteLevel" in self.types("decoder")

    @property
    def encodes_bytes(self) -> bool:
        return "ByteLevel" in self.types("pre_tokenizer") | self.types("normalizer")

    @cached_property
    def marks_spaces(self) -> bool:
        """Whether the vocabulary is one of SentencePiece, in which U+2581 stands for a space."""
        return SPACE in self.vocabulary and sum(token.startswith(SPACE) for token in self.vocabulary) >= FEW

    @property
    def writes_spaces(self) -> bool:
        """Whether a step makes U+2581 of the spaces of a text."""
        replaced = (step for step in self.steps("normalizer") if step.raw.get("content") == SPACE)
        return any(_of_string(step) in {" ", None} for step in replaced) or "Metaspace" in self.types("pre_tokenizer")

    @property
    def reads_spaces(self) -> bool:
        """Whether a step makes spaces of U+2581 again."""
        replaced = (step for step in self.steps("decoder") if _of_string(step) == SPACE)
        return "Metaspace" in self.types("decoder") or any(step.raw.get("content") == " " for step in replaced)

    @property
    def prepended(self) -> str | None:
        """What the normalizer puts before every text; None where another step may do it."""
        if "Metaspace" in self.types("pre_tokenizer") | self.types("decoder"):
            return None
        return "".join(step.string("prepend") or "" for step in self.steps("normalizer"))

    @property
    def stripped(self) -> int:
        """How many spaces the decoder takes away from the beginning of every text."""
        return sum(step.integer("start") or 0 for step in self.steps("decoder") if step.string("type") == "Strip")

    @cached_property
    def byte_tokens(self) -> int:
        """How many of the 256 tokens `<0x00>` to `<0xFF>` there are."""
        return sum(f"<0x{number:02X}>" in self.tokenizer.ids for number in range(256))


def _of_string(step: Document) -> str | None:
    """What a `Replace` looks for."""
    pattern = step.mapping("pattern")
    return None if pattern is None else pattern.string("String")


def _unfolded(step: Document) -> Iterator[Document]:
    inner = [one for key in _LISTS for one in step.objects(key)]
    if not inner:
        yield step
    for one in inner:
        yield from _unfolded(one)
