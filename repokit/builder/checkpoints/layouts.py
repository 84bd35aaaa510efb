"""Which checkpoints this version builds from, and what it says of the others: by name, with what to do instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from repokit.builder.checkpoints.foreign import AS_IT_IS, LAYOUTS, Layout, refuse
from repokit.builder.checkpoints.partitions import check_whole
from repokit.builder.checkpoints.sources import Role
from repokit.builder.checkpoints.stored import Safetensors, check_index
from repokit.errors import InputError, MalformedFile, MissingInput, UnsupportedSource
from repokit.formats.signature import identify, is_tar
from repokit.printable import count, printable, some
from repokit.repo.weights import INDEX, SINGLE

if TYPE_CHECKING:
    from repokit.builder.checkpoints.sources import Checkpoint
    from repokit.repo.config import Config


# First match wins.
_ADAPTER: Final = Layout(
    re.compile(r"adapter_(?:config\.json|model\.(?:safetensors|bin))"),
    "is a PEFT adapter",
    "name its folder, with adapter_config.json in it: kind: adapter publishes it, kind: full merges it into base.path",
)
_META: Final = Layout(
    re.compile(r"consolidated\.\d+\.pth"),
    "is a checkpoint in Meta's own layout",
    "convert it: python -m transformers.models.llama.convert_llama_weights_to_hf",
)
_DIFFUSERS: Final = Layout(re.compile(r"model_index\.json"), "is a diffusers pipeline", AS_IT_IS)
_LAYOUTS: Final = (_ADAPTER, _DIFFUSERS, *LAYOUTS)
_AS_QUANTIZED: Final = "kind: quantized assembles them as they are; for kind: full give the weights before quantization"
_VARIANT: Final = re.compile(r"model\.[^.]+\.safetensors|model\.safetensors\.index\.[^.]+\.json")


def check_supported(checkpoint: Checkpoint, *, quantized: bool = False) -> None:
    """Refuses by name what this version cannot build from.

    Args:
        checkpoint: The source.
        quantized: Whether what is built may be quantized weights.

    Raises:
        InputError: With what it is and what to do instead.
    """
    checkpoint.check_read()
    if not checkpoint.given:
        index = checkpoint.repository.weights.index
        if index is not None and isinstance(checkpoint.weights, Safetensors) and checkpoint.file is None:
            check_index(index, checkpoint.repository)
        if not checkpoint.weights.files:
            _refuse_without_weights(checkpoint)
        for layout in (_ADAPTER, _META):
            if layout.pattern.match(checkpoint.weights.files[0]):
                raise refuse(layout, checkpoint.root)
        if checkpoint.file is None:
            _check_one_model(checkpoint)
    _check_holds_tensors(checkpoint)
    config = checkpoint.config
    if config is None:
        hint = "copy it from the base model, or take it from there: repokit init CHECKPOINT --base DIR"
        why = "nothing says what to build"
        raise MissingInput("has weights and no config.json", why=why, path=str(checkpoint.root), hint=hint)
    _check_config(config, checkpoint, quantized=quantized)
    if not checkpoint.given and not quantized:
        check_whole(checkpoint)


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


def _check_config(config: Config, checkpoint: Checkpoint, *, quantized: bool) -> None:
    path = str(checkpoint.root / config.path)
    if "_diffusers_version" in config:
        what = "is of a component of a diffusers pipeline, which this version does not build from"
        raise UnsupportedSource(what, path=path, place="/_diffusers_version", hint=AS_IT_IS)
    quantization = config.quantization or config.mapping("compression_config")
    if quantization is not None and not quantized:
        method = printable(quantization.string("quant_method") or "unknown method", 40)
        what = f"is quantized ({method}), and a full model is asked for"
        why = "packed weights cannot be cast, and their names and shapes are not the architecture's"
        raise UnsupportedSource(what, why=why, path=path, place=quantization.pointer, hint=_AS_QUANTIZED)


def _refuse_without_weights(checkpoint: Checkpoint) -> None:
    root = str(checkpoint.root)
    if checkpoint.nested:
        best = next((nested for nested in checkpoint.nested if nested.best), checkpoint.nested[-1])
        what = f"is an output directory with {count(len(checkpoint.nested), 'checkpoint')} and no model at its top"
        raise InputError(what, path=root, hint=f"build from one of them: source: {printable(root)}/{best.path}")
    for layout in _LAYOUTS:
        if any(layout.pattern.fullmatch(path) for path in checkpoint.roles):
            raise refuse(layout, checkpoint.root)
    _refuse_unnamed(checkpoint)
    _refuse_unlike_pickles(checkpoint)
    what = "has no weights: no *.safetensors file and no pickle of a model"
    raise MissingInput(what, path=root, hint="name the directory or the file that holds them")


def _refuse_unlike_pickles(checkpoint: Checkpoint) -> None:
    """Refuses files with a pickle's name that are something else, such as a pointer of Git LFS, by what they are."""
    for path in checkpoint.files(Role.PICKLE):
        if is_tar(checkpoint.repository.source.read(path, 0, 512)):
            what = "is a tar archive, as torch before 0.1.10 wrote its checkpoints, or one that was renamed"
            hint = "load it with that torch and save the state dict with a newer one; or unpack it"
            raise UnsupportedSource(what, path=str(checkpoint.root / path), hint=hint)
        kind = identify(checkpoint.repository.head(path)) or "no checkpoint of torch, whatever its name says"
        hint = "git lfs pull" if kind.startswith("a Git LFS pointer") else "copy the checkpoint again"
        raise MalformedFile(f"is {kind}", path=str(checkpoint.root / path), hint=hint)


def _check_holds_tensors(checkpoint: Checkpoint) -> None:
    if not checkpoint.tensors:
        raise MissingInput("holds no tensor", path=str(checkpoint.root / (checkpoint.file or "")), hint="name another")


def _refuse_unnamed(checkpoint: Checkpoint) -> None:
    """Refuses weights that no loader would find under a name of their own."""
    found = [path for path in checkpoint.files(Role.WEIGHTS) if path.endswith(".safetensors")]
    if found:
        what = f"has weights that no loader looks for: {some(found)}"
        hint = f"rename the file to {SINGLE} if it holds the whole model"
        raise InputError(what, path=str(checkpoint.root), hint=hint)
