"""What a build, a fix and a push are all made of: a tuple of operations, planned first and executed last.

WriteShard    a .safetensors file: exact header bytes, then what its tensors are made of:
              Piece        bytes of a source, cast and brought side by side where they must be
              Interleaved  a tensor that is stored in parts which interleave in it
              Filled       zeros
              Merged       a tensor with what adapters change in it
WriteText     a small file whose bytes are known
CopyFile      a file taken over byte for byte
DeleteFile    a file that is to be gone

Operations are data: frozen, ordered, JSON-serialisable. Every one names the output by its path in the repository, so
that they can be listed (`--dry-run`), stored (`--plan`), and executed in any order by anyone who has the sources.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from repokit.formats.safetensors import read_header
from repokit.formats.tensors import DTYPE_BITS

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Frozen(BaseModel):
    # Bytes are base64 in JSON and plain in Python.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")


class View(_Frozen):
    """Elements that do not lie side by side: a transposed matrix, a slice, one value for many.

    Attributes:
        shape: Elements per dimension, outermost first.
        strides: Elements from one to the next in each dimension; 0 where one stands for all.
        itemsize: Bytes of an element.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: Literal[1, 2, 4, 8]

    @classmethod
    def of(cls, shape: tuple[int, ...], strides: tuple[int, ...], bits: int) -> View:
        """Elements of a dtype.

        Args:
            shape: Elements per dimension.
            strides: Elements from one to the next.
            bits: Of an element: those of a dtype.
        """
        return cls.model_validate({"shape": shape, "strides": strides, "itemsize": bits // 8})

    @property
    def size(self) -> int:
        """Bytes of the elements side by side."""
        return prod(self.shape) * self.itemsize

    @property
    def span(self) -> int:
        """Bytes from the first element to the end of the last one, where they lie."""
        if 0 in self.shape:
            return 0
        last = sum((length - 1) * stride for length, stride in zip(self.shape, self.strides, strict=True))
        return (last + 1) * self.itemsize


class Piece(_Frozen):
    """A run of bytes out of a source, in the order in which the output needs it.

    Attributes:
        source: Index into the plan's list of sources.
        offset: First byte in that source.
        length: Bytes to read.
        cast: `F32>BF16`: the dtype it is stored in and the one it is to have; None copies the bytes as they are.
        view: How the elements lie in these bytes; None where they lie side by side.
    """

    source: int = Field(ge=0)
    offset: int = Field(ge=0)
    length: int = Field(ge=0)
    cast: str | None = None
    view: View | None = None

    @property
    def gathered(self) -> int:
        """Bytes once the elements lie side by side, before the cast."""
        return self.length if self.view is None else self.view.size

    @property
    def size(self) -> int:
        """Bytes in the output."""
        return _after(self.cast, self.gathered)

    @property
    def memory(self) -> int:
        """Bytes that stand in memory at once, beyond a chunk."""
        return 0 if self.view is None else self.view.span

    def read(self) -> Iterator[Piece]:
        """What is read for it."""
        yield self


class Box(_Frozen):
    """A part of a tensor that is stored by itself.

    Attributes:
        offsets: The place of its first element in the tensor, per dimension.
        shape: Its elements per dimension.
        piece: Its bytes, in the order of its elements, not cast.
    """

    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    piece: Piece


class Interleaved(_Frozen):
    """A tensor whose parts interleave: put together in memory, then cast.

    Parts that follow one another are pieces of their own: nothing has to stand in memory for them.

    Attributes:
        shape: Of the tensor.
        itemsize: Bytes of an element, as stored.
        boxes: Its parts; together they hold every element once.
        cast: As of a Piece.
    """

    kind: Literal["interleaved"] = "interleaved"
    shape: tuple[int, ...]
    itemsize: Literal[1, 2, 4, 8]
    boxes: tuple[Box, ...]
    cast: str | None = None

    @property
    def gathered(self) -> int:
        """Bytes of the tensor, before the cast."""
        return prod(self.shape) * self.itemsize

    @property
    def size(self) -> int:
        """Bytes in the output."""
        return _after(self.cast, self.gathered)

    @property
    def memory(self) -> int:
        """Bytes that stand in memory at once, beyond a chunk: the tensor, and the part that is being read."""
        return self.gathered + max((box.piece.gathered + box.piece.memory for box in self.boxes), default=0)

    def read(self) -> Iterator[Piece]:
        """What is read for it."""
        for box in self.boxes:
            yield box.piece


class Filled(_Frozen):
    """Zeros: the rows by which a vocabulary is padded."""

    kind: Literal["filled"] = "filled"
    size: int = Field(ge=0, description="Bytes.")
    cast: None = None

    @property
    def memory(self) -> int:
        """Bytes that stand in memory at once, beyond a chunk."""
        return 0

    def read(self) -> Iterator[Piece]:
        """What is read for it: nothing."""
        yield from ()


def _kind(content: Any) -> str:  # noqa: ANN401 - what pydantic hands over: a dict of JSON, or one of the models
    if isinstance(content, Piece):
        return "piece"
    kind = content.get("kind") if isinstance(content, dict) else getattr(content, "kind", None)
    return kind if isinstance(kind, str) else "piece"


# What holds a tensor as it is stored.
Whole: TypeAlias = Annotated[
    Annotated[Piece, Tag("piece")] | Annotated[Interleaved, Tag("interleaved")], Discriminator(_kind)
]


class Matrix(_Frozen):
    """A matrix of an adapter. It stands in memory whole while it is used, as F64 at most.

    Attributes:
        piece: Its bytes, in the order of its elements, not cast.
        dtype: In which they are stored.
        shape: Rows and columns.
    """

    piece: Piece
    dtype: Literal["F64", "F32", "F16", "BF16"]
    shape: tuple[int, int]

    @property
    def memory(self) -> int:
        """Bytes that stand in memory at once to read it and to hold it."""
        return prod(self.shape) * 8 + self.piece.gathered + self.piece.memory


class LowRank(_Frozen):
    """Added to rows of a tensor: `scale` x B x A, as LoRA does it.

    Attributes:
        a: [rank, inputs].
        b: [outputs, rank].
        scale: What the product is multiplied by.
        transposed: Whether the tensor is stored as [inputs, outputs]: embeddings, GPT-2's Conv1D.
        first: The row of the tensor at which it begins: those of one expert after those of another.
        diagonal: Of AdaLoRA, [rank, 1]: what each row of A is multiplied by.
        magnitude: Of DoRA, [outputs, 1]: the norm that each output of the sum is brought to.
    """

    kind: Literal["low-rank"] = "low-rank"
    a: Matrix
    b: Matrix
    scale: float = Field(allow_inf_nan=False)
    transposed: bool = False
    first: int = Field(0, ge=0)
    diagonal: Matrix | None = None
    magnitude: Matrix | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of what is added, as the tensor is stored."""
        (_, inputs), (outputs, _) = self.a.shape, self.b.shape
        return (inputs, outputs) if self.transposed else (outputs, inputs)

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        """What is read for it."""
        return tuple(matrix for matrix in (self.a, self.b, self.diagonal, self.magnitude) if matrix is not None)


class Added(_Frozen):
    """Added to a whole tensor: `scale` times as many values."""

    kind: Literal["added"] = "added"
    values: Matrix
    scale: float = Field(allow_inf_nan=False)

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        """What is read for it."""
        return (self.values,)


class NewRows(_Frozen):
    """Rows of a tensor that are replaced: single tokens of an embedding.

    Attributes:
        rows: Which, each once.
        values: One row for each, in their order.
    """

    kind: Literal["new-rows"] = "new-rows"
    rows: tuple[Annotated[int, Field(ge=0)], ...]
    values: Matrix

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        """What is read for it."""
        return (self.values,)


Change: TypeAlias = Annotated[LowRank | Added | NewRows, Field(discriminator="kind")]


class Merged(_Frozen):
    """A tensor with what adapters change in it, in order. It is read and written in blocks of whole rows.

    Attributes:
        base: The bytes of the tensor, one after another, not cast.
        dtype: In which they are stored.
        shape: Rows and columns: a tensor of one dimension has columns of one element, those of a tensor of more than
            two dimensions are all but the first, or all but the last.
        changes: What becomes of it.
        cast: `F32>BF16`: the dtype that it is worked out in, and the one it is to have; None where they are the same.
    """

    kind: Literal["merged"] = "merged"
    base: tuple[Whole, ...]
    dtype: Literal["F64", "F32", "F16", "BF16"]
    shape: tuple[int, int]
    changes: tuple[Change, ...]
    cast: str | None = None

    @property
    def worked_in(self) -> str:
        """The dtype that it is worked out in: F32, and F64 for what is stored so."""
        return "F64" if self.dtype == "F64" else "F32"

    @property
    def size(self) -> int:
        """Bytes in the output."""
        return _after(self.cast, prod(self.shape) * DTYPE_BITS[self.worked_in] // 8)

    @property
    def memory(self) -> int:
        """Bytes that stand in memory at once: the factors, blocks, and what the base needs to be read.

        Changes of single experts follow one another: those of two stand in memory at once at most.
        """
        whole, of_experts = 0, 0
        for change in self.changes:
            needed = sum(matrix.memory for matrix in change.matrices)
            if isinstance(change, LowRank) and change.shape[0] < self.shape[0]:
                of_experts = max(of_experts, needed)
            else:
                whole += needed
        blocks = 4 * 8 * max(MERGE_BLOCK, self.shape[1])
        return whole + 2 * of_experts + blocks + max((content.memory for content in self.base), default=0)

    def read(self) -> Iterator[Piece]:
        """What is read for it."""
        for content in self.base:
            yield from content.read()
        for change in self.changes:
            yield from (matrix.piece for matrix in change.matrices)


# Elements of a tensor that are worked on at once, unless one row has more.
MERGE_BLOCK: Final = 1024 * 1024


def _after(cast: str | None, stored: int) -> int:
    """Bytes after a cast."""
    if not cast:
        return stored
    before, _, wanted = cast.partition(">")
    return stored * DTYPE_BITS[wanted] // DTYPE_BITS[before]


# In JSON a Piece, of which a plan has tens of thousands, says nothing of its kind.
Content: TypeAlias = Annotated[
    Annotated[Piece, Tag("piece")]
    | Annotated[Interleaved, Tag("interleaved")]
    | Annotated[Filled, Tag("filled")]
    | Annotated[Merged, Tag("merged")],
    Discriminator(_kind),
]


class WriteShard(_Frozen):
    """Writes one .safetensors file. `size` counts the header too."""

    op: Literal["write-shard"] = "write-shard"
    path: str
    header: bytes
    pieces: tuple[Content, ...]
    size: int

    @property
    def memory(self) -> int:
        """Bytes of the largest thing that must stand in memory whole to write it."""
        return max((piece.memory for piece in self.pieces), default=0)

    def tensor_at(self, position: int) -> str | None:
        """The tensor that holds a byte of the file, counted from its start."""
        header = read_header(lambda offset, length: self.header[offset : offset + length], self.size, self.path)
        position -= header.data_start
        return next((tensor.name for tensor in header.tensors if tensor.begin <= position < tensor.end), None)


class WriteText(_Frozen):
    """Writes a small file. `origin` says what its content follows from, for the manifest and for people."""

    op: Literal["write-text"] = "write-text"
    path: str
    content: bytes
    origin: str

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.content)


# The origin of a file that a person edited or added in the output, and that a build carries over.
KEPT: Final = "kept"


class CopyFile(_Frozen):
    """Takes a source file over byte for byte."""

    op: Literal["copy-file"] = "copy-file"
    path: str
    source: int = Field(ge=0)
    size: int = Field(ge=0)
    origin: str = "source"


class DeleteFile(_Frozen):
    """Removes a file."""

    op: Literal["delete-file"] = "delete-file"
    path: str


Operation = Annotated[WriteShard | WriteText | CopyFile | DeleteFile, Field(discriminator="op")]
