"""The weights of a checkpoint as they are stored, whatever they are stored in.

TensorAt       where the bytes of one tensor lie
Stored         all of them, with what was found beside them: what a plan is made from
Safetensors    in .safetensors files, with an index or without
(torch_weights.py has those in pickles, memory_weights.py those of a running program)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from repokit.builder.transforms.gather import gathered
from repokit.errors import MalformedFile, MissingInput
from repokit.formats.tensors import DTYPE_BITS
from repokit.operations import View
from repokit.printable import count, printable, some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from repokit.builder.plan import Sources
    from repokit.repo.repository import Repository
    from repokit.repo.weight_index import Index


_CHUNK: Final = 4 * 1024 * 1024


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
    """

    file: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...] | None = None
    memory: str | None = None

    @property
    def size(self) -> int:
        """Bytes, side by side."""
        elements = 1
        for length in self.shape:
            elements *= length
        return elements * DTYPE_BITS[self.dtype] // 8

    @property
    def view(self) -> View | None:
        """How the elements lie; None where they lie side by side."""
        if self.strides is None:
            return None
        return View.model_validate(
            {"shape": self.shape, "strides": self.strides, "itemsize": DTYPE_BITS[self.dtype] // 8}
        )

    @property
    def length(self) -> int:
        """Bytes from the first element to the end of the last one."""
        return self.size if self.view is None else self.view.span


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

    def source(self, tensor: TensorAt, sources: Sources) -> int:
        """The position of what holds a tensor in the sources of a plan."""

    def same_memory(self, one: TensorAt, other: TensorAt) -> bool:
        """Whether both are the same elements of one storage: tied, as the program had them."""

    def contents(self, tensor: TensorAt) -> Iterator[memoryview]:
        """The bytes of a tensor, side by side, in chunks.

        Raises:
            InputError: They are not there.
        """


class InFiles:
    """What weights in files of a checkpoint have in common."""

    def __init__(self, root: Path, repository: Repository, only: str | None = None) -> None:
        """`only`: the one file that is read, whatever lies beside it."""
        self._root = root
        self._repository = repository
        self._only = only

    def source(self, tensor: TensorAt, sources: Sources) -> int:
        return sources.index(self._root / tensor.file)

    def same_memory(self, one: TensorAt, other: TensorAt) -> bool:
        return one.memory is not None and one == other

    def contents(self, tensor: TensorAt) -> Iterator[memoryview]:
        path = self._root / tensor.file
        if tensor.view is not None:
            yield from gathered(lambda offset, length: _read(path, tensor.offset + offset, length), tensor.view)
            return
        for done in range(0, tensor.size, _CHUNK):
            yield _read(path, tensor.offset + done, min(_CHUNK, tensor.size - done))


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


def _read(path: Path, offset: int, length: int) -> memoryview:
    """A range of a file, whole.

    Raises:
        MissingInput: It cannot be read, or ends before.
    """
    content = bytearray(length)
    try:
        with path.open("rb") as stream:
            done = 0
            while done < length and (read := os.preadv(stream.fileno(), [memoryview(content)[done:]], offset + done)):
                done += read
    except OSError as error:
        raise MissingInput(f"cannot be read: {error.strerror}", path=str(path)) from None
    if done < length:
        raise MissingInput("ends before its last tensor", path=str(path))
    return memoryview(content)


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
