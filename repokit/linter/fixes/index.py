"""Indexes and shards: written anew from headers, copies that nothing reads taken out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from repokit.formats.tensors import FLOATS
from repokit.linter.fix import DeleteFile, Edit, EditTensors, Fix, RebuildIndex, SetJson
from repokit.linter.rules.index import single_of, strangers
from repokit.linter.rules.index_totals import complete, parameters
from repokit.printable import count, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from repokit.linter.finding import Finding
    from repokit.repo.repository import Repository
    from repokit.repo.weight_index import Index


def index_of(repository: Repository, shard: str) -> Index | None:
    """The index that names a shard; None where none does, or two do."""
    found = [index for index in repository.weights.indexes if shard in index.shards]
    return found[0] if len(found) == 1 else None


def is_whole(repository: Repository, index: Index) -> bool:
    """Whether every shard that an index names is there, so that writing it anew loses none."""
    return not index.refused and all(repository.has(shard) for shard in index.shards)


def over_found_shards(repository: Repository, finding: Finding) -> Fix | None:
    """The index over the files that do hold its tensors: each in exactly one of them, and no file with others."""
    index = repository.weights.index_at(finding.path)
    if index is None:
        return None
    there = {shard for shard in index.shards if repository.has(shard)}
    beside = strangers(repository, index)
    held = {path: {tensor.name for tensor in repository.header(path).tensors} for path in (*there, *beside)}
    held = {path: names for path, names in held.items() if path in there or names & index.weight_map.keys()}
    times = Counter(name for names in held.values() for name in names)
    if times.keys() != index.weight_map.keys() or max(times.values(), default=0) != 1:
        return None
    title = f"rebuild {printable(index.path)} from the {count(len(held), 'file')} with its tensors"
    return Fix(title, (RebuildIndex(index.path, tuple(sorted(held))),))


def with_tensors_where_they_are(repository: Repository, finding: Finding) -> Fix | None:
    """The index as its shards are. What no shard holds is left out only where the architecture does without."""
    index = index_of(repository, finding.path)
    if index is None or not is_whole(repository, index):
        return None
    placed = repository.weights.placement(index)
    times = Counter(name for names in repository.weights.held(index).values() for name in names)
    if any(times[name] > 1 for name in finding.names):
        return None  # which of two copies is meant, only the index could say
    lost = [name for name in finding.names if name in placed.lost]
    if lost and not is_spare(repository):
        return None
    return Fix(f"rebuild {printable(index.path)} from the headers of its shards", (RebuildIndex(index.path),))


def is_spare(repository: Repository) -> bool:
    """Whether what is there is all that a verified skeleton asks for, so that nothing that is lost was needed."""
    from repokit.architectures import ConfigUnusable, Evidence, NotCovered, skeleton
    from repokit.architectures.comparison import compare

    config, weights = repository.config, repository.weights
    if config is None or "auto_map" in config or weights.quantized or weights.of_adapter:
        return False
    try:
        wanted = skeleton(config.raw)
    except (NotCovered, ConfigUnusable):
        return False
    found = compare(wanted, {name: tensor.shape for name, tensor in weights.tensors.items()})
    return wanted.evidence is Evidence.VERIFIED and found.exact


def without_copies(repository: Repository, finding: Finding) -> Fix | None:
    """A shard without the tensors that the index takes from another one."""
    index = index_of(repository, finding.path)
    if index is None or not is_whole(repository, index):
        return None
    held = repository.weights.held(index)
    homes = {name: index.folder + index.weight_map.get(name, "") for name in finding.names}
    if any(home == finding.path or name not in held.get(home, frozenset()) for name, home in homes.items()):
        return None
    edits: list[Edit] = [EditTensors(finding.path, drop=frozenset(finding.names))]
    said = None if index.metadata is None else index.metadata.number("total_size")
    sizes = {shard: {t.name: t.end - t.begin for t in repository.header(shard).tensors} for shard in held}
    dropped = sum(sizes[finding.path][name] for name in finding.names)
    if said is not None and said != sum(sum(own.values()) for own in sizes.values()) - dropped:
        edits.append(RebuildIndex(index.path))
    which = count(len(finding.names), "tensor")
    return Fix(f"take {which} that {index.path} places elsewhere out of {printable(finding.path)}", tuple(edits))


Kinds = dict[str, tuple[str, tuple[int, ...]]]


def kinds(repository: Repository, paths: Iterable[str]) -> Kinds:
    """Dtype and shape of every tensor in these files, by name."""
    return {tensor.name: (tensor.dtype, tensor.shape) for path in paths for tensor in repository.header(path).tensors}


def without_single_file(repository: Repository, finding: Finding) -> Fix | None:
    """The shards alone, where the one file holds the same tensors as they do."""
    index = next((one for one in repository.weights.indexes if single_of(one) == finding.path), None)
    if index is None or not is_whole(repository, index):
        return None
    if kinds(repository, [finding.path]) != kinds(repository, index.shards):
        return None
    title = f"delete {printable(finding.path)}, whose tensors the shards of {printable(index.path)} hold too"
    return Fix(title, (DeleteFile(finding.path),))


def without_second_set(repository: Repository, finding: Finding) -> Fix | None:
    """The folder without a file of which every tensor is in the shards of the index too, alike in dtype and shape."""
    for index in repository.weights.indexes:
        if finding.path not in strangers(repository, index) or not is_whole(repository, index):
            continue
        named = kinds(repository, index.shards)
        if kinds(repository, [finding.path]).items() <= named.items():
            title = f"delete {printable(finding.path)}, whose tensors the shards of {printable(index.path)} hold too"
            return Fix(title, (DeleteFile(finding.path),))
    return None


# ---------------------------------------------------------------- totals


def total_size(repository: Repository, index: Index) -> int | None:
    """Bytes of all tensors; None where the shards do not add up."""
    if not complete(repository, index):
        return None
    return sum(repository.files[path].size - repository.header(path).data_start for path in index.shards)


def with_metadata(repository: Repository, finding: Finding) -> Fix | None:
    """The object that is missing, with the size of the tensors where that is known."""
    index = repository.weights.index_at(finding.path)
    if index is None:
        return None
    total = total_size(repository, index)
    value: Mapping[str, int] = {} if total is None else {"total_size": total}
    title = "add metadata" if total is None else f"add metadata with total_size {total:,}"
    return Fix(title, (SetJson(index.path, "/metadata", value),))


def with_total_parameters(repository: Repository, finding: Finding) -> Fix | None:
    """The number of parameters, where every tensor has the name of one: buffers are stored and do not count."""
    tensors = repository.weights.tensors
    if not all(name.endswith(("weight", "bias")) and one.dtype in FLOATS for name, one in tensors.items()):
        return None
    _, most = parameters(repository)
    return Fix(f"set total_parameters to {most:,}", (SetJson(finding.path, "/metadata/total_parameters", most),))
