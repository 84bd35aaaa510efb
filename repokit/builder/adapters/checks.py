"""What makes an adapter useless, seen before one byte is written: halves of it, parts of it, zeros, another base.

Ranks and shapes against adapter_config.json are the linter's (ADP), which sees the plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.builder.adapters.weights import GATHER
from repokit.errors import MalformedFile, PlanError
from repokit.formats.tensors import FLOATS, TensorInfo
from repokit.printable import count, printable, some
from repokit.repo.adapter import pairs_of
from repokit.repo.adapter_kinds import PROMPTS
from repokit.repo.adapter_names import PARTS, PREFIX
from repokit.repo.tensor_names import is_embedding, is_head

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.builder.adapters.weights import StoredAdapter
    from repokit.builder.checkpoints.sources import Checkpoint
    from repokit.builder.checkpoints.stored import TensorAt
    from repokit.repo.adapter import Pair

# The tensor of each method that is zero before the first step (peft 0.21 tuners/*/layer.py reset_*_parameters): while
# all of them are, the model answers as its base does. Of LoRA on an embedding it is the first factor.
_ZERO_AT_FIRST: Final[Mapping[str, tuple[str, ...]]] = {
    "ADALORA": ("lora_E",),
    "BOFT": ("boft_R",),
    "HIRA": ("hira_B", "hira_embedding_A"),
    "LOHA": ("hada_w2_b",),
    "LORA": ("lora_B", "lora_embedding_A"),
    "OFT": ("oft_R", "oft_embedding_R"),
    "VERA": ("vera_lambda_b",),
}
_SIGNS: Final = b"\0\x80"  # bytes of 0.0 and -0.0


def check_tensors(adapter: StoredAdapter, tensors: Mapping[str, TensorAt]) -> None:
    """Refuses an adapter that is not all there.

    Args:
        adapter: Where it was found.
        tensors: By the names under which they are published.

    Raises:
        MalformedFile, PlanError: Naming the tensors.
    """
    path = next(iter(adapter.weights.files), adapter.config.path)
    part = PARTS.get(adapter.method)
    own = [name for name in tensors if adapter.method in PROMPTS or part is None or f".{part}" in f".{name}"]
    if not own:
        what = f"holds no tensor of {printable(adapter.method, 40)}, which {adapter.config.path} says it is"
        raise PlanError(what, path=path, hint="if it is a full model: kind: full")
    infos = [TensorInfo(name, tensor.dtype, tensor.shape, 0, tensor.size) for name, tensor in tensors.items()]
    pairs = pairs_of(infos)
    _check_gathered(path, infos, pairs)
    alone = [module for module, pair in pairs.items() if pair.a is None or pair.b is None]
    if alone and adapter.method in {"LORA", "ADALORA"}:
        what = f"has one of two factors in {count(len(alone), 'module')}: {some(alone)}"
        why = "PEFT leaves the other as it was before training: the module does nothing, or harm"
        raise PlanError(what, why=why, path=path, place=alone[0], hint="save the adapter again")
    _check_does_something(adapter, path, {name: tensors[name] for name in own}, everything=len(own) == len(tensors))


def _check_gathered(path: str, tensors: list[TensorInfo], pairs: Mapping[str, Pair]) -> None:
    """Refuses what one process of a sharded run had: nothing, or a flat part."""
    why = "it is the part of one process of a sharded run (ZeRO-3, FSDP): what the others held is lost"
    empty = [tensor.name for tensor in tensors if 0 in tensor.shape]
    if empty:
        what = f"holds {count(len(empty), 'tensor')} without elements: {some(empty)}"
        raise MalformedFile(what, why=why, path=path, place=empty[0], hint=GATHER)
    factors = (factor for pair in pairs.values() for factor in (pair.a, pair.b) if factor is not None)
    flat = [factor.name for factor in factors if len(factor.shape) < 2]
    flat += [tensor.name for tensor in tensors if tensor.name.endswith("_flat_param")]
    if flat:
        what = f"holds {count(len(flat), 'factor')} that {'is' if len(flat) == 1 else 'are'} flat: {some(flat)}"
        raise MalformedFile(what, why=why, path=path, place=flat[0], hint=GATHER)


def _check_does_something(adapter: StoredAdapter, path: str, own: Mapping[str, TensorAt], *, everything: bool) -> None:
    """Reads the tensors that are zero at first, up to the first value that is not.

    Args:
        adapter: Where it was found.
        path: Of its weights.
        own: The tensors of its method.
        everything: Whether there are no others, which would do something by themselves.
    """
    names = _ZERO_AT_FIRST.get(adapter.method, ())
    found = [name for name in own if name.removesuffix(".weight").rpartition(".")[2] in names]
    if not found or not everything or adapter.config.flag("use_dora"):
        return
    if not any(_holds_values(adapter, own[name]) for name in found):
        what = f"changes nothing: {count(len(found), 'tensor')} of nothing but zeros, such as {printable(found[0])}"
        why = "they are as before the first step; whoever loads it gets the base model"
        raise PlanError(what, why=why, path=path, place=found[0], hint="publish a later checkpoint of the run")


def _holds_values(adapter: StoredAdapter, tensor: TensorAt) -> bool:
    if tensor.dtype not in FLOATS:
        return True
    return any(bytes(chunk).strip(_SIGNS) for chunk in adapter.weights.contents(tensor))


class Beside(NamedTuple):
    """Tensors of an adapter that are whole parts of the model, by what they are."""

    what: str
    names: tuple[str, ...]
    size: int


def whole_tensors(adapter: StoredAdapter, sizes: Mapping[str, int]) -> Iterator[Beside]:
    """What an adapter holds beside the tensors of its method, the largest first.

    Args:
        adapter: What it is.
        sizes: Bytes by published name.
    """
    part = PARTS.get(adapter.method)
    if part is None:
        return
    found: dict[str, list[str]] = {}
    for name in sizes:
        if f".{part}" not in f".{name}":
            found.setdefault(_kind(adapter, name), []).append(name)
    for what, names in sorted(found.items(), key=lambda item: -sum(sizes[name] for name in item[1])):
        yield Beside(what, tuple(names), sum(sizes[name] for name in names))


def _kind(adapter: StoredAdapter, name: str) -> str:
    if "trainable_tokens_delta" in name:
        return "rows of trained tokens"
    if ".base_layer." in name:
        return "weights of the base under adapted modules (base_layer)"
    saved = tuple(module for module in adapter.config.strings("modules_to_save") if module)
    if any(module.endswith(saved) for module in _above(name)):
        return "modules that were trained whole (modules_to_save)"
    if name.endswith(".bias"):
        return "biases"
    if is_embedding(name.removeprefix(PREFIX)) or is_head(name.removeprefix(PREFIX)):
        return UNTARGETED
    return OF_BASE


def _above(name: str) -> Iterator[str]:
    """The modules in which a tensor lies. PEFT goes by the end of their paths, dot or not."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


UNTARGETED: Final = "embeddings that adapter_config.json does not name"
OF_BASE: Final = "tensors that adapter_config.json does not name"


def check_fits_base(adapter: StoredAdapter, tensors: Mapping[str, TensorAt], base: Checkpoint) -> None:
    """Holds the factors of LoRA against the matrices of a base that is at hand.

    Modules that the base stores under another name, or packed, are left to the linter, which knows its architecture.

    Raises:
        PlanError: The first that does not fit.
    """
    special = any(adapter.config.raw.get(key) for key in ("target_parameters", "use_bdlora", "use_qalora"))
    if adapter.method not in {"LORA", "ADALORA"} or special or not base.weights.files:
        return
    held = base.tensors
    infos = (TensorInfo(name, tensor.dtype, tensor.shape, 0, tensor.size) for name, tensor in tensors.items())
    for module, pair in pairs_of(infos).items():
        name = f"{module.removeprefix(PREFIX)}.weight"
        weight = None if is_embedding(name) or is_head(name) else held.get(name)  # those may have more rows
        matrices = pair.a is not None and pair.b is not None and len(pair.a.shape) == len(pair.b.shape) == 2
        if weight is None or not matrices or len(weight.shape) != 2 or weight.dtype not in FLOATS:
            continue
        wanted = (pair.b.shape[0], pair.a.shape[1])  # type: ignore[union-attr] # matrices
        # GPT-2 stores its matrices the other way round.
        if sorted(wanted) != sorted(weight.shape):
            shape = " x ".join(f"{size:,}" for size in weight.shape)
            what = f"is {wanted[0]:,} x {wanted[1]:,} in the adapter and {shape} in {printable(base.root)}"
            hint = "check base.id and base.path: it was trained on another model"
            raise PlanError(
                what, why="PEFT stops with a size mismatch", path=adapter.config.path, place=module, hint=hint
            )
