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

from repokit.builder.checkpoints.dcp_weights import dcp_weights, unread
from repokit.builder.checkpoints.foreign import layout_of, refuse, refuse_megatron
from repokit.builder.checkpoints.shard_sets import rebuilt
from repokit.builder.checkpoints.sliced_weights import sliced_weights
from repokit.builder.checkpoints.stored import Safetensors, Stored, TensorAt
from repokit.builder.checkpoints.torch_weights import BIN, BIN_INDEX, TorchWeights, model_files
from repokit.builder.checkpoints.training_run import Nested, TrainerState, nested_checkpoints
from repokit.builder.checkpoints.zero_weights import zero_weights
from repokit.errors import InputError, MissingInput, UnsupportedSource
from repokit.formats.dcp import METADATA
from repokit.formats.urls import Place, Url
from repokit.repo import training_state
from repokit.repo.config import CONFIG, Config
from repokit.repo.directory import Directory, Leniency
from repokit.repo.remote_directory import RemoteDirectory
from repokit.repo.remote_files import is_file
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
        (Role.CHECKPOINT, r"(?:checkpoint-|epoch_)\d+/.*"),
        (Role.LOG, r"(?:.*/)?events\.out\.tfevents\..*|(?:runs|logs|wandb|mlruns|lightning_logs)/.*|.*\.log"),
        (
            Role.TRAINING,
            rf"{training_state.PATTERN}|training_args.*\.bin|training_params\.json|latest|training_loss\.png"
            r"|(?:.*/)?(?:[^/]+\.distcp|\.metadata)|meta\.pt|recipe_state/.*"
            r"|(?:all|train|eval|test|predict)_results\.json|trainer_log\.jsonl",
        ),
        (Role.CONFIG, r"config\.json|generation_config\.json"),
        (Role.WEIGHTS, r"(?:sharded/shard-)?[^/]+\.safetensors(?:\.index(?:\.[^/.]+)?\.json)?"),
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


_WEIGHTS_FILE: Final = re.compile(r".+\.(?:safetensors|bin|pt|pth|ckpt|distcp|gguf)")
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
        root: The directory, or its address.
        file: The file in it that holds the weights, where a person named it; None where the directory decides.
        repository: The directory, as a repository.
        described_by: The repository whose config.json says what the weights are: this one, or another.
        architectures: The classes that the recipe names in the place of those in config.json; () where it does not.
        dtype: What the recipe casts to: of weights that lie there in two precisions it says which are read (ZeRO).
    """

    def __init__(self, root: Place, file: str | None = None, given: Stored | None = None) -> None:
        self.file = file
        self._directory = _directory(root, file)
        self.root: Place = self._directory.root
        self.repository = Repository(self._directory)
        self._given = given
        self.described_by = self.repository
        self.architectures: tuple[str, ...] = ()
        self.dtype = "auto"

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
        """The weights: a running program's, else in safetensors, pickles that hold a model, or parts of processes.

        Raises:
            InputError: Several files could be the model, or one is not what its name says.
        """
        if self._given is not None:
            return self._given
        if self.file is not None and (named := dcp_weights(self.root, self.repository, self.file)) is not None:
            return named
        if self.file is not None:
            kind = Safetensors if self.file.endswith(".safetensors") else TorchWeights
            return kind(self.root, self.repository, self.file)
        root, repository = self.root, self.repository
        if (set_ := rebuilt(root, repository)) is not None:
            return set_
        found = Safetensors(root, repository)
        if found.files or found.sharded:
            found.notes = unread(repository)
            return found
        if (slices := sliced_weights(root, repository)) is not None:
            return slices
        refuse_megatron(root, repository)
        whole = repository.has(BIN) or repository.has(BIN_INDEX)
        if not whole and (distributed := dcp_weights(root, repository)) is not None:
            return distributed  # beside it Lightning leaves a pickle of what is not distributed
        if whole or model_files(repository):
            return TorchWeights(root, repository)
        return zero_weights(root, repository, dtype=self.dtype) or found

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

    def place(self, path: str) -> Place:
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


def _directory(root: Place, file: str | None) -> Directory | RemoteDirectory:
    if isinstance(root, Path):
        return Directory(root, leniency=_LENIENCY)
    return RemoteDirectory(root, only=file if root.lists_nothing else None, lenient=True)


_NAME_IT: Final = "name the directory that holds config.json, or the file that holds the weights"


def open_checkpoint(path: Place, given: Stored | None = None) -> Checkpoint:
    """Looks at a checkpoint without reading its weights.

    Args:
        path: A directory, or the one file in a directory that holds the weights; or the address of one of them.
        given: The weights, where they are not in it.

    Raises:
        MissingInput: It is not there, or may not be read.
        InputError: It is something else than a checkpoint.
    """
    if isinstance(path, Url):
        if path.on_disk is None:
            return _open_remote(path, given)
        path = path.on_disk
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise MissingInput("does not exist", path=str(path), hint=_NAME_IT) from None
    except OSError as error:
        raise MissingInput(f"cannot be read: {error.strerror}", path=str(path), hint="check its mode") from None
    if not stat.S_ISDIR(mode):
        return _open_file(path, mode, given)
    if (path / METADATA).is_file() and not given:
        return _open_distributed(path, given)
    checkpoint = Checkpoint(path, given=given)
    if not checkpoint.roles and not checkpoint.unlisted:
        raise MissingInput("is empty", path=str(path), hint=_NAME_IT)
    return checkpoint


def _open_file(path: Path, mode: int, given: Stored | None) -> Checkpoint:
    if stat.S_ISREG(mode) and path.name == METADATA:
        return _open_distributed(path.parent, given)
    if stat.S_ISREG(mode) and _WEIGHTS_FILE.fullmatch(path.name):
        return Checkpoint(path.parent, path.name, given)
    if (layout := layout_of([path.name])) is not None:
        raise refuse(layout, path)
    raise UnsupportedSource("is neither a directory nor a file of weights", path=str(path), hint=_NAME_IT)


def _open_distributed(folder: Path, given: Stored | None) -> Checkpoint:
    """A folder of distributed weights; accelerate keeps it inside the one that has config.json and the tokenizer."""
    above = folder.resolve().parent
    if (folder / CONFIG).exists() or not (above / CONFIG).exists():
        return Checkpoint(folder, given=given)
    return Checkpoint(above, f"{folder.resolve().name}/{METADATA}", given)


def _open_remote(url: Url, given: Stored | None) -> Checkpoint:
    url = url.parent if url.name == METADATA else url
    of_weights = _WEIGHTS_FILE.fullmatch(url.name) is not None
    if url.lists_nothing and not of_weights:
        hint = "name the file that holds the weights: https://.../model.safetensors"
        raise UnsupportedSource("is on a server that lists no files", path=str(url), hint=hint)
    if of_weights and (url.lists_nothing or is_file(url)):
        return Checkpoint(url.parent, url.name, given)
    checkpoint = Checkpoint(url, given=given)
    if not checkpoint.roles and not checkpoint.unlisted:
        raise _unlike_a_folder(url)
    if METADATA in checkpoint.roles and CONFIG not in checkpoint.roles and not given and is_file(url.parent / CONFIG):
        return Checkpoint(url.parent, f"{url.name}/{METADATA}", given)  # as _open_distributed does
    return checkpoint


def _unlike_a_folder(url: Url) -> InputError:
    """What there is at an address below which there is nothing."""
    if not is_file(url):
        return MissingInput("does not exist, or is empty", path=str(url), hint=_NAME_IT)
    if (layout := layout_of([url.name])) is not None:
        return refuse(layout, url)
    return UnsupportedSource("is neither a directory nor a file of weights", path=str(url), hint=_NAME_IT)
