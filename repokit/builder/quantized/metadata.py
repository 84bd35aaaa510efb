"""`__metadata__` of the shards of quantized weights.

torchao writes there how each of its tensors is put together again: without it nothing can read them. What other
methods need lies in tensors and in config.json; their metadata is what every plain shard has.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from repokit.builder.weights import METADATA
from repokit.errors import MalformedFile, PlanError
from repokit.formats.paths import is_local
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.builder.checkpoints.sources import Checkpoint
    from repokit.builder.quantized.files import Declaration
    from repokit.builder.weights import PlannedWeights

# torchao 0.18 prototype/safetensors/safetensors_utils.py `is_metadata_torchao`: a JSON list of names, each of which is
# a key whose value says how the tensor is made.
NAMES: Final = "tensor_names"

Metadata = dict[str, str]


def shard_metadata(
    planned: PlannedWeights, checkpoint: Checkpoint, declaration: Declaration
) -> tuple[Mapping[str, str], ...]:
    """The metadata of each shard of a plan; () where all have that of a plain one.

    Raises:
        MalformedFile: Two files say different things of one tensor, or what torchao wrote is no list of names.
        PlanError: Tensors have other names than the metadata gives them, or are gone.
    """
    found = {path: _kept(path, checkpoint, declaration) for path in checkpoint.weights.files if _has_header(path)}
    formats = {name: own for own in found.values() if (name := own.get("format", "pt")) != "pt"}
    if not any(own.keys() - {"format"} for own in found.values()) and not formats:
        return ()
    if (planned.renamed or planned.dropped) and any(NAMES in own for own in found.values()):
        what = "the metadata of the shards gives each tensor by its name, and the recipe renames or drops some"
        why = "torchao could not put the tensors together again"
        raise PlanError(what, why=why, path=next(iter(found)), hint="weights: {rename: off, drop: []}")
    return tuple(_of_shard(names, planned, checkpoint, found) for names in planned.shards)


def _has_header(path: str) -> bool:
    return path.endswith(".safetensors")


def _kept(path: str, checkpoint: Checkpoint, declaration: Declaration) -> Metadata:
    """What belongs to the weights. Trainers put their arguments there too, and those stay behind."""
    metadata = checkpoint.repository.header(path).metadata or {}
    if not declaration.known:  # of a newer method nobody knows what it needs
        return {key: value for key, value in metadata.items() if not is_local(value)} | _format(metadata)
    kept = _format(metadata)
    if NAMES in metadata:
        kept |= {key: metadata[key] for key in (NAMES, *_names(metadata, path)) if key in metadata}
    return kept


def _format(metadata: Mapping[str, str]) -> Metadata:
    """MLX marks its files; every other word is one that loaders of plain shards refuse."""
    return {"format": "mlx"} if metadata.get("format") == "mlx" else dict(METADATA)


def _names(metadata: Mapping[str, str], path: str) -> list[str]:
    try:
        names = json.loads(metadata[NAMES])
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        what = "is no JSON list of names"
        raise MalformedFile(what, why="torchao reads its tensors by it", path=path, place=f"__metadata__ {NAMES}")
    return names


def _of_shard(
    names: list[str], planned: PlannedWeights, checkpoint: Checkpoint, found: Mapping[str, Metadata]
) -> Metadata:
    """Of a shard that is a file of the source: its own; else all there is, as transformers writes it into each."""
    files = {planned.tensors[name].stored.file for name in names}
    own = next(iter(files))
    whole = len(files) == 1 and len(names) == sum(tensor.file == own for tensor in checkpoint.tensors.values())
    return found[own] if whole and own in found else _united(found)


def _united(found: Mapping[str, Metadata]) -> Metadata:
    united: Metadata = {}
    listed: dict[str, None] = {}
    for path, metadata in found.items():
        for key, value in metadata.items():
            if key == NAMES:
                listed.update(dict.fromkeys(_names(metadata, path)))
            elif united.setdefault(key, value) != value:
                what = f"says something else of {printable(key, 80)} than another shard does"
                raise MalformedFile(what, why="which of the two is right nobody knows", path=path, place="__metadata__")
    return united | ({NAMES: json.dumps(list(listed))} if listed else {})
