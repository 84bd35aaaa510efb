"""Weights in a folder of torch.distributed.checkpoint: FSDP sharded as accelerate leaves it, torchtitan, Lightning.

The chunks of a tensor lie where each process wrote them; a build reads them from there, once each.
"""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from repokit.builder.checkpoints.stored import InFiles, LeftBehind, Part, TensorAt
from repokit.errors import InputError, LimitExceeded, MissingInput, UnsupportedSource
from repokit.formats.dcp import METADATA, by_file, read_metadata, unknown_globals
from repokit.formats.dcp_chunks import Chunks, counted
from repokit.formats.dcp_model import select
from repokit.formats.inert_pickle import MAX_PICKLE
from repokit.formats.tensors import DTYPE_BITS
from repokit.printable import count, printable, size, some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from repokit.formats.dcp import Chunk, DcpMetadata, Entry
    from repokit.formats.dcp_chunks import At
    from repokit.formats.dcp_model import Selected
    from repokit.formats.urls import Place
    from repokit.repo.repository import Repository

FSDP: Final = re.compile(r"pytorch_model_fsdp_(\d+)/")  # accelerate/utils/constants.py FSDP_MODEL_NAME, per model
_OF_OPTIMIZER: Final = re.compile(r"(?:.*/)?optim(?:izer)?s?(?:_\d+)?/")
_NESTED: Final = re.compile(r"checkpoint-\d+/")
_OF_A_RANK: Final = re.compile(r"(?:.*/)?__\d+\.metadata")
_RANK: Final = re.compile(r"(?:.*/)?__(\d+)_\d+\.distcp")
_AGAIN: Final = "copy the checkpoint again, with what every process wrote"


def dcp_weights(root: Place, repository: Repository, only: str | None = None) -> DcpWeights | None:
    """The weights of the one distributed checkpoint in a directory; None where there is none.

    Args:
        root: The directory.
        repository: It.
        only: The file that a person named.

    Raises:
        InputError: There are several, or one without what says what is in it.
    """
    if only is not None:
        named = PurePosixPath(only)
        return DcpWeights(root, repository, str(named.parent)) if named.name == METADATA else None
    folders = [path.removesuffix(METADATA) for path in repository.files if _is_metadata(path)]
    if not folders:
        _check_metadata(root, repository)
        return None
    if len(folders) > 1 and "" not in folders:
        what = f"holds {count(len(folders), 'distributed checkpoint')}: {some([f.rstrip('/') for f in folders])}"
        raise InputError(what, path=str(root), hint=f"name the one to build from: {root / folders[0].rstrip('/')}")
    return DcpWeights(root, repository, "" if "" in folders else folders[0])


def unread(repository: Repository) -> tuple[str, ...]:
    """What a person should know of a model of accelerate's beside weights that are whole and read in its place."""
    found = sorted({match[0] for path in repository.files if (match := FSDP.match(path)) and path.endswith(METADATA)})
    return tuple(f"{folder} holds a model too, and is not read; name it to build from it" for folder in found)


def _is_metadata(path: str) -> bool:
    folder = path.removesuffix(METADATA)
    if PurePosixPath(path).name != METADATA or _NESTED.match(path) or (folder and _OF_OPTIMIZER.fullmatch(folder)):
        return False
    return folder.count("/") <= 1


def _check_metadata(root: Place, repository: Repository) -> None:
    """Refuses parts that nothing describes: a hidden file is easily left behind, by `cp DIR/*` for example.

    Raises:
        MissingInput, UnsupportedSource: There are parts.
    """
    files = [path for path in repository.files if not _NESTED.match(path) and path.count("/") <= 1]
    if any(_OF_A_RANK.fullmatch(path) for path in files):
        what = "is a distributed checkpoint whose processes wrote metadata of their own, none of the whole"
        hint = "load it where it was trained, and save it with use_collectives=True, the default"
        raise UnsupportedSource(what, path=str(root), hint=hint)
    parts = [path for path in files if path.endswith(".distcp") and not _OF_OPTIMIZER.match(path)]
    if parts:
        what = f"has {count(len(parts), 'part')} of a distributed checkpoint and no {METADATA}: {some(parts)}"
        why = "it alone says which tensors they hold; training writes it last"
        raise MissingInput(what, why=why, path=str(root), hint="copy the hidden file too: cp -r DIR/. TARGET")


class DcpWeights(InFiles):
    """The model in one distributed checkpoint."""

    sharded = False

    def __init__(self, root: Place, repository: Repository, folder: str) -> None:
        """`folder`: where `.metadata` lies, with a slash at its end; "" or "." for the top."""
        super().__init__(root, repository)
        self._folder = "" if folder in {"", "."} else folder.rstrip("/") + "/"

    @property
    def index_path(self) -> str | None:
        return self._folder + METADATA

    @property
    def container(self) -> str:
        return self._selected.container

    @cached_property
    def files(self) -> tuple[str, ...]:
        found = tuple(self._folder + file for file in self._placed)
        if lost := [path for path in found if not self._repository.has(path)]:
            raise self._lost(lost)
        return found

    @cached_property
    def tensors(self) -> Mapping[str, TensorAt]:
        self._check_files()
        places = self._chunk_places()
        return {
            name: self._tensor(entry, [places[entry.name, chunk.offsets] for chunk in entry.chunks])
            for name, entry in self._entries.items()
        }

    @cached_property
    def left_behind(self) -> tuple[LeftBehind, ...]:
        where = self._folder.rstrip("/") or METADATA
        return tuple(LeftBehind(f"{where}: {printable(left.path, 200)}", left.what) for left in self._selected.left_out)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        unknown = [printable(name, 80) for name in unknown_globals(self._metadata)]
        return (f"{self.index_path} names {some(unknown)}: not known here, not run, and left out",) if unknown else ()

    # ---------------------------------------------------------------- what .metadata says

    @cached_property
    def _metadata(self) -> DcpMetadata:
        path = self._folder + METADATA
        if (entry := self._repository.files.get(path)) is None:
            what = "lies in a folder that is no part of a checkpoint"
            raise MissingInput(what, path=str(self._root / path), hint="copy the folder to another name")
        if entry.size > MAX_PICKLE:
            hint = (
                "python -m torch.distributed.checkpoint.format_utils dcp_to_torch CHECKPOINT model.pt, and build that"
            )
            raise LimitExceeded(f"has {size(entry.size)}; {size(MAX_PICKLE)} are read", path=path, hint=hint)
        return read_metadata(self._repository.source.read(path), path)

    @cached_property
    def _selected(self) -> Selected:
        return select(self._metadata)

    @cached_property
    def _entries(self) -> Mapping[str, Entry]:
        return self._metadata.entries(self._selected.names)

    @cached_property
    def _placed(self) -> Mapping[str, list[tuple[Entry, Chunk]]]:
        return by_file(self._entries)

    # ---------------------------------------------------------------- the files

    def _lost(self, lost: list[str]) -> MissingInput:
        """What is not there, of which processes, and what of the model lay in it."""
        names = dict.fromkeys(entry.name for path in lost for entry, _ in self._placed[path.removeprefix(self._folder)])
        ranks = sorted({int(match[1]) for match in map(_RANK.fullmatch, lost) if match})
        of = f" of process {some(list(map(str, ranks)))}" if ranks else ""
        what = f"lacks {count(len(lost), 'file')}{of}: {some(lost)}"
        why = f"{count(len(names), 'tensor')} of {len(self._entries):,} would have gaps: {some(list(names))}"
        return MissingInput(what, why=why, path=str(self._root), hint=_AGAIN)

    def _check_files(self) -> None:
        for path in self.files:
            kind = self._repository.files[path].kind
            if kind != "file":
                raise MissingInput(f"is a {kind}", path=path, hint="put the file itself in its place")

    def _chunk_places(self) -> dict[tuple[str, tuple[int, ...]], At]:
        """Where the elements of every chunk begin, by the name of its tensor and its offsets."""
        chunks = Chunks()
        found = {}
        for file, pairs in self._placed.items():
            path = self._folder + file
            with self._ranges(path) as (read, length):
                for entry, chunk in pairs:
                    found[entry.name, chunk.offsets] = chunks.place(read, length, path, entry, chunk)
        return found

    def _ranges(self, path: str) -> AbstractContextManager[tuple[Callable[[int, int], bytes], int]]:
        if isinstance(self._root, Path):
            return _opened(self._root / path)
        return nullcontext((partial(self._repository.source.read, path), self._repository.files[path].size))

    def _tensor(self, entry: Entry, places: list[At]) -> TensorAt:
        shape = counted(entry.dtype, entry.shape)
        if not places:  # it has no elements
            return TensorAt(self._folder + METADATA, entry.dtype, shape, 0)
        if len(places) == 1:
            file = self._folder + entry.chunks[0].file
            return TensorAt(file, entry.dtype, shape, places[0].offset, places[0].strides)
        parts = tuple(
            Part(
                self._folder + chunk.file,
                place.offset,
                counted(entry.dtype, chunk.sizes),
                place.strides,
                place=counted(entry.dtype, chunk.offsets),
            )
            for chunk, place in zip(entry.chunks, places, strict=True)
        )
        whole_rows = all(chunk.sizes[1:] == entry.shape[1:] for chunk in entry.chunks)
        if DTYPE_BITS[entry.dtype] < 8 and not whole_rows:
            what = f"is cut through the bytes of its {entry.dtype} elements"
            raise UnsupportedSource(what, path=self._folder + METADATA, place=printable(entry.name, 120))
        return TensorAt(parts[0].file, entry.dtype, shape, parts[0].offset, parts=parts)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Callable[[int, int], bytes], int]]:
    """A file as ranges, and its length. Opened once: there are up to a hundred thousand chunks to look into."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise MissingInput(f"cannot be read: {error.strerror}", path=str(path)) from None
    try:
        yield partial(_range, descriptor, path), os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _range(descriptor: int, path: Path, offset: int, length: int) -> bytes:
    try:
        return os.pread(descriptor, length, offset)
    except OSError as error:
        raise MissingInput(f"cannot be read: {error.strerror}", path=str(path)) from None
