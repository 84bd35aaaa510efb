"""IDX: the other sets of weights of a repository: pickled shards with an index of their own, and variants."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.formats.paths import unsafe
from repokit.formats.tensors import FLOATS
from repokit.linter.examples import Change, Example, edited, safetensors, single, tensors_of
from repokit.linter.examples_torch import torch_file
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.printable import count, printable
from repokit.repo.weights import SINGLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.formats.tensors import TensorInfo
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

BIN_INDEX: Final = "pytorch_model.bin.index.json"
_TENSORS: Final = tensors_of(single()[SINGLE])
_FIRST: Final = {name: info for name, info in _TENSORS.items() if ".layers.1." not in name}
_SECOND: Final = {name: info for name, info in _TENSORS.items() if ".layers.1." in name}
_PARTS: Final = ("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin")
_MAP: Final = {**dict.fromkeys(_FIRST, _PARTS[0]), **dict.fromkeys(_SECOND, _PARTS[1])}
_INDEX_TEXT: Final = json.dumps({"metadata": {"total_size": 9888}, "weight_map": _MAP})
_PICKLED: Final[dict[str, Change]] = {
    BIN_INDEX: _INDEX_TEXT,
    _PARTS[0]: torch_file(_FIRST),
    _PARTS[1]: torch_file(_SECOND),
}
FP16: Final = "model.fp16.safetensors"
_HALF: Final = {name: ("F16", shape) for name, (_, shape) in _TENSORS.items()}

_OF_PICKLES: Final = re.compile(r"(?:^|/)[^/]*\.bin\.index(?:\.[\w-]+)?\.json$")


class MissingPickledShard(Rule):
    """An index of pickled shards names files that are not in the repository, and there are no other weights.

    Loading fails half way through, after the other shards were downloaded.
    """

    code = "IDX150"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("the second shard was not uploaded", {SINGLE: None, **_PICKLED, _PARTS[1]: None}, also=("FIL203",)),
        Example("an index alone", {SINGLE: None, BIN_INDEX: _INDEX_TEXT}),
    )
    good = (Example("converted since, and the old index left", {BIN_INDEX: _INDEX_TEXT}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for index in pickled_indexes(repository):
            if (missing := lost_shards(repository, index)) and not has_weights_beside(repository, index.path):
                message = f"names {count(len(missing), 'shard')} that the repository does not have"
                yield self.finding(index.path, message, names=missing, place="/weight_map")


class LeftoverIndex(Rule):
    """An index of pickled shards is still there, and the shards are not.

    The weights were converted. Loaders that are told to read pickles, and tools that count sizes by it, stop.
    """

    code = "IDX350"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (Example("converted since", {BIN_INDEX: _INDEX_TEXT}),)
    good = (Example("only safetensors"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for index in pickled_indexes(repository):
            if (missing := lost_shards(repository, index)) and has_weights_beside(repository, index.path):
                message = f"names {count(len(missing), 'shard')} that the repository does not have"
                yield self.finding(index.path, message, names=missing, hint="delete it")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import unneeded_index

        return unneeded_index(repository, finding)


class DifferingVariant(Rule):
    """Two variants of the same weights are two models.

    Which one a user gets depends on the `variant` that they ask for: one of the two does not fit the config, or has
    layers that the other lacks.
    """

    code = "IDX151"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("half of the layers", {FP16: safetensors({n: t for n, t in _HALF.items() if ".layers.1." not in n})}),
        Example("more rows", {FP16: safetensors({**_HALF, "lm_head.weight": ("F16", (64, 16))})}),
    )
    good = (
        Example("another dtype", {FP16: safetensors(_HALF)}),
        Example(
            "buffers that a newer version does not save",
            {FP16: safetensors(_HALF), SINGLE: edited(add={"model.position_ids": ("I64", (1, 64))})},
        ),
        Example(
            "packed weights",
            {
                "model.int8.safetensors": safetensors(
                    {name: ("I8", (*shape, 1)) for name, (_, shape) in _TENSORS.items()}
                )
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for plain, variant in variants(repository):
            ours, theirs = floats(repository, plain), floats(repository, variant)
            if ours is None or theirs is None:
                continue
            differing = sorted(name for name in ours.keys() | theirs.keys() if differs(name, ours, theirs))
            if differing:
                message = f"differs from {plain} in {count(len(differing), 'tensor')}: {printable(differing[0], 120)}"
                hint = "save both from the same weights, or delete the one that is old"
                yield self.finding(variant, message, names=differing, place=differing[0], hint=hint)


RULES: Final = (MissingPickledShard(), DifferingVariant(), LeftoverIndex())


def pickled_indexes(repository: Repository) -> Iterator[Document]:
    """Every index of pickled shards, in folders too."""
    for path in repository.files:
        if _OF_PICKLES.search(path) and (document := repository.document(path)) is not None:
            yield document


def lost_shards(repository: Repository, index: Document) -> list[str]:
    """Shards that it names and that are not there; names that are no paths are passed over."""
    folder = index.path.rpartition("/")[0]
    named = index.mapping("weight_map")
    shards = {} if named is None else dict.fromkeys(path for path in named.raw.values() if isinstance(path, str))
    paths = (f"{folder}/{path}" if folder else path for path in shards if not unsafe(path))
    return [path for path in paths if not repository.has(path)]


def has_weights_beside(repository: Repository, path: str) -> bool:
    """Whether the folder of an index has weights in another format, which loaders take first."""
    folder = path.rpartition("/")[0]
    found = (other for other in repository.files if other.rpartition("/")[0] == folder)
    return any(other.endswith((".safetensors", ".gguf", ".h5", ".msgpack", ".onnx")) for other in found)


_VARIANT: Final = re.compile(r"(?P<stem>(?:.*/)?(?:model|diffusion_pytorch_model))\.[\w-]+\.safetensors")


def variants(repository: Repository) -> Iterator[tuple[str, str]]:
    """Pairs of a file and another one of the same name with a variant in it."""
    for path in repository.weights.safetensors:
        match = _VARIANT.fullmatch(path)
        if match is not None and repository.has(plain := f"{match['stem']}.safetensors"):
            yield plain, path


def floats(repository: Repository, path: str) -> Mapping[str, TensorInfo] | None:
    """The tensors of a file; None where some are packed, and so of other shapes by right."""
    tensors = repository.header(path).tensors
    wide = (tensor for tensor in tensors if len(tensor.shape) > 1)
    packed = any(tensor.dtype not in FLOATS and tensor.dtype not in _COUNTERS for tensor in wide)
    return None if packed else {tensor.name: tensor for tensor in tensors}


_COUNTERS: Final = frozenset({"I64", "BOOL"})  # positions and masks
_IN_BLOCK: Final = re.compile(r"(?:^|\.)\d+\.")


def differs(name: str, ours: Mapping[str, TensorInfo], theirs: Mapping[str, TensorInfo]) -> bool:
    """Whether a tensor has two shapes, or is a matrix of a block that one of the two files lacks."""
    one, other = ours.get(name), theirs.get(name)
    if one is not None and other is not None:
        return one.shape != other.shape
    found = one or other
    return found is not None and found.dtype in FLOATS and len(found.shape) > 1 and _IN_BLOCK.search(name) is not None
