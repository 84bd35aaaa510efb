"""tokenizer_config.json: which class reads the tokenizer, and with what defaults.

Source: transformers 5.23 tokenization_utils_base.py. Whether a token named here is in tokenizer.json, and whether its
class exists, are rules of the linter.
"""

from __future__ import annotations

from pydantic import Field

from repokit.schema.added_tokens import AddedToken
from repokit.schema.chat_template import ChatTemplates
from repokit.schema.special_tokens_map import SpecialTokens, Token


class TokenizerConfig(SpecialTokens):
    """tokenizer_config.json."""

    tokenizer_class: str | None = Field(None, description="A class of transformers; wins over config.json's.")
    processor_class: str | None = Field(None, description="Class of the whole processor.")
    auto_map: dict[str, str | list[str | None]] | list[str | None] | None = Field(
        None, description="AutoTokenizer -> [slow class, fast class] in this repository; a bare list in old files."
    )
    backend: str | None = Field(None, description="tokenizers, sentencepiece, ... (transformers 5).")
    model_max_length: float | None = Field(
        None, description="Tokens; about 1e30 means that no limit was set. A float in files of transformers 4."
    )
    padding_side: str | None = Field(None, description="left or right.")
    truncation_side: str | None = Field(None, description="left or right.")
    model_input_names: list[str] | None = Field(None, description="What a call returns: input_ids, attention_mask, ...")
    added_tokens_decoder: dict[str, AddedToken] | None = Field(
        None, description="Id, as a decimal string, -> token. Written by transformers 4 only."
    )
    extra_special_tokens: list[Token] | dict[str, Token] | None = Field(
        None, description="Special tokens without a role: a list, or name -> token."
    )
    chat_template: ChatTemplates | None = Field(None, description="chat_template.jinja wins over it.")
    response_template: str | None = Field(None, description="Template that takes an answer apart.")
    chat_control_tokens: list[str] | None = Field(None, description="Tokens that only a chat template may write.")
    clean_up_tokenization_spaces: bool | None = Field(
        None, description="Whether decoding removes blanks before punctuation."
    )
    split_special_tokens: bool | None = Field(None, description="Whether special tokens in a text are split.")
    add_bos_token: bool | None = Field(None, description="Ignored where there is a tokenizer.json.")
    add_eos_token: bool | None = Field(None, description="Ignored where there is a tokenizer.json.")
    add_prefix_space: bool | None = Field(None, description="Whether a blank is put before a text.")
    do_lower_case: bool | None = Field(None, description="Whether texts are put in lower case first.")
    use_default_system_prompt: bool | None = Field(None, description="Whether old Llama templates add a system prompt.")
    legacy: bool | None = Field(
        None, description="Whether tokens behind special ones are split as before transformers 4.31."
    )
