"""What adapters change in a tensor: W + scale x B x A, worked out in blocks of rows and rounded once, at the end.

The product of the factors is a sum of products of 24 bits by 24, each of which F64 holds exactly: taken in F64, it does
not show in the 16 bits that come out in which order a BLAS library added them up, and so on which processor and in how
many threads (measured: OpenBLAS's kernels for Nehalem, Haswell and Skylake, one thread and two). Where F32 comes out,
the product is taken in F32 as peft takes it: on one processor nearly all results are then peft's to the bit, and those
of two processors may differ in the last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from repokit.builder.transforms.cast import DoesNotFitError, dtype_of
from repokit.operations import MERGE_BLOCK, Added, LowRank, NewRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from repokit.operations import Matrix, Merged, Piece, Whole

    Array = NDArray[Any]
    Contents = Callable[[Piece | Whole], Iterator[memoryview]]


class Values(NamedTuple):
    """What the values of a tensor are like.

    Attributes:
        finite: None is an infinity or not a number.
        zero: All of them are zero.
    """

    finite: bool
    zero: bool


def looked_at(chunks: Iterable[memoryview], dtype: str) -> Values:
    """Looks at floating-point values, in chunks that end with an element."""
    import numpy as np

    finite, zero = True, True
    for chunk in chunks:
        values = np.frombuffer(chunk, dtype=dtype_of(dtype))
        finite = finite and bool(np.isfinite(values).all())
        zero = zero and not values.any()
    return Values(finite, zero)


def merged(content: Merged, contents: Contents, beside: Contents) -> Iterator[memoryview]:
    """The elements of the changed tensor in the dtype that it is worked out in, row after row.

    Args:
        content: The tensor and what is changed in it.
        contents: The bytes of a part of the tensor, in the order of its elements.
        beside: Those of a matrix of an adapter; they are read while a chunk of the tensor is still in use.

    Yields:
        Blocks of whole rows; each is valid until the next.

    Raises:
        DoesNotFitError: A value has become an infinity, or no number.
    """
    import numpy as np

    changes = [_prepared(change, content, beside) for change in content.changes]
    keeps = any(change.needs_base for change in changes[1:])
    for first, block in _blocks(content, contents):
        values = block.astype(dtype_of(content.worked_in))
        before = values.copy() if keeps else values
        with np.errstate(over="ignore", invalid="ignore"):
            for change in changes:
                change.apply(values, before, first)
        _check_finite(values, block)
        yield memoryview(values.reshape(-1).view("u1").data)


def _check_finite(values: Array, block: Array) -> None:
    """Refuses what has grown beyond all bounds. Infinities of the base stay the base's.

    Raises:
        DoesNotFitError: At the first such element of the block.
    """
    import numpy as np

    broken = ~np.isfinite(values)
    if broken.any() and (broken := broken & np.isfinite(block)).any():
        element = int(broken.argmax())
        raise DoesNotFitError(element, float(values.reshape(-1)[element]))


def _blocks(content: Merged, contents: Contents) -> Iterator[tuple[int, Array]]:
    """The tensor as it is stored, in blocks of rows, with the number of the first row of each."""
    import numpy as np

    rows, columns = content.shape
    dtype = dtype_of(content.dtype)
    at_once = max(1, MERGE_BLOCK // max(1, columns))
    width = columns * dtype.itemsize
    buffer = np.empty(min(at_once, rows) * width, dtype=np.uint8)
    first, filled = 0, 0
    for chunk in (chunk for part in content.base for chunk in contents(part)):
        rest = np.frombuffer(chunk, dtype=np.uint8)
        while len(rest):
            wanted = min(at_once, rows - first) * width
            length = min(wanted - filled, len(rest))
            buffer[filled : filled + length] = rest[:length]
            rest, filled = rest[length:], filled + length
            if filled == wanted:
                block = buffer[:wanted].view(dtype).reshape(-1, columns)
                yield first, block
                first, filled = first + len(block), 0


def _matrix(matrix: Matrix, contents: Contents, dtype: str = "F64") -> Array:
    import numpy as np

    raw = b"".join(bytes(chunk) for chunk in contents(matrix.piece))
    stored: Array = np.frombuffer(raw, dtype=dtype_of(matrix.dtype)).reshape(matrix.shape)
    return stored.astype(dtype_of(dtype))


def _prepared(change: Added | LowRank | NewRows, content: Merged, contents: Contents) -> _Addition | _Product | _Rows:
    match change:
        case LowRank():
            return _Product(change, content, contents)
        case Added():
            added = _matrix(change.values, contents, _product_dtype(content))
            return _Addition(added * added.dtype.type(change.scale))
        case NewRows():
            return _Rows(change, _matrix(change.values, contents))


def _product_dtype(content: Merged) -> str:
    """In which products are taken; see the top."""
    return "F32" if content.dtype == "F32" and content.cast is None else "F64"


class _Addition:
    """Values that are added to a whole tensor."""

    needs_base = False

    def __init__(self, values: Array) -> None:
        self._values = values

    def apply(self, values: Array, _before: Array, first: int) -> None:
        _add(values, self._values[first : first + len(values)])


class _Rows:
    """Rows that are replaced."""

    needs_base = False

    def __init__(self, change: NewRows, rows: Array) -> None:
        import numpy as np

        order = np.argsort(change.rows)
        self._places = np.asarray(change.rows)[order]
        self._rows = rows[order]

    def apply(self, values: Array, _before: Array, first: int) -> None:
        begin, end = self._places.searchsorted([first, first + len(values)])
        values[self._places[begin:end] - first] = self._rows[begin:end]


class _Product:
    """The product of two factors, added to some rows of a tensor, and with DoRA brought to a norm."""

    def __init__(self, change: LowRank, content: Merged, contents: Contents) -> None:
        self._change = change
        self._contents = contents
        self._dtype = _product_dtype(content)
        self._factors: tuple[Array, Array] | None = None
        self.needs_base = change.magnitude is not None
        self._factor = None
        if change.magnitude is not None:
            self._magnitude = _matrix(change.magnitude, contents).reshape(-1)
            if change.transposed:  # the norm of an output is one over all rows
                self._factor = _ratio(self._magnitude, self._norms(content))

    def apply(self, values: Array, before: Array, first: int) -> None:
        change = self._change
        begin, end = max(first, change.first), min(first + len(values), change.first + change.shape[0])
        if begin >= end:
            return
        product = self._rows(begin - change.first, end - change.first)
        part = values[begin - first : end - first]
        if change.magnitude is None:
            _add(part, product)
        else:
            self._bring_to_norm(part, before[begin - first : end - first], product, begin)
        if end == change.first + change.shape[0]:
            self._factors = None  # of one expert among many: the next one needs the room

    def _rows(self, begin: int, end: int) -> Array:
        """Rows of the scaled product, as the tensor is stored."""
        self._factors = self._factors or self._read()
        one, other = self._factors
        product: Array = one[begin:end] @ other
        product *= self._change.scale
        return product

    def _read(self) -> tuple[Array, Array]:
        """The factors whose product is what is added, as the tensor is stored."""
        a, b = (_matrix(factor, self._contents, self._dtype) for factor in (self._change.a, self._change.b))
        if self._change.diagonal is not None:
            a *= _matrix(self._change.diagonal, self._contents, self._dtype)
        return (a.T, b.T) if self._change.transposed else (b, a)

    def _norms(self, content: Merged) -> Array:
        """The norm of every column of W + product: a pass over the tensor of its own."""
        import numpy as np

        self._factors = self._read()  # before the tensor, a chunk of which must stay as it was read
        squares = np.zeros(content.shape[1], dtype=dtype_of(self._dtype))
        for first, block in _blocks(content, self._contents):
            total = self._rows(first, first + len(block))
            total += block
            total *= total
            total[0] += squares
            squares = np.add.reduce(total, axis=0)  # row after row: in F32 as torch sums them, to the bit
        return np.sqrt(squares).astype(np.float64)

    def _bring_to_norm(self, values: Array, before: Array, product: Array, begin: int) -> None:
        """The norm is that of the tensor before any other adapter (peft 0.21 lora/layer.py _unmerged_base_weight)."""
        import numpy as np

        if self._factor is not None:
            factor = self._factor
        else:
            total = np.add(before, product, dtype=np.float64)
            norms = np.sqrt(np.einsum("ij,ij->i", total, total))
            factor = _ratio(self._magnitude[begin : begin + len(values)], norms)[:, None]
        product += values
        product *= factor
        values[...] = product


def _ratio(magnitude: Array, norms: Array) -> Array:
    """What brings vectors to a length; 0 for those that have none: they stay zero, whatever they are multiplied by."""
    import numpy as np

    return np.divide(magnitude, norms, out=np.zeros_like(norms), where=norms > 0)


def _add(values: Array, more: Array) -> None:
    """Adds in the dtype of the values: numpy takes five times as long where it has to convert on the way."""
    values += more.astype(values.dtype, copy=False)
