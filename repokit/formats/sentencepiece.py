"""SentencePiece models: a protobuf message, read by its wire format without protobuf.

Field 1 of ModelProto is a piece {1 text, 2 score, 3 type} and stands once for each token, before all other fields
(google/sentencepiece sentencepiece_model.proto). Only counted here: which ids a model of transformers makes of the
pieces differs by family.
"""

from __future__ import annotations

from typing import Final

from repokit.errors import MalformedFile
from repokit.formats.signature import identify

_PIECE: Final = 0x0A  # field 1, wire type 2: a length and that many bytes


def count_pieces(data: bytes, path: str) -> int:
    """How many tokens the model has.

    Raises:
        MalformedFile: It is not a SentencePiece model, or cut off.
    """
    try:
        pieces = _count(data)
    except ValueError as error:
        pieces, what = 0, f"is no SentencePiece model: {error}"
    else:
        what = "is no SentencePiece model: it has no pieces"
    if pieces:
        return pieces
    guess = identify(data)
    raise MalformedFile(f"is {guess}" if guess else what, path=path)


def _count(data: bytes) -> int:
    position, pieces, end = 0, 0, len(data)
    while position < end:
        key = data[position]
        length = data[position + 1] if position + 1 < end else 0x80
        if key == _PIECE and length < 0x80:  # nearly every field of a real file
            position += 2 + length
        else:
            position = _skip(data, position)
        if position > end:
            raise ValueError("a field is longer than the file")
        pieces += key == _PIECE
    return pieces


def _skip(data: bytes, position: int) -> int:
    """Where the next field begins."""
    key, position = _varint(data, position)
    match key & 7:  # wire types 3 and 4 are groups, which no such file has
        case 0:
            return _varint(data, position)[1]
        case 1:
            return position + 8
        case 2:
            length, position = _varint(data, position)
            return position + length
        case 5:
            return position + 4
    raise ValueError(f"byte {position - 1:,} begins no field")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise ValueError("it ends in the middle of a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError(f"the number that ends at byte {position:,} is longer than ten bytes")
