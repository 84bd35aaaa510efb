"""The weights of a base model with what adapters change in them: what a plan of a merge is made from.

ReplacedBy, ProductAt, SumAt, RowsAt    what an adapter does to one tensor, and where the values for it lie
MergedWeights                           the tensors of the base, and what becomes of them
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from repokit.builder.checkpoints.stored import TensorAt
from repokit.builder.plan import Sources
from repokit.builder.reading import Reader
from repokit.builder.transforms.cast import DoesNotFitError, cast as converted
from repokit.builder.transforms.tie import same_bytes
from repokit.errors import UnsupportedSource
from repokit.operations import Added, Interleaved, LowRank, Matrix, Merged, NewRows, Piece

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from repokit.builder.checkpoints.stored import LeftBehind, Stored
    from repokit.operations import Content


@dataclass(frozen=True)
class MatrixAt:
    """Where a matrix of an adapter lies.

    Attributes:
        stored: The adapter's weights.
        tensor: Among them, or a part of one.
        shape: Rows and columns.
    """

    stored: Stored
    tensor: TensorAt
    shape: tuple[int, int]

    def bound(self, sources: Sources) -> Matrix:
        """As a plan says it."""
        match self.stored.pieces(self.tensor, sources):
            case (Piece() as piece,):
                return Matrix.model_validate({"piece": piece, "dtype": self.tensor.dtype, "shape": self.shape})
        what = "lies in several parts; the factors of an adapter are read whole"
        raise UnsupportedSource(what, path=self.tensor.file, hint="save the adapter again: model.save_pretrained")


@dataclass(frozen=True)
class ReplacedBy:
    """The tensor of the adapter takes the place of the base's."""

    stored: Stored
    tensor: TensorAt


@dataclass(frozen=True)
class ProductAt:
    """What LoRA adds; see operations.LowRank."""

    a: MatrixAt
    b: MatrixAt
    scale: float
    transposed: bool = False
    first: int = 0
    diagonal: MatrixAt | None = None
    magnitude: MatrixAt | None = None

    def bound(self, sources: Sources) -> LowRank:
        """As a plan says it."""
        return LowRank(
            a=self.a.bound(sources),
            b=self.b.bound(sources),
            scale=self.scale,
            transposed=self.transposed,
            first=self.first,
            diagonal=None if self.diagonal is None else self.diagonal.bound(sources),
            magnitude=None if self.magnitude is None else self.magnitude.bound(sources),
        )


@dataclass(frozen=True)
class SumAt:
    """What is added to a bias."""

    values: MatrixAt
    scale: float

    def bound(self, sources: Sources) -> Added:
        """As a plan says it."""
        return Added(values=self.values.bound(sources), scale=self.scale)


@dataclass(frozen=True)
class RowsAt:
    """New rows for single tokens."""

    rows: tuple[int, ...]
    values: MatrixAt

    def bound(self, sources: Sources) -> NewRows:
        """As a plan says it."""
        return NewRows(rows=self.rows, values=self.values.bound(sources))


Step: TypeAlias = ProductAt | SumAt | RowsAt


@dataclass
class Changed:
    """What becomes of one tensor.

    Attributes:
        base: Where its values lie: in the base, or in the adapter that replaces them.
        stored: The weights that these are among.
        dtype: It has this one, whatever an adapter stores.
        steps: What is changed in it, in order.
        experts: Whether all dimensions but the last are rows, as of fused experts; else all but the first are columns.
    """

    base: TensorAt
    stored: Stored
    dtype: str
    steps: list[Step] = field(default_factory=list)
    experts: bool = False

    @property
    def rows_and_columns(self) -> tuple[int, int]:
        """As operations.Merged has it."""
        shape = self.base.shape
        if len(shape) < 2:
            return prod(shape), 1
        return (prod(shape[:-1]), shape[-1]) if self.experts else (shape[0], prod(shape[1:]))

    def pieces(self, sources: Sources, cast: str | None) -> tuple[Content, ...]:
        """What it is made of, as a plan says it.

        Args:
            sources: Of the plan.
            cast: From its dtype to the wanted one, or None.
        """
        wanted = self.dtype if cast is None else cast.partition(">")[2]
        if not self.steps:
            return self.stored.pieces(self.base, sources, _cast(self.base.dtype, wanted))
        base = self.stored.pieces(self.base, sources)
        if not all(isinstance(piece, Piece | Interleaved) for piece in base):
            raise UnsupportedSource("is not stored as it is: it cannot be merged into", path=self.base.file)
        steps = [step.bound(sources) for step in self.steps]
        merged = {"base": base, "dtype": self.base.dtype, "shape": self.rows_and_columns, "changes": steps}
        content = Merged.model_validate(merged)
        return (content.model_copy(update={"cast": _cast(content.worked_in, wanted)}),)


def _cast(stored: str, wanted: str) -> str | None:
    return None if stored == wanted else f"{stored}>{wanted}"


@dataclass(frozen=True, slots=True)
class _ChangedAt(TensorAt):
    """A tensor of which more is to be said than where it lies: by its name."""

    name: str = ""


class MergedWeights:
    """The tensors of a base model, some of them changed, and those that an adapter adds."""

    def __init__(self, base: Stored, changes: Mapping[str, Changed], files: Sequence[str]) -> None:
        """Reads nothing yet.

        Args:
            base: The weights of the base.
            changes: By stored name; names that the base does not have are new tensors.
            files: Of the source of the build: where they are read from.
        """
        self._base = base
        self.changes = changes
        self.files = tuple(files)
        self.tensors: Mapping[str, TensorAt] = dict(base.tensors) | {
            name: _at(name, changed) for name, changed in changes.items()
        }

    @property
    def sharded(self) -> bool:
        return self._base.sharded

    @property
    def container(self) -> str:
        return self._base.container

    @property
    def left_behind(self) -> tuple[LeftBehind, ...]:
        return self._base.left_behind

    @property
    def notes(self) -> tuple[str, ...]:
        return self._base.notes

    @property
    def index_path(self) -> str | None:
        return self._base.index_path

    def pieces(self, tensor: TensorAt, sources: Sources, cast: str | None = None) -> tuple[Content, ...]:
        if isinstance(tensor, _ChangedAt):
            return self.changes[tensor.name].pieces(sources, cast)
        return self._base.pieces(tensor, sources, cast)

    def shows(self, tensor: TensorAt, steps: Sequence[Step], dtype: str) -> bool:
        """Whether anything is left of some steps, alone, once their sums are rounded; reads up to the first difference.

        Args:
            tensor: Of `tensors`, a changed one.
            steps: Of those that change it.
            dtype: In which it is published.
        """
        assert isinstance(tensor, _ChangedAt)  # noqa: S101 - of no other there are steps
        changed = self.changes[tensor.name]
        one, other = (
            MergedWeights(self._base, {tensor.name: replace(changed, dtype=dtype, steps=list(chosen))}, ())
            for chosen in (steps, ())
        )
        try:
            return not same_bytes(one, one.tensors[tensor.name], other.tensors[tensor.name], other)
        except DoesNotFitError:  # too much is left: the build says where
            return True

    def same_memory(self, one: TensorAt, other: TensorAt) -> bool:
        changed = isinstance(one, _ChangedAt) or isinstance(other, _ChangedAt)
        return not changed and self._base.same_memory(one, other)

    def contents(self, tensor: TensorAt) -> Iterator[memoryview]:
        if not isinstance(tensor, _ChangedAt):
            yield from self._base.contents(tensor)
            return
        sources = Sources()
        pieces = self.pieces(tensor, sources)
        reader = Reader([source.path for source in sources], self._base)
        for piece in pieces:
            for part in reader.contents(piece):
                yield converted(part, piece.cast) if piece.cast else part


def _at(name: str, changed: Changed) -> _ChangedAt:
    base = changed.base
    return _ChangedAt(file=base.file, dtype=changed.dtype, shape=base.shape, offset=base.offset, name=name)
