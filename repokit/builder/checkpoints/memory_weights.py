"""Weights of a running program: a merged model that was never saved, one tensor at a time."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from repokit.builder.checkpoints.arrays import described, identity, opened
from repokit.builder.checkpoints.stored import LeftBehind, TensorAt
from repokit.builder.reading import MEMORY
from repokit.builder.transforms.gather import gathered
from repokit.errors import PlanError, UnsupportedSource, UsageError
from repokit.formats.tensors import DTYPE_BITS
from repokit.operations import Piece, View
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.builder.plan import Sources


class MemoryWeights:
    """A mapping of names to arrays of any library. It is not to change before the build is done."""

    files: tuple[str, ...] = ()
    index_path: str | None = None
    sharded = False
    container = ""
    left_behind: tuple[LeftBehind, ...] = ()
    notes: tuple[str, ...] = ()

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        """Looks at no element yet.

        Raises:
            UsageError: A name is no string.
        """
        if not hasattr(arrays, "keys"):
            what = f"tensors: a {printable(type(arrays).__name__)} is no mapping of names to arrays"
            raise UsageError(what, hint="give model.state_dict()")
        if not arrays:
            raise UsageError("tensors: there are none", hint="give model.state_dict()")
        for name in arrays:
            if not isinstance(name, str):
                raise UsageError(f"tensors: {printable(name)} is no name", hint="give model.state_dict()")
        self._arrays = arrays

    @cached_property
    def tensors(self) -> Mapping[str, TensorAt]:
        found = {}
        for name, array in self._arrays.items():
            dtype, shape = described(name, array)
            found[name] = TensorAt(name, dtype, shape, 0)
        return found

    def _array(self, tensor: TensorAt) -> Any:  # noqa: ANN401 - an array of any library
        """An array of the mapping, which may make it anew each time.

        Raises:
            PlanError: It is not the one that was described.
        """
        try:
            array = self._arrays[tensor.file]
        except KeyError:
            raise _changed(tensor.file) from None
        if described(tensor.file, array) != (tensor.dtype, tensor.shape):
            raise _changed(tensor.file)
        return array

    def same_memory(self, one: TensorAt, other: TensorAt) -> bool:
        first, second = self._array(one), self._array(other)
        if (one.dtype, one.shape) != (other.dtype, other.shape) or identity(first) is None:
            return False
        return identity(first) == identity(second) and opened(one.file, first).strides == opened("", second).strides

    def pieces(self, tensor: TensorAt, sources: Sources, cast: str | None = None) -> tuple[Piece, ...]:
        source = sources.memory(MEMORY + tensor.file, tensor.size)
        return (Piece(source=source, offset=0, length=tensor.size, cast=cast),)

    def contents(self, tensor: TensorAt) -> Iterator[memoryview]:
        """The memory of the array is held only as long as the iteration, or a chunk of it, lasts."""
        array = opened(tensor.file, self._array(tensor))
        if array.strides is None:
            if len(array.memory) != tensor.size:
                raise _changed(tensor.file)
            yield array.memory
            return
        if DTYPE_BITS[tensor.dtype] < 8:
            what = f"{printable(tensor.file)} is packed and does not lie side by side"
            raise UnsupportedSource(what, hint="give it as .contiguous()")
        view = View.of(tensor.shape, array.strides, DTYPE_BITS[tensor.dtype])
        if len(array.memory) != view.span:
            raise _changed(tensor.file)
        yield from gathered(lambda offset, length: array.memory[offset : offset + length], view)


def _changed(name: str) -> PlanError:
    hint = "build from a mapping that stays as it is until the build is done"
    return PlanError("has changed since the plan was made", path=printable(name), hint=hint)
