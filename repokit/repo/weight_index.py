"""Indexes of sharded weights, held against what the shards say about themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from repokit.formats.paths import unsafe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.repo.document import Document

SUFFIX: Final = ".safetensors"


@dataclass(frozen=True)
class Index:
    """A `*.safetensors.index.json`.

    Attributes:
        document: As it stands in the file.
        weight_map: Tensor name to shard, both as written; entries of another type are left out.
    """

    document: Document
    weight_map: Mapping[str, str]

    @property
    def path(self) -> str:
        return self.document.path

    @property
    def folder(self) -> str:
        """What stands before the names of shards to make paths of them: "" or `unet/`."""
        head, slash, _ = self.path.rpartition("/")
        return head + slash

    @property
    def metadata(self) -> Document | None:
        return self.document.mapping("metadata")

    @cached_property
    def names(self) -> Mapping[str, frozenset[str]]:
        """The tensors that the index places in each shard, by the shard's path in the repository, sorted.

        Shards that are not to be opened (see `refused`) are left out.
        """
        found: dict[str, list[str]] = {}
        for name, shard in self.weight_map.items():
            found.setdefault(shard, []).append(name)
        allowed = sorted(shard for shard in found if is_shard_path(shard))
        return {self.folder + shard: frozenset(found[shard]) for shard in allowed}

    @property
    def shards(self) -> tuple[str, ...]:
        """The files that the index names and that may be opened, relative to the repository, each once, sorted."""
        return tuple(self.names)

    @cached_property
    def refused(self) -> tuple[str, ...]:
        """Shards as written that lead out of the folder of the index or are no .safetensors files. Never opened."""
        return tuple(sorted(shard for shard in set(self.weight_map.values()) if not is_shard_path(shard)))


def is_shard_path(shard: str) -> bool:
    """Whether a shard's name is a plain relative path to a .safetensors file.

    huggingface_hub refuses an extension that differs from the index's own, and what leaves the folder; transformers
    5.24 joins whatever stands here to the folder and opens it.
    """
    return shard.endswith(SUFFIX) and unsafe(shard) is None


@dataclass(frozen=True)
class Placement:
    """Where the tensors of an index are, against where it says that they are. Only shards that exist take part.

    Attributes:
        absent: By shard, the tensors that the index places there and that it does not hold.
        unlisted: By shard, the tensors that it holds and that the index does not know at all.
        repeated: By shard, the tensors that it holds although the index takes them from another one.
        lost: Of the absent ones, those that no shard holds.
    """

    absent: Mapping[str, tuple[str, ...]]
    unlisted: Mapping[str, tuple[str, ...]]
    repeated: Mapping[str, tuple[str, ...]]
    lost: frozenset[str] = frozenset()


def placement(index: Index, held: Mapping[str, frozenset[str]]) -> Placement:
    """Compares an index with the names in the headers of its shards, by set algebra: there may be 100,000."""
    if all(names == index.names[shard] for shard, names in held.items()):
        return Placement({}, {}, {})
    known = frozenset(index.weight_map)  # a view of keys would be walked once a shard
    counts = Counter(name for names in held.values() for name in names)
    twice = {name for name, times in counts.items() if times > 1}
    absent = _sorted({shard: index.names[shard] - names for shard, names in held.items()})
    return Placement(
        absent=absent,
        unlisted=_sorted({shard: names - known for shard, names in held.items()}),
        repeated=_sorted({shard: (names & twice) - index.names[shard] for shard, names in held.items()}),
        lost=frozenset(name for names in absent.values() for name in names if name not in counts),
    )


def _sorted(names: Mapping[str, frozenset[str]]) -> dict[str, tuple[str, ...]]:
    return {shard: tuple(sorted(found)) for shard, found in names.items() if found}
