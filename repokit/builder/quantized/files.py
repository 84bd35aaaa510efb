"""What a quantizer wrote about its work: quantization_config in config.json, and files beside it.

They are held against each other before anything is planned: some readers go by one, some by the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from repokit.builder.quantized.llm_compressor import RECIPE_FILE, is_recipe, recipe_differences
from repokit.errors import InputError, MalformedFile, MissingInput
from repokit.formats.paths import is_local
from repokit.printable import printable
from repokit.repo.config import CONFIG
from repokit.repo.document import Document
from repokit.repo.quantization import AWQ_FILE, GPTQ_FILE, MODELOPT_FILE, SIDE_FILES, declaration, quantization, schemes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.builder.checkpoints.sources import Checkpoint
    from repokit.repo.quantization import Declared
    from repokit.repo.repository import Repository

KEY: Final = "quantization_config"
_KEYS: Final = (KEY, "compression_config")
AUTOROUND_FILE: Final = "quantization_config.json"  # AutoRound writes its object into a file too
_WHY: Final = "some readers go by one, some by the other: one of them would read the weights wrongly"
_OF_A_COPY: Final = ("quant_method", "bits", "group_size", "sym", "packing_format", "data_type", "desc_act")

# quantize_config.json -> quantization_config: the same words (AutoGPTQ quantization/config.py, transformers 5.24
# GPTQConfig). What names the machine of the quantizer stays behind.
_NOT_TAKEN: Final = frozenset({"model_name_or_path", "model_file_base_name", "is_marlin_format"})
# quant_config.json -> quantization_config (AutoAWQ models/_config.py `to_transformers_dict`).
_OF_AWQ: Final = {"w_bit": "bits", "q_group_size": "group_size", "zero_point": "zero_point"}


@dataclass(frozen=True)
class Declaration:
    """How the weights are quantized, by what the quantizer wrote.

    Attributes:
        declared: The object that loaders will go by, and its method.
        added: What is put into config.json as its quantization_config; None where it has what is needed.
        origin: The file that says so.
        published: Files of the quantizer beside config.json that are published with it.
        notes: What a person should know of it.
    """

    declared: Declared
    added: Mapping[str, Any] | None = None
    origin: str = CONFIG
    published: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def config(self) -> Document:
        return self.declared.config

    @property
    def method(self) -> str:
        """`gptq`, `compressed-tensors`, ...: as loaders call it."""
        return self.declared.method or "unknown"

    @cached_property
    def known(self) -> bool:
        """Whether this version knows the method."""
        from repokit.schema.quantization import is_known

        return self.method == "mlx" or is_known(self.method)


def is_declared(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint is quantized by what its documents say: config.json, or a quantizer's own file alone."""
    if quantization(checkpoint.described_by).declared is not None:
        return True
    try:
        beside = any(_sides(checkpoint.repository))
    except InputError:  # a file that stays behind in a build of a full model
        return False
    return beside and _any_packed(checkpoint)


def declaration_of(checkpoint: Checkpoint) -> Declaration:
    """What the documents of a checkpoint say, once they agree.

    Raises:
        InputError: They say nothing, name no method, or contradict each other.
    """
    found = quantization(checkpoint.described_by).declared
    sides = dict(_sides(checkpoint.repository))
    recipe = is_recipe(checkpoint.repository)
    published = (*sides, *([RECIPE_FILE] if recipe else []))
    if found is None:
        return _from_side(checkpoint, sides, published)
    if found.method is None:
        what = "names no quant_method"
        why = "loaders stop: they cannot know how the weights are packed"
        hint = f'"quant_method": one of gptq, awq, bitsandbytes, fp8, compressed-tensors, ...{_seen(checkpoint)}'
        raise InputError(what, why=why, path=_path(checkpoint), place=found.config.pointer, hint=hint)
    _refuse_difference(checkpoint, _differences(found, sides))
    if recipe:
        _refuse_difference(checkpoint, recipe_differences(found, checkpoint.repository))
    return Declaration(found, published=published)


def _sides(repository: Repository) -> Iterator[tuple[str, Document]]:
    """Files beside config.json that a quantizer wrote; others of the same name are left alone."""
    for path, keys in (
        (GPTQ_FILE, ("bits", "group_size")),  # optimum's exporter to ONNX writes this name too
        (AWQ_FILE, ("w_bit", "q_group_size")),
        (MODELOPT_FILE, ("quantization",)),
        (AUTOROUND_FILE, ("quant_method",)),
    ):
        document = repository.document(path)
        if document is None or not all(key in document for key in keys):
            continue
        if path != MODELOPT_FILE or document.mapping("quantization") is not None:
            yield path, document


def _from_side(checkpoint: Checkpoint, sides: Mapping[str, Document], published: tuple[str, ...]) -> Declaration:
    """Of a tool that left config.json as it was."""
    for path, document in sides.items():
        nested = document.mapping("quantization")
        if path == MODELOPT_FILE and nested is not None:
            declared = declaration(nested)._replace(method="modelopt")
            note = f"{CONFIG} has no {KEY}: vLLM and TensorRT-LLM read {path}, transformers does not"
            return Declaration(declared, origin=path, published=published, notes=(note,))
        added = _translated(path, document)
        declared = declaration(Document(CONFIG, added, f"/{KEY}"))
        note = f"{CONFIG} gets a {KEY} ({declared.method}), translated from {path}: loaders look for it there"
        return Declaration(declared, added=added, origin=path, published=published, notes=(note,))
    what = "says nothing of a quantization, and kind is quantized"
    why = "loaders look for plain weights, and find none of their names"
    hint = f"copy the config.json that the quantizer wrote, or build another kind{_seen(checkpoint)}"
    raise MissingInput(what, why=why, path=_path(checkpoint), place=f"/{KEY}", hint=hint)


def _translated(path: str, document: Document) -> dict[str, Any]:
    """A quantization_config in the words of transformers.

    Raises:
        MalformedFile: A number without which nothing can be unpacked is none.
    """
    raw = document.raw
    for key in ("bits", "group_size") if path == GPTQ_FILE else ("w_bit", "q_group_size") if path == AWQ_FILE else ():
        if type(raw[key]) is not int:
            what = f"is {printable(raw[key], 40)}; it must be an integer"
            why = "the weights cannot be unpacked without it"
            raise MalformedFile(what, why=why, path=path, place=document.at(key))
    if path == AWQ_FILE:
        numbers = {ours: raw[theirs] for theirs, ours in _OF_AWQ.items() if theirs in raw}
        version = {"version": document.string("version") or "gemm"}
        kept = {key: raw[key] for key in ("modules_to_not_convert",) if key in raw}
        return {"quant_method": "awq", **numbers, **{key: value.lower() for key, value in version.items()}, **kept}
    taken = {key: value for key, value in without_paths(raw).items() if key not in _NOT_TAKEN}
    return taken if path == AUTOROUND_FILE else {**taken, "quant_method": document.string("quant_method") or "gptq"}


def without_paths(raw: Mapping[str, Any]) -> dict[str, Any]:
    """An object with null for what is a path of the machine that quantized: of the base, of calibration data."""
    return {key: None if isinstance(value, str) and is_local(value) else value for key, value in raw.items()}


def config_without_paths(raw: Mapping[str, Any]) -> dict[str, Any]:
    """config.json with such objects in it, at the top and in its parts."""
    parts = {key: config_without_paths(value) for key, value in raw.items() if isinstance(value, dict)}
    own = {key: without_paths(raw[key]) for key in _KEYS if isinstance(raw.get(key), dict)}
    return {**raw, **parts, **own}


# ---------------------------------------------------------------- contradictions

# What a file says by its name, and the methods beside which it may stand.
_OF_TOOL: Final = {
    GPTQ_FILE: ("gptq", frozenset({"gptq", "awq", "auto-round", "intel/auto-round"})),
    AWQ_FILE: ("awq", frozenset({"awq", "auto-round", "intel/auto-round"})),
}
Difference = tuple[str, str, object, str, object]  # file, place, what it says; place in config.json, what it says there


def _differences(declared: Declared, sides: Mapping[str, Document]) -> Iterator[Difference]:
    """What the files say otherwise than config.json."""
    config = declared.config
    for path, document in sides.items():
        own = document.mapping("quantization") if path == MODELOPT_FILE else document
        if own is None:
            continue
        tool, methods = _OF_TOOL.get(path, ("", frozenset()))
        if methods and declared.method not in methods:
            yield path, own.pointer, own.string("quant_method") or tool, config.at("quant_method"), declared.method
            continue
        keys = SIDE_FILES.get(path) or dict.fromkeys(_OF_A_COPY)
        for theirs, ours in keys.items():
            name = ours or theirs
            yield from _difference(path, own, theirs, config, name)
        if path == GPTQ_FILE:
            yield from _format(own, config)
        if path == MODELOPT_FILE:
            yield from _of_modelopt(own, config)


def _difference(path: str, side: Document, theirs: str, config: Document, ours: str) -> Iterator[Difference]:
    said, here = side.raw.get(theirs), config.raw.get(ours)
    if said is not None and here is not None and str(said).lower() != str(here).lower():
        yield path, side.at(theirs), said, config.at(ours), here


def _format(side: Document, config: Document) -> Iterator[Difference]:
    """GPTQ's format under either of its names: `gptq` stores zero points minus 1, `gptq_v2` does not."""
    names = ("checkpoint_format", "format")
    theirs = next((key for key in names if side.string(key)), None)
    ours = next((key for key in names if config.string(key)), None)
    if theirs and ours and theirs != ours:
        yield from _difference(GPTQ_FILE, side, theirs, config, ours)
    for key in ("pack_dtype", "dynamic"):
        yield from _difference(GPTQ_FILE, side, key, config, key)


def _of_modelopt(side: Document, config: Document) -> Iterator[Difference]:
    """The group size, which config.json has in the words of compressed-tensors."""
    for scheme in schemes(config) if "group_size" not in config else ():
        yield from _difference(MODELOPT_FILE, side, "group_size", scheme.weights, "group_size")


def _refuse_difference(checkpoint: Checkpoint, found: Iterator[Difference]) -> None:
    for path, place, said, where, here in found:
        what = f"says {printable(said, 80)}; {CONFIG} says {printable(here, 80)} at {printable(where)}"
        hint = "delete the file that is out of date, or correct it: only the tool that quantized knows"
        raise InputError(what, why=_WHY, path=str(checkpoint.root / path), place=place, hint=hint)


# ---------------------------------------------------------------- weights

_PACKED: Final = frozenset({"U8", "I8", "I32", "U32", "I16", "F4", "F8_E4M3", "F8_E5M2"})


def _any_packed(checkpoint: Checkpoint) -> bool:
    """Whether a matrix has a dtype that only quantized weights have: a file alone may be left over."""
    return any(tensor.dtype in _PACKED and len(tensor.shape) > 1 for tensor in checkpoint.tensors.values())


def _seen(checkpoint: Checkpoint) -> str:
    """What the names of the tensors are evidence of, as the end of a hint."""
    endings = {name.rpartition(".")[2] for name in checkpoint.tensors}
    for ending, what in (
        ("qweight", "gptq, awq or auto-round"),
        ("weight_packed", "compressed-tensors"),
        ("SCB", "bitsandbytes"),
        ("absmax", "bitsandbytes"),
        ("weight_scale_inv", "fp8"),
    ):
        if ending in endings:
            return f"; by their names these weights are of {what}"
    return ""


def _path(checkpoint: Checkpoint) -> str:
    return str(checkpoint.root / CONFIG)
