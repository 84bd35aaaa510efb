"""What a quantizer wrote about its work: quantization_config in config.json, and files beside it.

They are held against each other before anything is planned: some readers go by one, some by the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from repokit.builder.quantized import private
from repokit.builder.quantized.llm_compressor import RECIPE_FILE, is_recipe, recipe_differences
from repokit.errors import InputError, MalformedFile, MissingInput
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
AUTOROUND_FILE: Final = "quantization_config.json"  # AutoRound writes its object into a file too
_WHY: Final = "some readers go by one, some by the other: one of them would read the weights wrongly"
_HINT: Final = "delete the file that is out of date, or correct it: only the tool that quantized knows"
_OF_A_COPY: Final = ("quant_method", "bits", "group_size", "sym", "packing_format", "data_type", "desc_act")

# quantize_config.json -> quantization_config: the same words. Those of transformers 5.24 GPTQConfig and AwqConfig, and
# those by which GPTQModel and vLLM unpack; whatever else a tool wrote there stays behind.
_TAKEN: Final = frozenset(
    {
        *("bits", "group_size", "sym", "desc_act", "checkpoint_format", "format", "meta", "backend", "quant_method"),
        *("tokenizer", "dataset", "damp_percent", "act_group_aware", "true_sequential", "model_seqlen", "batch_size"),
        *("block_name_to_quantize", "module_name_preceding_first_block", "modules_in_block_to_quantize"),
        *("pad_token_id", "max_input_length", "cache_block_outputs", "zero_point", "version", "modules_to_not_convert"),
        *("dynamic", "pack_dtype", "lm_head", "static_groups"),
    }
)
# quant_config.json -> quantization_config (AutoAWQ models/_config.py `to_transformers_dict`).
_OF_AWQ: Final = {"w_bit": "bits", "q_group_size": "group_size", "zero_point": "zero_point"}

_FORMATS: Final = ("checkpoint_format", "format")  # of GPTQ, under either name
_ALIASES: Final = {"checkpoint_format": _FORMATS, "version": ("version", "format")}
# What loaders take where config.json says nothing: transformers 5.24 GPTQConfig, AwqConfig, AutoRoundConfig; GPTQModel.
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "gptq": {
        "bits": None,
        "group_size": 128,
        "desc_act": False,
        "sym": True,
        "checkpoint_format": "gptq",
        "dynamic": None,
        "pack_dtype": "int32",
        "lm_head": False,
    },
    "awq": {"bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
    "auto-round": {"bits": 4, "group_size": 128, "sym": True},
}


@dataclass(frozen=True)
class Declaration:
    """How the weights are quantized, by what the quantizer wrote.

    Attributes:
        declared: The object that loaders will go by, and its method.
        added: What is put into config.json as its quantization_config; None where it has what is needed.
        missing: What config.json leaves out and a file beside it says otherwise than loaders assume: put into the
            object of config.json.
        origin: The file that says so.
        published: Files of the quantizer beside config.json that are published with it.
        notes: What a person should know of it.
    """

    declared: Declared
    added: Mapping[str, Any] | None = None
    missing: Mapping[str, Any] = field(default_factory=dict)
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
    found = found._replace(config=_with_format(found.config))
    _refuse_difference(checkpoint, _differences(found, sides))
    if recipe:
        _refuse_difference(checkpoint, recipe_differences(found, checkpoint.repository))
    return _filled(found, sides, published)


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
            yield path, _with_format(document) if path == GPTQ_FILE else document


def _with_format(document: Document) -> Document:
    """AutoGPTQ before 0.7 stated one format by a flag of its own."""
    if document.flag("is_marlin_format") is not True:
        return document
    for key in _FORMATS:
        stated = document.string(key)
        if stated is not None and stated.lower() != "marlin":
            what = f"says {printable(stated, 40)}, and is_marlin_format is true"
            raise MalformedFile(what, why=_WHY, path=document.path, place=document.at(key), hint=_HINT)
    return Document(document.path, {**document.raw, "checkpoint_format": "marlin"}, document.pointer)


def _filled(found: Declared, sides: Mapping[str, Document], published: tuple[str, ...]) -> Declaration:
    """With what config.json leaves to defaults that are not what the quantizer did."""
    missing: dict[str, Any] = {}
    notes = []
    origin = CONFIG
    for path, document in sides.items():
        for key, (said, default) in _unlike_defaults(path, document, found).items():
            missing[key], origin = said, path
            taken = "" if default is None else f" (loaders take {printable(default, 40)})"
            notes.append(f"{CONFIG} does not say {key}{taken}: it gets {printable(said, 80)}, from {path}")
    config = Document(found.config.path, {**found.config.raw, **missing}, found.config.pointer)
    return Declaration(found._replace(config=config), None, missing, origin, published, tuple(notes))


def _unlike_defaults(path: str, side: Document, found: Declared) -> dict[str, tuple[object, object]]:
    """Key of quantization_config -> what the file says, and what loaders assume where nothing is said."""
    if path == MODELOPT_FILE:
        return {}
    defaults = _DEFAULTS.get((found.method or "").removeprefix("intel/"), {})
    theirs = {ours: key for key, ours in _keys(path).items()}
    config, unlike = found.config.raw, {}
    for key, default in defaults.items():
        names = _ALIASES.get(key, (key,))
        said = next((value for name in names if (value := side.raw.get(theirs.get(name, name))) is not None), None)
        if said is None or any(config.get(name) is not None for name in names):
            continue
        if _spelled(said) != _spelled(default) and not (default is None and said in ({}, [])):
            unlike[key] = (said, default)
    return unlike


def _keys(path: str) -> Mapping[str, str]:
    return SIDE_FILES.get(path) or {key: key for key in _OF_A_COPY}


def _spelled(value: object) -> str:
    """Some write `GEMM`, some `gemm`."""
    return str(value).lower()


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
    if path == AUTOROUND_FILE:
        return private.published(raw)
    taken = {key: value for key, value in private.published(raw).items() if key in _TAKEN}
    return {**taken, "quant_method": document.string("quant_method") or "gptq"}


# ---------------------------------------------------------------- contradictions

# What a file says by its name, and the methods beside which it may stand.
_OF_TOOL: Final = {
    GPTQ_FILE: ("gptq", frozenset({"gptq", "awq", "auto-round", "intel/auto-round"})),
    AWQ_FILE: ("awq", frozenset({"awq", "auto-round", "intel/auto-round"})),
    MODELOPT_FILE: (
        "modelopt",
        frozenset(
            {"modelopt", "modelopt_fp4", "modelopt_mixed", "compressed-tensors", "fp8", "nvfp4", "mxfp4", "mxfp8"}
        ),
    ),
}
_NAMES_METHOD: Final = {MODELOPT_FILE: "quant_algo"}
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
            key = _NAMES_METHOD.get(path, "quant_method")
            where = own.at(key) if own.string(key) else own.pointer
            yield path, where, own.string(key) or tool, config.at("quant_method"), declared.method
            continue
        for theirs, ours in _keys(path).items():
            yield from _difference(path, own, theirs, config, ours)
        if path == GPTQ_FILE:
            yield from _format(own, config)
        if path == AWQ_FILE:
            yield from _difference(path, own, "version", config, "format")
        if path == MODELOPT_FILE:
            yield from _of_modelopt(own, config)


def _difference(path: str, side: Document, theirs: str, config: Document, ours: str) -> Iterator[Difference]:
    said, here = side.raw.get(theirs), config.raw.get(ours)
    if said is not None and here is not None and _spelled(said) != _spelled(here):
        yield path, side.at(theirs), said, config.at(ours), here


def _format(side: Document, config: Document) -> Iterator[Difference]:
    """GPTQ's format under either of its names: `gptq` stores zero points minus 1, `gptq_v2` does not."""
    theirs = next((key for key in _FORMATS if side.string(key)), None)
    ours = next((key for key in _FORMATS if config.string(key)), None)
    if theirs and ours:
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
        raise InputError(what, why=_WHY, path=str(checkpoint.root / path), place=place, hint=_HINT)


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
