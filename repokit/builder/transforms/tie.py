"""Whether two tensors are the same bytes: ties are found by comparing, never by guessing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from repokit.builder.sources import TensorAt

_CHUNK: Final = 4 * 1024 * 1024


def same_bytes(root: Path, one: TensorAt, other: TensorAt) -> bool:
    """Compares two tensors of a checkpoint; stops at the first chunk that differs.

    Tensors of another dtype or shape are not the same, whatever their bytes.
    """
    if (one.dtype, one.shape, one.size) != (other.dtype, other.shape, other.size):
        return False
    with (root / one.file).open("rb") as first, (root / other.file).open("rb") as second:
        for done in range(0, one.size, _CHUNK):
            length = min(_CHUNK, one.size - done)
            left = os.pread(first.fileno(), length, one.offset + done)
            if left != os.pread(second.fileno(), length, other.offset + done) or len(left) < length:
                return False
    return True
