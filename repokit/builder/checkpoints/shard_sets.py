"""Shards of safetensors whose index is missing or wrong: their headers say which tensor lies where.

An index is rebuilt where nothing is guessed by it: the numbers in the names say that every shard is there, no tensor
that the index knows is lost, and none has two values.
"""

from __future__ import annotations

import re
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.builder.checkpoints.stored import InFiles, LeftBehind, TensorAt
from repokit.builder.transforms.tie import same_bytes
from repokit.errors import InputError, MalformedFile, MissingInput
from repokit.printable import count, printable, some
from repokit.repo.source import Kind
from repokit.repo.weights import INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from repokit.formats.urls import Place
    from repokit.repo.repository import Repository
    from repokit.repo.weight_index import Index

_NUMBERED: Final = re.compile(r"([^/]+)-([0-9]+)-of-([0-9]+)\.safetensors")
_SLICE: Final = re.compile(r"shard-[0-9]+-.+")  # of torch's HuggingFaceStorageWriter: parts of tensors
_ADAPTER: Final = "adapter_model"
MAX_NAMED: Final = 100


class _Set(NamedTuple):
    """Shards of one name.

    Attributes:
        stem: `model`.
        total: How many their names say that there are.
        files: Those that are there, by number.
    """

    stem: str
    total: int
    files: Mapping[int, str]

    @property
    def lacks(self) -> int:
        """How many are not there."""
        return self.total - sum(1 <= number <= self.total for number in self.files)

    @property
    def lacking(self) -> list[str]:
        """The names of the first of them."""
        numbers = (number for number in range(1, self.total + 1) if number not in self.files)
        return [f"{self.stem}-{number:05d}-of-{self.total:05d}.safetensors" for number in islice(numbers, MAX_NAMED)]


def rebuilt(root: Place, repository: Repository) -> RebuiltSafetensors | None:
    """The weights in shards whose index is missing or wrong; None where it is right, or cannot be rebuilt.

    Raises:
        InputError: There is no index, and the shards are not one whole set.
        MalformedFile: The index does not parse.
    """
    if repository.weights.single is not None or not _is_readable(repository, repository.weights.index_paths):
        return None
    index = repository.weights.index
    if index is None:
        found = _without_index(root, repository)
        return None if found is None else RebuiltSafetensors(root, repository, found, None)
    if not _is_readable(repository, index.shards):
        return None
    if not (faults := tuple(_faults(index, repository))):
        return None
    sets = _sets(repository)
    if len(sets) != 1 or sets[0].lacks:
        return None
    weights = RebuiltSafetensors(root, repository, sets[0], index, faults)
    return weights if _is_of_these(index, weights) and weights.conflict is None else None


def _is_of_these(index: Index, weights: RebuiltSafetensors) -> bool:
    """Whether an index was written for these shards: they hold all that it names, and if more, its size says so.

    An index whose size is that of what it names is right about itself: what it does not name is of another run.
    """
    known = index.document.raw["weight_map"]
    if any(name not in weights.held for name in known):
        return False
    total = None if index.metadata is None else index.metadata.raw.get("total_size")
    return total is None or len(known) == len(weights.held) or total == sum(at.size for at in weights.first.values())


def _is_readable(repository: Repository, paths: Iterable[str]) -> bool:
    """Whether those that are there are files: of links that lead nowhere, the checkpoint itself speaks."""
    return all(repository.files[path].kind is Kind.FILE for path in paths if path in repository.files)


def _sets(repository: Repository) -> list[_Set]:
    found: dict[tuple[str, int], dict[int, str]] = {}
    for path in repository.files:
        match = _NUMBERED.fullmatch(path)
        if match and not _SLICE.fullmatch(match[1]) and match[1] != _ADAPTER:
            files = found.setdefault((match[1], int(match[3])), {})
            if (other := files.setdefault(int(match[2]), path)) != path:
                what = f"is shard {int(match[2]):,}, and so is {printable(other)}"
                hint = "move the one that is old out of the directory"
                raise InputError(what, why="nothing says which of them counts", path=path, hint=hint)
    return [_Set(stem, total, files) for (stem, total), files in found.items()]


def _without_index(root: Place, repository: Repository) -> _Set | None:
    sets = _sets(repository)
    if len(sets) > 1:
        names = [path for found in sets for path in list(found.files.values())[:1]]
        what = f"has shards of {count(len(sets), 'set')} and no {INDEX}: {some(names)}"
        raise InputError(what, path=str(root), hint="move those that are old out of the directory")
    if not sets:
        return None
    if lacks := sets[0].lacks:
        what = f"has no {INDEX} and lacks {count(lacks, 'shard')} of {sets[0].total:,}: {some(sets[0].lacking)}"
        why = "the tensors in it would be missing from the model"
        raise MissingInput(what, why=why, path=str(root), hint="copy the checkpoint again")
    return sets[0]


def _faults(index: Index, repository: Repository) -> Iterator[str]:
    """What is wrong with an index, as words; nothing where it is malformed, which is no matter of shards."""
    raw = index.document.raw["weight_map"]
    if index.refused or len(raw) != len(index.weight_map):
        return
    if missing := [shard for shard in index.shards if not repository.has(shard)]:
        yield f"names {count(len(missing), 'shard')} that {'is' if len(missing) == 1 else 'are'} not there"
    placement = repository.weights.placement(index)
    for words, by_shard in (
        ("places {} in another shard", placement.absent),
        ("does not name {}", placement.unlisted),
        ("has {} in two shards", placement.repeated),
    ):
        if names := [name for found in by_shard.values() for name in found]:
            yield f"{words.format(count(len(names), 'tensor'))} ({some(names)})"


class RebuiltSafetensors(InFiles):
    """The weights in a whole set of numbered shards, each tensor where the headers say."""

    container = ""
    sharded = True
    left_behind: tuple[LeftBehind, ...] = ()

    def __init__(
        self, root: Place, repository: Repository, shards: _Set, index: Index | None, faults: tuple[str, ...] = ()
    ) -> None:
        """`index` is the one that is not followed, for its `faults`; None where there is none."""
        super().__init__(root, repository)
        self._shards = shards
        self._index = index
        self._faults = faults

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(self._shards.files[number] for number in sorted(self._shards.files))

    @property
    def index_path(self) -> str | None:
        return None if self._index is None else self._index.path

    @property
    def notes(self) -> tuple[str, ...]:
        says = f"tensors lie where the headers of all {count(self._shards.total, 'shard')} say"
        if self._index is None:
            return (f"there is no {INDEX}: {says}",)
        return (f"{printable(self._index.path)} {' and '.join(self._faults)}: it is not followed, {says}",)

    @cached_property
    def conflict(self) -> tuple[str, str, str] | None:
        """A tensor and two shards that hold it with different values; None where every tensor has one."""
        for name, (first, *others) in self.held.items():
            for other in others:
                if not same_bytes(self, first, other):
                    return name, first.file, other.file
        return None

    @cached_property
    def held(self) -> Mapping[str, list[TensorAt]]:
        """Where each name is held, in the order of the shards."""
        found: dict[str, list[TensorAt]] = {}
        for path in self.files:
            header = self._repository.header(path)
            for name, dtype, shape, begin, _ in header.tensors:
                found.setdefault(name, []).append(TensorAt(path, dtype, shape, header.data_start + begin))
        return found

    @property
    def first(self) -> Mapping[str, TensorAt]:
        """The first place of each name."""
        return {name: places[0] for name, places in self.held.items()}

    @cached_property
    def tensors(self) -> Mapping[str, TensorAt]:
        if self.conflict is not None:
            name, one, other = self.conflict
            what = f"holds {printable(name)} with other values than {printable(one)}"
            hint = "save the model again, into an empty directory"
            raise MalformedFile(what, why="nothing says which of them counts", path=other, hint=hint)
        return self.first
