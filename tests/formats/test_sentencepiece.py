"""SentencePiece models, against the library where it is installed."""

from __future__ import annotations

import io
from contextlib import suppress

import pytest
from hypothesis import example, given, settings, strategies as st

from repokit.errors import MalformedFile
from repokit.formats.sentencepiece import count_pieces

PIECE = b"\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02"
LONG = b"\x0a\x8a\x01\x0a\x87\x01" + b"x" * 135
TRAINER = b"\x12\x02\x18\x02"


def test_pieces_are_counted() -> None:
    assert count_pieces(PIECE * 3 + LONG + TRAINER, "tokenizer.model") == 4


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "has no pieces"),
        (TRAINER, "has no pieces"),
        (b"<html>404</html>", "an HTML page"),
        (PIECE[:-1], "longer than the file"),
        (PIECE + b"\x0a", "in the middle of a number"),
        (b"\x0a\xff\xff\xff\xff\x0f", "longer than the file"),
        (b"\x0a" + b"\xff" * 11, "longer than ten bytes"),
        (PIECE + b"\x0b", "begins no field"),
        (b"\x00" * 20, "has no pieces"),
    ],
)
def test_what_is_no_model_says_why(content: bytes, what: str) -> None:
    with pytest.raises(MalformedFile, match=f"{what}|is zeros"):
        count_pieces(content, "tokenizer.model")


@settings(deadline=None)
@given(st.binary(max_size=60))
@example(PIECE * 2)
def test_any_bytes_are_a_model_or_malformed(content: bytes) -> None:
    with suppress(MalformedFile):
        assert count_pieces(content, "tokenizer.model") > 0


@pytest.mark.oracle
def test_a_real_model_has_as_many_pieces_as_the_library_says() -> None:
    library = pytest.importorskip("sentencepiece")
    written = io.BytesIO()
    sentences = [f"the quick brown fox jumps over lazy dog number {index}" for index in range(100)]
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=written, vocab_size=45, minloglevel=2, byte_fallback=False
    )
    processor = library.SentencePieceProcessor(model_proto=written.getvalue())
    assert count_pieces(written.getvalue(), "tokenizer.model") == processor.get_piece_size()
