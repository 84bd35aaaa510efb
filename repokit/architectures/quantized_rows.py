"""GPTQ, AWQ and AutoRound: weights packed into words of 32 bits, with scales and zero points for groups of inputs.

Source: GPTQModel (nn_modules/qlinear/__init__.py, quantization/config.py), AutoGPTQ, optimum 1.27 gptq/quantizer.py,
AutoAWQ 0.2.9 (modules/linear, models/base.py), transformers 5.24 quantizers/quantizer_awq.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from repokit.architectures.member import Kind
from repokit.architectures.quantized_lists import Overrides, PartList, SkipList, one_of
from repokit.architectures.quantized_parts import (
    I16,
    I32,
    Method,
    Module,
    Need,
    Part,
    Settings,
    Verdict,
    divided,
    times,
    words,
)
from repokit.architectures.quantized_skips import Defaults, Skips

BITS: Final = (2, 3, 4, 8)
# Where optimum looks for the layers (1.27 gptq/constants.py, BLOCK_PATTERNS), in this order.
_BLOCKS: Final = (
    "transformer.h",
    "model.decoder.layers",
    "gpt_neox.layers",
    "model.layers",
    "model.language_model.layers",
    "h",
    "decoder.layers",
    "layers",
)
# Linear modules of a layer that every program quantizes. Of others (projections of a state space model, gates of one
# output) the definitions of AutoGPTQ and GPTQModel leave some, and config.json does not say which.
_USUAL: Final = re.compile(
    r"(?:[qkvo]|qkv|up|gate|down|out|gate_up|q_[ab]|kv_b|kv_a_proj_with_mqa)(?:_proj)?|c_(?:attn|proj|fc)|fc(?:_in|_out|[12])"
    r"|query_key_value|dense(?:_h_to_4h|_4h_to_h)?|w[123]|W(?:qkv)|[ioq]_proj"
)


class Gptq(Method):
    """GPTQ of AutoGPTQ, optimum and GPTQModel, formats `gptq` and `gptq_v2`."""

    name = "gptq"
    head_flag: ClassVar[str] = "lm_head"

    def __init__(self, settings: Settings, defaults: Defaults) -> None:
        self.settings = settings
        form = settings.word("checkpoint_format", "format", default="gptq")
        if form not in {"gptq", "gptq_v2"}:
            raise settings.refuse(f"checkpoint_format is {form}")
        self.layout = Rows(settings)
        self.dynamic = Overrides(settings.mapping("dynamic"), defaults.clock)
        self.inside = _inside_block(settings)
        self.block = _block(settings, defaults)
        self.numbered = self.dynamic.numbered or any(re.search(r"\d", entry) for entry in self.inside or ())

    def verdict(self, module: Module) -> Verdict:
        chosen = one_of(module.names, lambda name: self.dynamic.find(name)[0])
        if not module.linear or chosen is False:
            return Verdict.PLAIN
        if module.head and module.rows != 1:
            return Verdict.QUANTIZED if self.settings.flag(self.head_flag) else Verdict.PLAIN
        if chosen is None or not module.block or self.block is None:
            return Verdict.OPEN if module.block or chosen is None else Verdict.PLAIN
        if not any(name.startswith(self.block) for name in module.names):
            return Verdict.OPEN
        return self._inside(module)

    def _inside(self, module: Module) -> Verdict:
        """The verdict about a module of the quantized layers."""
        if self.inside is not None:
            return Verdict.QUANTIZED if module.name.endswith(self.inside) else Verdict.PLAIN
        if module.router or not _USUAL.fullmatch(module.name.rpartition(".")[2]):
            return Verdict.OPEN
        return Verdict.QUANTIZED

    def parts(self, module: Module) -> Sequence[Part]:
        own = self.dynamic.find(module.name)[1]
        layout = Rows(Settings(self.settings.method, {**self.settings.values, **own})) if own else self.layout
        return layout.packed_inputs(module)


class Rows:
    """Bits and groups of one module."""

    def __init__(self, settings: Settings, bits: Sequence[int] = BITS) -> None:
        self.bits = settings.integer("bits", 4, bits)
        self.group = settings.group()
        self.ordered = settings.flag("desc_act") and self.group is not None
        symmetric = settings.values.get("sym") is not False
        self.zeros = Need.UNIFORM if symmetric else Need.REQUIRED
        word = settings.word("pack_dtype", default="int32")
        if word not in {"int32", "torch.int32"}:
            raise settings.refuse(f"pack_dtype is {word}")

    def packed_inputs(self, module: Module) -> tuple[Part, ...]:
        """Eight inputs in a word: GPTQ."""
        groups = 1 if self.group is None else divided(module.columns, self.group)
        order = Need.REQUIRED if self.ordered else Need.OPTIONAL  # loaders know the order of the inputs
        return (
            Part(".qweight", (words(module.columns, self.bits), module.rows), (I32,)),
            Part(".scales", (groups, module.rows)),
            Part(".qzeros", (groups, words(module.rows, self.bits)), (I32,), need=self.zeros),
            Part(".g_idx", (module.columns,), (I32,), need=order),
            Part(".bias", (module.rows,), need=Need.OPTIONAL),  # older versions gave every module one
        )

    def packed_outputs(self, module: Module, zeros: Need) -> tuple[Part, ...]:
        """Eight outputs in a word: AWQ, `gemm`."""
        groups = 1 if self.group is None else divided(module.columns, self.group)
        packed = words(module.rows, self.bits)
        return (
            Part(".qweight", (module.columns, packed), (I32,)),
            Part(".scales", (groups, module.rows)),
            Part(".qzeros", (groups, packed), (I32,), need=zeros),
        )

    def gemv(self, module: Module, zeros: Need) -> tuple[Part, ...]:
        """AWQ, `gemv`: packed along the inputs, groups padded to whole words."""
        width = self._padded(module)
        return (
            Part(".qweight", (module.rows, words(module.columns, self.bits)), (I32,)),
            Part(".scales", (module.rows, times(width, 8))),
            Part(".qzeros", (module.rows, width), (I32,), need=zeros),
        )

    def gemv_fast(self, module: Module, zeros: Need) -> tuple[Part, ...]:
        """AWQ, `gemv_fast`: four rows interleaved, in words of 16 bits."""
        wide = times(self._padded(module), 8)
        return (
            Part(".qweight", (divided(module.rows, 4), module.columns), (I16,)),
            Part(".scales", (wide, module.rows)),
            Part(".qzeros", (wide, module.rows), need=zeros),
        )

    def _padded(self, module: Module) -> int | None:
        """AutoAWQ's calculate_zeros_width: words of eight groups, a multiple that grows as groups shrink."""
        if self.group is None or module.columns is None:
            return None
        multiple = {64: 2, 32: 4}.get(self.group, 1)
        return times(divided(divided(module.columns // self.group, 8), multiple), multiple)


class Awq(Method):
    """AWQ of AutoAWQ and GPTQModel: `gemm`, `gemv`, `gemv_fast`."""

    name = "awq"
    # Scales of an activation whose layer before cannot take them (transformers 5.24 integrations/awq.py).
    extras = (re.compile(r"\.(?:act|gelu_impl)\.scales$"),)

    def __init__(self, settings: Settings, defaults: Defaults) -> None:
        form = settings.word("version", "format", default="gemm")
        self.layout = Rows(settings, (4,) if "gemv" in form else BITS)
        layouts = {
            "gemm": self.layout.packed_outputs,
            "gemv": self.layout.gemv,
            "gemv_fast": self.layout.gemv_fast,
        }
        if form not in layouts:
            raise settings.refuse(f"version is {form}")
        self.packed = layouts[form]
        self.zeros = Need.UNIFORM if settings.values.get("zero_point") is False else Need.REQUIRED
        entries = settings.strings("modules_to_not_convert") or ()
        self.skipped = Skips(SkipList(entries, defaults.clock), defaults, always=True)
        self.left = PartList(entries, defaults.clock)
        self.numbered = self.skipped.numbered or self.left.numbered

    def verdict(self, module: Module) -> Verdict:
        """AutoAWQ looks at parts of names inside the layers, transformers at whole names everywhere.

        Experts are modules of their own for AutoAWQ and older versions of transformers alone.
        """
        if module.kind is not Kind.LINEAR:
            return Verdict.PLAIN
        skipped = self.skipped.verdict(module)
        if not module.block:
            return Verdict.PLAIN if skipped is Verdict.PLAIN else Verdict.OPEN
        left = self.left.covers(module.name)
        if left is None or skipped is not (Verdict.PLAIN if left else Verdict.QUANTIZED):
            return Verdict.OPEN
        if left:
            return Verdict.PLAIN
        usual = _USUAL.fullmatch(module.name.rpartition(".")[2])
        return Verdict.QUANTIZED if usual and not module.router and not module.expert else Verdict.OPEN

    def parts(self, module: Module) -> Sequence[Part]:
        return self.packed(module, self.zeros)


class AutoRound(Method):
    """AutoRound in the layout of GPTQ or of AWQ."""

    name = "auto-round"
    numbered = True

    def __init__(self, settings: Settings, defaults: Defaults) -> None:
        packing = settings.word("packing_format", "backend", default="auto_round:gptq")
        if settings.word("data_type", default="int") != "int" or not re.search("gptq|awq", packing):
            raise settings.refuse(f"packing_format is {packing}")
        self.settings, self.awq = settings, "awq" in packing
        self.layout = Rows(settings)
        self.own = settings.mapping("extra_config")
        del defaults

    def verdict(self, module: Module) -> Verdict:
        """The config says in several ways which layers are quantized, so the file decides."""
        if not module.linear:
            return Verdict.PLAIN
        own = self._own(module)
        bits = own.get("bits")
        if type(bits) is int and bits > max(BITS):
            return Verdict.PLAIN
        return Verdict.OPEN

    def _own(self, module: Module) -> dict[str, object]:
        for name in module.names:
            if isinstance(found := self.own.get(name), Mapping):
                return {key: value for key, value in found.items() if value is not None}
        return {}

    def parts(self, module: Module) -> Sequence[Part]:
        own = self._own(module)
        layout = Rows(Settings(self.settings.method, {**self.settings.values, **own})) if own else self.layout
        return layout.packed_outputs(module, Need.REQUIRED) if self.awq else layout.packed_inputs(module)


def _inside_block(settings: Settings) -> tuple[str, ...] | None:
    """Ends of names inside a layer that are quantized; None: all linear ones."""
    steps = settings.values.get("modules_in_block_to_quantize")
    if steps is None:
        return None
    if not isinstance(steps, list):
        raise settings.refuse("modules_in_block_to_quantize is no list")
    names = [name for step in steps for name in (step if isinstance(step, list) else [step])]
    if not all(isinstance(name, str) for name in names):
        raise settings.refuse("modules_in_block_to_quantize holds no names")
    return tuple(names)


def _block(settings: Settings, defaults: Defaults) -> str | None:
    """What the names of the modules of the layers begin with; None where it is not known."""
    own = settings.text("block_name_to_quantize")
    if own:
        return own + "."
    starts = (start + "." for start in _BLOCKS)
    return next((start for start in starts if any(name.startswith(start) for name in defaults.names)), None)
