"""Casts between floating-point dtypes, in chunks: exact where the target is wider, rounded to nearest even otherwise.

As numpy and ml_dtypes do it. torch's `.to()` gives the same bits (tested), two things aside: which NaN a NaN becomes,
and F64 to F16, which torch rounds twice, on its way through F32. F64 to BF16 goes through F32 in both.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from repokit.formats.tensors import FLOATS

CASTABLE: Final = FLOATS

# In order of range. BF16 has the exponents of F32 and fewer digits: the largest values of F32 (from 3.39e38) round up
# to infinity.
_BY_RANGE: Final = ("F16", "BF16", "F32", "F64")


class DoesNotFitError(Exception):
    """A finite value is out of the target's range and would become infinite.

    Attributes:
        element: Its position, counted in elements from the start of what was to be cast.
        value: The value.
    """

    def __init__(self, element: int, value: float) -> None:
        super().__init__(element, value)
        self.element = element
        self.value = value


@cache
def dtype_of(name: str) -> Any:  # noqa: ANN401 - a numpy dtype, or one that ml_dtypes registers with numpy
    """The dtype of floating-point elements, little-endian, by the name that a header of safetensors has for it."""
    import ml_dtypes
    import numpy as np

    return np.dtype({"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16}[name])


def cast(content: bytes | memoryview, spec: str) -> memoryview:
    """The same numbers in another dtype.

    Args:
        content: Little-endian elements, a whole number of them.
        spec: `F32>BF16`.

    Raises:
        DoesNotFitError: A finite value is out of the target's range.
    """
    import numpy as np

    stored, wanted = spec.split(">")
    values = np.frombuffer(content, dtype=dtype_of(stored))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        result = values.astype(dtype_of(wanted))
    if _BY_RANGE.index(wanted) < _BY_RANGE.index(stored):
        overflown = np.isinf(result)
        if overflown.any() and (overflown := overflown & ~np.isinf(values)).any():
            element = int(overflown.argmax())
            raise DoesNotFitError(element, float(values[element]))
    return memoryview(result.view(np.uint8).data)


def is_cast(spec: str) -> bool:
    """Whether this names a cast that can be done: `F32>BF16`."""
    stored, _, wanted = spec.partition(">")
    return stored in CASTABLE and wanted in CASTABLE
