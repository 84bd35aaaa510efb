"""tokenizer.json: the outer shape, as the tokenizers library deserialises it.

Source: tokenizers 0.23.3 src/tokenizer/serialization.rs, and what it does with files that break these rules (measured).
The vocabulary and the merges are looked at from outside only: they can hold a million entries. Which `type` a
component may have, and whether ids and tokens fit together, are rules of the linter.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import ConfigDict, Field

from repokit.schema.added_tokens import AddedToken
from repokit.schema.document import Document, LargeList, only


class TokenizerAddedToken(AddedToken):
    """An entry of `added_tokens`. The library refuses an entry without its flags."""

    id: int = Field(ge=0, description="Not honoured: a token that is not in the vocabulary gets the next free id.")
    lstrip: bool = Field(description="Whether it takes in the white space before it.")
    rstrip: bool = Field(description="Whether it takes in the white space behind it.")
    single_word: bool = Field(description="Whether it matches whole words only.")
    normalized: bool = Field(description="Whether it is looked for in the normalised text.")
    special: bool = Field(description="Whether decoding may leave it out.")


class Truncation(Document):
    """A truncation baked into the file: it cuts every text that is encoded."""

    direction: str | None = Field(None, description="Left or Right; Right where absent.")
    max_length: int = Field(ge=0, description="Tokens.")
    strategy: str = Field(description="LongestFirst, OnlyFirst or OnlySecond.")
    stride: int = Field(ge=0, description="Tokens that two pieces of an overflowing text share.")


class Padding(Document):
    """A padding baked into the file: it fills every text that is encoded."""

    strategy: str | dict[str, int] = Field(description='"BatchLongest" or {"Fixed": tokens}.')
    direction: str = Field(description="Left or Right.")
    pad_to_multiple_of: int | None = Field(None, ge=0, description="Tokens.")
    pad_id: int = Field(ge=0, description="Not checked against the vocabulary.")
    pad_type_id: int = Field(ge=0)
    pad_token: str = Field(description="The token that fills a batch.")


class Component(Document):
    """A normalizer, pre-tokenizer, post-processor or decoder. Old files name no `type`, and the library guesses it."""

    type: str | None = Field(None, description="The variant: BertNormalizer, ByteLevel, Sequence, ...")


Vocabulary: TypeAlias = Annotated[dict[str, Any] | list[Any], only(dict, list, expected="an object or a list")]


class TokenizerModel(Document):
    """The algorithm with its vocabulary."""

    type: str | None = Field(None, description="BPE, WordPiece, WordLevel or Unigram; guessed where absent.")
    vocab: Vocabulary = Field(description="Token -> id; a list of [piece, score] in Unigram. Not walked.")
    merges: LargeList | None = Field(None, description="Pairs [left, right], or `left right` in old files. Not walked.")
    unk_token: str | None = Field(None, description="The token of what is not in the vocabulary.")
    unk_id: int | None = Field(None, description="Index into the vocabulary (Unigram).")
    dropout: float | None = Field(None, description="0 to 1.")
    continuing_subword_prefix: str | None = Field(None, description="What tokens inside a word begin with: `##`.")
    end_of_word_suffix: str | None = Field(None, description="What tokens at the end of a word end with: `</w>`.")
    fuse_unk: bool | None = Field(None, description="Whether neighbouring unknown tokens become one.")
    byte_fallback: bool | None = Field(None, description="Whether unknown characters become tokens of their bytes.")
    ignore_merges: bool | None = Field(None, description="Whether words of the vocabulary are taken whole.")
    max_input_chars_per_word: int | None = Field(None, ge=0, description="Characters.")


class Tokenizer(Document):
    """tokenizer.json. Closed: the library refuses a file with any other key at this level."""

    model_config = ConfigDict(extra="forbid")

    version: str = Field("1.0", description="1.0; another value is refused.")
    truncation: Truncation | None = Field(None, description="How inputs are cut off; null for not at all.")
    padding: Padding | None = Field(None, description="How batches are filled; null for not at all.")
    added_tokens: list[TokenizerAddedToken] = Field(default=[], description="In the order in which they get ids.")
    normalizer: Component | None = Field(None, description="What changes a text before it is split.")
    pre_tokenizer: Component | None = Field(None, description="What splits a text into words.")
    post_processor: Component | None = Field(None, description="What adds special tokens.")
    decoder: Component | None = Field(None, description="What turns tokens into a text.")
    model: TokenizerModel = Field(description="What splits words into tokens.")
