"""What a build, a fix and a push are all made of: a tuple of operations, planned first and executed last.

WriteShard    a .safetensors file: exact header bytes, then pieces of source files
WriteText     a small file whose bytes are known
CopyFile      a file taken over byte for byte
DeleteFile    a file that is to be gone

Operations are data: frozen, ordered, JSON-serialisable. Every one names the output by its path in the repository, so
that they can be listed (`--dry-run`), stored (`--plan`), and executed in any order by anyone who has the sources.
"""

from __future__ import annotations

from math import prod
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field


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


class WriteShard(_Frozen):
    """Writes one .safetensors file. `size` counts the header too."""

    op: Literal["write-shard"] = "write-shard"
    path: str
    header: bytes
    pieces: tuple[Piece, ...]
    size: int


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
    size: int
    origin: str = "source"


class DeleteFile(_Frozen):
    """Removes a file."""

    op: Literal["delete-file"] = "delete-file"
    path: str


Operation = Annotated[WriteShard | WriteText | CopyFile | DeleteFile, Field(discriminator="op")]
