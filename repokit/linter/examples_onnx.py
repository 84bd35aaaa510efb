"""ONNX models of a few bytes for examples, written by hand: their library is not at hand."""

from __future__ import annotations


def onnx_model(*outside: tuple[str, int], inside: int = 4) -> bytes:
    """A graph that adds its weights up.

    Args:
        outside: For each tensor that lies in another file, that file and the number of bytes there.
        inside: The number of bytes of a tensor in this file.
    """
    tensors = b"".join(_field(5, _outside(f"w{number}", *where)) for number, where in enumerate(outside))
    own = _varint(1 << 3, 4) + _varint(2 << 3, 1) + _field(8, b"b") + _field(9, bytes(inside))
    node = _field(1, b"w0") + _field(1, b"b") + _field(2, b"y") + _field(4, b"Add")
    graph = _field(1, node) + _field(2, b"example") + _field(5, own) + tensors
    return _varint(1 << 3, 10) + _field(2, b"example") + _field(7, graph) + _field(8, _varint(2 << 3, 21))


def _outside(name: str, location: str, length: int) -> bytes:
    """A TensorProto of float32 whose data is elsewhere."""
    entries = {"location": location, "offset": "0", "length": str(length)}
    said = b"".join(_field(13, _field(1, key.encode()) + _field(2, value.encode())) for key, value in entries.items())
    return _varint(1 << 3, length // 4) + _varint(2 << 3, 1) + _field(8, name.encode()) + said + _varint(14 << 3, 1)


def _field(number: int, content: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(content)) + content


def _varint(key: int, value: int) -> bytes:
    return _number(key) + _number(value)


def _number(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))
