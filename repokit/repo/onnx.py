"""The ONNX models of a repository, and the files that hold their tensors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from repokit.errors import UnsupportedSource
from repokit.formats.onnx import external_tensors
from repokit.formats.signature import LFS_POINTER
from repokit.repo.source import Kind

if TYPE_CHECKING:
    from repokit.repo.repository import Repository


class DataFile(NamedTuple):
    """A file that holds tensors of a model.

    Attributes:
        location: As the model spells it.
        tensors: Their names.
        end: How many bytes it must have at least.
    """

    location: str
    tensors: tuple[str, ...]
    end: int


def models(repository: Repository) -> tuple[str, ...]:
    """Every ONNX model by path, pointers to what cannot be seen aside."""
    found = (path for path, entry in repository.files.items() if path.endswith(".onnx") and entry.kind is Kind.FILE)
    return tuple(path for path in found if not repository.head(path).startswith(LFS_POINTER))


def data_files(repository: Repository, path: str) -> tuple[DataFile, ...]:
    """The files in which a model keeps tensors; none where the model is too large to be walked over a network.

    Raises:
        MalformedFile: It is no ONNX model.
    """
    return repository.remember(("onnx", path), lambda: _data_files(repository, path))


def _data_files(repository: Repository, path: str) -> tuple[DataFile, ...]:
    read = partial(repository.source.read, path)
    try:
        tensors = external_tensors(read, repository.files[path].size, path)
    except UnsupportedSource:  # so many reads that what is in it is weights, not a graph
        return ()
    names: dict[str, list[str]] = {}
    ends: dict[str, int] = {}
    for tensor in tensors:
        names.setdefault(tensor.location, []).append(tensor.name)
        ends[tensor.location] = max(ends.get(tensor.location, 0), tensor.end or 0)
    return tuple(DataFile(location, tuple(names[location]), ends[location]) for location in names)
