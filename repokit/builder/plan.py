"""Recipe -> Plan: everything that a build will do, decided before it does any of it.

A plan holds the exact header bytes of every output shard and, for each, which bytes of which source file follow. Names
and totals are known before work starts, so every operation is an independent pure task.
"""

from __future__ import annotations

import hashlib
import time
from fnmatch import fnmatchcase
from itertools import pairwise
from math import prod
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from repokit.builder.execution.journal import NAME as JOURNAL_NAME
from repokit.builder.merging.checks import mergeable
from repokit.builder.reading import MEMORY
from repokit.builder.transforms.cast import is_cast
from repokit.errors import MissingInput, PlanError, RecipeError
from repokit.formats.paths import unsafe
from repokit.formats.tensors import DTYPE_BITS
from repokit.formats.urls import Url, is_url
from repokit.operations import (
    KEPT,
    Content,
    CopyFile,
    DeleteFile,
    Interleaved,
    Merged,
    Operation,
    Piece,
    View,
    WriteShard,
    WriteText,
)
from repokit.printable import count, printable, some
from repokit.repo.remote_files import looked_up
from repokit.schema.manifest import MANIFEST_NAME
from repokit.schema.recipe import Lint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from repokit.formats.urls import Place

PLAN_VERSION: Final = 2
# Of numpy 2: an array has at most 64 dimensions, and its bytes are counted in 63 bits.
_MOST_DIMENSIONS: Final = 64
_MOST_ELEMENTS: Final = 2**60 // 8
_OWN: Final = frozenset({MANIFEST_NAME, JOURNAL_NAME})


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")


class SourceFile(_Frozen):
    """A file that the plan reads. Size and time guard against a source that changes between plan and execution.

    Behind an address, `version` does what the time does on a disk; what is secret in the address is not in the path.

    `tensor:NAME` is a tensor of the program that made the plan; only that program can carry the plan out.
    """

    path: str
    size: int
    mtime_ns: int
    version: str | None = Field(None, description="Another one where the content is another, as its store says it.")


class LeftOut(_Frozen):
    """A file of the source that is not published, and why."""

    path: str
    reason: str
    size: int


class Summary(_Frozen):
    """What the plan does to the weights, in numbers, for people."""

    tensors: int = Field(description="In the output.")
    parameters: int
    weight_bytes: int = Field(description="Of tensor data in the output, headers not counted.")
    source_bytes: int = Field(description="Of the same tensors in the source.")
    shards: int
    renamed: int = 0
    repairs: tuple[str, ...] = Field((), description="What was changed in names beyond the prefixes of wrappers.")
    cast: int = 0
    casts: str = Field("", description="From which dtypes to which: `float32 to bfloat16`.")
    kept: int = Field(0, description="Tensors that weights.keep exempted from the cast.")
    dropped: tuple[str, ...] = ()
    tied: tuple[str, ...] = Field((), description="Tensors that are stored once, under another name.")
    untied: tuple[str, ...] = Field((), description="Heads that are written as copies of the embedding.")
    vocabulary: tuple[int, int] | None = Field(None, description="Token ids before and after, where that changes.")
    resized: tuple[str, ...] = Field((), description="Tensors that get rows for token ids, or lose them.")
    views: int = Field(0, description="Tensors that do not lie side by side in the source, and are written out.")
    quantized: str | None = Field(None, description="Method, and bits per weight; None of full-precision weights.")
    merged: int = Field(0, description="Tensors that adapters are merged into.")
    adapters: tuple[str, ...] = Field((), description="The adapters, each with its rank and its scale.")
    base: str | None = Field(None, description="Where the base lies that the result was held against.")
    lost: tuple[str, ...] = Field((), description="What that base has and the result has not.")
    changed: tuple[str, ...] = Field((), description="What is another thing in both.")
    held: str = Field("", description="What of it was held against that base, in words.")


class Plan(_Frozen):
    """What a build will do. Another plan_version is refused, never migrated."""

    plan_version: Literal[2] = 2
    repokit: str = Field(description="The version that made the plan.")
    output: str
    manifest: Literal["keep", "publish", "off"]
    sources: tuple[SourceFile, ...]
    operations: tuple[Operation, ...] = Field(description="Sorted by path.")
    left_out: tuple[LeftOut, ...]
    warnings: tuple[str, ...] = ()
    lint: Lint = Field(Lint(), description="Of the recipe: waivers hold for the plan too.")
    summary: Summary

    @model_validator(mode="after")
    def _executable(self) -> Self:
        """A plan may come out of a file: nothing in it may name a file outside, or a source that it does not have."""
        for operation in self.operations:
            if problem := _problem(operation, self.sources):
                raise ValueError(f"{printable(operation.path)} {problem}")
        if [operation.path for operation in self.operations] != sorted(
            {operation.path for operation in self.operations}
        ):
            raise ValueError("operations must be sorted by path, each path once")
        return self

    @property
    def size(self) -> int:
        """Bytes that the finished repository will have, the manifest not counted."""
        return sum(operation.size for operation in self.operations if not isinstance(operation, DeleteFile))

    @property
    def digest(self) -> str:
        """Equal for equal plans: names the staging directory, so that an interrupted build is found again."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def kept(self) -> frozenset[str]:
        """Paths that a person edited or added in the output, and that the plan carries over."""
        copied = (operation for operation in self.operations if isinstance(operation, CopyFile))
        return frozenset(operation.path for operation in copied if operation.origin == KEPT)

    def anywhere(self) -> Plan:
        """The same plan with absolute paths: it can be carried out from another folder."""
        sources = tuple(
            source if source.path.startswith(MEMORY) else source.model_copy(update={"path": _absolute(source.path)})
            for source in self.sources
        )
        base = None if self.summary.base is None else _absolute(self.summary.base)
        summary = self.summary.model_copy(update={"base": base})
        return self.model_copy(update={"output": _absolute(self.output), "sources": sources, "summary": summary})

    @classmethod
    def read(cls, path: Path) -> Plan:
        """A plan that `--plan` wrote.

        Raises:
            PlanError: It is not a plan, or one of another version.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise PlanError(f"cannot be read: {error.strerror}", path=str(path)) from None
        except ValidationError as error:
            first = error.errors()[0]
            place = "/" + "/".join(str(part) for part in first["loc"])
            what = f"is not a plan of version {PLAN_VERSION}: {printable(first['msg'])}"
            raise PlanError(
                what, path=str(path), place=place, hint="make it again with `repokit build --plan`"
            ) from None


def _absolute(path: str) -> str:
    return path if is_url(path) else str(Path(path).absolute())


def _problem(operation: Operation, sources: Sequence[SourceFile]) -> str | None:
    """Why an operation cannot be carried out, as words that follow its path."""
    if reason := unsafe(operation.path):
        return reason
    if operation.path.partition("/")[0] in _OWN:
        return "is the name of a file of repokit's own"
    match operation:
        case CopyFile(source=source) if source >= len(sources):
            return "is copied from a source that the plan does not have"
        case CopyFile(source=source, size=size) if size != sources[source].size:
            return "has another size than the file that it is copied from"
        case WriteShard(header=header, pieces=pieces, size=size):
            if any(_impossible(content, sources) for content in pieces):
                return "has a piece that cannot be read"
            if len(header) + sum(content.size for content in pieces) != size:
                return "has another size than its pieces"
    return None


def _impossible(content: Content, sources: Sequence[SourceFile]) -> bool:
    if content.cast is not None and not (is_cast(content.cast) and _whole_elements(content, content.cast)):
        return True
    if isinstance(content, Interleaved) and not _fits_together(content):
        return True
    if isinstance(content, Merged) and not (mergeable(content) and _is_array(content.shape)):
        return True
    if isinstance(content, Merged) and any(_impossible(part, sources) for part in content.base):
        return True
    return any(_unreadable(piece, sources) for piece in content.read())


def _whole_elements(content: Piece | Interleaved | Merged, cast: str) -> bool:
    """Whether what is cast is made of elements of the dtype that the cast begins with. Of merges: see mergeable."""
    width = DTYPE_BITS[cast.partition(">")[0]] // 8
    match content:
        case Piece(view=None):
            return content.gathered % width == 0
        case Piece(view=View(itemsize=itemsize)) | Interleaved(itemsize=itemsize):
            return itemsize == width
    return True


def _is_array(shape: tuple[int, ...], strides: tuple[int, ...] = ()) -> bool:
    """Whether numpy has arrays of this shape, be they empty."""
    if len(shape) > _MOST_DIMENSIONS or min((*shape, *strides), default=0) < 0:
        return False
    elements = prod(max(1, length) for length in shape)
    return max((elements, *strides)) <= _MOST_ELEMENTS


def _fits_together(whole: Interleaved) -> bool:
    """Whether every box lies inside the tensor and their elements are as many. Overlaps are the planner's to refuse."""
    rank = len(whole.shape)
    if not whole.boxes or not _is_array(whole.shape):
        return False
    for box in whole.boxes:
        if len(box.offsets) != rank or len(box.shape) != rank or box.piece.cast is not None:
            return False
        inside = zip(box.offsets, box.shape, whole.shape, strict=True)
        if any(offset < 0 or length < 0 or offset + length > limit for offset, length, limit in inside):
            return False
        if box.piece.size != prod(box.shape) * whole.itemsize:
            return False
        if box.piece.gathered > box.piece.length:  # one value for many: memory for what no file has
            return False
    return sum(prod(box.shape) for box in whole.boxes) == prod(whole.shape)


def _unreadable(piece: Piece, sources: Sequence[SourceFile]) -> bool:
    if piece.source >= len(sources) or piece.offset + piece.length > sources[piece.source].size:
        return True
    view = piece.view
    return view is not None and (
        len(view.shape) != len(view.strides) or not _is_array(view.shape, view.strides) or view.span != piece.length
    )


class Sources:
    """The files that a plan reads, each once, in the order in which they were first needed."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self._files: list[SourceFile] = []

    def index(self, path: Place) -> int:
        """The position of a file in the plan's list.

        Raises:
            MissingInput: It is not there, or is something that has no end, such as a pipe.
        """
        key = str(path)
        if key not in self._index and isinstance(path, Url):
            self._index[key] = len(self._files)
            self._files.append(_remote_file(path))
        if key not in self._index and isinstance(path, Path):
            try:
                status = path.stat()
            except OSError as error:
                raise MissingInput(f"cannot be read: {error.strerror}", path=key) from None
            if not S_ISREG(status.st_mode):
                raise MissingInput("is not a file", path=key)
            self._index[key] = len(self._files)
            self._files.append(SourceFile(path=key, size=status.st_size, mtime_ns=status.st_mtime_ns))
        return self._index[key]

    def memory(self, name: str, size: int) -> int:
        """The position of a tensor of a running program. No two plans share one: its values may have changed."""
        if name not in self._index:
            self._index[name] = len(self._files)
            self._files.append(SourceFile(path=name, size=size, mtime_ns=time.time_ns()))
        return self._index[name]

    def size(self, index: int) -> int:
        return self._files[index].size

    def __iter__(self) -> Iterator[SourceFile]:
        return iter(self._files)


def _remote_file(url: Url) -> SourceFile:
    """A file behind an address, as it was when it was listed."""
    found = url.found or looked_up(url)
    if found.size is None:
        what = "is of unknown length: its server does not tell"
        raise MissingInput(what, path=str(url), hint="download it, and name the file")
    return SourceFile(path=str(url), size=found.size, mtime_ns=0, version=found.version)


def copies(chosen: Mapping[str, tuple[Place, str]], sources: Sources) -> Iterator[CopyFile]:
    """One operation per file: its path in the output, where it lies, and where that is (`source`, `base`)."""
    for path, (place, origin) in chosen.items():
        index = sources.index(place)
        yield CopyFile(path=path, source=index, size=sources.size(index), origin=origin)


def ordered(operations: Iterable[WriteShard | WriteText | CopyFile]) -> tuple[Operation, ...]:
    """Sorted by path; two operations on one path are a bug of the planner or a contradiction in the recipe.

    Raises:
        PlanError: Two operations write one file, or one a file that no repository can have.
    """
    operations = list(operations)
    for operation in operations:
        own = operation.path.partition("/")[0] in _OWN
        if reason := unsafe(operation.path) or (own and "is the name of a file of repokit's own"):
            what = f"{printable(operation.path)} {reason}"
            raise PlanError(what, hint="leave it out: files.exclude, or no --keep")
    result = sorted(operations, key=lambda operation: operation.path)
    for one, other in pairwise(result):
        if one.path == other.path:
            raise PlanError(f"two files would be called {printable(one.path)}", hint="narrow files.include")
    return tuple(result)


def matching(names: Iterable[str], patterns: Iterable[str], key: str) -> set[str]:
    """Names that one of the globs matches.

    Raises:
        RecipeError: A glob matches nothing: a mistyped one would otherwise do nothing, in silence.
    """
    known = list(names)
    found: set[str] = set()
    for pattern in patterns:
        hits = {name for name in known if fnmatchcase(name, pattern)}
        if not hits:
            what = f"{key}: {printable(pattern)!r} matches none of {count(len(known), 'name')}"
            hint = f"globs match whole names, such as {some(known[:2])}"
            raise RecipeError(what, hint=hint)
        found |= hits
    return found
