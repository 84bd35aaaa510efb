"""FIL, SEC: pickles and checkpoints that other formats replaced. They are interpreted, never loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.formats.pickle_globals import Grade
from repokit.linter.examples import Example, safetensors, single, tensors_of
from repokit.linter.examples_torch import called, torch_file
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.printable import count, some
from repokit.repo.pickles import left_by_training
from repokit.repo.training_state import is_part, is_training_state
from repokit.repo.weights import SINGLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.formats.tensors import TensorInfo
    from repokit.formats.torch_file import TorchFile
    from repokit.formats.torch_tensors import StoredTensor
    from repokit.repo.repository import Repository

BIN: Final = "pytorch_model.bin"
_TENSORS: Final = tensors_of(single()[SINGLE])
_ONE: Final = {"norm.weight": ("F32", (4,))}
TORCH: Final = torch_file(_TENSORS)
PART: Final = torch_file(_ONE)
PICKLE: Final = b"\x80\x04\x95\x0d\x00\x00\x00\x00\x00\x00\x00\x8c\x09sklearn.a."
_ATTACK: Final = torch_file(_TENSORS, called("os", "system", "true"))
CONVERT: Final = "convert it without running it: repokit init DIR, then repokit build"


class PickledCopy(Rule):
    """Pickled weights lie beside the same weights in safetensors.

    Tools that take the whole repository download both, and loaders that prefer the pickle run whatever it says.
    """

    code = "FIL202"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example("both formats", {BIN: TORCH}),
        Example(
            "an older adapter beside",
            {"adapter_model.bin": torch_file({"lora_A.weight": ("F32", (2, 2))})},
            "lora",
            also=("FIL109",),
        ),
    )
    good = (Example("only safetensors"), Example("a file of ggml under a similar name", {"ggml-model.bin": b"lmgg"}))

    def check(self, repository: Repository) -> Iterator[Finding]:
        pickled = repository.pickles.weights
        if pickled and has_safe_weights(repository):
            message = f"and {len(pickled) - 1:,} more are" if len(pickled) > 1 else "is"
            hint = "delete what is a copy of the safetensors files"
            yield self.finding(pickled[0], f"{message} pickled weights beside safetensors", names=pickled, hint=hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.files import without_pickled_copies

        return without_pickled_copies(repository, finding)


class DifferingPickledCopy(Rule):
    """Pickled weights beside safetensors are another model.

    Who gets which depends on the loader and its version; nobody notices that two people run two models.
    """

    code = "FIL109"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "the pickle of a model with one layer less",
            {BIN: torch_file({name: info for name, info in _TENSORS.items() if ".layers.1." not in name})},
            also=("FIL202",),
        ),
        Example(
            "an older pickle with fewer rows",
            {BIN: torch_file({**_TENSORS, "lm_head.weight": ("BF16", (16, 16))})},
            also=("FIL202",),
        ),
    )
    good = (Example("other weights under another name", {"value_head.safetensors": safetensors(_ONE)}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for pickled, safe in repository.pickles.copies().items():
            ours = {tensor.name: tensor for path in safe for tensor in repository.header(path).tensors}
            files = [repository.pickles.table(path) for path in pickled]
            if differing := sorted(set(_differing(files, ours))):
                message = f"differs from {some(list(safe))} in {count(len(differing), 'tensor')}"
                hint = "delete the pickle; if it is the newer one, build the repository from it again"
                yield self.finding(pickled[0], message, names=differing, hint=hint)


class ExecutingPickle(Rule):
    """A pickle names a function that runs code when the file is loaded.

    Whoever loads it without weights_only runs what its author wanted, with all rights of their account.
    """

    code = "SEC103"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("a payload before the weights", {SINGLE: None, BIN: _ATTACK}, also=("FIL203",)),
        Example(
            "a payload in a file of notes",
            {"notes.pkl": b"\x80\x02" + called("os", "system", "true") + b"N."},
            also=("FIL204",),
        ),
    )
    good = (Example("no pickle"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path in repository.pickles.readable:
            found = [one for one in repository.pickles.globals(path) if one.grade is Grade.EXECUTES]
            if found:
                names = sorted({one.dotted for one in found})
                message = f"names {some(names)}, which can run code when the file is loaded"
                place = f"byte {found[0].position:,}"
                hint = "do not load it; get the weights as safetensors from their author"
                yield self.finding(path, message, place=place, names=names, hint=hint)


class UnknownGlobal(Rule):
    """Pickled weights name something that is not part of a state dict.

    torch.load refuses them with weights_only, its default; without it, the code of whatever they name is run.
    """

    code = "SEC202"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "settings of a training library beside the weights",
            {SINGLE: None, BIN: torch_file(_TENSORS, b"cmylib.config\nSettings\n)R0")},
            also=("FIL203",),
        ),
    )
    good = (Example("no pickle"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        strays = set(repository.pickles.strays)
        for path in repository.pickles.readable:
            found = [one for one in repository.pickles.globals(path) if one.grade is Grade.UNKNOWN]
            if found and path not in strays and not left_by_training(path):
                names = sorted({one.dotted for one in found})
                message = f"names {some(names)}, which no state dict needs"
                yield self.finding(path, message, place=f"byte {found[0].position:,}", names=names, hint=CONVERT)


class OnlyPickledWeights(Rule):
    """The weights are there only as pickles.

    Whoever loads a pickle runs the code in it. Many loaders take safetensors only, and the Hub marks the repository.
    """

    code = "FIL203"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("saved by an older trainer", {SINGLE: None, BIN: TORCH}),
        Example("a checkpoint under a name of its own", {SINGLE: None, "model_final.pth": TORCH}),
        Example("pickled shards", {SINGLE: None, "pytorch_model-00001-of-00002.bin": TORCH}),
    )
    good = (Example("no weights at all", {SINGLE: None}), Example("safetensors"))

    def check(self, repository: Repository) -> Iterator[Finding]:
        pickled = repository.pickles.weights
        if pickled and not has_safe_weights(repository):
            message = f"and {len(pickled) - 1:,} more are" if len(pickled) > 1 else "is"
            yield self.finding(
                pickled[0], f"{message} a pickle, the only form of the weights", names=pickled, hint=CONVERT
            )


class StrayPickle(Rule):
    """A file is a pickle and no weights.

    Whoever opens it runs the code in it; scanners flag the whole repository for it.
    """

    code = "FIL204"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("the head of a classifier", {"model_head.pkl": PICKLE}),
        Example("a pickle under another name", {"notes.txt": PICKLE}),
        Example("a tensor under another name", {"labels.dat": PART}),
    )
    good = (
        Example(
            "a zip archive of something else", {"figures.zip": b"PK\x03\x04" + bytes(22) + b"\x05\x00\x00\x00a.png"}
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        parted = {path.rpartition("/")[0] for path in repository.files if is_part(path)}
        for path in repository.pickles.strays:
            belongs = path.rpartition("/")[0] in parted  # .metadata says what is in the parts beside it
            hint = _MERGE if belongs else "write it as JSON or safetensors, or delete it"
            yield self.finding(path, "is a pickle", hint=hint)


class DistributedCheckpoint(Rule):
    """A checkpoint was published in the parts in which its processes saved it.

    No loader of models reads them: they must be merged first.
    """

    code = "FIL205"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.LISTING
    bad = (
        Example("parts of verl", {"model_world_size_2_rank_0.pt": PART, "model_world_size_2_rank_1.pt": PART}),
        Example("parts of torch.distributed.checkpoint", {"__0_0.distcp": PART, "__1_0.distcp": PART}),
        Example("one file a rank", {"model_final.rank_0.pth": PART}),
    )
    good = (Example("merged"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        parts = [path for path in repository.files if is_part(path) and not is_training_state(path)]
        if parts:
            message = f"and {len(parts) - 1:,} more are parts" if len(parts) > 1 else "is a part"
            yield self.finding(parts[0], f"{message} of a distributed checkpoint", names=parts, hint=_MERGE)


RULES: Final = (
    PickledCopy(),
    DifferingPickledCopy(),
    OnlyPickledWeights(),
    StrayPickle(),
    DistributedCheckpoint(),
)
SECURITY: Final = (ExecutingPickle(), UnknownGlobal())

_SAFE: Final = (".safetensors", ".gguf")
_MERGE: Final = "`repokit init FOLDER`, then `repokit build`, which merges the parts of DCP, FSDP and ZeRO"


def has_safe_weights(repository: Repository) -> bool:
    """Whether the repository has weights in a format that is no program."""
    return any(path.endswith(_SAFE) for path in repository.files)


def _differing(files: list[TorchFile], ours: dict[str, TensorInfo]) -> Iterator[str]:
    """Names of tensors of another shape, and of matrices of blocks that only one of the two formats has.

    Neither is another model for a cast, for the prefix of a class with a head, or for heads and buffers that the class
    of the other does not have.
    """
    theirs = same_names({name: tensor for file in files for name, tensor in file.tensors.items()}, ours)
    for name, tensor in ours.items():
        if name in theirs:
            if tensor.shape != theirs[name].shape:
                yield name
        elif _is_of_block(name, tensor):
            yield name
    yield from (name for name, tensor in theirs.items() if name not in ours and _is_of_block(name, tensor))


def same_names(theirs: dict[str, StoredTensor], ours: Mapping[str, object]) -> dict[str, StoredTensor]:
    """Tensors by the names that they have in the other format, where one of the two has the prefix of a class."""
    prefix, cut = _prefix(theirs, ours), _prefix(ours, theirs)
    return {(cut + name).removeprefix(prefix): tensor for name, tensor in theirs.items()}


def _prefix(longer: Mapping[str, object], shorter: Mapping[str, object]) -> str:
    """What stands before every name of a block in the one and not in the other: `bert.`, or nothing."""
    name = next(filter(_IN_BLOCK.search, shorter), None)
    if name is None or name in longer:
        return ""
    return next((other.removesuffix(name) for other in longer if other.endswith(f".{name}")), "")


def _is_of_block(name: str, tensor: TensorInfo | StoredTensor) -> bool:
    """Whether it is a matrix in a numbered block."""
    return tensor.dtype in _FLOATS and len(tensor.shape) == 2 and _IN_BLOCK.search(name) is not None


_IN_BLOCK: Final = re.compile(r"(?:^|\.)[0-9]+\.")
_FLOATS: Final = frozenset({"F64", "F32", "F16", "BF16"})
