"""special_tokens_map.json: the role of each special token. Written by transformers 4, still read by 5.

Read only where tokenizer_config.json has no added_tokens_decoder, and then it wins over that file (transformers 5.23,
tokenization_utils_base.py).
"""

from __future__ import annotations

from typing import TypeAlias

from pydantic import Field

from repokit.schema.added_tokens import AddedToken
from repokit.schema.document import Document

Token: TypeAlias = str | AddedToken


class SpecialTokens(Document):
    """The named special tokens; the part that special_tokens_map.json and tokenizer_config.json share."""

    bos_token: Token | None = Field(None, description="Begins a text.")
    eos_token: Token | None = Field(None, description="Ends a text.")
    unk_token: Token | None = Field(None, description="Stands for what the vocabulary cannot spell.")
    sep_token: Token | None = Field(None, description="Separates two texts.")
    pad_token: Token | None = Field(None, description="Fills a batch.")
    cls_token: Token | None = Field(None, description="Its hidden state stands for the whole text.")
    mask_token: Token | None = Field(None, description="To be predicted.")
    additional_special_tokens: list[Token] | None = Field(None, description="Special tokens without a role.")


class SpecialTokensMap(SpecialTokens):
    """special_tokens_map.json."""
