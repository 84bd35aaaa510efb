"""What lies in a checkpoint, file by file: what becomes part of a repository, what stays behind, and why.

Publishing goes by an allow-list: a file that nothing here recognises is not published unless the recipe names it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from repokit.errors import InputError, MalformedFile, MissingInput, UnsupportedSource
from repokit.printable import count, printable, some
from repokit.repo.directory import Directory
from repokit.repo.repository import Repository

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
    TRAINING = "training state"
    LOG = "log"
    CHECKPOINT = "another checkpoint"
    PICKLE = "pickled weights"
    UNKNOWN = "not recognised"


PUBLISHED: Final = frozenset(
    {Role.WEIGHTS, Role.CONFIG, Role.TOKENIZER, Role.PROCESSOR, Role.CHAT_TEMPLATE, Role.CARD, Role.LICENSE}
)

# First match wins. Sources: formats.md 5, 7, 12.1, 12.5; transformers trainer.py; accelerate checkpointing.py.
_ROLES: Final = tuple(
    (role, re.compile(pattern))
    for role, pattern in (
        (Role.CHECKPOINT, r"checkpoint-\d+/.*"),
        (Role.LOG, r"(?:.*/)?events\.out\.tfevents\..*|(?:runs|logs|wandb|mlruns|lightning_logs)/.*|.*\.log"),
        (
            Role.TRAINING,
            r"(?:optimizer|scheduler|scaler|sampler|dl_state_dict)(?:_\d+)?\.(?:pt|bin|safetensors)"
            r"|rng_state(?:_\d+)?\.pth|random_states_\d+\.pkl|training_args.*\.bin|training_params\.json"
            r"|trainer_state\.json|(?:all|train|eval|test|predict)_results\.json|latest|zero_to_fp32\.py"
            r"|custom_checkpoint_\d+\.pkl|user_content\.pt|optimizer_\d+/.*|rank\d+-of-\d+-optimizer\.pt"
            r"|training_loss\.png|trainer_log\.jsonl|global_step\d+/.*",
        ),
        (Role.CONFIG, r"config\.json|generation_config\.json"),
        (Role.WEIGHTS, r"[^/]+\.safetensors(?:\.index(?:\.[^/.]+)?\.json)?"),
        (
            Role.TOKENIZER,
            r"tokenizer\.json|tokenizer_config\.json|special_tokens_map\.json|added_tokens\.json|vocab\.(?:json|txt)"
            r"|merges\.txt|tokenizer\.model(?:\.v\d+)?|spiece\.model|sentencepiece\.bpe\.model|tiktoken\.model"
            r"|source\.spm|target\.spm|target_vocab\.json|bpe\.codes|tekken\.json|normalizer\.json|entity_vocab\.json"
            r"|emoji\.json|qwen\.tiktoken",
        ),
        (
            Role.PROCESSOR,
            r"preprocessor_config\.json|processor_config\.json|video_preprocessor_config\.json"
            r"|audio_tokenizer_config\.json|image_processor_config\.json",
        ),
        (Role.CHAT_TEMPLATE, r"chat_template\.(?:jinja|json)|additional_chat_templates/[^/]+\.jinja"),
        (Role.CARD, r"README\.md"),
        (Role.LICENSE, r"(?:LICENSE|LICENCE|COPYING|NOTICE|USE_POLICY)(?:\.md|\.txt)?"),
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


@dataclass(frozen=True)
class Nested:
    """A `checkpoint-N` folder inside an output directory.

    Attributes:
        path: `checkpoint-40`.
        step: 40.
        metric: `eval_loss 0.4213`: what the run was judged by, at that step; "" where trainer_state.json has none.
        best: Whether the trainer recorded it as the best one.
    """

    path: str
    step: int
    metric: str
    best: bool


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
        self._check_index()
        weights = self.repository.weights
        found: dict[str, TensorAt] = {}
        for path in weights.files:
            header = self.repository.header(path)
            for tensor in header.tensors:
                if weights.index is not None and weights.index.weight_map.get(tensor.name) != path:
                    continue
                offset = header.data_start + tensor.begin
                found[tensor.name] = TensorAt(path, tensor.dtype, tensor.shape, offset, tensor.size)
        return found

    def _check_index(self) -> None:
        index = self.repository.weights.index
        if index is None:
            return
        for shard in index.refused:
            what = f"names the shard {printable(shard)!r}, which is no .safetensors file inside the checkpoint"
            raise MalformedFile(what, why="loaders would open whatever it leads to", path=index.path)
        if missing := [shard for shard in index.shards if not self.repository.has(shard)]:
            what = f"names {count(len(missing), 'shard')} that {'is' if len(missing) == 1 else 'are'} not there"
            why = "what they hold would be missing from the model"
            raise MissingInput(f"{what}: {some(missing)}", why=why, path=index.path, hint="copy the checkpoint again")
        held = {(tensor.name, shard) for shard in index.shards for tensor in self.repository.header(shard).tensors}
        if absent := [name for name, shard in index.weight_map.items() if (name, shard) not in held]:
            what = f"names {count(len(absent), 'tensor')} that its shards do not hold: {some(absent)}"
            raise MalformedFile(what, why="they would be missing from the model", path=index.path)

    @cached_property
    def trainer_state(self) -> Mapping[str, object]:
        """trainer_state.json, or an empty mapping: it is looked at for people, and never decides anything."""
        return _trainer_state(self.root)

    @cached_property
    def nested(self) -> tuple[Nested, ...]:
        """The `checkpoint-N` folders inside, by step."""
        folders = sorted(
            {path.split("/")[0] for path in self.files(Role.CHECKPOINT)}, key=lambda folder: int(folder.split("-")[1])
        )
        return tuple(self._nested(folder) for folder in folders)

    def _nested(self, folder: str) -> Nested:
        state = _trainer_state(self.root / folder)
        step = int(folder.split("-")[1])
        values = [entry[self._metric] for entry in _log(state) if self._metric in entry and entry.get("step") == step]
        metric = f"{self._metric} {values[-1]:.4f}" if values and isinstance(values[-1], int | float) else ""
        return Nested(folder, step, metric, folder == self._best)

    @cached_property
    def _last_state(self) -> Mapping[str, object]:
        """The newest trainer_state.json: the output directory's own, or that of the last checkpoint."""
        if self.trainer_state:
            return self.trainer_state
        folders = {path.split("/")[0] for path in self.files(Role.CHECKPOINT)}
        last = max(folders, key=lambda folder: int(folder.split("-")[1]), default=None)
        return _trainer_state(self.root / last) if last else {}

    @property
    def _best(self) -> str | None:
        """The folder name that the trainer recorded: the end of a path of the machine that trained."""
        recorded = self._last_state.get("best_model_checkpoint")
        return Path(recorded).name if isinstance(recorded, str) else None

    @cached_property
    def _metric(self) -> str:
        """The name of the metric that chose the best checkpoint.

        The name itself is in training_args.bin, a pickle; the log has the value under it, as `eval_<name>`.
        """
        best = self._last_state.get("best_metric")
        names = (name for entry in _log(self._last_state) for name, value in entry.items() if value == best)
        return next((name for name in names if name.startswith("eval_")), "eval_loss")


def _trainer_state(folder: Path) -> Mapping[str, object]:
    try:
        state = json.loads((folder / "trainer_state.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _log(state: Mapping[str, object]) -> list[dict[str, object]]:
    """The entries of the trainer's log, as far as they are what the trainer writes."""
    history = state.get("log_history")
    return [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []


def open_checkpoint(path: Path) -> Checkpoint:
    """Looks at a checkpoint without reading its weights.

    Raises:
        MissingInput: It is not there, or may not be read.
        InputError: It is something else than a checkpoint directory.
    """
    if not path.exists():
        raise MissingInput("does not exist", path=str(path), hint="name the directory that holds config.json")
    if path.is_file():
        hint = f"name its directory: {path.parent}"
        raise UnsupportedSource("is a file; this version builds from a directory", path=str(path), hint=hint)
    checkpoint = Checkpoint(path)
    if not checkpoint.roles:
        raise MissingInput("is empty", path=str(path), hint="name the directory that holds config.json")
    return checkpoint


@dataclass(frozen=True)
class _Unsupported:
    """A layout that is recognised and not read by this version: by which files, what it is, what to do."""

    pattern: re.Pattern[str]
    what: str
    hint: str


_SAVE_AGAIN: Final = "load it where it was trained and call model.save_pretrained(DIR)"
_UNSUPPORTED: Final = tuple(
    _Unsupported(re.compile(pattern), what, hint)
    for pattern, what, hint in (
        (
            r"adapter_(?:config\.json|model\.(?:safetensors|bin))",
            "is a PEFT adapter",
            "merge it (model.merge_and_unload(), then save_pretrained) and build from the merged model",
        ),
        (
            r"(?:.*/)?(?:zero_pp_rank_.*|.*_optim_states\.pt|mp_rank_\d+_model_states\.pt)",
            "is a DeepSpeed ZeRO checkpoint",
            "run the zero_to_fp32.py that lies beside it: python zero_to_fp32.py . OUT --safe_serialization",
        ),
        (
            r"(?:.*/)?(?:[^/]+\.distcp)",
            "is a torch.distributed checkpoint (DCP, FSDP sharded)",
            "merge it first: accelerate merge-weights CHECKPOINT/pytorch_model_fsdp_0 OUT",
        ),
        (
            r"(?:.*/)?(?:model_world_size_\d+_rank_\d+\.pt|[^/]*\.rank_\d+\.pth|pytorch_model_fsdp_rank\d+\.bin)",
            "holds one file per training rank",
            "merge it with the trainer that wrote it (verl: python -m verl.model_merger merge)",
        ),
        (
            r"(?:.*/)?mp_rank_\d+(?:_\d+)?/.*|latest_checkpointed_iteration\.txt",
            "is a Megatron checkpoint",
            "export it with Megatron-Bridge: scripts/conversion/convert.sh export",
        ),
        (r"_CHECKPOINT_METADATA|(?:.*/)?manifest\.ocdbt", "is an Orbax checkpoint (JAX)", _SAVE_AGAIN),
        (r"[^/]+\.gguf", "holds GGUF files", "`repokit lint` and `repokit push` take the directory as it is"),
        (r"[^/]+\.(?:keras|h5|msgpack)", "holds Keras or Flax weights", _SAVE_AGAIN),
        (r"model_index\.json", "is a diffusers pipeline", "`repokit lint` and `repokit push` take it as it is"),
    )
)


def check_supported(checkpoint: Checkpoint) -> None:
    """Refuses by name what this version cannot build from.

    Raises:
        InputError: With what it is and what to do instead.
    """
    weights = checkpoint.repository.weights
    root = str(checkpoint.root)
    if not weights.files:
        _refuse_without_weights(checkpoint)
    if "adapter_config.json" in checkpoint.roles and weights.single != "model.safetensors":
        _refuse(_UNSUPPORTED[0], root)
    config = checkpoint.repository.config
    if config is None:
        hint = "copy config.json from the base model into it, or save the model with save_pretrained"
        raise MissingInput("has weights and no config.json", why="nothing says what to build", path=root, hint=hint)
    if config.quantization is not None:
        method = printable(config.quantization.string("quant_method") or "unknown method", 40)
        what = f"is quantized ({method}); this version builds from full-precision weights"
        hint = "`repokit lint` and `repokit push` take the directory as it is"
        raise UnsupportedSource(what, path=f"{root}/config.json", place="/quantization_config", hint=hint)


def _refuse(case: _Unsupported, root: str) -> None:
    raise UnsupportedSource(f"{case.what}, which this version does not build from", path=root, hint=case.hint)


def _refuse_without_weights(checkpoint: Checkpoint) -> None:
    root = str(checkpoint.root)
    if checkpoint.nested:
        best = next((nested for nested in checkpoint.nested if nested.best), checkpoint.nested[-1])
        what = f"is an output directory with {count(len(checkpoint.nested), 'checkpoint')} and no model at its top"
        raise InputError(what, path=root, hint=f"build from one of them: source: {root}/{best.path}")
    for case in _UNSUPPORTED:
        if any(case.pattern.fullmatch(path) for path in checkpoint.roles):
            _refuse(case, root)
    if index := checkpoint.repository.weights.index:
        raise MissingInput("names no shard that is there", path=f"{root}/{index.path}")
    if pickles := checkpoint.files(Role.PICKLE):
        what = f"has its weights in {printable(pickles[0])}, a pickle; this version reads safetensors"
        hint = "save it again with model.save_pretrained(DIR), which writes safetensors"
        why = "a pickle can run code; nothing in repokit executes one"
        raise UnsupportedSource(what, why=why, path=root, hint=hint)
    raise MissingInput("has no weights: no *.safetensors file", path=root, hint="name the directory that holds them")
