"""compressed-tensors: groups of modules with a scheme each, in one of its formats.

Source: compressed-tensors 0.20.1: quantization/lifecycle (which modules, which scales, of which shapes), compressors/
(what stands in the place of a weight), utils/match.py; and what older versions wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from repokit.architectures.expansion import Shape
from repokit.architectures.member import Kind
from repokit.architectures.quantized_float8 import CACHE_SCALES, SCALARS
from repokit.architectures.quantized_lists import Targets, classes_of, one_of
from repokit.architectures.quantized_parts import (
    EXPONENTS,
    F8,
    I8,
    I32,
    I64,
    LARGEST,
    U8,
    Method,
    Module,
    Need,
    Part,
    Settings,
    Verdict,
    divided,
    words,
)
from repokit.architectures.quantized_skips import Defaults

_PACKED: Final = "pack-quantized"
_NVFP4: Final = "nvfp4-pack-quantized"
_MXFP4, _MXFP6, _MXFP8 = ("mxfp4-pack-quantized", "mxfp6-pack-quantized", "mxfp8-quantized")
_NAIVE: Final = frozenset({"naive-quantized", "int-quantized", "float-quantized", _MXFP8})
_UNDECIDED: Final = frozenset({"", "mixed-precision", "fakequant"})
FORMATS: Final = frozenset({_PACKED, _NVFP4, _MXFP4, _MXFP6, "dense", *_NAIVE})
_FUSED: Final = re.compile(r"\.experts\.(?:gate_up_proj|down_proj|up_proj)$")


@dataclass(frozen=True, slots=True)
class Arguments:
    """How weights or activations are quantized (QuantizationArgs).

    Attributes:
        strategy: tensor, channel, group, tensor_group, block or token.
        group: Inputs that share a scale; 0: there are no groups.
        block: Rows and columns that share a scale; (0, 0): there are no blocks.
        dynamic: Whether scales are worked out as the model runs: `true` all, `local` all but the global one.
    """

    bits: int
    integer: bool
    symmetric: bool
    strategy: str
    group: int
    block: tuple[int, int]
    dynamic: str
    ordered: bool

    def scale(self, shape: Shape) -> tuple[Shape, tuple[Shape, ...]] | None:
        """Shape of the scales for something of this shape, and others that are taken; None: not known."""
        match self.strategy:
            case "tensor":
                return (1,), SCALARS
            case "channel" if len(shape) == 2:
                return (shape[0], 1), ((shape[0],),)
            case "group" | "tensor_group" if self.group:
                return (*shape[:-1], divided(shape[-1], self.group)), ()
            case "block" if len(shape) == 2 and self.block[0]:
                return (divided(shape[0], self.block[0]), divided(shape[1], self.block[1])), ()
            case _:
                return None


@dataclass(frozen=True, slots=True)
class Scheme:
    """What is done to the modules of a group."""

    weights: Arguments | None
    inputs: Arguments | None
    outputs: Arguments | None
    form: str


class CompressedTensors(Method):
    """All of its groups."""

    name = "compressed-tensors"
    # Scales of a quantized cache; an older writer hung them on the projections.
    extras = (CACHE_SCALES, re.compile(r"\.(?:[qkv]|[kv]_proj\.output)_(?:scale|zero_point|global_scale)$"))

    def __init__(self, settings: Settings, defaults: Defaults) -> None:
        _refuse_other_layouts(settings)
        self.schemes: dict[str, Scheme] = {}
        for group, values in settings.mapping("config_groups").items():
            if not isinstance(values, Mapping):
                raise settings.refuse(f"the group {group} is a preset")
            own = Settings(settings.method, values)
            scheme = _scheme(own, settings.word("format"))
            self.schemes |= dict.fromkeys(own.strings("targets") or (), scheme)
        self.targets = Targets(self.schemes, defaults.clock)
        self.ignored = Targets(settings.strings("ignore") or (), defaults.clock)
        self.ignored.alike(entry for entry in self.ignored.entries if "." in entry)
        self.numbered = self.targets.numbered or self.ignored.numbered
        if self.targets.unread and len(set(self.schemes.values())) > 1:
            raise settings.refuse(f"the target {self.targets.unread[0]} cannot be told from others")
        self.compressed = settings.word("quantization_status", default="compressed") == "compressed"

    def verdict(self, module: Module) -> Verdict:
        if module.kind is Kind.TRANSPOSED:
            return Verdict.PLAIN
        classes = classes_of(module.kind)
        wanted = one_of(module.names, lambda name: self.targets.covers(name, classes))
        left = one_of(module.names, lambda name: self.ignored.covers(name, classes))
        if wanted is False or left:
            return Verdict.PLAIN
        scheme = self._scheme(module)
        if wanted is None or left is None or module.router or scheme is None or not self.compressed:
            return Verdict.OPEN
        return Verdict.QUANTIZED

    def _scheme(self, module: Module) -> Scheme | None:
        classes = classes_of(module.kind)
        fitting = (entry for name in module.names for entry in self.targets.fitting(name, classes))
        unread = next(iter(self.schemes.values()), None) if self.targets.unread else None  # all targets have the same
        return next((self.schemes[entry] for entry in fitting), unread)

    def parts(self, module: Module) -> Sequence[Part]:
        scheme = self._scheme(module)
        if scheme is None:
            return (Part(".weight", module.weight),)
        return (*_weight(module, scheme), *_activations(module, scheme))

    def fused(self, name: str, shape: Shape) -> Sequence[Part] | None:
        """Experts that are one tensor are taken apart before they are quantized, or packed as they are."""
        del shape
        return () if _FUSED.search(name) else None


def _refuse_other_layouts(settings: Settings) -> None:
    sparse = settings.mapping("sparsity_config").get("format")
    if sparse not in (None, "dense"):
        raise settings.refuse(f"the sparsity format {sparse}")
    if settings.mapping("transform_config").get("config_groups"):
        raise settings.refuse("transform_config")
    if settings.word("format") not in FORMATS | _UNDECIDED:
        raise settings.refuse(f"the format {settings.word('format')}")


# ---------------------------------------------------------------- schemes


def _scheme(settings: Settings, form: str) -> Scheme:
    weights = _arguments(settings, "weights")
    inputs = _arguments(settings, "input_activations")
    form = settings.word("format") or form
    if form in _UNDECIDED:
        form = _inferred(weights, inputs)
    if form not in FORMATS:
        raise settings.refuse(f"the format {form}")
    return Scheme(weights, inputs, _arguments(settings, "output_activations"), form)


def _inferred(weights: Arguments | None, inputs: Arguments | None) -> str:
    """The format of a scheme that names none (0.20.1 compressors/format.py, `infer_module_format`)."""
    if weights is None:
        return "dense"
    if weights.integer:
        if inputs is None:
            return _PACKED if weights.bits <= 8 else "naive-quantized"
        return "int-quantized"
    if weights.bits == 4:
        return _MXFP4 if weights.group == 32 else _NVFP4
    if weights.bits == 6:
        return _MXFP6
    return "naive-quantized" if inputs is None else "float-quantized"


def _arguments(settings: Settings, key: str) -> Arguments | None:
    if settings.values.get(key) is None:
        return None
    own = Settings(settings.method, settings.mapping(key))
    size = own.values.get("group_size")
    group = own.integer("group_size", 1) if type(size) is int and size > 0 else 0
    usual = "group" if group else "channel" if size == -1 else "tensor"
    dynamic = own.values.get("dynamic")
    return Arguments(
        bits=own.integer("num_bits", 8),
        integer=own.word("type", default="int") == "int",
        symmetric=own.values.get("symmetric") is not False,
        strategy=own.word("strategy", default=usual),
        group=group,
        block=_block(own),
        dynamic="local" if dynamic == "local" else "all" if dynamic else "",
        ordered=own.values.get("actorder") in ("group", "dynamic", True),
    )


def _block(settings: Settings) -> tuple[int, int]:
    given: Any = settings.values.get("block_structure")
    if isinstance(given, str) and re.fullmatch(r"\d{1,6}x\d{1,6}", given):
        given = [int(side) for side in given.split("x")]
    if given is None:
        return 0, 0
    if (
        not isinstance(given, list)
        or len(given) != 2
        or not all(type(side) is int and 0 < side <= LARGEST for side in given)
    ):
        raise settings.refuse("block_structure has no sizes")
    return given[0], given[1]


# ---------------------------------------------------------------- parts


def _weight(module: Module, scheme: Scheme) -> Iterator[Part]:
    """What stands in the place of the weight."""
    weights, shape = scheme.weights, (module.rows, module.columns)
    if weights is None:
        yield Part(".weight", shape)
        return
    yield _values(shape, weights, scheme.form)
    if scheme.form == _PACKED:
        yield Part(".weight_shape", (2,), (I64, I32))
    if weights.strategy == "tensor_group":
        yield Part(".weight_global_scale", (1,), (), ((),))
    if (scale := weights.scale(shape)) is None:
        yield Part(".weight_scale", (None, None), _of_scales(scheme.form), SCALARS)
    else:
        need = Need.UNIFORM if scheme.form == "dense" else Need.REQUIRED
        yield Part(".weight_scale", scale[0], _of_scales(scheme.form), scale[1], need)
        yield from _zero_points(weights, scheme.form, scale)
    yield Part(".weight_g_idx", (module.columns,), (I32,), need=Need.UNIFORM if weights.ordered else Need.OPTIONAL)


def _values(shape: Shape, weights: Arguments, form: str) -> Part:
    """The numbers themselves."""
    rows, columns = shape
    if form == _PACKED:
        return Part(".weight_packed", (rows, words(columns, weights.bits)), (I32,))
    if form in {_NVFP4, _MXFP4, _MXFP6}:
        bits = 6 if form == _MXFP6 else 4
        return Part(".weight_packed", (rows, words(columns, bits, 8)), (U8,))
    if form == "dense":
        return Part(".weight", shape)
    return Part(".weight", shape, (I8,) if weights.integer else F8)


def _of_scales(form: str) -> tuple[str, ...]:
    if form == _NVFP4:
        return F8
    return EXPONENTS if form in {_MXFP4, _MXFP6, _MXFP8} else ()


def _zero_points(weights: Arguments, form: str, scale: tuple[Shape, tuple[Shape, ...]]) -> Iterator[Part]:
    """Of asymmetric weights; packed along the outputs, which older versions did not do."""
    if weights.symmetric or not weights.integer:
        return
    shape, also = scale
    if form == _PACKED and weights.strategy in {"group", "channel"}:
        yield Part(".weight_zero_point", (words(shape[0], weights.bits), *shape[1:]), (I32, I8), (shape, *also))
    else:
        yield Part(".weight_zero_point", shape, (), also)


def _activations(module: Module, scheme: Scheme) -> Iterator[Part]:
    """Scales of what goes in and comes out, where they do not follow from each sample."""
    for side, arguments, size in (("input", scheme.inputs, module.columns), ("output", scheme.outputs, module.rows)):
        if arguments is None or arguments.dynamic == "all":
            continue
        if arguments.strategy == "tensor_group":
            yield Part(f".{side}_global_scale", (1,), (), ((),))
        if not arguments.dynamic and (scale := arguments.scale((size,))) is not None:
            yield Part(f".{side}_scale", scale[0], (), scale[1])
            need = Need.OPTIONAL if arguments.symmetric else Need.REQUIRED
            yield Part(f".{side}_zero_point", scale[0], (), scale[1], need)
