"""FIL, WGT: files against the manifest of their build, pickles beside them, the base model; with --deep."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from repokit.formats.tensors import FLOATS
from repokit.formats.torch_file import read_torch_file
from repokit.linter.examples import Example, edited, shard, sharded, single, tensors_of
from repokit.linter.examples_torch import torch_file
from repokit.linter.examples_values import planted
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.misnamed import MANIFEST, manifest_of
from repokit.linter.rules.pickles import BIN, same_names
from repokit.printable import count, printable, some
from repokit.repo.card import README
from repokit.repo.directory import Directory
from repokit.repo.weights import SINGLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repokit.repo.repository import Repository
    from repokit.repo.weight_values import Place

UP: Final = "model.layers.1.mlp.up_proj.weight"
MARKER: Final = {"model.num_batches_tracked": ("I64", ())}
_MATRIX: Final = 2  # dimensions
_TENSORS: Final = tensors_of(single()[SINGLE])


class ChangedWeightFile(Rule):
    """A weight file is not the one that was built: repokit-manifest.json has another length or sha256.

    Its header is whole, so that every loader takes it; some of its bytes were lost or changed on the way, and the
    answers are wrong without an error.
    """

    code = "FIL120"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TENSORS
    bad = (
        Example(
            "sixteen bytes of a shard changed on the way",
            {MANIFEST: manifest_of(sharded()), shard(2): lambda old: old[:-16] + bytes(reversed(old[-16:]))},
            "sharded",
        ),
        Example("cut off and padded", {MANIFEST: manifest_of(single()), SINGLE: lambda old: old[:-2] + bytes(2)}),
        Example(
            "saved again since",
            {MANIFEST: manifest_of(single()), SINGLE: edited(add=MARKER)},
            also=("FIL230",),
        ),
    )
    good = (
        Example("as it was built", {MANIFEST: manifest_of(sharded())}, "sharded"),
        Example("a card that was edited since", {MANIFEST: manifest_of(single()), README: lambda old: old + b"\n"}),
        Example("no manifest"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        values = repository.values
        for path, file in values.manifest.items():
            length = repository.files[path].size
            if length != file.size:
                message = f"has {length:,} bytes; {MANIFEST} says {file.size:,}"
            elif (digest := values.sha256(path)) != file.sha256:
                message = f"has the sha256 {str(digest)[:12]}..., not {file.sha256[:12]}..., with which it was built"
            else:
                continue
            yield self.finding(path, message, hint="copy the file again from where it was built, or build again")


class DifferingPickledValues(Rule):
    """Pickled weights beside safetensors have other values.

    Names and shapes are the same, and two people who load the repository run two models: which one is up to the loader
    and its version.
    """

    code = "WGT123"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TENSORS
    bad = (
        Example(
            "the pickle of an earlier epoch",
            {BIN: torch_file(_TENSORS, names={UP: "model.layers.1.mlp.down_proj.weight"})},
            also=("FIL202",),
        ),
    )
    good = (Example("no pickle"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for pickled, safe in repository.pickles.copies().items():
            pairs = _pairs_with_pickles(repository, pickled, safe)
            if differing := [ours.name for (_, ours), _ in _differing_pairs(repository, pairs)]:
                message = f"has other values than {some(list(safe))} in {count(len(differing), 'matrix', 'matrices')}"
                hint = "delete the pickle; if it is the newer one, build the repository from it again"
                yield self.finding(pickled[0], message, names=differing, hint=hint)


def _pairs_with_pickles(
    repository: Repository, pickled: tuple[str, ...], safe: tuple[str, ...]
) -> list[tuple[Place, Place]]:
    """Every matrix that both formats hold as one dtype, so that their bytes can be compared."""
    from repokit.repo.values import Tensor
    from repokit.repo.weight_values import tensors_in

    source, pairs = repository.source, []
    ours = {tensor.name: tensor for path in safe for tensor in tensors_in(repository, path)}
    tables = [read_torch_file(partial(source.read, path), repository.files[path].size, path) for path in pickled]
    files = {name: table.path for table in tables for name in table.tensors}
    theirs = same_names({name: one for table in tables for name, one in table.tensors.items()}, ours)
    for name in sorted(theirs.keys() & ours.keys()):
        mine, stored = ours[name], theirs[name]
        same_kind = (mine.dtype, mine.shape) == (stored.dtype, stored.shape)
        if same_kind and stored.contiguous and _is_weight(mine.dtype, mine.shape):
            place = (files[stored.name], stored.name, stored.dtype, stored.shape, stored.offset, stored.size)
            pairs.append(((source, mine), (source, Tensor(*place))))
    return pairs


def _is_weight(dtype: str, shape: tuple[int, ...]) -> bool:
    """Whether it is a matrix of floats: buffers of whole numbers are computed anew by newer versions."""
    return dtype in FLOATS and len(shape) >= _MATRIX


def _differing_pairs(repository: Repository, pairs: list[tuple[Place, Place]]) -> Iterator[tuple[Place, Place]]:
    from repokit.repo.weight_values import differing

    answers = differing(pairs, jobs=repository.jobs, progress=repository.progress)
    return (pair for pair, differs in zip(pairs, answers, strict=True) if differs)


class UnchangedModel(Rule):
    """A model has the weights of its base, byte for byte.

    The adapter was not merged, or the training not saved: whoever downloads it gets the base model once more.
    """

    code = "WGT222"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TENSORS
    bad = (Example("the weights of the model that --base names", against="single"),)
    good = (
        Example("one layer was trained", {SINGLE: planted({"BF16": b"\x80\x3f"}, 3, UP)}, against="single"),
        Example("rows were added", {"config.json": {}}, "tied", against="lora"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        base = repository.base_model
        weights = repository.weights
        if base is None or weights.of_adapter or weights.quantized or _is_same_folder(repository, base):
            return  # what a quantizer leaves as it was, embedding and head, is the base's by right
        theirs = base.values.places
        ours = [one for one in repository.values.places.values() if _is_weight(one.dtype, one.shape)]
        if not ours or any(one.name not in theirs for one in ours):
            return
        pairs: list[tuple[Place, Place]] = [((repository.source, one), (base.source, theirs[one.name])) for one in ours]
        if next(_differing_pairs(repository, pairs), None) is None:
            message = (
                f"holds the {count(len(ours), 'matrix', 'matrices')} of {printable(base.source.label, 200)} unchanged"
            )
            path = weights.main or SINGLE
            yield self.finding(path, message, hint="merge the adapter again, and look whether its names fit the base")


def _is_same_folder(one: Repository, other: Repository) -> bool:
    mine, theirs = one.source, other.source
    if isinstance(mine, Directory) and isinstance(theirs, Directory):
        return mine.root.resolve() == theirs.root.resolve()
    return False


RULES: Final = (ChangedWeightFile(),)
OF_WEIGHTS: Final = (DifferingPickledValues(), UnchangedModel())
