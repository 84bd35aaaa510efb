"""Whether two tensors are the same bytes: ties are found by comparing, never by guessing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repokit.builder.checkpoints.stored import Stored, TensorAt


def same_bytes(stored: Stored, one: TensorAt, other: TensorAt, of_other: Stored | None = None) -> bool:
    """Compares two tensors; stops at the first chunk that differs.

    Tensors of another dtype or shape are not the same, whatever their bytes; those of one storage are, unread.

    Args:
        stored: The checkpoint that has them.
        one: Of it.
        other: Of it too, or of `of_other`.
        of_other: Another checkpoint.

    Raises:
        InputError: The bytes are not there.
    """
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if of_other is None and stored.same_memory(one, other):
        return True
    return _equal(stored.contents(one), (of_other or stored).contents(other))


def _equal(one: Iterable[memoryview], other: Iterable[memoryview]) -> bool:
    """Whether two streams of the same length are equal, wherever each of them is cut."""
    rest = memoryview(b"")
    chunks = iter(other)
    for chunk in one:
        left = chunk
        while left:
            rest = rest or next(chunks)
            length = min(len(left), len(rest))
            if left[:length] != rest[:length]:
                return False
            left, rest = left[length:], rest[length:]
    return True
