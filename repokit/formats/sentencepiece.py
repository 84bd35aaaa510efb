"""SentencePiece models: a protobuf message, read by its wire format without protobuf.

Field 1 of ModelProto is a piece {1 text, 2 score, 3 type}; the position is the id that SentencePiece gives it
(google/sentencepiece sentencepiece_model.proto). Which ids a model of transformers makes of them differs by family.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from repokit.errors import MalformedFile
from repokit.formats.signature import identify

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PIECES: Final = 4_000_000  # the largest real vocabulary has about 262,000


def read_pieces(data: bytes, path: str) -> list[str]:
    """The text of every piece, in the order of their ids.

    Raises:
        MalformedFile: It is not a SentencePiece model.
    """
    try:
        pieces = [_text(piece) for number, piece in _fields(data) if number == 1 and isinstance(piece, bytes)]
    except (ValueError, IndexError) as error:
        guess = identify(data)
        raise MalformedFile(f"is {guess}" if guess else f"is no SentencePiece model: {error}", path=path) from None
    if not pieces or len(pieces) > MAX_PIECES:
        what = f"is no SentencePiece model: it has {len(pieces):,} pieces"
        raise MalformedFile(f"is {identify(data)}" if identify(data) else what, path=path)
    return pieces


def _text(piece: bytes) -> str:
    for number, value in _fields(piece):
        if number == 1 and isinstance(value, bytes):
            return value.decode("utf-8")
    return ""


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Number and value of each field; fixed ones as their bytes.

    Raises:
        ValueError: It ends in the middle of a field, or is no message.
    """
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        if key & 7 == 0:
            number, position = _varint(message, position)
            yield key >> 3, number
            continue
        length, position = _length(message, position, key & 7)
        if position + length > len(message):
            raise ValueError(f"a field at byte {position:,} is longer than the file")
        yield key >> 3, message[position : position + length]
        position += length


def _length(message: bytes, position: int, wire_type: int) -> tuple[int, int]:
    match wire_type:
        case 1:
            return 8, position
        case 2:
            return _varint(message, position)
        case 5:
            return 4, position
    raise ValueError(f"byte {position:,} begins no field")


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            raise ValueError("it ends in the middle of a number")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError(f"a number at byte {position:,} is longer than ten bytes")
