"""ONNX models: which other files hold their tensors. Protobuf messages, read by their wire format without protobuf.

Field numbers are those of onnx/onnx.proto. The graph is walked once, window by window; weights inside the file are
stepped over, so that a model of gigabytes costs a few reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from repokit.errors import LimitExceeded, MalformedFile
from repokit.formats.signature import identify

Read = Callable[[int, int], bytes]  # bytes from an offset, as many as a length

WINDOW: Final = 256 * 1024
_SMALL: Final = 64 * 1024  # a message above holds weights, or other messages with them
# Exporters move every tensor above a threshold out of the file, or none: after so many that were left inside, the rest
# is not walked.
_MOST_INSIDE: Final = 32
_MOST_FIELDS: Final = 1_000_000
_DEEPEST: Final = 16  # graphs in attributes of nodes in graphs ...

_LOCATION: Final = b"location"  # the key that every tensor with its data elsewhere has


class External(NamedTuple):
    """A tensor whose data lies in another file.

    Attributes:
        name: Of the tensor.
        location: Path of the file, relative to the folder of the model.
        end: How many bytes that file must have at least; None where the model does not say.
    """

    name: str
    location: str
    end: int | None


class _Field(NamedTuple):
    number: int
    start: int  # of its value
    end: int
    value: int  # of a number; 0 for all others


def external_tensors(read: Read, size: int, path: str) -> tuple[External, ...]:
    """The tensors of a model whose data lies in other files.

    Args:
        read: Gives a range of the file.
        size: Of the file, in bytes.
        path: How errors call it.

    Raises:
        MalformedFile: It is no ONNX model, or cut off.
        LimitExceeded: It has more parts, or more levels, than any real one.
    """
    model = _Model(read, size, path)
    return tuple(model.tensors())


class _Model:
    def __init__(self, read: Read, size: int, path: str) -> None:
        self._read = read
        self._size = size
        self._path = path
        self._window = b""
        self._begin = 0
        self._fields = 0
        self._inside = 0

    def tensors(self) -> Iterator[External]:
        """Of the graph (7) and of the functions (25) of a ModelProto, which has at least one of them."""
        seen = set()
        for field in self._walk(0, self._size):
            seen.add(field.number)
            if field.number in {7, 25}:
                yield from self._graph(field, 0, node=1 if field.number == 7 else 7)
        if 1 not in seen or not seen & {7, 20, 25}:  # 1: the version of the format; 20: a training graph
            raise self._malformed("it has no graph")

    def _graph(self, graph: _Field, depth: int, *, node: int = 1) -> Iterator[External]:
        """Nodes of a GraphProto (1) or a FunctionProto (7); initializers (5) and sparse ones (15) of a graph."""
        if depth > _DEEPEST:
            raise LimitExceeded("nests graphs deeper than any real model", path=self._path)
        for field in self._walk(graph.start, graph.end):
            if field.number == node:
                yield from self._attributes(field, depth)
            elif field.number == 5 and node == 1:
                yield from self._tensor(field)
            elif field.number == 15 and node == 1:
                for part in self._walk(field.start, field.end):
                    yield from self._tensor(part)
            if self._inside > _MOST_INSIDE:
                return

    def _attributes(self, node: _Field, depth: int) -> Iterator[External]:
        """Tensors (5, 10) and graphs (6, 11) in the attributes (5) of a NodeProto."""
        if not self._may_point_elsewhere(node):
            return
        for attribute in self._walk(node.start, node.end):
            if attribute.number != 5:
                continue
            for field in self._walk(attribute.start, attribute.end):
                if field.number in {5, 10} and field.end > field.start:
                    yield from self._tensor(field)
                elif field.number in {6, 11} and field.end > field.start:
                    yield from self._graph(field, depth + 1)

    def _tensor(self, tensor: _Field) -> Iterator[External]:
        """A TensorProto: name (8), entries that say where its data is (13), whether that is elsewhere (14)."""
        if tensor.end - tensor.start > _SMALL:
            self._inside += 1
            return
        if not self._may_point_elsewhere(tensor):
            return
        name, entries, elsewhere = "", {}, False
        for field in self._walk(tensor.start, tensor.end):
            if field.number == 8:
                name = self._text(field)
            elif field.number == 13:
                parts = {part.number: self._text(part) for part in self._walk(field.start, field.end)}
                entries[parts.get(1, "")] = parts.get(2, "")
            elif field.number == 14:
                elsewhere = field.value == 1
        if elsewhere and (location := entries.get("location")):
            yield External(name, location, _end(entries))

    def _may_point_elsewhere(self, field: _Field) -> bool:
        """Whether a small message has the key of a location in it; of a large one that is not looked for."""
        return field.end - field.start > _SMALL or _LOCATION in self._bytes(field.start, field.end)

    # ---------------------------------------------------------------- the wire format

    def _walk(self, position: int, end: int) -> Iterator[_Field]:
        """The fields of a message."""
        while position < end:
            self._fields += 1
            if self._fields > _MOST_FIELDS:
                raise LimitExceeded(f"has more than {_MOST_FIELDS:,} parts", path=self._path)
            key, start = self._varint(position, end)
            value, number = 0, key >> 3
            match key & 7:  # wire types 3 and 4 are groups, which onnx.proto does not have
                case 0:
                    value, stop = self._varint(start, end)
                case 1:
                    stop = start + 8
                case 2:
                    length, start = self._varint(start, end)
                    stop = start + length
                case 5:
                    stop = start + 4
                case _:
                    raise self._malformed(f"byte {position:,} begins no field")
            if stop > end or not number:
                raise self._malformed(f"the field at byte {position:,} is longer than what it is in")
            yield _Field(number, start, stop, value)
            position = stop

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 70, 7):
            if position >= end:
                raise self._malformed(f"it ends in the middle of a number at byte {position:,}")
            byte = self._bytes(position, position + 1)[0]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
        raise self._malformed(f"the number that ends at byte {position:,} is longer than ten bytes")

    def _text(self, field: _Field) -> str:
        return self._bytes(field.start, min(field.end, field.start + _SMALL)).decode("utf-8", "replace")

    def _bytes(self, start: int, end: int) -> bytes:
        """A range of at most _SMALL bytes; from the window that was read last where it is in there."""
        if start < self._begin or end > self._begin + len(self._window):
            self._begin, self._window = start, self._read(start, min(WINDOW, self._size - start))
            if len(self._window) < end - start:
                raise self._malformed("it is cut off")
        return self._window[start - self._begin : end - self._begin]

    def _malformed(self, what: str) -> MalformedFile:
        guess = identify(self._read(0, min(64, self._size))) if self._size else "empty"
        return MalformedFile(f"is {guess}" if guess else f"is no ONNX model: {what}", path=self._path)


def _end(entries: dict[str, str]) -> int | None:
    """Where the data ends in its file; 0 bytes from 0 on where the entries do not say."""
    offset, length = entries.get("offset", "0"), entries.get("length", "0")
    if not (offset.isascii() and offset.isdigit() and length.isascii() and length.isdigit()):
        return None
    return int(offset[:19]) + int(length[:19]) or None
