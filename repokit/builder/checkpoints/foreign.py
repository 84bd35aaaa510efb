"""Checkpoints of other frameworks and of single processes: what each is called, and which tool converts it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from repokit.errors import InputError, UnsupportedSource
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repokit.formats.urls import Place
    from repokit.repo.repository import Repository


@dataclass(frozen=True)
class Layout:
    """A layout that is recognised and not read by this version: by which files, what it is, what to do."""

    pattern: re.Pattern[str]
    what: str
    hint: str


MAX_DOCUMENT: Final = 65536  # bytes of Megatron's metadata.json, which has 80
AS_IT_IS: Final = "`repokit lint` and `repokit push` take the directory as it is"
_MEGATRON: Final = "export it with Megatron-Bridge: AutoBridge.from_hf_pretrained(BASE).export_ckpt(CHECKPOINT, DIR)"
# transformers 5 reads neither TensorFlow nor Flax any more.
_FROM_TF: Final = "with transformers 4: AutoModel.from_pretrained(CHECKPOINT, from_tf=True).save_pretrained(DIR)"
_UNPACK: Final = "unpack it, and name the directory that it holds"

# First match wins. Sources: what torch, verl, accelerate, Megatron-LM, NeMo, Orbax, Keras, flax and TensorFlow write.
LAYOUTS: Final = tuple(
    Layout(re.compile(pattern), what, hint)
    for pattern, what, hint in (
        (
            r"(?:.*/)?[^/]+\.distcp",
            "holds the distributed state of an optimizer, and no model",
            "name the folder of the model: accelerate calls it pytorch_model_fsdp_0",
        ),
        (
            r"(?:.*/)?pytorch_model_fsdp(?:_\d+)?_rank\d+\.bin",
            "holds what each process had of the model (FSDP, LOCAL_STATE_DICT), whose parts of tensors have no names",
            "load it where it was trained, and save it with SHARDED_STATE_DICT: accelerator.save_state(DIR)",
        ),
        (
            r"(?:.*/)?(?:model_world_size_\d+_rank_\d+\.pt|[^/]*\.rank_\d+\.pth)",
            "holds one file per training rank (FSDP)",
            "merge it with the trainer that wrote it (verl: python -m verl.model_merger merge)",
        ),
        (
            r"(?:.*/)?mp_rank_\d+(?:_\d+)?/.*|latest_checkpointed_iteration\.txt|(?:.*/)?model_(?:optim_)?rng\.pt",
            "is a Megatron checkpoint, cut over tensor-parallel and pipeline-parallel processes",
            _MEGATRON,
        ),
        (
            r"(?:.*/)?(?:_CHECKPOINT_METADATA|manifest\.ocdbt)|_METADATA|_sharding",
            "is an Orbax checkpoint (JAX)",
            "convert it where it was trained (MaxText: python -m MaxText.utils.ckpt_conversion.to_huggingface), or "
            "restore it with orbax.checkpoint and write its arrays with safetensors.numpy.save_file",
        ),
        (
            r"(?:.*/)?[^/]*ckpt[^/]*\.(?:index|meta|data-\d+-of-\d+)|(?:.*/)?(?:saved_model\.pb|variables\.index)",
            "is a TensorFlow checkpoint",
            _FROM_TF,
        ),
        (r"[^/]+\.gguf", "holds GGUF files", "kind: gguf publishes them; for kind: full give the model they are of"),
        (r"(?:.*/)?[^/]+\.onnx", "holds ONNX models", AS_IT_IS),
        (r"[^/]+\.h5", "holds Keras weights", _FROM_TF),
        (
            r"[^/]+\.keras",
            "holds Keras weights",
            "keras_hub.models.CausalLM.from_preset(PRESET).export_to_transformers(DIR)",
        ),
        (
            r"[^/]+\.msgpack",
            "holds Flax weights",
            "with transformers 4: AutoModel.from_pretrained(CHECKPOINT, from_flax=True).save_pretrained(DIR)",
        ),
        (
            r"[^/]+\.pt2",
            "holds a program of torch.export (.pt2)",
            "torch.save(torch.export.load(PATH).state_dict, ...) gives a state dict",
        ),
        (r"[^/]+\.nemo", "is an archive of NeMo", _MEGATRON),
        (r"[^/]+\.(?:tar|tar\.\w+|tgz|zip|7z)", "holds an archive", _UNPACK),
    )
)


def layout_of(paths: Iterable[str]) -> Layout | None:
    """The layout that files tell by their names."""
    known = list(paths)
    return next((layout for layout in LAYOUTS if any(layout.pattern.fullmatch(path) for path in known)), None)


def refuse(layout: Layout, path: Place) -> UnsupportedSource:
    """What is said of it."""
    what = f"{layout.what}, which this version does not build from"
    return UnsupportedSource(what, path=str(path), hint=layout.hint)


def refuse_megatron(root: Place, repository: Repository) -> None:
    """Refuses what Megatron leaves where its files could be taken for another's, such as torch's own.

    megatron/core/dist_checkpointing/core.py: metadata.json names the backend, common.pt holds what is not sharded.

    Raises:
        UnsupportedSource: It is one.
    """
    for path in repository.files:
        folder, _, name = path.rpartition("/")
        if name == "metadata.json" and folder.count("/") < 1 and (backend := _backend(repository, path)):
            what = (
                f"is a distributed checkpoint of Megatron ({backend}), whose tensors have names and layouts of its own"
            )
            raise UnsupportedSource(what, path=str(root / folder), hint=_MEGATRON)
    if any(re.fullmatch(r"model_(?:optim_)?rng\.pt", path) for path in repository.files):
        raise refuse(next(layout for layout in LAYOUTS if layout.hint is _MEGATRON), root)


def _backend(repository: Repository, path: str) -> str | None:
    if repository.files[path].size > MAX_DOCUMENT:
        return None
    try:
        document = json.loads(repository.source.read(path))
    except (InputError, ValueError, RecursionError):
        return None
    backend = document.get("sharded_backend") if isinstance(document, dict) else None
    return printable(backend, 40) if isinstance(backend, str) else None
