"""How many parameters quantized weights stand for, and so how many bits each of them takes.

The architecture's skeleton knows the shape of a module's weight; where there is none, packed weights are counted by
how they are packed (repokit/repo/quantized_parts.py names the sources).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from repokit.architectures import ConfigUnusable, NotCovered, skeleton
from repokit.builder.quantized.companions import WEIGHT, by_module
from repokit.formats.tensors import FLOATS
from repokit.repo.quantization import F8, schemes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from repokit.builder.checkpoints.sources import Checkpoint
    from repokit.builder.checkpoints.stored import TensorAt
    from repokit.builder.quantized.files import Declaration
    from repokit.repo.config import Config

Parts = dict[str, "TensorAt"]
Shapes = dict[str, tuple[int, ...]]

# What stands in the place of a weight: GPTQ, AWQ, AutoRound; compressed-tensors; gpt-oss; HQQ; torchao; AQLM.
_IN_PLACE: Final = ("qweight", "weight_packed", "blocks", "W_q", "qdata", "_weight_qdata", "codes")
# What belongs to a quantized weight without having parameters of its own.
_BESIDE: Final = frozenset(
    {
        *("qzeros", "g_idx", "SCB", "weight_format", "weight_scale", "weight_scale_inv", "weight_scale_2"),
        *("weight_zero_point", "weight_shape", "weight_global_scale", "input_scale", "input_global_scale"),
        *("output_scale", "k_scale", "v_scale", "q_scale", "activation_scale", "qscale_weight", "qbiases", "biases"),
        *("weight_g_idx", "scale_inv", "pre_quant_scale", "scaled_zeros", "meta", "zero", "codebooks", "weight_scales"),
    }
)
# The same, where it stands beside such a weight and not alone: a norm may call its weight `scale`.
_BESIDE_A_WEIGHT: Final = frozenset({"scale", "scales", "zeros", "shape"})
_WHOLE: Final = F8 | FLOATS | {"I8", "F4", "F8_E8M0"}  # dtypes of which an element is a parameter


def parameters(tensors: Mapping[str, TensorAt], checkpoint: Checkpoint, declaration: Declaration) -> int | None:
    """Of the model before it was quantized, as far as it lies here; None where a module cannot be counted.

    Args:
        tensors: By their final names.
        checkpoint: Where they come from; small tensors that hold a shape are read.
        declaration: How they are packed.
    """
    known = _known_shapes(checkpoint.config)
    unpack = _Unpacking(checkpoint, declaration)
    total = 0
    for module, names in by_module(tensors).items():
        parts = {part: tensors[name] for part, name in names.items()}
        weight = unpack.weight(module, parts, known)
        if weight is None:
            return None
        total += weight + sum(prod(tensor.shape) for part, tensor in parts.items() if _counts(part, parts))
    return total


def _counts(part: str, parts: Parts) -> bool:
    """Whether a tensor beside the weight has parameters of its own: a bias, the states of a recurrent layer."""
    if part == WEIGHT or part in _IN_PLACE or part in _BESIDE or part.startswith("_weight_") or "." in part:
        return False
    return not (part in _BESIDE_A_WEIGHT and parts.keys() & {WEIGHT, *_IN_PLACE})


def _known_shapes(config: Config | None) -> Shapes:
    """The shapes of the architecture's tensors, by name; {} where nobody knows them."""
    if config is None:
        return {}
    try:
        wanted = skeleton(config.raw)
    except (NotCovered, ConfigUnusable):
        return {}
    forms = [wanted, *([] if wanted.memory is None else [wanted.memory])]
    shapes = ((name, shape) for form in forms for name, shape in form.shapes.items())
    return {name: tuple(side for side in shape if side is not None) for name, shape in shapes if None not in shape}


class _Unpacking:
    """From the tensors of a module to the elements of its weight."""

    def __init__(self, checkpoint: Checkpoint, declaration: Declaration) -> None:
        self._checkpoint = checkpoint
        self._declaration = declaration
        config = declaration.config
        groups = {scheme.weights.integer("num_bits") for scheme in schemes(config)}
        self._bits = config.integer("bits") or (next(iter(groups)) if len(groups) == 1 else None)

    def weight(self, module: str, parts: Parts, known: Shapes) -> int | None:
        """Elements; 0 of a module that has none, None where nothing tells."""
        stored = next((parts[part] for part in _IN_PLACE if part in parts), parts.get(WEIGHT))
        if stored is None:
            below = next((tensor for part, tensor in parts.items() if part.startswith("weight._data")), None)
            return 0 if below is None else known_size(known, module)
        if stored.dtype in FLOATS and stored is parts.get(WEIGHT) and not any("." in part for part in parts):
            return prod(stored.shape)
        exact = known_size(known, module)
        return exact if exact is not None else self._unpacked(parts)

    def _unpacked(self, parts: Parts) -> int | None:
        method = self._declaration.method
        for part, count in self._ways():
            if part in parts:
                return count(parts)
        weight = parts.get(WEIGHT)
        if weight is None:
            return None
        if any(part.startswith("weight.") for part in parts):  # bitsandbytes, whatever it stores its bytes as
            return weight.size * 2
        if method == "bitnet" and weight.dtype == "U8":
            return weight.size * 4
        if weight.dtype in _WHOLE:
            return prod(weight.shape)
        if weight.dtype == "U8" and "weight_scale" in parts:  # NVFP4 and MXFP4 of ModelOpt
            return weight.size * 2
        return self._by_bits(weight) if weight.dtype == "U32" else None

    def _ways(self) -> tuple[tuple[str, Callable[[Parts], int | None]], ...]:
        return (
            ("weight_packed", self._packed),
            ("qweight", self._rows),
            ("blocks", lambda parts: parts["blocks"].size * 2),
            ("W_q", lambda parts: self._of_hqq(parts["W_q"])),
            ("_weight_qdata", lambda parts: _if_whole(parts["_weight_qdata"])),
            ("qdata", lambda parts: _if_whole(parts["qdata"])),
        )

    def _by_bits(self, tensor: TensorAt) -> int | None:
        return tensor.size * 8 // self._bits if self._bits and self._bits > 0 else None

    def _packed(self, parts: Parts) -> int | None:
        """compressed-tensors: by the shape that it stores, where that has as many rows."""
        packed, shape = parts["weight_packed"], parts.get("weight_shape")
        sides = () if shape is None else self._shape(shape)
        if sides and sides[:1] == packed.shape[:1]:
            return prod(sides)
        return packed.size * 2 if packed.dtype == "U8" else self._by_bits(packed)

    def _rows(self, parts: Parts) -> int | None:
        """GPTQ stores the order of the inputs, so that both sides are known; else by the width."""
        order, scales = parts.get("g_idx"), parts.get("scales")
        if order is not None and scales is not None and len(order.shape) == 1 and scales.shape:
            return order.shape[0] * scales.shape[-1]
        return self._by_bits(parts["qweight"])

    def _of_hqq(self, tensor: TensorAt) -> int | None:
        quantized = self._declaration.config.mapping("quant_config")
        how = None if quantized is None else quantized.mapping("weight_quant_params")
        bits = None if how is None else how.integer("nbits")
        return tensor.size * 8 // bits if bits in {1, 2, 4, 8} and bits else None

    def _shape(self, tensor: TensorAt) -> tuple[int, ...]:
        """The numbers of a tensor of integers: two of 64 bits; () where it is none."""
        if tensor.dtype not in {"I64", "I32"} or tensor.size > 64:  # bytes: no shape has more
            return ()
        data = b"".join(map(bytes, self._checkpoint.weights.contents(tensor)))
        width = 8 if tensor.dtype == "I64" else 4
        return tuple(int.from_bytes(data[at : at + width], "little") for at in range(0, len(data), width))


def _if_whole(tensor: TensorAt) -> int | None:
    return prod(tensor.shape) if tensor.dtype in _WHOLE else None


def known_size(known: Shapes, module: str) -> int | None:
    """Elements of the weight of a module by the architecture; the experts of a layer have no `.weight`."""
    shape = known.get(f"{module}.{WEIGHT}", known.get(module))
    return None if shape is None else prod(shape)


def block_size(tensors: Mapping[str, TensorAt]) -> int | None:
    """The weights that share a scale in bitsandbytes, which no config states; None where none is stored so."""
    for name, absmax in tensors.items():
        if name.endswith(".weight.absmax") and (packed := tensors.get(name.removesuffix(".absmax"))) is not None:
            scales = max(1, prod(absmax.shape))
            sizes = (32, 64, 128, 256, 512, 1024, 2048, 4096)  # bitsandbytes functional.py quantize_4bit
            return next((size for size in sizes if -(-packed.size * 2 // size) == scales), None)
    return None
