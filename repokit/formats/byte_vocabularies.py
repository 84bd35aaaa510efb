"""Vocabularies whose tokens are bytes: tiktoken's lines and Mistral's tekken.json, and how tokenizer.json spells them.

tiktoken    a base64 token and its rank, which is its id, on each line (tiktoken/load.py `load_tiktoken_bpe`)
tekken      {config, vocab: [{rank, token_bytes}], special_tokens: [{rank, token_str}]}; special tokens come first, so
            that an id is the rank plus their number (mistral_common/tokens/tokenizers/tekken.py)
"""

from __future__ import annotations

import binascii
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from repokit.errors import MalformedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class ByteVocabulary(NamedTuple):
    """A vocabulary.

    Attributes:
        tokens: Id of every ordinary token.
        special: Id of every special token; empty where the file has none.
        size: How many ids there are, special ones included; None where the file does not say.
    """

    tokens: Mapping[bytes, int]
    special: Mapping[str, int]
    size: int | None


def tiktoken(content: bytes, path: str) -> ByteVocabulary:
    """The tokens of a tiktoken file.

    Raises:
        MalformedFile: A line is no base64 token and its rank.
    """
    tokens: dict[bytes, int] = {}
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            text, rank = line.split()
            tokens[binascii.a2b_base64(text, strict_mode=True)] = int(rank)
        except ValueError:  # binascii.Error is one
            raise MalformedFile("is no base64 token and its rank", path=path, place=f"line {number}") from None
    return ByteVocabulary(tokens, {}, None)


def tekken(raw: Mapping[str, Any], path: str) -> ByteVocabulary:
    """The tokens of a parsed tekken.json, as far as its readers take them.

    Raises:
        MalformedFile: It has no vocabulary, or a token in it is none.
    """
    config, vocabulary = raw.get("config"), raw.get("vocab")
    if not isinstance(config, dict) or not isinstance(vocabulary, list):
        raise MalformedFile("has no config and vocab", why="no text can be tokenized", path=path)
    size, first = config.get("default_vocab_size"), config.get("default_num_special_tokens")
    size, first = size if type(size) is int else None, first if type(first) is int else 0
    ordinary = vocabulary if size is None else vocabulary[: max(0, size - first)]
    special = raw.get("special_tokens")
    return ByteVocabulary(
        dict(_tekken_tokens(ordinary, first, path)), dict(_specials(special if isinstance(special, list) else ())), size
    )


def _tekken_tokens(vocabulary: Iterable[object], first: int, path: str) -> Iterable[tuple[bytes, int]]:
    for number, entry in enumerate(vocabulary):
        match entry:
            case {"rank": int() as rank, "token_bytes": str() as spelled} if spelled.isascii():
                try:
                    yield binascii.a2b_base64(spelled, strict_mode=True), rank + first
                    continue
                except binascii.Error:
                    pass
        raise MalformedFile("is no token: a rank, and bytes in base64", path=path, place=f"/vocab/{number}")


def _specials(entries: Iterable[object]) -> Iterable[tuple[str, int]]:
    for entry in entries:
        match entry:
            case {"rank": int() as rank, "token_str": str() as text}:
                yield text, rank


def byte_level(token: bytes) -> str:
    """A token as the vocabulary of a byte-level tokenizer.json spells it: `Ġthe` for ` the`."""
    return token.decode("latin-1").translate(_alphabet())


# Bytes that stand for themselves (gpt-2 encoder.py `bytes_to_unicode`); the others get letters from 256 on.
_PLAIN: Final = (range(0x21, 0x7F), range(0xA1, 0xAD), range(0xAE, 0x100))


@cache
def _alphabet() -> Mapping[int, str]:
    plain = {byte for span in _PLAIN for byte in span}
    others = (byte for byte in range(256) if byte not in plain)
    return {byte: chr(256 + number) for number, byte in enumerate(others)}
