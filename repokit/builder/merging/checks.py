"""Whether what a plan says of a merged tensor fits together. A plan may come out of a file."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from repokit.formats.tensors import DTYPE_BITS
from repokit.operations import Added, LowRank, NewRows

if TYPE_CHECKING:
    from repokit.operations import Matrix, Merged


def mergeable(content: Merged) -> bool:
    """Whether every matrix has the sizes that its use needs, and the bytes that its sizes need."""
    rows, columns = content.shape
    if rows < 0 or columns < 0 or any(part.cast is not None for part in content.base):
        return False
    if sum(part.gathered for part in content.base) != rows * columns * DTYPE_BITS[content.dtype] // 8:
        return False
    if content.cast is not None and content.cast.partition(">")[0] != content.worked_in:
        return False
    return all(_fits(change, rows, columns) for change in content.changes)


def _fits(change: LowRank | Added | NewRows, rows: int, columns: int) -> bool:
    if not all(map(_is_whole, change.matrices)):
        return False
    match change:
        case LowRank(first=first):
            height, width = change.shape
            return width == columns and first + height <= rows and _factors_fit(change, rows)
        case Added(values=values):
            return values.shape == (rows, columns)
        case NewRows(rows=chosen, values=values):
            unique = len(set(chosen)) == len(chosen)
            return unique and max(chosen, default=0) < rows and values.shape == (len(chosen), columns)


def _factors_fit(change: LowRank, rows: int) -> bool:
    rank = change.a.shape[0]
    outputs = change.b.shape[0]
    if change.b.shape[1] != rank:
        return False
    if change.diagonal is not None and change.diagonal.shape != (rank, 1):
        return False
    whole = change.shape[0] == rows
    return change.magnitude is None or (whole and change.magnitude.shape == (outputs, 1))


def _is_whole(matrix: Matrix) -> bool:
    enough = matrix.piece.gathered == prod(matrix.shape) * DTYPE_BITS[matrix.dtype] // 8
    return min(matrix.shape) >= 0 and enough and matrix.piece.cast is None
