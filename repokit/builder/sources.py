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

from repokit.builder.stored import Safetensors, Stored, TensorAt
from repokit.builder.torch_weights import BIN_INDEX, TorchWeights, model_files
from repokit.builder.training_run import Nested, TrainerState, nested_checkpoints
from repokit.errors import MissingInput, UnsupportedSource
from repokit.repo import training_state
from repokit.repo.config import CONFIG, Config
from repokit.repo.directory import Directory, Leniency
from repokit.repo.repository import Repository
from repokit.repo.source import Kind
from repokit.repo.tokenizer import UNREAD

if TYPE_CHECKING:
    from collections.abc import Mapping


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
        (Role.PICKLE, r"[^/]+\.(?:bin|pt|pth|ckpt)|[^/]+\.bin\.index\.json"),
    )
)


_WEIGHTS_FILE: Final = re.compile(r".+\.(?:safetensors|bin|pt|pth|ckpt)")
_LOG_FOLDER: Final = re.compile(r"(?:runs|logs|wandb|mlruns|lightning_logs)/")
# Files of weights are read as tables of tensors and never copied, so that what they lead to cannot be published by
# accident: people link files of 100 GB to where there is room for them.
_LENIENCY: Final = Leniency(
    outside=lambda path: _WEIGHTS_FILE.fullmatch(path) is not None,
    unneeded=lambda folder: _LOG_FOLDER.fullmatch(folder) is not None,
)


def role_of(path: str) -> Role:
    """The role of a file by its path in the checkpoint."""
    return next((role for role, pattern in _ROLES if pattern.fullmatch(path)), Role.UNKNOWN)


class Checkpoint:
    """A directory that holds a trained model, or the output directory of a run.

    Attributes:
        root: The directory.
        file: The file in it that holds the weights, where a person named it; None where the directory decides.
        repository: The directory, as a repository.
        described_by: The repository whose config.json says what the weights are: this one, or another.
        architectures: The classes that the recipe names in the place of those in config.json; () where it does not.
    """

    def __init__(self, root: Path, file: str | None = None, given: Stored | None = None) -> None:
        self.root = root
        self.file = file
        self._directory = Directory(root, leniency=_LENIENCY)
        self.repository = Repository(self._directory)
        self._given = given
        self.described_by = self.repository
        self.architectures: tuple[str, ...] = ()

    @cached_property
    def roles(self) -> Mapping[str, Role]:
        """Every file with its role, sorted by path."""
        return {path: role_of(path) for path in self.repository.files}

    @property
    def unlisted(self) -> Mapping[str, str]:
        """Folders in it that were passed over, and why."""
        self._directory.entries()
        return self._directory.unlisted

    def files(self, role: Role) -> list[str]:
        """The files of one role, sorted."""
        return [path for path, found in self.roles.items() if found is role]

    @property
    def given(self) -> bool:
        """Whether the weights are a running program's, and none that lie here are read."""
        return self._given is not None

    @property
    def config(self) -> Config | None:
        """What says what to build."""
        found = self.described_by.config
        if found is None or not self.architectures:
            return found
        return Config(found.path, {**found.raw, "architectures": list(self.architectures)})

    @cached_property
    def weights(self) -> Stored:
        """The weights: those of a running program, else in safetensors, else in the pickles that hold a model.

        Raises:
            InputError: Several files could be the model, or one is not what its name says.
        """
        if self._given is not None:
            return self._given
        if self.file is not None:
            kind = Safetensors if self.file.endswith(".safetensors") else TorchWeights
            return kind(self.root, self.repository, self.file)
        found = Safetensors(self.root, self.repository)
        if found.files or found.sharded or not (model_files(self.repository) or self.repository.has(BIN_INDEX)):
            return found
        return TorchWeights(self.root, self.repository)

    @property
    def tensors(self) -> Mapping[str, TensorAt]:
        """Every tensor of the model by its stored name, in stored order.

        Raises:
            InputError: What is stored contradicts itself.
        """
        return self.weights.tensors

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
        self._check(path)
        if path in self._directory.outside:
            raise self._refused(path, f"is a {Kind.OUTSIDE_LINK}")
        return self.root / path

    def check_read(self) -> None:
        """Refuses links that lead nowhere or may not be followed, in the place of what a build reads.

        Raises:
            MissingInput: Naming the link and where it leads.
        """
        if not self.given:
            candidates = [*self.files(Role.WEIGHTS), *self.files(Role.PICKLE)]
            for path in self.weights.files or candidates:
                self._check(path)
        for path in (*self.files(Role.CONFIG), *self.files(Role.CARD)):
            if path != CONFIG or self.described_by is self.repository:
                self._check(path)

    def _check(self, path: str) -> None:
        if self.repository.files[path].kind is not Kind.FILE:
            raise self._refused(path, self._directory.described(path))

    def _refused(self, path: str, what: str) -> MissingInput:
        why = "what it leads to would be published" if self.repository.files[path].kind is Kind.OUTSIDE_LINK else None
        return MissingInput(what, why=why, path=str(self.root / path), hint="put a copy of the file in its place")


_NAME_IT: Final = "name the directory that holds config.json, or the file that holds the weights"


def open_checkpoint(path: Path, given: Stored | None = None) -> Checkpoint:
    """Looks at a checkpoint without reading its weights.

    Args:
        path: A directory, or the one file in a directory that holds the weights.
        given: The weights, where they are not in it.

    Raises:
        MissingInput: It is not there, or may not be read.
        InputError: It is something else than a checkpoint.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise MissingInput("does not exist", path=str(path), hint=_NAME_IT) from None
    except OSError as error:
        raise MissingInput(f"cannot be read: {error.strerror}", path=str(path), hint="check its mode") from None
    if stat.S_ISREG(mode) and _WEIGHTS_FILE.fullmatch(path.name):
        return Checkpoint(path.parent, path.name, given)
    if not stat.S_ISDIR(mode):
        raise UnsupportedSource("is neither a directory nor a file of weights", path=str(path), hint=_NAME_IT)
    checkpoint = Checkpoint(path, given=given)
    if not checkpoint.roles and not checkpoint.unlisted:
        raise MissingInput("is empty", path=str(path), hint=_NAME_IT)
    return checkpoint
