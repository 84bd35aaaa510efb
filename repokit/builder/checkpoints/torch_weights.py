"""Weights in pickles: pytorch_model.bin and its shards, .pt, .pth, .ckpt. Interpreted, never loaded: no code runs."""

from __future__ import annotations

import re
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from repokit.builder.checkpoints.stored import InFiles, LeftBehind, TensorAt, refuse_misplaced, refuse_missing
from repokit.errors import InputError, MalformedFile, MissingInput
from repokit.formats.paths import unsafe
from repokit.formats.pickle_globals import Grade
from repokit.formats.signature import is_pickle
from repokit.formats.torch_file import check_trusted, read_torch_file
from repokit.printable import count, printable, some
from repokit.repo.source import Kind
from repokit.repo.training_state import is_part, is_training_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.formats.torch_file import TorchFile
    from repokit.repo.repository import Repository

BIN: Final = "pytorch_model.bin"
BIN_INDEX: Final = "pytorch_model.bin.index.json"
_SHARD: Final = re.compile(r"([^/]+)-(\d+)-of-(\d+)\.(?:bin|pt|pth)")
_NAMED: Final = re.compile(r"[^/]+\.(?:bin|pt|pth|ckpt)")


def model_files(repository: Repository) -> list[str]:
    """Files at the top that may hold a model: named like one, begun like a pickle, and not a trainer's state."""
    found = []
    for path in repository.files:
        if not _NAMED.fullmatch(path) or is_training_state(path) or is_part(path):
            continue
        if repository.files[path].kind is Kind.FILE and is_pickle(repository.head(path)):
            found.append(path)
    return found


def named(file: TorchFile) -> list[tuple[str, Grade]]:
    """What a pickle names beside the parts of tensors, each once, with its grade."""
    return sorted({(found.dotted, found.grade) for found in file.globals if found.grade is not Grade.SAFE})


def _left_behind(path: str, file: TorchFile) -> Iterator[LeftBehind]:
    for left in file.left_out:
        yield LeftBehind(f"{path}: {left.path}", left.what)
    for name, grade in named(file):
        yield LeftBehind(f"{path}: {name}", f"named by the pickle ({grade}), not run")


class TorchWeights(InFiles):
    """The weights in one pickle, or in the shards of an index."""

    @property
    def sharded(self) -> bool:
        return self._weight_map is not None or len(self.files) > 1

    @property
    def container(self) -> str:
        return next((file.container for file in self._opened.values()), "")

    @cached_property
    def files(self) -> tuple[str, ...]:
        if self._only is not None:
            return (self._only,)
        if self._weight_map is not None:
            return tuple(sorted(set(self._weight_map.values())))
        found = model_files(self._repository)
        if BIN in found:
            return (BIN,)
        shards = [path for path in found if _SHARD.fullmatch(path)]
        if shards:
            self._check_complete(shards)
            return tuple(shards)
        if len(found) > 1:
            what = f"has {count(len(found), 'pickle')} that may hold the model: {some(found)}"
            raise InputError(what, path=str(self._root), hint=f"name the file itself: {self._root / found[-1]}")
        return tuple(found)

    def _check_complete(self, shards: list[str]) -> None:
        """Shards say themselves how many they are; without an index that is all there is to go by.

        Raises:
            MissingInput: One is not there.
            InputError: They are of several sets.
        """
        numbers = {(match[1], int(match[2]), int(match[3])) for match in map(_SHARD.fullmatch, shards) if match}
        (stem, total), *others = {(stem, total) for stem, _, total in numbers}
        if others:
            what = f"has shards of {count(len(others) + 1, 'set')} and no {BIN_INDEX}: {some(shards)}"
            raise InputError(what, path=str(self._root), hint="move those that are old out of the directory")
        if absent := sorted(set(range(1, total + 1)) - {number for _, number, _ in numbers}):
            names = [f"{stem}-{number:05d}-of-{total:05d}" for number in absent]
            what = f"lacks {count(len(names), 'shard')} of {total}: {some(names)}"
            raise MissingInput(what, path=str(self._root), hint="copy the checkpoint again")

    @cached_property
    def tensors(self) -> Mapping[str, TensorAt]:
        found: dict[str, TensorAt] = {}
        held: dict[str, frozenset[str]] = {}
        for path in self.files:
            names = self._opened[path].tensors
            held[path] = frozenset(names)
            for name, tensor in names.items():
                if name in found and self._weight_map is None:
                    what = f"holds {printable(name)}, which {printable(found[name].file)} holds too"
                    raise MalformedFile(what, why="without an index nothing says which one counts", path=path)
                if self._weight_map is None or self._weight_map.get(name) == path:
                    strides = None if tensor.contiguous else tensor.strides
                    found[name] = TensorAt(
                        path, tensor.dtype, tensor.shape, tensor.offset, strides, memory=f"{path}:{tensor.storage}"
                    )
        if self._weight_map is not None:
            self._check_placement(self._weight_map, held)
        return found

    @cached_property
    def left_behind(self) -> tuple[LeftBehind, ...]:
        return tuple(behind for path, file in self._opened.items() for behind in _left_behind(path, file))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes())

    @property
    def index_path(self) -> str | None:
        return BIN_INDEX if self._weight_map is not None else None

    # ---------------------------------------------------------------- files

    @cached_property
    def _opened(self) -> Mapping[str, TorchFile]:
        opened = {}
        for path in self.files:
            entry = self._repository.files[path]
            if entry.kind is not Kind.FILE:
                raise MissingInput(f"is a {entry.kind}", path=path, hint="put the file itself in its place")
            file = read_torch_file(partial(self._repository.source.read, path), entry.size, path)
            check_trusted(file)
            opened[path] = file
        return opened

    def _notes(self) -> Iterator[str]:
        for path, file in self._opened.items():
            unknown = [name for name, grade in named(file) if grade is Grade.UNKNOWN]
            if unknown:
                yield f"{printable(path)} names {some(unknown)}: not known here, not run, and left out"

    # ---------------------------------------------------------------- the index

    @cached_property
    def _weight_map(self) -> Mapping[str, str] | None:
        """Tensor name to shard; None where there is no index, or a single file wins over it as in transformers."""
        repository = self._repository
        if self._only is not None or BIN in repository.files or not repository.has(BIN_INDEX):
            return None
        document = repository.document(BIN_INDEX)
        raw = document.raw.get("weight_map") if document is not None else None
        if not isinstance(raw, dict) or not raw:
            raise MalformedFile("has no weight_map object", path=BIN_INDEX, place="/weight_map")
        for shard in raw.values():
            if not isinstance(shard, str) or unsafe(shard) or not _NAMED.fullmatch(shard):
                what = f"names the shard {printable(shard)!r}, which is no file of weights inside the checkpoint"
                raise MalformedFile(what, why="loaders would open whatever it leads to", path=BIN_INDEX)
        refuse_missing(BIN_INDEX, sorted({shard for shard in raw.values() if not repository.has(shard)}))
        return raw

    def _check_placement(self, weight_map: Mapping[str, str], held: Mapping[str, frozenset[str]]) -> None:
        times: dict[str, int] = {}
        for names in held.values():
            for name in names:
                times[name] = times.get(name, 0) + 1
        refuse_misplaced(
            BIN_INDEX,
            nowhere=[],
            absent=[name for name, shard in weight_map.items() if name not in held[shard]],
            unlisted=sorted(name for name in times if name not in weight_map),
            repeated=sorted(name for name, number in times.items() if number > 1),
        )
