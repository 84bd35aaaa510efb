"""Recipe -> Plan: everything that a build will do, decided before it does any of it.

A plan holds the exact header bytes of every output shard and, for each, which bytes of which source file follow. Names
and totals are known before work starts, so every operation is an independent pure task.
"""

from __future__ import annotations

import hashlib
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from repokit.errors import PlanError, RecipeError
from repokit.operations import CopyFile, DeleteFile, Operation, WriteShard, WriteText
from repokit.printable import count, printable, some

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PLAN_VERSION = 1


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")


class SourceFile(_Frozen):
    """A file that the plan reads. Size and time guard against a source that changes between plan and execution."""

    path: str
    size: int
    mtime_ns: int


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
    cast: int = 0
    kept: int = Field(0, description="Tensors that weights.keep exempted from the cast.")
    dropped: tuple[str, ...] = ()
    tied: tuple[str, ...] = Field((), description="Tensors that are stored once, under another name.")


class Plan(_Frozen):
    """What a build will do. Another plan_version is refused, never migrated."""

    plan_version: Literal[1] = 1
    repokit: str = Field(description="The version that made the plan.")
    output: str
    manifest: Literal["keep", "publish", "off"]
    sources: tuple[SourceFile, ...]
    operations: tuple[Operation, ...] = Field(description="Sorted by path.")
    left_out: tuple[LeftOut, ...]
    warnings: tuple[str, ...] = ()
    summary: Summary

    @property
    def size(self) -> int:
        """Bytes that the finished repository will have, the manifest not counted."""
        return sum(operation.size for operation in self.operations if not isinstance(operation, DeleteFile))

    @property
    def digest(self) -> str:
        """Equal for equal plans: names the staging directory, so that an interrupted build is found again."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

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


class Sources:
    """The files that a plan reads, each once, in the order in which they were first needed."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self._files: list[SourceFile] = []

    def index(self, path: Path) -> int:
        """The position of a file in the plan's list."""
        key = str(path)
        if key not in self._index:
            status = path.stat()
            self._index[key] = len(self._files)
            self._files.append(SourceFile(path=key, size=status.st_size, mtime_ns=status.st_mtime_ns))
        return self._index[key]

    def size(self, index: int) -> int:
        return self._files[index].size

    def __iter__(self) -> Iterator[SourceFile]:
        return iter(self._files)


def copies(chosen: Mapping[str, tuple[Path, str]], sources: Sources) -> Iterator[CopyFile]:
    """One operation per file: its path in the output, where it lies, and where that is (`source`, `base`)."""
    for path, (place, origin) in chosen.items():
        index = sources.index(place)
        yield CopyFile(path=path, source=index, size=sources.size(index), origin=origin)


def ordered(operations: Iterable[WriteShard | WriteText | CopyFile]) -> tuple[Operation, ...]:
    """Sorted by path; two operations on one path are a bug of the planner or a contradiction in the recipe.

    Raises:
        PlanError: Two operations write one file.
    """
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
