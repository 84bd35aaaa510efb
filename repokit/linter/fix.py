"""What a fix is: edits of a repository, as data.

A rule that knows how to take its defect away says so by `fixes` and gives, for each of its findings, a `Fix`. Nothing
is executed here: repokit.linter.fixing applies edits to a view of the repository, lints that, and goes on until no fix
is left; the result is operations, as of a build.

SetJson        a value of a JSON file, the rest of the text kept byte for byte
DropJson       a key of a JSON file, or an item of an array
SetMetadata    keys of the model card's front matter; comments and body kept
WriteFile      a small file, anew
DeleteFile     a file that is to be gone
EditTensors    tensors of a .safetensors file renamed or dropped, its metadata set
RebuildIndex   an index that says what the headers of the shards say
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Safety(StrEnum):
    """Whether a person has to look.

    SAFE changes nothing that a loader reads otherwise, or says what the repository itself proves. UNSAFE chooses
    between two readings, or discards something that cannot be had again. A note is about one reader of many: what takes
    it away is always unsafe, so that `--fix` changes nothing in a repository without errors and warnings.
    """

    SAFE = "safe"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class SetJson:
    """Sets a value, or adds it as the last key of its object, which exists.

    Attributes:
        path: A JSON file.
        pointer: JSON Pointer (RFC 6901) of the value.
        value: Any JSON value.
    """

    path: str
    pointer: str
    value: Any


@dataclass(frozen=True, slots=True)
class DropJson:
    """Removes a key of an object, or an item of an array."""

    path: str
    pointer: str


@dataclass(frozen=True, slots=True)
class SetMetadata:
    """Sets and removes keys of a front matter.

    Attributes:
        path: A model card; it need not exist.
        values: Key to value.
        without: Keys that are to be gone.
    """

    path: str
    values: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteFile:
    """The whole of a small file."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """Removes a file."""

    path: str


@dataclass(frozen=True, slots=True)
class EditTensors:
    """Writes a .safetensors file anew: the same bytes of the tensors that stay, under other names.

    Attributes:
        path: A .safetensors file.
        rename: Old name to new name.
        drop: Names that are to be gone. A file without tensors is deleted.
        metadata: `__metadata__` from now on; None keeps what is there.
    """

    path: str
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: frozenset[str] = frozenset()
    metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class RebuildIndex:
    """Writes an index from the headers of the shards, as they are once every other edit of the fix is done.

    Attributes:
        path: `model.safetensors.index.json`.
        shards: The files that it is to name; empty: those that it names now and that are there.
    """

    path: str
    shards: tuple[str, ...] = ()


Edit = SetJson | DropJson | SetMetadata | WriteFile | DeleteFile | EditTensors | RebuildIndex


@dataclass(frozen=True, slots=True)
class Fix:
    """What takes a finding away.

    Attributes:
        title: In words, as an order: "remove `_name_or_path`".
        edits: In their order.
    """

    title: str
    edits: tuple[Edit, ...]
