"""FIL: pickles and checkpoints that other formats replaced. They are told by name and first bytes, never loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.formats.signature import LFS_POINTER, is_pickle
from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.repo.training_state import in_checkpoint, is_part, is_training_state
from repokit.repo.weights import SINGLE

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

BIN: Final = "pytorch_model.bin"
# The beginning of what torch.save writes: a zip archive whose first member is archive/data.pkl.
TORCH: Final = b"PK\x03\x04" + bytes(22) + b"\x10\x00\x00\x00archive/data.pkl" + bytes(18)
PICKLE: Final = b"\x80\x04\x95\x0c\x00\x00\x00\x00\x00\x00\x00\x8c\x08builtins."
CONVERT: Final = "load it where it was trained, and model.save_pretrained(DIR) writes safetensors"


class PickledCopy(Rule):
    """Pickled weights lie beside the same weights in safetensors.

    Tools that take the whole repository download both; loaders that prefer the pickle run whatever it says, and the
    two may have different values.
    """

    code = "FIL202"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("both formats", {BIN: TORCH}),
        Example("an older adapter beside", {"adapter_model.bin": TORCH}, "lora"),
    )
    good = (Example("only safetensors"), Example("a file of ggml under a similar name", {"ggml-model.bin": b"lmgg"}))

    def check(self, repository: Repository) -> Iterator[Finding]:
        pickled = pickled_weights(repository)
        if pickled and has_safe_weights(repository):
            message = f"and {len(pickled) - 1:,} more are" if len(pickled) > 1 else "is"
            hint = "delete what is a copy of the safetensors files"
            yield self.finding(pickled[0], f"{message} pickled weights beside safetensors", names=pickled, hint=hint)


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
        pickled = pickled_weights(repository)
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
        Example("a tensor under another name", {"labels.dat": TORCH}),
    )
    good = (
        Example(
            "a zip archive of something else", {"figures.zip": b"PK\x03\x04" + bytes(22) + b"\x05\x00\x00\x00a.png"}
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        known = set(pickled_weights(repository))
        for path in repository.files:
            if path not in known and not left_by_training(path) and is_stray(repository, path):
                yield self.finding(path, "is a pickle", hint="write it as JSON or safetensors, or delete it")


class DistributedCheckpoint(Rule):
    """A checkpoint was published in the parts in which its processes saved it.

    No loader of models reads them: they must be merged first.
    """

    code = "FIL205"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.LISTING
    bad = (
        Example("parts of verl", {"model_world_size_2_rank_0.pt": TORCH, "model_world_size_2_rank_1.pt": TORCH}),
        Example("parts of torch.distributed.checkpoint", {"__0_0.distcp": TORCH, "__1_0.distcp": TORCH}),
        Example("one file a rank", {"model_final.rank_0.pth": TORCH}),
    )
    good = (Example("merged"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        parts = [path for path in repository.files if is_part(path) and not is_training_state(path)]
        if parts:
            message = f"and {len(parts) - 1:,} more are parts" if len(parts) > 1 else "is a part"
            hint = "merge it first: accelerate merge-weights for torch.distributed, zero_to_fp32.py for DeepSpeed"
            yield self.finding(parts[0], f"{message} of a distributed checkpoint", names=parts, hint=hint)


RULES: Final = (PickledCopy(), OnlyPickledWeights(), StrayPickle(), DistributedCheckpoint())

# Names under which libraries look for weights: transformers, PEFT, diffusers. `.bin` alone says nothing: ggml,
# OpenVINO and CTranslate2 use it too.
WEIGHTS: Final = re.compile(
    r"(?:^|/)(?:pytorch_model|adapter_model|diffusion_pytorch_model|pytorch_lora_weights)[^/]*\.(?:bin|pt|pth)$"
    r"|^[^/]*\.(?:pt|pth|ckpt)$"
)
# Formats with a signature of their own, which other rules hold their files against.
SIGNED: Final = re.compile(r"\.(?:safetensors|gguf)$")


def left_by_training(path: str) -> bool:
    """Whether another rule speaks of the file."""
    return is_training_state(path) or in_checkpoint(path) or is_part(path)


def pickled_weights(repository: Repository) -> list[str]:
    """Files that are named like weights and begin like a pickle, or are pointers to what cannot be seen."""
    named = [path for path in repository.files if WEIGHTS.search(path) and not left_by_training(path)]
    return [path for path in named if is_pickle(head := repository.head(path)) or head.startswith(LFS_POINTER)]


def has_safe_weights(repository: Repository) -> bool:
    """Whether the repository has weights in a format that is no program."""
    return any(SIGNED.search(path) for path in repository.files)


def is_stray(repository: Repository, path: str) -> bool:
    """Whether a file begins like a pickle, or like a zip archive that torch.save wrote."""
    head = b"" if SIGNED.search(path) else repository.head(path)
    return is_pickle(head) and (
        not head.startswith(b"PK") or is_torch_zip(head) or path.endswith((".pt", ".pth", ".ckpt"))
    )


def is_torch_zip(head: bytes) -> bool:
    """Whether the first member of an archive is `<root>/data.pkl`, as far as 64 bytes tell."""
    length = int.from_bytes(head[26:28], "little")
    name = head[30 : 30 + length]
    root, slash, rest = name.partition(b"/")
    return bool(slash) and length == len(root) + len(b"/data.pkl") and b"data.pkl".startswith(rest)
