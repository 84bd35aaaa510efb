"""added_tokens.json, and AddedToken, the object in which the tokenizer files spell a token out."""

from __future__ import annotations

from pydantic import ConfigDict, Field, RootModel

from repokit.schema.document import Document


class AddedToken(Document):
    """A token with the ways in which it is matched. Source: tokenizers AddedToken, transformers 5.23.

    The flags may be left out in tokenizer_config.json and special_tokens_map.json; not in tokenizer.json.
    """

    content: str = Field(description="The text of the token.")
    lstrip: bool | None = Field(None, description="Whether white space to its left belongs to it.")
    rstrip: bool | None = Field(None, description="Whether white space to its right belongs to it.")
    single_word: bool | None = Field(None, description="Whether it is matched only as a whole word.")
    normalized: bool | None = Field(None, description="Whether it is looked for in the normalized text.")
    special: bool | None = Field(None, description="Whether decoding leaves it out on demand.")


class AddedTokens(RootModel[dict[str, int]]):
    """added_tokens.json: token -> id. Read only where tokenizer_config.json has no added_tokens_decoder."""

    model_config = ConfigDict(strict=True, frozen=True)
