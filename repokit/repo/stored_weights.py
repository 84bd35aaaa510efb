"""The weights that a repository holds, in numbers, and its tensors as rows of a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.errors import InputError
from repokit.formats.ggml_types import GGML_TYPES
from repokit.repo.pickles import WEIGHTS
from repokit.repo.training_state import in_checkpoint, is_training_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.repo.repository import Repository

SAFETENSORS: Final = "safetensors"
GGUF: Final = "GGUF"
PICKLE: Final = "pickle"


class TensorRow(NamedTuple):
    """One tensor as it lies in its file; `size` in bytes, None where its dtype is not known."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int | None
    file: str


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """The weights that a loader reads.

    Attributes:
        format: `safetensors`, `GGUF` or `pickle`.
        files: Their paths.
        size: Bytes, of the tensors where they are known, else of the files.
        tensors: How many; None where the format is not read.
        elements: Of all tensors together; None as above. Parameters, unless the weights are packed.
        dtypes: Bytes by dtype, the most first.
        packed: Whether they are quantized, so that elements are not parameters.
        unread: Why the tensors are not known, where the files are.
    """

    format: str
    files: tuple[str, ...]
    size: int
    tensors: int | None = None
    elements: int | None = None
    dtypes: Mapping[str, int] = field(default_factory=dict)
    packed: bool = False
    unread: str | None = None


def stored_weights(repository: Repository) -> StoredWeights | None:
    """What a loader finds: safetensors, else the first GGUF model, else pickles; None where there are none of these.

    Raises:
        MalformedFile: One of the files has no valid header.
    """
    if paths := _safetensors(repository):
        rows = list(_header_rows(repository, paths))
        return _counted(SAFETENSORS, paths, rows, packed=repository.weights.quantized)
    if (model := next(repository.gguf.models, None)) is not None:
        paths = tuple(part.path for part in model.parts)
        return _counted(GGUF, paths, [row for path in paths for row in _gguf_rows(repository, path)])
    return _pickled(repository)


def matching_tensors(repository: Repository, pattern: str) -> tuple[TensorRow, ...]:
    """Rows whose name, or the end of it after a dot, a glob fits. Of every file, those in folders included.

    Raises:
        MalformedFile: One of the files has no valid header.
    """
    anywhere = f"*.{pattern}"
    rows = [*_header_rows(repository, repository.weights.safetensors)]
    rows += [row for path in repository.gguf.paths for row in _gguf_rows(repository, path)]
    rows += [row for path in repository.pickles.weights for row in _torch_rows(repository, path)]
    return tuple(row for row in rows if fnmatchcase(row.name, pattern) or fnmatchcase(row.name, anywhere))


def is_leftover(path: str) -> bool:
    """Whether a training run left the file, so that no loader reads it."""
    return is_training_state(path) or in_checkpoint(path)


def _safetensors(repository: Repository) -> tuple[str, ...]:
    """What a loader reads from the root, else every file, as pipelines have them in folders."""
    return repository.weights.files or tuple(path for path in repository.weights.safetensors if not is_leftover(path))


def _pickled(repository: Repository) -> StoredWeights | None:
    """Interpreted, never loaded. What holds no tensors that can be read has a size all the same."""
    paths = tuple(path for path in repository.files if WEIGHTS.search(path) and not is_leftover(path))
    if not paths:
        return None
    try:
        return _counted(PICKLE, paths, [row for path in paths for row in _torch_rows(repository, path)])
    except InputError as error:
        size = sum(repository.files[path].size for path in paths)
        return StoredWeights(PICKLE, paths, size, unread=str(error))


def _header_rows(repository: Repository, paths: tuple[str, ...]) -> Iterator[TensorRow]:
    for path in paths:
        for name, dtype, shape, begin, end in repository.header(path).tensors:
            yield TensorRow(name, dtype, shape, end - begin, path)


def _gguf_rows(repository: Repository, path: str) -> Iterator[TensorRow]:
    """Columns come first in ggml; here rows do, as everywhere else."""
    for tensor in repository.gguf.file(path).header.tensors:
        known = GGML_TYPES.get(tensor.kind)
        name = f"type {tensor.kind}" if known is None else known.name
        yield TensorRow(tensor.name, name, tensor.dims[::-1], tensor.size, path)


def _torch_rows(repository: Repository, path: str) -> Iterator[TensorRow]:
    """Each tensor once: two names of one storage are tied weights."""
    seen: set[tuple[str, int, tuple[int, ...]]] = set()
    for tensor in repository.pickles.table(path).tensors.values():
        place = (tensor.storage, tensor.offset, tensor.shape)
        if place not in seen:
            seen.add(place)
            yield TensorRow(tensor.name, tensor.dtype, tensor.shape, tensor.size, path)


def _counted(format_: str, paths: tuple[str, ...], rows: list[TensorRow], *, packed: bool = False) -> StoredWeights:
    sizes: Counter[str] = Counter()
    for row in rows:
        sizes[row.dtype] += row.size or 0
    elements = sum(prod(row.shape) for row in rows)
    return StoredWeights(format_, paths, sum(sizes.values()), len(rows), elements, dict(sizes.most_common()), packed)
