"""Casts between floating-point dtypes, in chunks: exact where the target is wider, rounded to nearest even otherwise.

Source of the rounding: IEEE 754, as ml_dtypes and numpy implement it; torch's `.to()` gives the same bits (tested).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from repokit.errors import PlanError
from repokit.formats.tensors import FLOATS

CASTABLE: Final = FLOATS


@cache
def _dtype(name: str) -> Any:  # noqa: ANN401 - a numpy dtype, or one that ml_dtypes registers with numpy
    import ml_dtypes
    import numpy as np

    return np.dtype({"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16}[name])


def cast(content: bytes | memoryview, spec: str) -> memoryview:
    """The same numbers in another dtype.

    Args:
        content: Little-endian elements, a whole number of them.
        spec: `F32>BF16`.

    Raises:
        PlanError: A finite value is out of the target's range: it would become infinite.
    """
    import numpy as np

    stored, wanted = spec.split(">")
    values = np.frombuffer(content, dtype=_dtype(stored))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        result = values.astype(_dtype(wanted))
    # bfloat16 has float32's range; only the narrower exponents can overflow.
    if _narrower(stored, wanted) and np.isinf(result).sum() != np.isinf(values).sum():
        what = f"has values that {wanted} cannot hold"
        why = "they would become infinite, and the model would answer with NaN"
        raise PlanError(what, why=why, hint="cast to bfloat16, or keep these tensors (weights.keep)")
    return memoryview(result.view(np.uint8).data)


def _narrower(stored: str, wanted: str) -> bool:
    ranges = {"F16": 0, "BF16": 1, "F32": 1, "F64": 2}
    # F32 to BF16 rounds the largest finite values up to infinity too (above 3.39e38); F64 to F32 can overflow outright.
    return ranges[wanted] < ranges[stored] or (stored, wanted) == ("F32", "BF16")
