"""The pickles of a repository: what they name, and which tensors they hold. Interpreted, never loaded."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from repokit.errors import MalformedFile, UnsupportedSource
from repokit.formats.inert_pickle import UnreadablePickle, interpret
from repokit.formats.pickle_globals import is_name
from repokit.formats.signature import LFS_POINTER, identify, is_pickle
from repokit.formats.torch_archive import read_archive
from repokit.formats.torch_file import read_torch_file, scan
from repokit.repo.source import Kind
from repokit.repo.training_state import in_checkpoint, is_part, is_training_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.formats.torch_file import FoundGlobal, TorchFile
    from repokit.repo.repository import Repository

# Names under which libraries look for weights: transformers, PEFT, diffusers; Meta's own in `original/`. `.bin` alone
# says nothing: ggml, OpenVINO and CTranslate2 use it too.
WEIGHTS: Final = re.compile(
    r"(?:^|/)(?:pytorch_model|adapter_model|diffusion_pytorch_model|pytorch_lora_weights)[^/]*\.(?:bin|pt|pth)$"
    r"|^(?:original/)?[^/]*\.(?:pt|pth|ckpt)$"
)
# Formats with a signature of their own, which other rules hold their files against.
_SIGNED: Final = re.compile(r"\.(?:safetensors|gguf)$")
_TORCH_NAME: Final = re.compile(r"\.(?:bin|pt|pth|ckpt)$")
_PICKLE_NAME: Final = re.compile(r"\.(?:bin|pt|pth|ckpt|pkl|pickle|joblib|dill)$", re.IGNORECASE)
_LOOKED_AT: Final = 64 * 1024  # bytes of a file that may be a pickle of protocol 0 or 1, which has no signature
_TAIL: Final = 64 * 1024  # bytes of an archive whose directory cannot be read
# The number of a shard: `pytorch_model-00001-of-00002.bin`.
_SHARD: Final = re.compile(r"-\d+-of-\d+(?=\.)")


def left_by_training(path: str) -> bool:
    """Whether a file is state or a part of a training run, whatever its format."""
    return is_training_state(path) or in_checkpoint(path) or is_part(path)


class Pickles:
    """The files of a repository that begin like a pickle."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    @property
    def weights(self) -> list[str]:
        """Files that are named like weights and begin like a pickle, or are pointers to what cannot be seen."""
        return self._repository.remember(("pickles", "weights"), self._weights)

    def _weights(self) -> list[str]:
        named = [path for path in self._repository.files if WEIGHTS.search(path) and not left_by_training(path)]
        heads = {path: self._repository.head(path) for path in named}
        return [path for path, head in heads.items() if is_pickle(head) or head.startswith(LFS_POINTER)]

    @property
    def strays(self) -> list[str]:
        """Files that begin like a pickle, and are neither weights nor what a training run left."""
        return self._repository.remember(("pickles", "strays"), self._strays)

    def _strays(self) -> list[str]:
        known = set(self.weights)
        return [path for path in self.readable if path not in known and not left_by_training(path)]

    def _begun(self) -> Iterator[str]:
        """Every file that begins like a pickle, or like a zip archive that torch.save wrote."""
        for path, entry in self._repository.files.items():
            if entry.kind is not Kind.FILE or _SIGNED.search(path):
                continue
            head = self._repository.head(path)
            if is_pickle(head) and (not head.startswith(b"PK") or is_torch_zip(head) or _TORCH_NAME.search(path)):
                yield path

    @property
    def readable(self) -> list[str]:
        """Every file that is a pickle here, state of a training run included; also what does not begin like one."""
        return self._repository.remember(("pickles", "readable"), self._readable)

    def _readable(self) -> list[str]:
        known = dict.fromkeys(self._begun())
        files = self._repository.files
        others = [path for path in files if files[path].kind is Kind.FILE and path not in known]
        return [*known, *(path for path in others if not _SIGNED.search(path) and self._is_hidden(path))]

    def _is_hidden(self, path: str) -> bool:
        """Whether torch.load or pickle would run a file that does not begin like a pickle, or not only like one."""
        head = self._repository.head(path)
        if head.startswith(b"PK\x03\x04"):
            return self._holds_checkpoint(path)
        ambiguous = head[:1] == b"\x80" and head[1:2] in {b"\x02", b"\x03", b"\x04", b"\x05"}
        if not ambiguous and (not _PICKLE_NAME.search(path) or identify(head) is not None):
            return False
        return self._names_something(path)

    def _holds_checkpoint(self, path: str) -> bool:
        """Whether an archive has a `data.pkl` in a folder, wherever it lies among the members."""
        read, size = partial(self._repository.source.read, path), self._repository.files[path].size
        try:
            names = list(read_archive(read, size, path).members)
        except MalformedFile:
            return b"/data.pkl" in read(max(0, size - _TAIL), min(size, _TAIL)).lower()
        return any(name.lower().partition("/")[2] == "data.pkl" for name in names)

    def _names_something(self, path: str) -> bool:
        """Whether the beginning of a file, taken as a pickle, names a global: values of weights do not."""
        beginning = self._repository.source.read(path, 0, min(_LOOKED_AT, self._repository.files[path].size))
        try:
            found = interpret(beginning, path=path).globals
        except UnreadablePickle as error:
            found = error.globals
        return any(is_name(one.module, one.name) for one in found)

    def globals(self, path: str) -> tuple[FoundGlobal, ...]:
        """Everything that the pickles of a file name.

        Raises:
            MalformedFile: It cannot be read to its end.
        """
        return self._repository.remember(("pickle globals", path), lambda: self._globals(path))

    def _globals(self, path: str) -> tuple[FoundGlobal, ...]:
        try:
            return self.table(path).globals
        except (MalformedFile, UnsupportedSource):  # not a checkpoint, or not one whose tensors could be published
            return scan(partial(self._repository.source.read, path), self._repository.files[path].size, path)

    def table(self, path: str) -> TorchFile:
        """The tensors of a file.

        Raises:
            MalformedFile: It cannot be read.
            UnsupportedSource: It holds what no safetensors file can.
        """
        return self._repository.remember(("torch file", path), lambda: self._table(path))

    def _table(self, path: str) -> TorchFile:
        size = self._repository.files[path].size
        return read_torch_file(partial(self._repository.source.read, path), size, path, placed=False)

    def copies(self) -> Mapping[tuple[str, ...], tuple[str, ...]]:
        """Pickled weights to the safetensors files that loaders take instead of them, set by set.

        A set is the shards of one name in one folder: `unet/diffusion_pytorch_model.fp16`, `model`, `adapter_model`.
        """
        pickled = _sets(path for path in self.weights if is_pickle(self._repository.head(path)))
        safe = _sets(self._repository.weights.safetensors)
        return {files: safe[name] for name, files in pickled.items() if name in safe}


def _sets(paths: Iterator[str] | tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Files by folder and name, without the number of a shard and with transformers' two names for one thing."""
    found: dict[str, tuple[str, ...]] = {}
    for path in paths:
        folder, slash, name = path.rpartition("/")
        stem = _SHARD.sub("", name).rpartition(".")[0].removeprefix("pytorch_")
        found[folder + slash + stem] = (*found.get(folder + slash + stem, ()), path)
    return found


def is_torch_zip(head: bytes) -> bool:
    """Whether the first member of an archive is `<root>/data.pkl`, as far as 64 bytes tell."""
    length = int.from_bytes(head[26:28], "little")
    name = head[30 : 30 + length]
    root, slash, rest = name.partition(b"/")
    return bool(slash) and length == len(root) + len(b"/data.pkl") and b"data.pkl".startswith(rest)
