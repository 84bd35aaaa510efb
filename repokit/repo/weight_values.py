"""The weight files of a repository and the values in them, for `--deep`: one pass over every file.

The manifest of a build says which sha256 a file had; values says what is looked for in its tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING

from repokit.errors import InputError, MalformedFile
from repokit.formats.ggml_types import GGML_TYPES
from repokit.formats.tensors import FLOATS
from repokit.printable import printable
from repokit.repo.pickles import left_by_training
from repokit.repo.source import Kind
from repokit.repo.value_stream import CHUNK, opened, stream, works
from repokit.repo.values import Look, Tensor, TensorValues, extent
from repokit.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from repokit.repo.repository import Repository
    from repokit.repo.source import Source
    from repokit.repo.value_stream import Outcome, Progress
    from repokit.schema.manifest import ManifestFile


@dataclass(frozen=True)
class _File:
    """What was found in one file.

    Attributes:
        values: By name.
        sha256: Where the manifest names it, at this length.
        error: Why it could not be read, if it could not.
    """

    values: Mapping[str, TensorValues]
    sha256: str | None
    error: InputError | None


class Values:
    """The values of every weight file; read at the first question."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    @cached_property
    def readable(self) -> Mapping[str, Mapping[str, TensorValues]]:
        """Every file of safetensors that could be read, and GGUF as far as its tensors are plain; tensors by name."""
        return {path: file.values for path, file in self._files.items() if file.error is None}

    def tensors(self) -> Iterator[tuple[str, Mapping[str, TensorValues]]]:
        """The same, one by one.

        Raises:
            InputError: At its end: a file could not be read, so that what is in it is not known.
        """
        yield from self.readable.items()
        self.check_read()

    def check_read(self) -> None:
        """Says which file could not be read; for the end of a rule, so that it tells first what it has found.

        Raises:
            InputError: There is one.
        """
        for file in self._files.values():
            if file.error is not None:
                raise file.error

    def of(self, path: str) -> Mapping[str, TensorValues]:
        """The tensors of one file by name; none where it is not among those that are looked at.

        Raises:
            InputError: It could not be read.
        """
        file = self._files.get(path)
        if file is not None and file.error is not None:
            raise file.error
        return {} if file is None else file.values

    @cached_property
    def places(self) -> Mapping[str, Tensor]:
        """The tensors that a loader takes, by name: see Weights.tensors. No value is read.

        Raises:
            MalformedFile: One of the files has no valid header.
        """
        repository, index = self._repository, self._repository.weights.index
        placed = {} if index is None else index.names
        found: dict[str, Tensor] = {}
        for path in repository.weights.files:
            own = placed.get(path, frozenset())
            for tensor in tensors_in(repository, path):
                if tensor.name not in found or tensor.name in own:
                    found[tensor.name] = tensor
        return found

    def sha256(self, path: str) -> str | None:
        """Of a file that the manifest names, where it has the length that it had.

        Raises:
            InputError: It could not be read.
        """
        file = self._files.get(path)
        if file is not None and file.sha256 is None and file.error is not None:
            raise file.error
        return None if file is None else file.sha256

    @cached_property
    def manifest(self) -> Mapping[str, ManifestFile]:
        """The weight files of repokit-manifest.json that are here, by path; {} without one.

        Raises:
            MalformedFile: It is not a manifest.
        """
        from pydantic import ValidationError  # for `--deep` alone

        from repokit.schema.manifest import MANIFEST_NAME, Manifest

        document = self._repository.json(MANIFEST_NAME)
        if document is None:
            return {}
        try:
            manifest = Manifest.model_validate(document)
        except ValidationError as error:
            first = printable(error.errors(include_url=False, include_input=False)[0]["msg"], 200)
            raise MalformedFile(f"is not a manifest of this version: {first}", path=MANIFEST_NAME) from None
        return {file.path: file for file in manifest.files if file.path in self._weight_files}

    # ---------------------------------------------------------------- reading

    @cached_property
    def _weight_files(self) -> frozenset[str]:
        repository = self._repository
        named = (*repository.weights.safetensors, *repository.gguf.paths, *repository.pickles.weights)
        return frozenset(path for path in named if repository.files[path].kind is Kind.FILE)

    @cached_property
    def _files(self) -> Mapping[str, _File]:
        repository = self._repository
        listed: dict[str, tuple[Tensor, ...]] = {}
        errors: dict[str, InputError] = {}
        for path in (*repository.weights.safetensors, *repository.gguf.paths):
            try:
                listed[path] = () if left_by_training(path) else tuple(tensors_in(repository, path))
            except InputError as error:
                errors[path] = error
        todo = []
        for path in sorted(listed.keys() | self._hashed.keys()):
            extents = [extent(tensor) for tensor in listed.get(path, ())]
            todo += works(path, extents, self._hashed.get(path), apart=len(self._hashed) < repository.jobs)
        outcomes = stream(
            repository.source,
            todo,
            lambda work: Look(listed.get(work.path, ())),
            jobs=repository.jobs,
            progress=repository.progress,
        )
        return _merged(listed, errors, outcomes)

    @cached_property
    def _hashed(self) -> Mapping[str, int]:
        """The lengths of the files whose hash is wanted."""
        try:
            manifest = self.manifest
        except MalformedFile:
            return {}  # the rule that asks for it says so
        sizes = {path: self._repository.files[path].size for path in manifest}
        return {path: size for path, size in sizes.items() if size == manifest[path].size}


def _merged(
    listed: Mapping[str, tuple[Tensor, ...]], errors: Mapping[str, InputError], outcomes: Sequence[Outcome[Look]]
) -> Mapping[str, _File]:
    """What was found in each file, in the order of its parts."""
    by_path: dict[str, list[Outcome[Look]]] = {path: [] for path in sorted(listed.keys() | errors.keys())}
    for outcome in outcomes:
        by_path.setdefault(outcome.work.path, []).append(outcome)
    files = {}
    for path, parts in by_path.items():
        found: dict[int, TensorValues] = {}
        for part in parts:
            for index, more in part.consumer.found.items():
                if index in found:
                    found[index].merge(more)
                else:
                    found[index] = more
        tensors = enumerate(listed.get(path, ()))
        values = {tensor.name: found.get(index) or TensorValues(tensor) for index, tensor in tensors}
        error = next((part.error for part in parts if part.error is not None), errors.get(path))
        digest = next((part.sha256 for part in parts if part.sha256 is not None), None)
        files[path] = _File(values, digest, error)
    return files


def tensors_in(repository: Repository, path: str) -> Iterator[Tensor]:
    """The tensors of a file that are looked at.

    Raises:
        MalformedFile: It has no valid header.
    """
    if path.endswith(".safetensors"):
        header = repository.header(path)
        for name, dtype, shape, begin, end in header.tensors:
            yield Tensor(path, name, dtype, shape, header.data_start + begin, end - begin)
        return
    gguf = repository.gguf.file(path).header
    for one in gguf.tensors:
        kind = GGML_TYPES.get(one.kind)
        if kind is not None and kind.name in FLOATS and one.size is not None:
            yield Tensor(path, one.name, kind.name, one.dims[::-1], gguf.data_start + one.offset, one.size)


Place = tuple["Source", Tensor]


def differing(
    pairs: Sequence[tuple[Place, Place]], *, jobs: int = 2, progress: Progress | None = None
) -> Iterator[bool]:
    """For each pair of tensors whether their bytes differ, in order; whoever has seen enough stops asking.

    Raises:
        InputError: One of them cannot be read.
    """
    done, total = 0, sum(one[1].size for one, _ in pairs)
    executor = Threads(max_workers=max(1, jobs), thread_name_prefix="repokit")
    stopped = Event()
    try:
        for (one, _), equal in zip(
            pairs, executor.map(lambda pair: same(pair[0], pair[1], stopped), pairs), strict=True
        ):
            done += one[1].size
            if progress is not None:
                progress("compare", done, total)
            yield not equal
    finally:
        stopped.set()
        executor.shutdown(cancel_futures=True)


def same(one: Place, other: Place, stopped: Event | None = None) -> bool:
    """Whether two tensors are the same bytes of one dtype and shape; stops at the first chunk that differs.

    Raises:
        InputError: One of them cannot be read.
    """
    (source, mine), (other_source, theirs) = one, other
    if (mine.dtype, mine.shape, mine.size) != (theirs.dtype, theirs.shape, theirs.size):
        return False
    content, expected = bytearray(min(CHUNK, mine.size)), bytearray(min(CHUNK, mine.size))
    with opened(source, mine.path) as fill, opened(other_source, theirs.path) as fill_other:
        for begin in range(0, mine.size, CHUNK):
            if (length := min(CHUNK, mine.size - begin)) < len(content):
                del content[length:], expected[length:]
            fill(memoryview(content), mine.offset + begin)
            fill_other(memoryview(expected), theirs.offset + begin)
            if content != expected or (stopped is not None and stopped.is_set()):
                return False
    return True
