"""Vocabularies whose tokens are bytes: read as their libraries read them, spelled as tokenizer.json spells them."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import given, strategies as st

from repokit.errors import InputError, MalformedFile
from repokit.formats.byte_vocabularies import byte_level, tekken, tiktoken
from repokit.formats.strict_json import loads

TOKENS = st.dictionaries(st.binary(min_size=1, max_size=12), st.integers(0, 200_000), max_size=20)


def spelled(token: bytes) -> str:
    return base64.b64encode(token).decode()


@given(TOKENS)
def test_lines_of_tiktoken(tokens):
    content = "".join(f"{spelled(token)} {rank}\n" for token, rank in tokens.items()).encode()
    assert tiktoken(content, "x").tokens == tokens


@pytest.mark.parametrize("line", [b"IQ==", b"IQ== one", b"!! 0", b"IQ== 0 1", b"IQ 0"])
def test_a_line_that_is_none(line):
    with pytest.raises(MalformedFile) as malformed:
        tiktoken(b"IQ== 0\n" + line, "x")
    assert malformed.value.place == "line 2"


def test_special_tokens_of_tekken_come_first():
    raw = {
        "config": {"default_vocab_size": 4, "default_num_special_tokens": 2},
        "special_tokens": [{"rank": 0, "token_str": "<unk>"}, {"rank": 1, "token_str": "<s>"}],
        "vocab": [{"rank": number, "token_bytes": spelled(bytes([number]))} for number in range(3)],
    }
    assert tekken(raw, "x") == ({b"\x00": 2, b"\x01": 3}, {"<unk>": 0, "<s>": 1}, 4)


@given(st.text())
def test_what_is_no_tekken_is_an_input_error(text):
    with contextlib.suppress(InputError):
        raw = loads(f'{{"config": {{}}, "vocab": [{text}]}}'.encode(errors="replace"), "x")
        tekken(raw, "x")


def test_every_byte_is_spelled_as_the_library_spells_it():
    from tokenizers.pre_tokenizers import ByteLevel

    letters = {byte_level(bytes([byte])) for byte in range(256)}
    assert letters == set(ByteLevel.alphabet())


@given(st.text(min_size=1))
def test_a_text_is_spelled_as_the_library_spells_it(text):
    from tokenizers.pre_tokenizers import ByteLevel

    pieces = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    assert byte_level(text.encode()) == "".join(piece for piece, _ in pieces)
