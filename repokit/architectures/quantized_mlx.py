"""MXFP4 of gpt-oss, and MLX.

Source: transformers 5.24 integrations/mxfp4.py; MLX (python/mlx/nn/layers/quantized.py) and mlx-lm 0.32 utils.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from repokit.architectures.expansion import Shape
from repokit.architectures.member import Kind
from repokit.architectures.quantized_parts import U8, U32, Method, Module, Part, Settings, Verdict, divided, words
from repokit.architectures.quantized_skips import Defaults, skips

_GROUP: Final = 32  # of MXFP4: inputs that share a scale, two to a byte
_EXPERTS: Final = re.compile(r"(?P<module>.*\.experts)\.(?P<tensor>gate_up_proj|down_proj)$")


class Mxfp4(Method):
    """The experts of gpt-oss: [experts, inputs, outputs] becomes blocks and scales along the inputs."""

    name = "mxfp4"

    def __init__(self, settings: Settings, defaults: Defaults) -> None:
        self.skipped = skips(settings, defaults, "modules_to_not_convert")
        self.numbered = True

    def verdict(self, module: Module) -> Verdict:
        del module
        return Verdict.PLAIN

    def parts(self, module: Module) -> Sequence[Part]:
        return (Part(".weight", module.weight),)

    def fused(self, name: str, shape: Shape) -> Sequence[Part] | None:
        found = _EXPERTS.fullmatch(name)
        if found is None or len(shape) != 3:
            return None
        listed = self.skipped.listed
        if listed is not None and listed.covers(found["module"]) is not False:
            return None if listed.covers(found["module"]) else ()
        experts, inputs, outputs = shape
        scales = (experts, outputs, divided(inputs, _GROUP))
        return (Part("_blocks", (*scales, _GROUP // 2), (U8,)), Part("_scales", scales, (U8,)))


# ---------------------------------------------------------------- MLX

_MODES: Final[Mapping[str, tuple[int, int]]] = {  # mode -> group size and bits that it has by default
    "affine": (64, 4),
    "mxfp4": (32, 4),
    "nvfp4": (16, 4),
    "mxfp8": (32, 8),
}


_COMPOSED: Final = (
    ("model.language_model.", "language_model.model."),
    ("model.visual.", "vision_tower."),
    ("model.vision_tower.", "vision_tower."),
    ("lm_head", "language_model.lm_head"),
)


class Mlx(Method):
    """Linear modules and embeddings with packed weights; a module is quantized where its scales are in the file."""

    name = "mlx"
    unsaid = Verdict.QUANTIZED
    note = "MLX quantizes the modules whose scales are there"

    def __init__(self, settings: Settings, defaults: Defaults) -> None:
        self.settings = settings
        self.composed = any(name.startswith("model.language_model.") for name in defaults.names)
        self.default = _Layout(settings)
        self.own: dict[str, _Layout | None] = {}
        for path, values in settings.values.items():
            if isinstance(values, Mapping):
                self.own[path] = _Layout(Settings(settings.method, values))
            elif values is False:
                self.own[path] = None
        self.numbered = bool(self.own)

    def verdict(self, module: Module) -> Verdict:
        """What the config names is as it says; of the rest the file decides. Experts are stacked under other names."""
        if module.expert:
            return Verdict.ELSEWHERE
        name = next((name for name in self._names(module) if name in self.own), None)
        if name is None:
            return Verdict.OPEN
        return Verdict.PLAIN if self.own[name] is None else Verdict.QUANTIZED

    def parts(self, module: Module) -> Sequence[Part]:
        own = next((self.own[name] for name in self._names(module) if name in self.own), None)
        return (own or self.default).parts(module)

    def _names(self, module: Module) -> tuple[str, ...]:
        return (self.spelled(module.name), *module.names)

    def fused(self, name: str, shape: Shape) -> Sequence[Part] | None:
        """Experts are taken apart into the projections that MLX has."""
        del shape
        return () if ".experts." in name else None

    def spelled(self, name: str) -> str:
        """Models with a vision tower: MLX has the whole language model, its head too, under one name."""
        if self.composed:
            for theirs, ours in _COMPOSED:
                if name.startswith(theirs):
                    return ours + name.removeprefix(theirs)
        return name

    def kept(self, shape: Shape, kind: Kind) -> Shape:
        """Filters of convolutions have their channels last, and the weights of GPT-2 are not transposed."""
        return (None,) * len(shape) if len(shape) > 2 or kind is Kind.TRANSPOSED else shape


class _Layout:
    """Bits, groups and mode of one module."""

    def __init__(self, settings: Settings) -> None:
        self.mode = settings.word("mode", default="affine")
        if self.mode not in _MODES:
            raise settings.refuse(f"mode is {self.mode}")
        group, bits = _MODES[self.mode]
        self.group = settings.integer("group_size", group)
        self.bits = settings.integer("bits", bits, range(1, 33))

    def parts(self, module: Module) -> tuple[Part, ...]:
        scales = (module.rows, divided(module.columns, self.group))
        affine = self.mode == "affine"
        parts = (
            Part(".weight", (module.rows, words(module.columns, self.bits)), (U32,)),
            Part(".scales", scales, () if affine else (U8,)),
        )
        return (*parts, Part(".biases", scales)) if affine else parts


def is_mlx(values: Mapping[str, Any]) -> bool:
    """Whether an object is MLX's: it names no method, but a group size and bits."""
    return "quant_method" not in values and type(values.get("group_size")) is int and type(values.get("bits")) is int
