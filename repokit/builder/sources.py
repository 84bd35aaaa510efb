"""What lies in a checkpoint, file by file: what becomes part of a repository, what stays behind, and why.

Publishing goes by an allow-list: a file that nothing here recognises is not published unless the recipe names it.
"""

from __future__ import annotations

import re
import stat
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from repokit.builder.training_run import Nested, TrainerState, nested_checkpoints
from repokit.errors import MalformedFile, MissingInput, UnsupportedSource
from repokit.printable import count, printable, some
from repokit.repo import training_state
from repokit.repo.directory import Directory
from repokit.repo.repository import Repository
from repokit.repo.source import Kind
from repokit.repo.tokenizer import UNREAD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.repo.weight_index import Index


class Role(StrEnum):
    """What a file of a checkpoint is for."""

    WEIGHTS = "weights"
    CONFIG = "config"
    TOKENIZER = "tokenizer"
    PROCESSOR = "processor"
    CHAT_TEMPLATE = "chat template"
    CODE = "code"
    CARD = "model card"
    LICENSE = "license"
    NOTICE = "notice of the license"  # Apache-2.0 4(d) and the Llama licenses ask that it goes with the model
    TRAINING = "training state"
    LOG = "log"
    CHECKPOINT = "another checkpoint"
    PICKLE = "pickled weights"
    UNKNOWN = "not recognised"


# First match wins. Sources: transformers trainer.py, tokenization and processing files; accelerate checkpointing.py.
_ROLES: Final = tuple(
    (role, re.compile(pattern))
    for role, pattern in (
        (Role.CHECKPOINT, r"checkpoint-\d+/.*"),
        (Role.LOG, r"(?:.*/)?events\.out\.tfevents\..*|(?:runs|logs|wandb|mlruns|lightning_logs)/.*|.*\.log"),
        (
            Role.TRAINING,
            rf"{training_state.PATTERN}|training_args.*\.bin|training_params\.json|latest|training_loss\.png"
            r"|(?:all|train|eval|test|predict)_results\.json|trainer_log\.jsonl",
        ),
        (Role.CONFIG, r"config\.json|generation_config\.json"),
        (Role.WEIGHTS, r"[^/]+\.safetensors(?:\.index(?:\.[^/.]+)?\.json)?"),
        (
            Role.TOKENIZER,
            r"tokenizer\.json|tokenizer_config\.json|special_tokens_map\.json|added_tokens\.json|vocab\.(?:json|txt)"
            rf"|merges\.txt|{UNREAD}|target_vocab\.json|normalizer\.json|entity_vocab\.json|emoji\.json",
        ),
        (
            Role.PROCESSOR,
            r"preprocessor_config\.json|processor_config\.json|video_preprocessor_config\.json"
            r"|audio_tokenizer_config\.json|image_processor_config\.json",
        ),
        (Role.CHAT_TEMPLATE, r"chat_template\.(?:jinja|json)|additional_chat_templates/[^/]+\.jinja"),
        (Role.CARD, r"README\.md"),
        (Role.LICENSE, r"(?:LICENSE|LICENCE|COPYING)(?:\.md|\.txt)?"),
        (Role.NOTICE, r"(?:NOTICE|USE_POLICY)(?:\.md|\.txt)?"),
        (Role.CODE, r"(?:.*/)?[^/]+\.py"),
        (Role.PICKLE, r"[^/]+\.(?:bin|pt|pth|ckpt)"),
    )
)


def role_of(path: str) -> Role:
    """The role of a file by its path in the checkpoint."""
    return next((role for role, pattern in _ROLES if pattern.fullmatch(path)), Role.UNKNOWN)


class TensorAt:
    """Where a tensor's bytes lie: a file of the checkpoint and an offset from that file's start, in bytes."""

    __slots__ = ("dtype", "file", "offset", "shape", "size")

    def __init__(self, file: str, dtype: str, shape: tuple[int, ...], offset: int, size: int) -> None:
        self.file = file
        self.dtype = dtype
        self.shape = shape
        self.offset = offset
        self.size = size


class Checkpoint:
    """A directory that holds a trained model, or the output directory of a run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.repository = Repository(Directory(root))

    @cached_property
    def roles(self) -> Mapping[str, Role]:
        """Every file with its role, sorted by path."""
        return {path: role_of(path) for path in self.repository.files}

    def files(self, role: Role) -> list[str]:
        """The files of one role, sorted."""
        return [path for path, found in self.roles.items() if found is role]

    @cached_property
    def tensors(self) -> Mapping[str, TensorAt]:
        """Every tensor of the model by its name in the file, in file order.

        Raises:
            InputError: The index and its shards do not fit together, or a header is malformed.
        """
        self.check_index()
        index = self.repository.weights.index
        found: dict[str, TensorAt] = {}
        for path in self.repository.weights.files:
            header = self.repository.header(path)
            for tensor in header.tensors:
                at = TensorAt(path, tensor.dtype, tensor.shape, header.data_start + tensor.begin, tensor.size)
                if index is None or index.weight_map[tensor.name] == path:
                    found[tensor.name] = at
        return found

    def check_index(self) -> None:
        """Refuses an index that does not fit its shards: what it leaves open, a build would decide by chance.

        Raises:
            InputError: It leads elsewhere, names what is not there, or does not name what is.
        """
        index = self.repository.weights.index
        if index is None:
            return
        for shard in index.refused:
            what = f"names the shard {printable(shard)!r}, which is no .safetensors file inside the checkpoint"
            raise MalformedFile(what, why="loaders would open whatever it leads to", path=index.path)
        if missing := [shard for shard in index.shards if not self.repository.has(shard)]:
            what = f"names {count(len(missing), 'shard')} that {'is' if len(missing) == 1 else 'are'} not there"
            raise MissingInput(f"{what}: {some(missing)}", why=_LOST, path=index.path, hint="copy the checkpoint again")
        self._check_placement(index)

    def _check_placement(self, index: Index) -> None:
        placement = self.repository.weights.placement(index)
        nowhere = [name for name in index.document.raw["weight_map"] if name not in index.weight_map]
        for template, why, names in (
            ("places {} in no file", _LOST, nowhere),
            ("names {} that its shards do not hold", _LOST, _all(placement.absent)),
            (
                "does not name {} that its shards hold",
                "some loaders read them, others do not",
                _all(placement.unlisted),
            ),
            ("finds {} in two shards", "some loaders read one copy, others the other", _all(placement.repeated)),
        ):
            if names:
                what = f"{template.format(count(len(names), 'tensor'))}: {some(names)}"
                hint = "save the model again, into an empty directory"
                raise MalformedFile(what, why=why, path=index.path, place="/weight_map", hint=hint)

    @cached_property
    def trainer_state(self) -> TrainerState:
        """trainer_state.json, empty where there is none: it is looked at for people, and never decides anything."""
        return TrainerState.read(self.root)

    @cached_property
    def nested(self) -> tuple[Nested, ...]:
        """The `checkpoint-N` folders inside, by step."""
        folders = {path.split("/")[0] for path in self.files(Role.CHECKPOINT)}
        return nested_checkpoints(self.root, folders, self.trainer_state)

    def place(self, path: str) -> Path:
        """Where a file lies that is to be copied.

        Raises:
            MissingInput: It is a link to outside of the checkpoint, a broken one, or no file at all.
        """
        kind = self.repository.files[path].kind
        if kind is not Kind.FILE:
            why = "what it leads to would be published"
            hint = "put a copy of the file in its place"
            raise MissingInput(f"is a {kind}", why=why, path=str(self.root / path), hint=hint)
        return self.root / path


_LOST: Final = "they would be missing from the model"


def _all(by_shard: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [name for names in by_shard.values() for name in names]


def open_checkpoint(path: Path) -> Checkpoint:
    """Looks at a checkpoint without reading its weights.

    Raises:
        MissingInput: It is not there, or may not be read.
        InputError: It is something else than a checkpoint directory.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        hint = "name the directory that holds config.json"
        raise MissingInput("does not exist", path=str(path), hint=hint) from None
    except OSError as error:
        raise MissingInput(f"cannot be read: {error.strerror}", path=str(path), hint="check its mode") from None
    if not stat.S_ISDIR(mode):
        hint = f"name its directory: {printable(path.parent)}"
        raise UnsupportedSource("is not a directory; this version builds from one", path=str(path), hint=hint)
    checkpoint = Checkpoint(path)
    if not checkpoint.roles:
        raise MissingInput("is empty", path=str(path), hint="name the directory that holds config.json")
    return checkpoint
