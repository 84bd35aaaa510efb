"""The weights of a checkpoint as they are stored, whatever they are stored in.

TensorAt       where the bytes of one tensor lie: in one place, or in parts
Part           where some of them lie
Stored         all of them, with what was found beside them: what a plan is made from
Safetensors    in .safetensors files, with an index or without
(torch_weights.py has those in pickles, memory_weights.py those of a running program)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from repokit.builder.plan import Sources
from repokit.builder.reading import Reader
from repokit.errors import MalformedFile, MissingInput, UnsupportedSource
from repokit.formats.tensors import DTYPE_BITS
from repokit.operations import Box, Interleaved, Piece, View
from repokit.printable import count, printable, some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.formats.urls import Place
    from repokit.operations import Content
    from repokit.repo.repository import Repository
    from repokit.repo.weight_index import Index


@dataclass(frozen=True, slots=True)
class Part:
    """Where some of a tensor's elements lie.

    Attributes:
        file: In the checkpoint.
        offset: Of the first element, in bytes from the start of the file.
        shape: Elements per dimension of the part; of a run of elements, their number.
        strides: Elements from one to the next in each dimension; None where they lie side by side.
        place: Of its first element in the tensor, per dimension; None where the part follows the one before it.
    """

    file: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    place: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TensorAt:
    """Where a tensor's bytes lie.

    Attributes:
        file: In the checkpoint; of a running program, the name of the tensor.
        dtype: As a header of safetensors spells it.
        shape: Elements per dimension, outermost first.
        offset: Of the first element, in bytes from the start of the file.
        strides: Elements from one to the next in each dimension; None where they lie side by side.
        memory: What two tensors have in common that are the same memory; None where nothing tells.
        parts: Where its elements lie, if in several places; `file` is then that of the first, and `offset` and
            `strides` say nothing. Parts without a place follow one another, in the order of the elements.
    """

    file: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...] | None = None
    memory: str | None = None
    parts: tuple[Part, ...] = ()

    @property
    def size(self) -> int:
        """Bytes, side by side."""
        return prod(self.shape) * DTYPE_BITS[self.dtype] // 8


class LeftBehind(NamedTuple):
    """Something beside the weights in the same file, which is not published.

    Attributes:
        path: `last.ckpt: optimizer_states`.
        reason: What it is.
    """

    path: str
    reason: str


class Stored(Protocol):
    """The weights of a checkpoint."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that they are read from, in the checkpoint; () of a running program."""

    @property
    def sharded(self) -> bool:
        """Whether an index places the tensors in files, which a build may keep."""

    @property
    def container(self) -> str:
        """The keys under which a training framework stored them: `state_dict`; "" where nothing is around them."""

    @property
    def tensors(self) -> Mapping[str, TensorAt]:
        """Every tensor by its stored name, in stored order.

        Raises:
            InputError: What is stored contradicts itself.
        """

    @property
    def left_behind(self) -> tuple[LeftBehind, ...]:
        """What lies beside them in the same files."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of how they were found."""

    @property
    def index_path(self) -> str | None:
        """The index, in the checkpoint; None where there is none."""

    def pieces(self, tensor: TensorAt, sources: Sources, cast: str | None = None) -> tuple[Content, ...]:
        """What a tensor is made of, as a plan says it.

        Args:
            tensor: One of these.
            sources: Of the plan; what holds the tensor is added to them.
            cast: `F32>BF16`, or None.
        """

    def same_memory(self, one: TensorAt, other: TensorAt) -> bool:
        """Whether both are the same elements of one storage: tied, as the program had them."""

    def contents(self, tensor: TensorAt) -> Iterator[memoryview]:
        """The bytes of a tensor, side by side, in chunks.

        Raises:
            InputError: They are not there.
        """


class InFiles:
    """What weights in files of a checkpoint have in common."""

    def __init__(self, root: Place, repository: Repository, only: str | None = None) -> None:
        """`only`: the one file that is read, whatever lies beside it."""
        self._root = root
        self._repository = repository
        self._only = only

    def pieces(self, tensor: TensorAt, sources: Sources, cast: str | None = None) -> tuple[Content, ...]:
        bits = DTYPE_BITS[tensor.dtype]
        if not tensor.parts:
            whole = Part(tensor.file, tensor.offset, tensor.shape, tensor.strides)
            return (self._piece(whole, bits, sources, cast),)
        in_order = _following(tensor)
        if in_order is not None and not any(prod(part.shape) * bits % 8 for part in in_order):
            return tuple(self._piece(part, bits, sources, cast) for part in in_order)
        if bits < 8:
            raise UnsupportedSource(f"is cut through the bytes of {tensor.dtype} elements", path=tensor.file)
        boxes = tuple(
            Box(offsets=part.place or (), shape=part.shape, piece=self._piece(part, bits, sources, None))
            for part in tensor.parts
        )
        whole_ = {"shape": tensor.shape, "itemsize": bits // 8, "boxes": boxes, "cast": cast}
        return (Interleaved.model_validate(whole_),)

    def _piece(self, part: Part, bits: int, sources: Sources, cast: str | None) -> Piece:
        view = None if part.strides is None else View.of(part.shape, part.strides, bits)
        length = prod(part.shape) * bits // 8 if view is None else view.span
        if part.file not in self._places:
            self._places[part.file] = self._root / part.file
        source = sources.index(self._places[part.file])
        return Piece(source=source, offset=part.offset, length=length, cast=cast, view=view)

    @cached_property
    def _places(self) -> dict[str, Place]:
        """Where each file lies; made once of each, and asked for by every tensor."""
        return {}

    def same_memory(self, one: TensorAt, other: TensorAt) -> bool:
        return one.memory is not None and one == other

    def contents(self, tensor: TensorAt) -> Iterator[memoryview]:
        sources = Sources()
        pieces = self.pieces(tensor, sources)
        reader = Reader([source.path for source in sources])
        for piece in pieces:
            yield from reader.contents(piece)


def _following(tensor: TensorAt) -> list[Part] | None:
    """The parts in the order of the elements, where one is wholly before the next; None where they interleave.

    They follow one another where each spans every dimension but the first whole.
    """
    if all(part.place is None for part in tensor.parts):
        return list(tensor.parts)
    if any(part.shape[1:] != tensor.shape[1:] for part in tensor.parts):
        return None
    return sorted(tensor.parts, key=lambda part: part.place or ())


class Safetensors(InFiles):
    """Weights in .safetensors files."""

    container = ""
    left_behind: tuple[LeftBehind, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        return self._repository.weights.files if self._only is None else (self._only,)

    @property
    def index(self) -> Index | None:
        """The index that places the tensors in files."""
        return self._repository.weights.index if self._only is None else None

    @property
    def sharded(self) -> bool:
        return self.index is not None

    @cached_property
    def tensors(self) -> Mapping[str, TensorAt]:
        index = self.index
        if index is not None:
            check_index(index, self._repository)
        found: dict[str, TensorAt] = {}
        for path in self.files:
            header = self._repository.header(path)
            for tensor in header.tensors:
                if index is None or index.weight_map[tensor.name] == path:
                    at = TensorAt(path, tensor.dtype, tensor.shape, header.data_start + tensor.begin)
                    found[tensor.name] = at
        return found

    @property
    def index_path(self) -> str | None:
        return None if self.index is None else self.index.path


# ---------------------------------------------------------------- an index, held against its shards

_LOST: Final = "they would be missing from the model"


def check_index(index: Index, repository: Repository) -> None:
    """Refuses an index that does not fit its shards: what it leaves open, a build would decide by chance.

    Raises:
        InputError: It leads elsewhere, names what is not there, or does not name what is.
    """
    for shard in index.refused:
        what = f"names the shard {printable(shard)!r}, which is no .safetensors file inside the checkpoint"
        raise MalformedFile(what, why="loaders would open whatever it leads to", path=index.path)
    refuse_missing(index.path, [shard for shard in index.shards if not repository.has(shard)])
    placement = repository.weights.placement(index)
    nowhere = [name for name in index.document.raw["weight_map"] if name not in index.weight_map]
    refuse_misplaced(
        index.path,
        nowhere=nowhere,
        absent=_all(placement.absent),
        unlisted=_all(placement.unlisted),
        repeated=_all(placement.repeated),
    )


def refuse_missing(path: str, shards: list[str]) -> None:
    """Raises MissingInput where there are any."""
    if shards:
        what = f"names {count(len(shards), 'shard')} that {'is' if len(shards) == 1 else 'are'} not there"
        raise MissingInput(f"{what}: {some(shards)}", why=_LOST, path=path, hint="copy the checkpoint again")


def refuse_misplaced(
    path: str, *, nowhere: list[str], absent: list[str], unlisted: list[str], repeated: list[str]
) -> None:
    """Refuses tensors about which an index and its shards disagree.

    Args:
        path: Of the index.
        nowhere: Names that it places in no file.
        absent: Names that the shard does not hold.
        unlisted: Names that a shard holds and the index does not name.
        repeated: Names that two shards hold.

    Raises:
        MalformedFile: There are any.
    """
    for template, why, names in (
        ("places {} in no file", _LOST, nowhere),
        ("names {} that its shards do not hold", _LOST, absent),
        ("does not name {} that its shards hold", "some loaders read them, others do not", unlisted),
        ("finds {} in two shards", "some loaders read one copy, others the other", repeated),
    ):
        if names:
            what = f"{template.format(count(len(names), 'tensor'))}: {some(names)}"
            hint = "save the model again, into an empty directory"
            raise MalformedFile(what, why=why, path=path, place="/weight_map", hint=hint)


def _all(by_shard: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [name for names in by_shard.values() for name in names]
