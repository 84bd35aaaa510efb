"""The adapters in a checkpoint as they are stored: by themselves, in folders, or inside the state of a whole model.

StoredAdapter    adapter_config.json and what its tensors are read from
AdapterWeights   all of them, as the weights of a checkpoint
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from repokit.builder.checkpoints.sources import Role
from repokit.builder.checkpoints.stored import LeftBehind, Safetensors, Stored
from repokit.builder.checkpoints.torch_weights import TorchWeights
from repokit.builder.kinds import ADAPTER_FILES
from repokit.errors import InputError, MissingInput
from repokit.printable import count, printable
from repokit.repo.adapter import ADAPTER_CONFIG
from repokit.repo.adapter_kinds import PROMPTS
from repokit.repo.weights import ADAPTER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.builder.checkpoints.sources import Checkpoint
    from repokit.builder.checkpoints.stored import TensorAt
    from repokit.builder.plan import Sources
    from repokit.operations import Content
    from repokit.repo.document import Document

# Methods of which PEFT saves other tensors than it holds (peft 0.21 tuners/*/model.py _get_adapter_state_dict).
_WORKED_OUT: Final = frozenset({*PROMPTS, "ADAPTION_PROMPT", "SHADOW", "SHIRA", "VBLORA", "XLORA"})
_SAVE: Final = "save it where it was trained: model.save_pretrained(DIR)"


@dataclass(frozen=True)
class StoredAdapter:
    """One adapter of a checkpoint.

    Attributes:
        folder: Where it lies, with a slash at its end; "" at the top.
        config: Its adapter_config.json.
        content: The bytes of that file.
        weights: What its tensors are read from.
        whole: Whether they lie there among those of the base: in the state of a training, not in a file of PEFT.
    """

    folder: str
    config: Document
    content: bytes
    weights: Stored
    whole: bool

    @property
    def method(self) -> str:
        """Its peft_type."""
        return self.config.string("peft_type") or ""


def stored_adapters(checkpoint: Checkpoint) -> tuple[StoredAdapter, ...]:
    """Every adapter of a checkpoint, the one at the top first.

    Raises:
        InputError: There is none; one has no weights or no config.
    """
    folders = adapter_folders(checkpoint)
    if not folders:
        _refuse_without_config(checkpoint)
    if checkpoint.file is not None or checkpoint.given:
        folders = [folder for folder in folders if not folder]
        if not folders:
            what = f"has no {ADAPTER_CONFIG} beside the weights that are named"
            raise MissingInput(what, path=str(checkpoint.root), hint=_SAVE)
    return tuple(_stored(checkpoint, folder) for folder in folders)


def adapter_folders(checkpoint: Checkpoint) -> list[str]:
    """The folders with an adapter_config.json, those of other steps of the run left out; "" is the top."""
    paths = [path for path, role in checkpoint.roles.items() if role is Role.UNKNOWN]
    return sorted(path.removesuffix(ADAPTER_CONFIG) for path in paths if f"/{path}".endswith(f"/{ADAPTER_CONFIG}"))


def _refuse_without_config(checkpoint: Checkpoint) -> None:
    root = str(checkpoint.root)
    if checkpoint.nested:
        best = next((nested for nested in checkpoint.nested if nested.best), checkpoint.nested[-1])
        what = f"is an output directory with {count(len(checkpoint.nested), 'checkpoint')} and no adapter at its top"
        raise InputError(what, path=root, hint=f"build from one of them: source: {printable(root)}/{best.path}")
    hint = f"copy {ADAPTER_CONFIG} from where it was trained: model.save_pretrained(DIR) writes it beside the weights"
    raise MissingInput(f"has no {ADAPTER_CONFIG}", why="nothing says what kind of adapter it is", path=root, hint=hint)


def _stored(checkpoint: Checkpoint, folder: str) -> StoredAdapter:
    path = folder + ADAPTER_CONFIG
    checkpoint.place(path)  # its content is published: it must not lead elsewhere
    config = checkpoint.repository.document(path)
    content = checkpoint.repository.content(path)
    assert config is not None  # noqa: S101 - it is in the listing
    assert content is not None  # noqa: S101 - the same
    if config.string("peft_type") is None:
        hint = "adapters of MLX and of the library `adapters` have another format: convert them to PEFT's"
        raise InputError("names no peft_type: it is no config of PEFT", path=str(checkpoint.root / path), hint=hint)
    weights, whole = _weights(checkpoint, folder)
    if whole and config.string("peft_type") in _WORKED_OUT:
        what = (
            f"is of {printable(config.string('peft_type'), 40)}, and there is no {ADAPTER} but the state of a training"
        )
        why = "PEFT works out what it saves of this method; it is not in memory as such"
        raise InputError(what, why=why, path=str(checkpoint.root / path), hint=_SAVE)
    return StoredAdapter(folder, config, content, weights, whole)


def _weights(checkpoint: Checkpoint, folder: str) -> tuple[Stored, bool]:
    """What holds the tensors, and whether those of the base may lie among them."""
    if checkpoint.given:
        return checkpoint.weights, True
    if checkpoint.file is not None:
        return checkpoint.weights, checkpoint.file not in ADAPTER_FILES
    named = next((folder + name for name in ADAPTER_FILES if checkpoint.repository.has(folder + name)), None)
    if named is not None:
        kind = Safetensors if named.endswith(".safetensors") else TorchWeights
        return kind(checkpoint.root, checkpoint.repository, named), False
    if folder or not checkpoint.weights.files:
        what = f"lies there without weights: there is no {ADAPTER}"
        raise MissingInput(what, path=str(checkpoint.root / folder / ADAPTER_CONFIG), hint=_SAVE)
    return checkpoint.weights, True


class AdapterWeights:
    """The tensors of all adapters of a checkpoint; those in a folder have its name before their own."""

    sharded = False

    def __init__(self, adapters: tuple[StoredAdapter, ...]) -> None:
        self.adapters = adapters

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(path for one in self.adapters for path in one.weights.files)

    @property
    def container(self) -> str:
        return next((one.weights.container for one in self.adapters if one.weights.container), "")

    @property
    def index_path(self) -> str | None:
        return next((one.weights.index_path for one in self.adapters if one.weights.index_path), None)

    @cached_property
    def tensors(self) -> Mapping[str, TensorAt]:
        return {one.folder + name: tensor for one in self.adapters for name, tensor in one.weights.tensors.items()}

    @property
    def left_behind(self) -> tuple[LeftBehind, ...]:
        return tuple(left for one in self.adapters for left in one.weights.left_behind)

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(note for one in self.adapters for note in one.weights.notes)

    def pieces(self, tensor: TensorAt, sources: Sources, cast: str | None = None) -> tuple[Content, ...]:
        return self._owner(tensor).pieces(tensor, sources, cast)

    def same_memory(self, one: TensorAt, other: TensorAt) -> bool:
        return self._owner(one).same_memory(one, other)

    def contents(self, tensor: TensorAt) -> Iterator[memoryview]:
        return self._owner(tensor).contents(tensor)

    def _owner(self, tensor: TensorAt) -> Stored:
        return next(one.weights for one in self.adapters if not one.weights.files or tensor.file in one.weights.files)


def read_adapters(checkpoint: Checkpoint) -> tuple[StoredAdapter, ...]:
    """Every adapter of a checkpoint, which from now on has their tensors as its weights.

    Raises:
        InputError: See `stored_adapters`.
    """
    adapters = stored_adapters(checkpoint)
    if not checkpoint.given:
        checkpoint.weights = AdapterWeights(adapters)
    for one in adapters:
        if not one.weights.tensors:
            _refuse_empty(checkpoint, one)
    return adapters


def _refuse_empty(checkpoint: Checkpoint, adapter: StoredAdapter) -> None:
    what = "holds no tensor"
    why = "a run under ZeRO-3 or FSDP that saves without gathering leaves such a file: what was trained is not in it"
    place = checkpoint.root / (adapter.weights.files[0] if adapter.weights.files else "")
    raise MissingInput(what, why=why, path=str(place), hint=GATHER)


GATHER: Final = (
    "save it again, gathered: model.save_pretrained(DIR, state_dict=accelerator.get_state_dict(model)), on every rank"
)
