"""bitsandbytes: NF4 and FP4 with scales for blocks of 64 weights, and LLM.int8() with one for each row.

Source: bitsandbytes 0.50 functional.py (`QuantState.as_dict`, `quantize_4bit`) and nn/modules.py, transformers 5.24
integrations/bitsandbytes.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from repokit.architectures.quantized_parts import (
    F32,
    I8,
    U8,
    Method,
    Module,
    Need,
    Part,
    Settings,
    Size,
    Verdict,
    divided,
    times,
)
from repokit.architectures.quantized_skips import Defaults, skips

_BLOCKS: Final = (64, 128)  # weights that share a scale: 128 is what AMD's cards with wavefronts of 64 use
_NESTED: Final = 256  # scales that share a scale where they are quantized too
# dtype that packed weights are stored in: bytes of one element, name in safetensors
_STORAGE: Final[Mapping[str, tuple[int, str]]] = {
    "uint8": (1, U8),
    "int8": (1, I8),
    "float16": (2, "F16"),
    "bfloat16": (2, "BF16"),
    "float32": (4, F32),
}


class BitsAndBytes(Method):
    """Both of them."""

    name = "bitsandbytes"

    def __init__(self, settings: Settings, defaults: Defaults) -> None:
        self.eight = settings.flag("load_in_8bit") or settings.flag("_load_in_8bit")
        if self.eight and settings.flag("load_in_4bit"):
            raise settings.refuse("load_in_4bit and load_in_8bit are both true")
        self.skipped = skips(settings, defaults, "llm_int8_skip_modules")
        self.numbered = self.skipped.numbered
        self.kind = settings.word("bnb_4bit_quant_type", default="fp4")
        self.nested = settings.flag("bnb_4bit_use_double_quant")
        storage = settings.word("bnb_4bit_quant_storage", default="uint8").removeprefix("torch.")
        if self.kind not in {"nf4", "fp4"} or storage not in _STORAGE:
            raise settings.refuse(f"bnb_4bit_quant_type is {self.kind}, bnb_4bit_quant_storage {storage}")
        self.bytes, self.storage = _STORAGE[storage]

    def verdict(self, module: Module) -> Verdict:
        """Experts are modules of their own for older versions, and one parameter, which stays, for newer ones."""
        if not module.linear:
            return Verdict.PLAIN
        verdict = self.skipped.verdict(module)
        return Verdict.OPEN if module.expert and verdict is Verdict.QUANTIZED else verdict

    def parts(self, module: Module) -> Sequence[Part]:
        return self._eight_bits(module) if self.eight else self._four_bits(module)

    def _eight_bits(self, module: Module) -> tuple[Part, ...]:
        return (
            Part(".weight", (module.rows, module.columns), (I8,)),
            Part(".SCB", (module.rows,), (F32,)),
            Part(".weight_format", (), (U8,), need=Need.UNIFORM),
        )

    def _four_bits(self, module: Module) -> tuple[Part, ...]:
        weights = times(module.rows, module.columns)
        packed = (divided(weights, 2 * self.bytes), 1)
        scales = [divided(weights, block) for block in _BLOCKS]
        return (
            Part(".weight", packed, (self.storage,), (packed[::-1],)),
            _scales(".weight.absmax", scales, U8 if self.nested else F32),
            Part(".weight.quant_map", (16,), (F32,)),
            Part(f".weight.quant_state.bitsandbytes__{self.kind}", (None,), (U8,)),
            *(self._nested(scales) if self.nested else ()),
        )

    def _nested(self, scales: Sequence[Size]) -> tuple[Part, ...]:
        return (
            _scales(".weight.nested_absmax", [divided(scale, _NESTED) for scale in scales], F32),
            Part(".weight.nested_quant_map", (256,), (F32,)),
        )


def _scales(suffix: str, sizes: Sequence[Size], dtype: str) -> Part:
    """A part of one dimension, for each of the block sizes."""
    return Part(suffix, (sizes[0],), (dtype,), tuple((size,) for size in sizes[1:]))
