"""How weights are quantized, in the words of a model card: method, width, group size, calibration, tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.builder.quantized.private import is_path, is_token
from repokit.printable import printable
from repokit.repo.quantization import schemes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from repokit.builder.quantized.files import Declaration
    from repokit.repo.document import Document
    from repokit.repo.quantization import Scheme
    from repokit.schema.recipe import QuantizationRecipe

NOT_STATED: Final = "not stated"
_WIDEST: Final = 64  # bits of a weight, beyond which it is a mistake
_NAMES: Final = {
    "gptq": "GPTQ",
    "awq": "AWQ",
    "auto-round": "AutoRound",
    "bitsandbytes": "bitsandbytes",
    "fp8": "FP8",
    "fbgemm_fp8": "FBGEMM FP8",
    "mxfp4": "MXFP4",
    "mxfp8": "MXFP8",
    "modelopt": "ModelOpt",
    "hqq": "HQQ",
    "aqlm": "AQLM",
    "mlx": "MLX",
    "quark": "Quark",
    "eetq": "EETQ",
    "spqr": "SpQR",
    "vptq": "VPTQ",
    "higgs": "HIGGS",
    "bitnet": "BitNet",
}


class Words(NamedTuple):
    """What a card says of a quantization.

    Attributes:
        method: `GPTQ, 4-bit`.
        group_size: `128`, `one scale a channel`, `128 x 128`, or `not stated`.
        calibration: As stated by the recipe, else by what the quantizer wrote, or `not stated`.
        tool: What quantized, or None.
    """

    method: str
    group_size: str
    calibration: str
    tool: str | None


def words(declaration: Declaration, recipe: QuantizationRecipe, block: int | None = None) -> Words:
    """The words of a declaration.

    Args:
        declaration: What the quantizer wrote.
        recipe: What a person adds.
        block: The weights that share a scale, where only the tensors tell.
    """
    config, method = declaration.config, declaration.method
    settings, group = _OF_METHOD.get(method, _plain)(config)
    name = _NAMES.get(method, printable(method, 60))
    spelled = ", ".join([name, *settings])
    size = group or (str(block) if block else NOT_STATED)
    return Words(spelled, size, _calibration(recipe, config), recipe.tool or _tool(config))


Settings = tuple[list[str], str | None]


def _width(config: Document) -> list[str]:
    bits = config.raw.get("bits")
    possible = isinstance(bits, int | float) and not isinstance(bits, bool) and 0 < bits <= _WIDEST
    return [f"{bits}-bit"] if possible else []


def _group(config: Document) -> str | None:
    size = config.integer("group_size")
    if size == -1:
        return "one scale a channel"
    return None if size is None or size < 1 else f"{size:,}"


def _plain(config: Document) -> Settings:
    return _width(config), _group(config)


def _gptq(config: Document) -> Settings:
    order = ["columns ordered by activation"] if config.flag("desc_act") else []
    return [*_width(config), *order], _group(config)


def _awq(config: Document) -> Settings:
    version = config.string("version") or config.string("format")
    return [*_width(config), *([printable(version.lower(), 20)] if version else [])], _group(config)


def _bitsandbytes(config: Document) -> Settings:
    if config.flag("load_in_8bit"):
        return ["LLM.int8()"], "one scale a row"
    kind = (config.string("bnb_4bit_quant_type") or "fp4").upper()  # its default in transformers
    doubled = ["double quantization"] if config.flag("bnb_4bit_use_double_quant") else []
    return [printable(kind, 10), *doubled], None


def _float8(config: Document) -> Settings:
    sides = config.integers("weight_block_size")
    group = " x ".join(f"{side:,}" for side in sides) if sides and min(sides) > 0 else "one scale a tensor"
    scheme = config.string("activation_scheme")
    return ["E4M3", *([f"{printable(scheme, 20)} activations"] if scheme else [])], group


def _mxfp4(_: Document) -> Settings:
    return [], "32"  # OCP Microscaling: 32 elements share an exponent


def _compressed(config: Document) -> Settings:
    found = schemes(config)
    kinds = dict.fromkeys(_scheme(scheme) for scheme in found)
    groups = dict.fromkeys(_shared(scheme) for scheme in found)
    return [" + ".join(kinds)] if kinds else [], " + ".join(filter(None, groups)) or None


def _scheme(scheme: Scheme) -> str:
    """`W4A16 (pack-quantized)`: bits of weights and of activations, 16 where these stay as they are."""
    weights, inputs = (_number(document) for document in (scheme.weights, scheme.inputs))
    form = f" ({printable(scheme.form, 40)})" if scheme.form else ""
    kind = scheme.weights.string("type") or "int"
    return f"W{weights}A{inputs} {printable(kind, 20)}{form}"


def _number(document: Document | None) -> int:
    bits = None if document is None else document.integer("num_bits") or 8
    return 16 if bits is None else bits if 0 < bits <= _WIDEST else 8


def _shared(scheme: Scheme) -> str | None:
    """What shares a scale."""
    weights = scheme.weights
    size, strategy = weights.integer("group_size"), weights.string("strategy")
    if size is not None and size > 0:
        return f"{size:,}"
    if strategy == "block" and (sides := weights.integers("block_structure")):
        return " x ".join(f"{side:,}" for side in sides)
    return f"one scale a {printable(strategy or ('channel' if size == -1 else 'tensor'), 20)}"


def _modelopt(config: Document) -> Settings:
    algorithm = config.string("quant_algo")
    _, group = _compressed(config)
    return [printable(algorithm, 40)] if algorithm else [], _group(config) or group


def _hqq(config: Document) -> Settings:
    quantized = config.mapping("quant_config")
    how = None if quantized is None else quantized.mapping("weight_quant_params")
    bits = None if how is None else how.integer("nbits")
    return [f"{bits}-bit"] if bits and 0 < bits <= _WIDEST else [], None if how is None else _group(how)


def _torchao(config: Document) -> Settings:
    kind = config.mapping("quant_type")
    default = None if kind is None else kind.mapping("default")
    if default is None:
        name = config.string("quant_type")
        return [printable(name, 60)] if name else [], None
    data = default.mapping("_data")
    name = default.string("_type")
    return [printable(name, 60)] if name else [], None if data is None else _group(data)


_OF_METHOD: Final[dict[str, Callable[[Document], Settings]]] = {
    "gptq": _gptq,
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "fp8": _float8,
    "mxfp4": _mxfp4,
    "compressed-tensors": _compressed,
    "modelopt": _modelopt,
    "hqq": _hqq,
    "torchao": _torchao,
}


# ---------------------------------------------------------------- calibration and tool


def _calibration(recipe: QuantizationRecipe, config: Document) -> str:
    """What a person states; else what the quantizer did."""
    given = recipe.calibration
    parts = list(stated(given.samples, given.dataset, given.text))
    if not parts:
        name = config.string("dataset")  # GPTQ, AutoRound; a list there is the texts themselves
        shown = None if name is None or is_path("dataset", name) or is_token("dataset", name) else name
        parts = list(stated(config.integer("nsamples"), shown, None))
    return "; ".join(parts) or NOT_STATED


def stated(samples: int | None, dataset: str | None, text: str | None) -> Iterator[str]:
    """What was looked at, in words."""
    amount = None if samples is None or samples < 1 else f"{samples:,} sample{'s' * (samples != 1)}"
    if amount or dataset:
        yield " of ".join(part for part in (amount, dataset and printable(dataset, 200)) if part)
    if text:
        yield " ".join(text.split())


def _tool(config: Document) -> str | None:
    """The program and its version, where the quantizer says so."""
    producer = config.mapping("producer")
    if producer is not None and (name := producer.string("name")):
        return printable(f"{name} {producer.string('version') or ''}".strip(), 80)
    meta = config.mapping("meta")
    if meta is not None and (named := meta.strings("quantizer") or ((meta.string("quantizer") or ""),))[0]:
        return printable(", ".join(named), 80)
    version = config.string("autoround_version")
    return f"auto-round {printable(version, 40)}" if version else None
