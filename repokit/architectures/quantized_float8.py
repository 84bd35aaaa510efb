"""FP8 with scales for blocks, rows or whole weights: `fp8`, `mxfp8`, `fbgemm_fp8`, and ModelOpt's FP8 and NVFP4.

Source: transformers 5.24 integrations/finegrained_fp8.py and fbgemm_fp8.py, vLLM's fp8.py and modelopt.py, and
ModelOpt's export (torch/export/unified_export_hf.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from repokit.architectures.expansion import Shape
from repokit.architectures.member import Kind
from repokit.architectures.quantized_lists import WildcardList, one_of
from repokit.architectures.quantized_parts import (
    EXPONENTS,
    F8,
    I8,
    LARGEST,
    U8,
    Method,
    Module,
    Need,
    Part,
    Settings,
    Verdict,
    divided,
)
from repokit.architectures.quantized_skips import Defaults, skips

SCALARS: Final[tuple[Shape, ...]] = ((), (1,), (1, 1))
CACHE_SCALES: Final = re.compile(r"\.(?:[kv]_(?:proj\.)?(?:k_|v_|output_)?scale|[qkv]_scale|prob_scale)$")
_SPELLINGS: Final = (".scale", ".qscale_weight")  # which transformers renames to weight_scale_inv
_BLOCK: Final = (128, 128)
_NVFP4_GROUP: Final = 16
_FUSED: Final = re.compile(r"\.experts\.(?:gate_up_proj|down_proj|up_proj)$")


class Fp8(Method):
    """`fp8` of DeepSeek and transformers with blocks, of AutoFP8 with one scale a weight; `mxfp8`."""

    extras = (CACHE_SCALES,)

    def __init__(self, settings: Settings, defaults: Defaults) -> None:
        self.name = settings.method
        self.skipped = skips(settings, defaults, "modules_to_not_convert", "ignored_layers")
        self.numbered = self.skipped.numbered
        self.block = _block_size(settings)
        self.given = "weight_block_size" in settings.values or self.name == "mxfp8"
        powers = self.name == "mxfp8" or settings.word("scale_fmt") == "ue8m0"
        self.scales = EXPONENTS if powers else ()
        self.static = settings.word("activation_scheme", default="dynamic") == "static"
        self.four = settings.word("expert_dtype") == "fp4"

    def verdict(self, module: Module) -> Verdict:
        """Experts are quantized where they are one module in memory too."""
        if module.kind is not Kind.LINEAR:
            return Verdict.PLAIN
        verdict = self.skipped.verdict(module)
        return Verdict.OPEN if verdict is Verdict.QUANTIZED and not self._whole_blocks(module) else verdict

    def _whole_blocks(self, module: Module) -> bool:
        """Whether its blocks divide the weight: others stay as they are in transformers, and not at DeepSeek."""
        if self.block is None or module.rows is None or module.columns is None:
            return True
        return module.rows % self.block[0] == 0 and module.columns % self.block[1] == 0

    def parts(self, module: Module) -> Sequence[Part]:
        if self.four and module.expert:
            return (
                Part(".weight", (module.rows, divided(module.columns, 2)), (I8, U8)),
                self._scale((module.rows, divided(module.columns, 32))),
            )
        weight = Part(".weight", (module.rows, module.columns), F8)
        return (weight, self._weight_scale(module), *self._activation())

    def _weight_scale(self, module: Module) -> Part:
        whole: tuple[Shape, ...] = (*SCALARS, (module.rows, 1), (module.rows,))
        if self.block is None:
            return self._scale(whole[0], whole[1:])
        shape = (divided(module.rows, self.block[0]), divided(module.columns, self.block[1]))
        return self._scale(shape, () if self.given else whole)

    def _scale(self, shape: Shape, also: tuple[Shape, ...] = ()) -> Part:
        other = ".weight_scale" if self.block is None or not self.given or self.scales else ""
        spellings = (*_SPELLINGS, other) if other else _SPELLINGS
        return Part(".weight_scale_inv", shape, self.scales, also, spellings=spellings)

    def _activation(self) -> tuple[Part, ...]:
        need = Need.REQUIRED if self.static else Need.OPTIONAL
        return (Part(".activation_scale", (), (), ((1,),), need, (".input_scale",)),)

    def fused(self, name: str, shape: Shape) -> Sequence[Part] | None:
        """Experts that are one tensor on disk too: nobody is known to publish them in FP8."""
        del shape
        return () if _FUSED.search(name) else None


class FbgemmFp8(Method):
    """A scale for each row of a weight."""

    name = "fbgemm_fp8"
    extras = (re.compile(r"\.input_scale_ub$"), CACHE_SCALES)

    def __init__(self, settings: Settings, defaults: Defaults) -> None:
        self.skipped = skips(settings, defaults, "modules_to_not_convert")
        self.numbered = self.skipped.numbered

    def verdict(self, module: Module) -> Verdict:
        """Experts were quantized where they were modules of their own, which they are for older versions."""
        if module.kind is not Kind.LINEAR:
            return Verdict.PLAIN
        verdict = self.skipped.verdict(module)
        return Verdict.OPEN if module.expert and verdict is Verdict.QUANTIZED else verdict

    def parts(self, module: Module) -> Sequence[Part]:
        return (
            Part(".weight", (module.rows, module.columns), F8),
            Part(".weight_scale", (module.rows, 1), (), ((module.rows,),)),
        )

    def fused(self, name: str, shape: Shape) -> Sequence[Part] | None:
        """The experts of Llama 4: [experts, inputs, outputs], a scale for each output."""
        if not _FUSED.search(name) or len(shape) != 3:
            return None
        scale = (shape[0], 1, shape[2]), ((shape[0], shape[2], 1),)
        return (Part("", shape, F8), Part("_scale", scale[0], (), scale[1]))


class ModelOpt(Method):
    """NVIDIA ModelOpt: FP8 with one scale a weight, NVFP4 with scales in two steps."""

    name = "modelopt"
    extras = (CACHE_SCALES, re.compile(r"\.pre_quant_scale$"))

    def __init__(self, settings: Settings, defaults: Defaults) -> None:
        algorithm = settings.text("quant_algo").upper()
        layouts: dict[str, Callable[[Module], Sequence[Part]]] = {
            "FP8": self._fp8,
            "NVFP4": self._nvfp4,
            "NVFP4_AWQ": self._nvfp4,
        }
        if algorithm not in layouts or settings.values.get("quantized_layers"):
            raise settings.refuse(f"quant_algo is {algorithm}")
        self.packed = layouts[algorithm]
        self.group = _group_size(settings)
        entries = settings.strings("exclude_modules", "ignore") or ()
        self.excluded = WildcardList(entries, defaults.clock)
        self.numbered = self.excluded.numbered

    def verdict(self, module: Module) -> Verdict:
        if not module.linear:
            return Verdict.PLAIN
        excluded = one_of(module.names, self.excluded.covers)
        if excluded is not False:
            return Verdict.PLAIN if excluded else Verdict.OPEN
        certain = module.block and not module.router and module.kind is Kind.LINEAR
        return Verdict.QUANTIZED if certain else Verdict.OPEN

    def parts(self, module: Module) -> Sequence[Part]:
        return self.packed(module)

    def _fp8(self, module: Module) -> Sequence[Part]:
        return (
            Part(".weight", (module.rows, module.columns), F8),
            Part(".weight_scale", (), (), SCALARS[1:]),
            Part(".input_scale", (), (), SCALARS[1:], Need.UNIFORM),
        )

    def _nvfp4(self, module: Module) -> Sequence[Part]:
        return (
            Part(".weight", (module.rows, divided(module.columns, 2)), (U8,)),
            Part(".weight_scale", (module.rows, divided(module.columns, self.group)), F8),
            Part(".weight_scale_2", (), (), SCALARS[1:]),
            Part(".input_scale", (), (), SCALARS[1:], Need.UNIFORM),
        )

    def fused(self, name: str, shape: Shape) -> Sequence[Part] | None:
        del shape
        return () if _FUSED.search(name) else None


def _group_size(settings: Settings) -> int | None:
    """Inputs that share a scale; None: not said."""
    groups = settings.mapping("config_groups").values()
    weights = [group.get("weights") for group in groups if isinstance(group, Mapping)]
    for values in (settings.values, *weights):
        if isinstance(values, Mapping) and values.get("group_size") is not None:
            return Settings(settings.method, values).integer("group_size", _NVFP4_GROUP)
    return None


def _block_size(settings: Settings) -> tuple[int, int] | None:
    """Rows and columns that share a scale; None: the whole weight."""
    size: Any = settings.values.get("weight_block_size", (1, 32) if settings.method == "mxfp8" else _BLOCK)
    if size is None:
        return None
    if not isinstance(size, (list, tuple)) or len(size) != 2:
        raise settings.refuse("weight_block_size is no pair")
    if not all(type(side) is int and 0 < side <= LARGEST for side in size):
        raise settings.refuse("weight_block_size has no sizes")
    return size[0], size[1]
