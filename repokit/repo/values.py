"""The values of tensors, for `--deep`: which are no numbers, and which are zero. A numpy array at a time.

Nothing is converted: the bits of a float say what it is. weight_values has the files, value_stream reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from repokit.formats.tensors import DTYPE_BITS
from repokit.repo.value_stream import CHUNK, Extent

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_RUNS: Final = 1000  # of zero rows that a tensor keeps: a matrix in which every other row is zero is no file's
_MATRIX: Final = 2  # dimensions


class Tensor(NamedTuple):
    """A tensor in a file of any format.

    Attributes:
        path: The file.
        offset: Of its first byte, from the beginning of the file.
        size: Bytes.
    """

    path: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


@dataclass(slots=True)
class TensorValues:
    """What the values of a tensor are.

    Attributes:
        tensor: The tensor.
        infinite: Elements that are plus or minus infinity.
        nan: Elements that are not a number.
        first: The first element of either kind, counted from 0; None where there is none.
        zero: Whether every byte is zero, signs of floats aside. True of a tensor without elements.
        zero_rows: Of a matrix, runs of rows that are zero: first, and one past the last. No more than 1,000.
    """

    tensor: Tensor
    infinite: int = 0
    nan: int = 0
    first: int | None = None
    zero: bool = True
    zero_rows: list[tuple[int, int]] = field(default_factory=list)

    @property
    def nonzero_rows(self) -> list[tuple[int, int]]:
        """The runs between the runs that are zero."""
        edges = [0, *(edge for run in self.zero_rows for edge in run), self.tensor.shape[0]]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return [(start, stop) for start, stop in pairs if start < stop]

    def has_zero_row(self, row: int) -> bool:
        """Whether a row is known to be zero."""
        return any(start <= row < stop for start, stop in self.zero_rows)

    def merge(self, later: TensorValues) -> None:
        """Takes in what was found further behind in the same tensor."""
        self.infinite += later.infinite
        self.nan += later.nan
        self.first = later.first if self.first is None else self.first
        self.zero = self.zero and later.zero
        for start, stop in later.zero_rows:
            self.add_zero_rows(start, stop)

    def add_zero_rows(self, start: int, stop: int) -> None:
        """Takes in a run behind all that are known."""
        if self.zero_rows and self.zero_rows[-1][1] == start:
            self.zero_rows[-1] = (self.zero_rows[-1][0], stop)
        elif len(self.zero_rows) < _MOST_RUNS:
            self.zero_rows.append((start, stop))


# ---------------------------------------------------------------- bits


class _Bits(NamedTuple):
    """How a dtype says that an element is no finite number.

    Attributes:
        width: Bytes of a number; a complex element has two.
        sign: The bit of the sign; 0 where there is none.
        beyond: The smallest magnitude that is not finite; None where nothing is.
        infinity: The magnitude of infinity, where there is one.
        negative_zero_is_nan: Whether the pattern of minus zero is the only one that is not finite.
    """

    width: int
    sign: int = 0
    beyond: int | None = None
    infinity: int | None = None
    negative_zero_is_nan: bool = False


def _ieee(width: int, mantissa: int) -> _Bits:
    """All bits of the exponent set: infinity, and with bits of the mantissa beside them NaN."""
    sign = 1 << (8 * width - 1)
    infinity = sign - (1 << mantissa)
    return _Bits(width, sign, infinity, infinity)


# Sources: IEEE 754; for 8 bits the OCP specification of 8-bit floats (E4M3 has no infinity and one NaN) and
# arXiv:2206.02915 (FNUZ: minus zero is the NaN); for scales the OCP specification of microscaling formats (E8M0).
_BITS: Final[dict[str, _Bits]] = {
    "F64": _ieee(8, 52),
    "F32": _ieee(4, 23),
    "C64": _ieee(4, 23),
    "F16": _ieee(2, 10),
    "BF16": _ieee(2, 7),
    "F8_E5M2": _ieee(1, 2),
    "F8_E4M3": _Bits(1, 0x80, 0x7F),
    "F8_E8M0": _Bits(1, 0, 0xFF),
    "F8_E4M3FNUZ": _Bits(1, negative_zero_is_nan=True),
    "F8_E5M2FNUZ": _Bits(1, negative_zero_is_nan=True),
}
_OTHERS: Final = _Bits(1)  # whole numbers, flags, packed numbers: only whether they are zero


@cache
def _unsigned(width: int) -> Any:  # noqa: ANN401 - a numpy dtype
    import numpy as np

    return np.dtype(f"<u{width}")


@cache
def _signed(width: int) -> Any:  # noqa: ANN401 - a numpy dtype
    import numpy as np

    return np.dtype(f"<i{width}")


class Look:
    """Looks at chunks of the tensors of one file; see value_stream.Consumer."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors
        self.found: dict[int, TensorValues] = {}

    def __call__(self, extent: int, start: int, content: memoryview) -> None:
        import numpy as np

        tensor = self._tensors[extent]
        found = self.found.get(extent)
        if found is None:
            found = self.found[extent] = TensorValues(tensor)
        bits = _BITS.get(tensor.dtype, _OTHERS)
        numbers = np.frombuffer(content, _unsigned(bits.width))
        highest, highest_signed = int(numbers.max()), int(numbers.view(_signed(bits.width)).max())
        if _may_be_beyond(numbers, bits, highest, highest_signed):
            self._beyond(found, numbers, bits, start)
        # Nothing above zero, and of what has the sign nothing but minus zero.
        zero = highest_signed <= 0 and highest <= (0 if bits.negative_zero_is_nan else bits.sign)
        found.zero = found.zero and zero
        if row := _row_of(tensor):
            self._rows(found, numbers, bits, (start // row, len(content) // row), zero=zero)

    @staticmethod
    def _beyond(found: TensorValues, numbers: Any, bits: _Bits, start: int) -> None:  # noqa: ANN401 - a numpy array
        kind = numbers.dtype.type
        if bits.beyond is None:
            where = numbers == kind(0x80)
        else:
            magnitudes = numbers & kind(~bits.sign & (1 << (8 * bits.width)) - 1)
            where = magnitudes >= kind(bits.beyond)
        if not (total := int(where.sum())):
            return
        infinite = 0 if bits.infinity is None else int((magnitudes == kind(bits.infinity)).sum())
        found.infinite += infinite
        found.nan += total - infinite
        if found.first is None:
            element = DTYPE_BITS[found.tensor.dtype] // 8
            found.first = (start + int(where.argmax()) * bits.width) // element

    @staticmethod
    def _rows(
        found: TensorValues,
        numbers: Any,  # noqa: ANN401 - a numpy array
        bits: _Bits,
        place: tuple[int, int],
        *,
        zero: bool,
    ) -> None:
        """Rows that are zero, in a chunk of whole ones; `place` is the first row and how many there are."""
        import numpy as np

        first, count = place
        if zero:
            found.add_zero_rows(first, first + count)
            return
        magnitude = numbers.dtype.type(~bits.sign & (1 << (8 * bits.width)) - 1)
        matrix = numbers.reshape(count, -1)
        # Most rows are known by one number of them.
        leading = matrix[:, 0] & magnitude
        if leading.all():
            return
        maybe = np.flatnonzero(leading == 0)
        rows = maybe[~(matrix[maybe] & magnitude).any(axis=1)]
        if rows.size:
            for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
                found.add_zero_rows(first + int(run[0]), first + int(run[-1]) + 1)


def _may_be_beyond(numbers: Any, bits: _Bits, highest: int, highest_signed: int) -> bool:  # noqa: ANN401 - an array
    """Whether a chunk may hold what is not finite; two maxima are faster than one mask, and need no memory."""
    if bits.negative_zero_is_nan:
        return bool(numbers.view(_signed(1)).min() == -0x80)
    return bits.beyond is not None and (highest >= bits.sign | bits.beyond or highest_signed >= bits.beyond)


def _row_of(tensor: Tensor) -> int:
    """Bytes of a row of a matrix; 0 where it is none, or its rows are longer than a chunk."""
    if len(tensor.shape) != _MATRIX or not tensor.size:
        return 0
    row, rest = divmod(tensor.shape[1] * DTYPE_BITS[tensor.dtype], 8)
    return row if not rest and row <= CHUNK else 0


def extent(tensor: Tensor) -> Extent:
    """Where it lies; cut between rows where it has any, so that a chunk has whole ones."""
    return Extent(tensor.offset, tensor.size, _row_of(tensor) or max(1, DTYPE_BITS[tensor.dtype] // 8))
