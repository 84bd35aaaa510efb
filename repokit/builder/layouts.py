"""Which checkpoints this version builds from, and what it says of the others: by name, with what to do instead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from repokit.builder.sources import Role
from repokit.builder.stored import check_index
from repokit.errors import InputError, MalformedFile, MissingInput, UnsupportedSource
from repokit.formats.signature import identify
from repokit.printable import count, printable, some
from repokit.repo.weights import INDEX, SINGLE

if TYPE_CHECKING:
    from repokit.builder.sources import Checkpoint
    from repokit.repo.config import Config


@dataclass(frozen=True)
class _Layout:
    """A layout that is recognised and not read by this version: by which files, what it is, what to do."""

    pattern: re.Pattern[str]
    what: str
    hint: str


_SAVE_AGAIN: Final = "load it where it was trained and call model.save_pretrained(DIR)"
_AS_IT_IS: Final = "`repokit lint` and `repokit push` take the directory as it is"

# First match wins. Sources: what peft, DeepSpeed, torch, verl, Megatron-LM, Orbax and diffusers write.
_ADAPTER: Final = _Layout(
    re.compile(r"adapter_(?:config\.json|model\.(?:safetensors|bin))"),
    "is a PEFT adapter",
    "merge it (model.merge_and_unload(), then save_pretrained) and build from the merged model",
)
_META: Final = _Layout(
    re.compile(r"consolidated\.\d+\.pth"),
    "is a checkpoint in Meta's own layout",
    "convert it: python -m transformers.models.llama.convert_llama_weights_to_hf",
)
_DIFFUSERS: Final = _Layout(re.compile(r"model_index\.json"), "is a diffusers pipeline", _AS_IT_IS)
_LAYOUTS: Final = (
    _ADAPTER,
    _DIFFUSERS,
    *(
        _Layout(re.compile(pattern), what, hint)
        for pattern, what, hint in (
            (
                r"(?:.*/)?(?:zero_pp_rank_.*|.*_optim_states\.pt|mp_rank_\d+_model_states\.pt)",
                "is a DeepSpeed ZeRO checkpoint",
                "run the zero_to_fp32.py that lies beside it: python zero_to_fp32.py . OUT --safe_serialization",
            ),
            (
                r"(?:.*/)?[^/]+\.distcp",
                "is a torch.distributed checkpoint (DCP, FSDP sharded)",
                "merge it first: accelerate merge-weights CHECKPOINT/pytorch_model_fsdp_0 OUT",
            ),
            (
                r"(?:.*/)?(?:model_world_size_\d+_rank_\d+\.pt|[^/]*\.rank_\d+\.pth|pytorch_model_fsdp_rank\d+\.bin)",
                "holds one file per training rank (FSDP)",
                "merge it with the trainer that wrote it (verl: python -m verl.model_merger merge)",
            ),
            (
                r"(?:.*/)?mp_rank_\d+(?:_\d+)?/.*|latest_checkpointed_iteration\.txt",
                "is a Megatron checkpoint",
                "export it with Megatron-Bridge: scripts/conversion/convert.sh export",
            ),
            (r"_CHECKPOINT_METADATA|(?:.*/)?manifest\.ocdbt", "is an Orbax checkpoint (JAX)", _SAVE_AGAIN),
            (r"[^/]+\.gguf", "holds GGUF files", _AS_IT_IS),
            (r"(?:.*/)?[^/]+\.onnx", "holds ONNX models", _AS_IT_IS),
            (r"[^/]+\.(?:keras|h5|msgpack)", "holds Keras or Flax weights", _SAVE_AGAIN),
        )
    ),
)
_VARIANT: Final = re.compile(r"model\.[^.]+\.safetensors|model\.safetensors\.index\.[^.]+\.json")
_SHARD: Final = re.compile(r".+-\d+-of-\d+\.safetensors")


def check_supported(checkpoint: Checkpoint) -> None:
    """Refuses by name what this version cannot build from.

    Raises:
        InputError: With what it is and what to do instead.
    """
    checkpoint.check_read()
    if not checkpoint.given:
        index = checkpoint.repository.weights.index
        if index is not None and checkpoint.file is None:
            check_index(index, checkpoint.repository)
        if not checkpoint.weights.files:
            _refuse_without_weights(checkpoint)
        for layout in (_ADAPTER, _META):
            if layout.pattern.match(checkpoint.weights.files[0]):
                _refuse(layout, checkpoint)
        if checkpoint.file is None:
            _check_one_model(checkpoint)
    _check_holds_tensors(checkpoint)
    config = checkpoint.config
    if config is None:
        hint = "copy it from the base model, or take it from there: repokit init CHECKPOINT --base DIR"
        why = "nothing says what to build"
        raise MissingInput("has weights and no config.json", why=why, path=str(checkpoint.root), hint=hint)
    _check_config(config, checkpoint)


def _check_one_model(checkpoint: Checkpoint) -> None:
    """Refuses two sets of weights side by side: which one is the model, only a person can say."""
    files = checkpoint.repository.files
    if SINGLE in files and INDEX in files:
        shards = checkpoint.repository.weights.index_at(INDEX)
        if shards is not None and shards.shards != (SINGLE,):
            what = f"has {SINGLE} and {INDEX}, two sets of weights"
            why = "save_pretrained leaves an older file in place, and transformers loads it instead of the shards"
            raise InputError(what, why=why, path=str(checkpoint.root), hint="delete the one that is old")
    variants = [path for path in files if _VARIANT.fullmatch(path)]
    if len(variants) > 1 and SINGLE not in files and INDEX not in files:
        what = f"has {count(len(variants), 'variant')} of its weights and none without: {some(variants)}"
        hint = f"rename the one that is to be published to {SINGLE}"
        raise InputError(what, path=str(checkpoint.root), hint=hint)


def _check_config(config: Config, checkpoint: Checkpoint) -> None:
    path = str(checkpoint.root / config.path)
    if "_diffusers_version" in config:
        what = "is of a component of a diffusers pipeline, which this version does not build from"
        raise UnsupportedSource(what, path=path, place="/_diffusers_version", hint=_AS_IT_IS)
    quantization = config.quantization or config.mapping("compression_config")
    if quantization is not None:
        method = printable(quantization.string("quant_method") or "unknown method", 40)
        what = f"is quantized ({method}); this version builds from full-precision weights"
        raise UnsupportedSource(what, path=path, place=quantization.pointer, hint=_AS_IT_IS)


def _refuse(layout: _Layout, checkpoint: Checkpoint) -> None:
    what = f"{layout.what}, which this version does not build from"
    raise UnsupportedSource(what, path=str(checkpoint.root), hint=layout.hint)


def _refuse_without_weights(checkpoint: Checkpoint) -> None:
    root = str(checkpoint.root)
    if checkpoint.nested:
        best = next((nested for nested in checkpoint.nested if nested.best), checkpoint.nested[-1])
        what = f"is an output directory with {count(len(checkpoint.nested), 'checkpoint')} and no model at its top"
        raise InputError(what, path=root, hint=f"build from one of them: source: {printable(root)}/{best.path}")
    for layout in _LAYOUTS:
        if any(layout.pattern.fullmatch(path) for path in checkpoint.roles):
            _refuse(layout, checkpoint)
    _refuse_unnamed(checkpoint)
    _refuse_unlike_pickles(checkpoint)
    what = "has no weights: no *.safetensors file and no pickle of a model"
    raise MissingInput(what, path=root, hint="name the directory or the file that holds them")


def _refuse_unlike_pickles(checkpoint: Checkpoint) -> None:
    """Refuses files with a pickle's name that are something else, such as a pointer of Git LFS, by what they are."""
    for path in checkpoint.files(Role.PICKLE):
        kind = identify(checkpoint.repository.head(path)) or "no checkpoint of torch, whatever its name says"
        hint = "git lfs pull" if kind.startswith("a Git LFS pointer") else "copy the checkpoint again"
        raise MalformedFile(f"is {kind}", path=str(checkpoint.root / path), hint=hint)


def _check_holds_tensors(checkpoint: Checkpoint) -> None:
    if not checkpoint.tensors:
        raise MissingInput("holds no tensor", path=str(checkpoint.root / (checkpoint.file or "")), hint="name another")


def _refuse_unnamed(checkpoint: Checkpoint) -> None:
    """Refuses weights that no loader would find: without their index, or under a name of their own."""
    found = [path for path in checkpoint.files(Role.WEIGHTS) if path.endswith(".safetensors")]
    if any(_SHARD.fullmatch(path) for path in found):
        what = f"has {count(len(found), 'shard')} and no {INDEX}"
        hint = "copy the index from where they were saved, or save the model again"
        raise MissingInput(what, why="nothing says which of them belong together", path=str(checkpoint.root), hint=hint)
    if found:
        what = f"has weights that no loader looks for: {some(found)}"
        hint = f"rename the file to {SINGLE} if it holds the whole model"
        raise InputError(what, path=str(checkpoint.root), hint=hint)
