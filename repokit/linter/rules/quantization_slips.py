"""QNT: parts of quantized modules in a dtype that no reader takes, and misspelt words of a quantization_config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import DELETE, Example, edited
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.quantization import KEY
from repokit.linter.rules.slips import meant_by, misspelt
from repokit.printable import count, printable
from repokit.repo.config import CONFIG
from repokit.repo.quantization import F8, quantization
from repokit.repo.weights import SINGLE

if TYPE_CHECKING:
    from repokit.repo.document import Document
    from repokit.repo.quantization import Declared, Module
    from repokit.repo.repository import Repository

GATE: Final = "model.layers.0.mlp.gate_proj"


class MistypedPart(Rule):
    """A part of a quantized module is stored in another dtype than its method packs it in.

    Kernels take the bytes for what they are not; loaders that look refuse them.
    """

    code = "QNT130"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("packed weights in 64 bits", {SINGLE: edited(add={f"{GATE}.qweight": ("I64", (2, 24))})}, "gptq"),
        Example(
            "a state that is no bytes",
            {SINGLE: edited(add={f"{GATE}.weight.quant_state.bitsandbytes__nf4": ("I32", (77,))})},
            "bnb4",
        ),
    )
    good = (
        Example("as GPTQ packs it", base="gptq"),
        Example("as bitsandbytes does", base="bnb8"),
        Example("as compressed-tensors does", base="pack-quantized"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        facet = quantization(repository)
        method = None if facet.declared is None else facet.declared.method
        for module in facet.modules if method in DTYPES else ():
            for part, taken in {**DTYPES[method or ""], **of_weight(module, facet.declared)}.items():
                dtype = module.dtype(part)
                if dtype is not None and dtype not in taken and set(module.parts) & COMPANIONS:
                    names = [f"{name}.{part}" for name in module.names]
                    wanted = " or ".join(sorted(taken))
                    message = f"holds {part} of {count(len(names), 'module')} in {dtype}; {method} stores {wanted}"
                    yield self.finding(repository.weights.main or SINGLE, message, names=names, place=names[0])


class MisshapenPackedWeight(Rule):
    """A weight in 4 bits is not one column of bytes, as bitsandbytes stores it.

    The shape of the matrix lies in its state; a weight of another form is unpacked into another matrix, or refused.
    """

    code = "QNT133"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("a row of bytes", {SINGLE: edited(add={f"{GATE}.weight": ("U8", (1, 192))})}, "bnb4"),)
    good = (Example("a column of bytes", base="bnb4"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for module in quantization(repository).stored:
            shape = module.shape("weight")
            if "weight.absmax" in module.parts and shape and (len(shape) != 2 or shape[1] != 1):
                names = [f"{name}.weight" for name in module.names]
                message = f"holds {count(len(names), 'weight')} of {shape}; bitsandbytes stores a column"
                yield self.finding(repository.weights.main or SINGLE, message, names=names, place=names[0])


class MisspelledQuantizationKey(Rule):
    """A key of the quantization_config is nearly one that its method reads, and that one is not there.

    The method takes its default for the one, or refuses the other.
    """

    code = "QNT230"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a letter short", {CONFIG: {KEY: {"desc_act": DELETE, "desc_ct": False}}}, "gptq"),)
    good = (
        Example("a note of the quantizer", {CONFIG: {KEY: {"quantized_by": "me"}}}, "gptq"),
        Example("both are there", {CONFIG: {KEY: {"group_sizes": [8]}}}, "gptq"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        declared = quantization(repository).declared
        if declared is None or declared.method is None:
            return
        for level, known in levels(declared.config, declared.method):
            for key, meant in misspelt(level.raw, known):
                message = f"is no key of {printable(declared.method, 40)}; {meant} is, and is not there"
                yield self.finding(CONFIG, message, place=level.at(key), hint=f"rename it to {meant}")


class MisspelledMethod(Rule):
    """The method of a quantization_config is nearly one that readers know.

    Loading stops: "Unknown quantization type".
    """

    code = "QNT132"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a letter too many", {CONFIG: {KEY: {"quant_method": "gptqq"}}}, "gptq", ("QNT301",)),)
    good = (Example("a method that is newer than we are", {CONFIG: {KEY: {"quant_method": "frobnicate"}}}, "fp8"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        declared = quantization(repository).declared
        method = None if declared is None else declared.config.string("quant_method")
        if declared is None or method is None:
            return
        from repokit.schema.quantization_methods import METHODS  # Pydantic models, which few repositories need

        known = sorted({*METHODS, *DTYPES})
        if method not in known and (meant := meant_by(method, known)) is not None:
            place = declared.config.at("quant_method")
            yield self.finding(CONFIG, f"is {printable(method, 40)!r}", place=place, hint=f'"{meant}"')


class DivergingCopy(Rule):
    """The two objects that MLX writes into config.json differ.

    mlx-lm reads `quantization`, others the `quantization_config` that it wrote beside it: one of them unpacks the
    weights wrongly.
    """

    code = "QNT231"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("one was edited", {CONFIG: {KEY: {"group_size": 16}}}, "mlx"),)
    good = (Example("the same twice", base="mlx"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.config
        read, copy = (None, None) if config is None else (config.mapping("quantization"), config.mapping(KEY))
        if read is None or copy is None or "quant_method" in copy:
            return
        for key in sorted(read.raw.keys() | copy.raw.keys()):
            if read.raw.get(key) != copy.raw.get(key):
                message = f"differs from what is at {read.at(key)}"
                yield self.finding(CONFIG, message, place=copy.at(key), hint="write the same at both")


class UnusableQuantizationValue(Rule):
    """A number of a quantization_config is none that weights can have been packed with.

    Readers compute shapes from it, and stop at a division by zero or at the first tensor.
    """

    code = "QNT131"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("no width", {CONFIG: {KEY: {"bits": None}}}, "gptq"),
        Example("groups that do not come out even", {CONFIG: {KEY: {"group_size": 9}}}, "gptq"),
        Example(
            "weights that are quantized anew in each pass",
            {CONFIG: {KEY: {"config_groups": {"group_0": {"weights": {"dynamic": True}}}}}},
            "pack-quantized",
        ),
    )
    good = (
        Example("as GPTQ packs it", base="gptq"),
        Example("one group for each column", {CONFIG: {KEY: {"weight_block_size": [8, 8]}}}, "fp8"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        facet = quantization(repository)
        if facet.declared is None:
            return
        for place, message in (*wrong_numbers(facet.declared), *wrong_arguments(facet.declared.config)):
            yield self.finding(CONFIG, message, place=place)
        yield from self._uneven(facet.declared, facet.stored)

    def _uneven(self, declared: Declared, stored: tuple[Module, ...]) -> Iterator[Finding]:
        size, bits = declared.config.integer("group_size") or 0, declared.config.integer("bits") or 0
        widths = [(module, width_of(module, declared.method, bits)) for module in stored if size > 0 and bits > 0]
        known = [(module, inputs) for module, inputs in widths if inputs]
        # Where the scales are of another number too, QNT106 speaks.
        if all(-(-inputs // size) == groups_of(module, declared.method) for module, inputs in known):
            uneven = next(((module, inputs) for module, inputs in known if inputs % size), None)
            if uneven is not None:
                message = f"is {printable(size)}; {printable(uneven[0].names[0], 80)} has {uneven[1]:,} inputs"
                yield self.finding(CONFIG, message, place=declared.config.at("group_size"))


RULES: Final[tuple[Rule, ...]] = (
    MistypedPart(),
    MisshapenPackedWeight(),
    UnusableQuantizationValue(),
    MisspelledMethod(),
    MisspelledQuantizationKey(),
    DivergingCopy(),
)

# Numbers without which a method cannot unpack anything. AutoAWQ and GPTQModel write all of them.
NUMBERS: Final = {"gptq": ("bits",), "awq": ("bits",), "mlx": ("bits", "group_size")}


ARGUMENTS: Final = ("dynamic", "num_bits", "symmetric", "type")

# Flags and numbers for which null is no answer: the class of the method asks for the type.
NEVER_NULL: Final = {
    "gptq": ("damp_percent", "desc_act", "sym"),
    "awq": ("zero_point",),
    "bitsandbytes": (
        *("bnb_4bit_use_double_quant", "load_in_4bit", "load_in_8bit", "llm_int8_threshold"),
        *("llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight"),
    ),
    "compressed-tensors": ("format", "quantization_status"),
}


def of_weight(module: Module, declared: Declared | None) -> Mapping[str, frozenset[str]]:
    """The dtypes of a weight that its companions decide."""
    storage = None if declared is None else declared.config.string("bnb_4bit_quant_storage")
    if "SCB" in module.parts:
        return {"weight": frozenset({"I8"})}
    if "weight.absmax" in module.parts and storage in {None, "uint8"}:
        return {"weight": frozenset({"U8"})}
    if module.dtype("weight") == "U8" and "weight_scale_2" in module.parts:  # NVFP4 of ModelOpt
        return {"weight_scale": F8}
    return {}


def wrong_numbers(declared: Declared) -> Iterator[tuple[str, str]]:
    """Place and what is wrong there, of the object itself."""
    for key in NEVER_NULL.get(declared.method or "", ()):
        if key in declared.config and declared.config.raw[key] is None:
            yield declared.config.at(key), "is null"
    for key in NUMBERS.get(declared.method or "", ()):
        value = declared.config.raw.get(key, 1)
        if type(value) is not int or value < 1:
            yield declared.config.at(key), f"is {printable(value, 40)}; it must be an integer above 0"


def wrong_arguments(config: Document) -> Iterator[tuple[str, str]]:
    """Place and what is wrong there, of the groups of compressed-tensors."""
    groups = config.mapping("config_groups")
    for name in () if groups is None else groups.raw:
        group = None if groups is None else groups.mapping(name)
        # A list is what a preset is for, and presets have names such as W4A16.
        if groups is not None and isinstance(groups.raw[name], list) and name.islower():
            yield groups.at(name), "is a list; a group says how its modules are quantized"
        for key in () if group is None else ACTIVATIONS:
            part = None if group is None else group.mapping(key)
            if part is None:
                continue
            bits = part.raw.get("num_bits", 8)
            if type(bits) is int and bits < 1:
                yield part.at("num_bits"), f"is {printable(bits)}; it must be above 0"
            if key == "weights" and part.flag("dynamic") is True:
                yield part.at("dynamic"), "is true; weights are quantized once"
            for argument in ARGUMENTS:
                if argument in part and part.raw[argument] is None:
                    yield part.at(argument), "is null; QuantizationArgs asks for a value"


def groups_of(module: Module, method: str | None) -> int | None:
    """Groups for which there are scales."""
    shape = module.shape("scales")
    return shape[1 if method == "mlx" else 0] if len(shape) == 2 else None


def width_of(module: Module, method: str | None, bits: int) -> int | None:
    """Inputs of a packed module."""
    match method:
        case "gptq":
            rows = module.shape("qweight")
            return rows[0] * 32 // bits if rows and bits in {2, 4, 8} else None
        case "awq":
            return (module.shape("qweight") or (None,))[0]
        case "mlx":
            columns = module.shape("weight")
            is_packed = module.dtype("weight") == "U32" and len(columns) == 2 and bits in {2, 4, 8}
            return columns[1] * 32 // bits if is_packed else None
    return None


_FLOATS: Final = frozenset({"F32", "F16", "BF16"})
_I32: Final = frozenset({"I32"})
_ROWS: Final = {"qweight": _I32, "qzeros": _I32, "g_idx": _I32}

# Parts whose dtype is a matter of the format. Scales in floats may be of any width.
DTYPES: Final[Mapping[str, Mapping[str, frozenset[str]]]] = {
    "gptq": {**_ROWS, "scales": _FLOATS},
    # AutoAWQ's gemv_fast packs into 16 bits, and its zeros are floats.
    "awq": {"qweight": frozenset({"I32", "I16"}), "qzeros": frozenset({"I32", "F16"}), "scales": _FLOATS},
    "bitsandbytes": {
        "SCB": frozenset({"F32"}),
        "weight_format": frozenset({"U8"}),
        "weight.quant_state.bitsandbytes__nf4": frozenset({"U8"}),
        "weight.quant_state.bitsandbytes__fp4": frozenset({"U8"}),
    },
    "mxfp4": {"blocks": frozenset({"U8"}), "scales": frozenset({"U8"})},
    "modelopt": {"weight": F8 | _FLOATS | {"U8", "I8"}, "weight_scale": F8 | _FLOATS},
    "compressed-tensors": {
        "weight_packed": frozenset({"I32", "U8"}),
        "weight_shape": frozenset({"I64"}),
        "weight_scale": F8 | _FLOATS | {"U8", "F8_E8M0"},
    },
    "mlx": {"weight": frozenset({"U32"}), "scales": _FLOATS | {"U8"}, "biases": _FLOATS},
    "fp8": {"weight_scale_inv": _FLOATS | {"F8_E8M0", "U8"}},
}
# What only a quantized module has beside its weight.
COMPANIONS: Final = frozenset(
    {
        *("qweight", "qzeros", "scales", "SCB", "weight.absmax", "weight_packed", "weight_scale", "weight_scale_inv"),
        "blocks",
    }
)
OF_GROUP: Final = frozenset({"targets", "weights", "input_activations", "output_activations", "format"})
ACTIVATIONS: Final = ("weights", "input_activations", "output_activations")


def levels(config: Document, method: str) -> Iterator[tuple[Document, frozenset[str]]]:
    """The object and those inside it, each with the keys that its method reads."""
    from repokit.schema.compressed_tensors import QuantizationArguments
    from repokit.schema.quantization_methods import METHODS

    if method in METHODS:
        fields = METHODS[method].model_fields
        yield config, frozenset(field.alias or name for name, field in fields.items()) | {"quant_method"}
    elif method == "mlx":
        yield config, frozenset({"group_size", "bits", "mode"})
    groups = config.mapping("config_groups") if method in {"compressed-tensors", "modelopt"} else None
    arguments = frozenset(QuantizationArguments.model_fields)
    for name in () if groups is None else groups.raw:
        group = groups.mapping(name) if groups is not None else None
        if group is not None:
            yield group, OF_GROUP
            nested = (group.mapping(key) for key in ACTIVATIONS)
            yield from ((part, arguments) for part in nested if part is not None)
