"""IDX: what an index says of itself, beside its map: totals that tools show and plan by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Final

from repokit.formats.tensors import FLOATS
from repokit.linter.examples import DELETE, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety, SetJson
from repokit.linter.rule import Reads, Rule
from repokit.printable import printable, size
from repokit.repo.weights import INDEX

if TYPE_CHECKING:
    from repokit.repo.repository import Repository
    from repokit.repo.weight_index import Index

REBUILD: Final = "`repokit build` writes the index from the headers of the shards"


class IndexWithoutMetadata(Rule):
    """An index has no `metadata` object.

    transformers and diffusers read it unguarded and stop with KeyError; an empty object is enough.
    """

    code = "IDX108"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (Example("only the map was written", {INDEX: {"metadata": DELETE}}, "sharded"),)
    good = (Example("an empty object", {INDEX: {"metadata": {"total_size": DELETE}}}, "sharded"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for index in repository.weights.indexes:
            if index.document.raw.get("metadata") is None:
                yield self.finding(index.path, "has no metadata object", hint='add `"metadata": {}`')

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.index import with_metadata

        return with_metadata(repository, finding)


class WrongTotalSize(Rule):
    """`total_size` in the index is not the size of the tensors.

    Tools plan memory and show progress by it. It is a trace of an edit after which the index was not written anew.
    """

    code = "IDX203"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.SAFE
    bad = (Example("tensors were removed afterwards", {INDEX: {"metadata": {"total_size": 12_000}}}, "sharded"),)
    good = (
        Example("a float, as older writers spell it", {INDEX: {"metadata": {"total_size": 9888.0}}}, "sharded"),
        Example("no total", {INDEX: {"metadata": {"total_size": DELETE}}}, "sharded"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for index in repository.weights.indexes:
            said = None if index.metadata is None else index.metadata.number("total_size")
            if said is None or not complete(repository, index):
                continue
            found = sum(repository.files[path].size - repository.header(path).data_start for path in index.shards)
            if said != found:
                message = f"says {printable(said)} bytes; its shards hold {found:,} ({size(found)})"
                yield self.finding(index.path, message, place="/metadata/total_size", hint=REBUILD)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.index import total_size

        index = repository.weights.index_at(finding.path)
        found = None if index is None else total_size(repository, index)
        if found is None:
            return None
        return Fix(f"set `total_size` to {found}", (SetJson(finding.path, "/metadata/total_size", found),))


class WrongTotalParameters(Rule):
    """`total_parameters` in the index is not the number of parameters.

    The Hub shows it on the model page: 333,312 parameters for a model of 7.6 billion.
    """

    code = "IDX204"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.SAFE
    bad = (
        Example("counted on one rank of many", {INDEX: {"metadata": {"total_parameters": 7}}}, "sharded"),
        Example("counted before the head was added", {INDEX: {"metadata": {"total_parameters": 4432}}}, "sharded"),
    )
    good = (
        Example("no total", {INDEX: {"metadata": {"total_parameters": DELETE}}}, "sharded"),
        Example("parameters without buffers", {INDEX: {"metadata": {"total_parameters": 4928}}}, "sharded"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        index = repository.weights.index
        said = None if index is None or index.metadata is None else index.metadata.number("total_parameters")
        if index is None or said is None or not complete(repository, index) or repository.weights.quantized:
            return
        least, most = parameters(repository)
        if not least <= said <= most:
            message = f"says {printable(said)} parameters; its shards hold {most:,}"
            yield self.finding(index.path, message, place="/metadata/total_parameters", hint=REBUILD)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.index import with_total_parameters

        return with_total_parameters(repository, finding)


RULES: Final = (IndexWithoutMetadata(), WrongTotalSize(), WrongTotalParameters())


def complete(repository: Repository, index: Index) -> bool:
    """Whether the shards add up: all are there, and none holds a tensor of another."""
    there = not index.refused and all(repository.has(path) for path in index.shards)
    return there and not repository.weights.placement(index).repeated


def parameters(repository: Repository) -> tuple[int, int]:
    """Between which numbers the parameters must be: buffers, which are stored and not counted, have one dimension."""
    shapes = Counter((tensor.dtype in FLOATS, tensor.shape) for tensor in repository.weights.tensors.values())
    most = sum(prod(shape) * number for (_, shape), number in shapes.items())
    least = sum(prod(shape) * number for (is_float, shape), number in shapes.items() if is_float and len(shape) > 1)
    return least, most
