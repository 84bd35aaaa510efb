"""Shapes of packed weights and scales, by what a declaration says about bits and groups.

Every function gives what is wrong with modules that are stored alike, or None where nothing is or nothing can be told.
What is wrong is put so that it names one module's numbers.
Shapes: a weight is outputs x inputs before it is packed; compressed-tensors 0.20, bitsandbytes 0.50, GPTQModel and
AutoAWQ (`gemm`), mlx-lm, transformers 5.24 for fp8 and mxfp4.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from repokit.repo.quantization import schemes

if TYPE_CHECKING:
    from repokit.repo.document import Document
    from repokit.repo.quantization import Declared, Module, Scheme

WORD: Final = 32  # bits of the integers that weights are packed into

# bitsandbytes functional.py quantize_4bit: the block sizes that it takes.
_BLOCKS: Final = (32, 64, 128, 256, 512, 1024, 2048, 4096)


# ---------------------------------------------------------------- scales


def wrong_scales(module: Module, declared: Declared) -> str | None:
    """Names, presence and shapes of scales that stand for a tensor, a channel or a block."""
    if declared.method == "fp8":
        return _wrong_blocks(module, declared.config)
    scheme = _only_scheme(declared)
    if scheme is None or module.stored is None:
        return None
    return _wrong_zero_points(module, scheme) or _wrong_strategy(module, scheme)


def _only_scheme(declared: Declared) -> Scheme | None:
    """The scheme of compressed-tensors, where all groups share one."""
    found = schemes(declared.config) if declared.method == "compressed-tensors" else ()
    alike = all(scheme.weights.raw == found[0].weights.raw and scheme.form == found[0].form for scheme in found)
    return found[0] if found and alike else None


def _wrong_zero_points(module: Module, scheme: Scheme) -> str | None:
    symmetric, there = scheme.weights.flag("symmetric"), "weight_zero_point" in module.parts
    if there and symmetric is not False:
        return "has `weight_zero_point`, and config.json says symmetric"
    if not there and symmetric is False and scheme.weights.string("type") != "float":
        return "lacks `weight_zero_point`, and config.json says asymmetric"
    return None


def _wrong_strategy(module: Module, scheme: Scheme) -> str | None:
    if "weight_scale_inv" in module.parts and "weight_scale" not in module.parts:
        return "has `weight_scale_inv` where compressed-tensors reads `weight_scale`"
    weight, scale = module.shape("weight"), module.parts.get("weight_scale")
    if len(weight) != 2 or scale is None:
        return None
    wanted = {
        "tensor": ((), (1,), (1, 1)),
        "channel": ((weight[0], 1), (weight[0],)),
        "block": _blocks(weight, scheme.weights.raw.get("block_structure")),
    }.get(scheme.weights.string("strategy") or "")
    if not wanted or scale.shape in wanted:
        return None
    strategy = scheme.weights.string("strategy")
    return f"has scales of shape {list(scale.shape)}, and config.json says one a {strategy}: {list(wanted[-1])}"


def _blocks(weight: tuple[int, ...], size: object) -> tuple[tuple[int, ...], ...]:
    """The shape of one scale a block; () where the size is none."""
    if not isinstance(size, list) or len(size) != 2 or not all(type(side) is int and side > 0 for side in size):
        return ()
    return (tuple(-(-length // side) for length, side in zip(weight, size, strict=True)),)


def _wrong_blocks(module: Module, config: Document) -> str | None:
    """FP8 with `weight_block_size`: one scale a block, under the name that block kernels read."""
    weight, scale = module.shape("weight"), module.scale
    wanted = _blocks(weight, config.raw.get("weight_block_size")) if len(weight) == 2 else ()
    if module.stored != "float8" or scale is None or not wanted:
        return None
    if scale.shape not in wanted:
        return f"has scales of shape {list(scale.shape)}, and weight_block_size asks for {list(wanted[0])}"
    if "weight_scale" in module.parts and "weight_scale_inv" not in module.parts:
        return "has `weight_scale` where readers of FP8 in blocks look for `weight_scale_inv`"
    return None


# ---------------------------------------------------------------- groups


def misfit(module: Module) -> str | None:
    """Parts that do not fit each other, whatever config.json says."""
    if module.stored == "mxfp4" and (blocks := module.shape("blocks")) and "scales" in module.parts:
        scales = module.shape("scales")
        return None if blocks[:-1] == scales else f"has blocks of shape {list(blocks)} and scales of {list(scales)}"
    if module.stored == "bitsandbytes 4-bit" and module.dtype("weight") == "U8" and "weight.absmax" in module.parts:
        weights, blocks_held = prod(module.shape("weight")) * 2, prod(module.shape("weight.absmax"))
        if not any(-(-weights // size) == blocks_held for size in _BLOCKS):
            return f"has {blocks_held:,} absmax values for {weights:,} weights, which is no block size"
    return None


def wrong_groups(module: Module, name: str, declared: Declared) -> str | None:
    """Packed weights and scales against `bits` and `group_size`."""
    config = declared.config
    if declared.method == "mlx":
        return _wrong_mlx(module, config.mapping(name) or config)
    if declared.method == "compressed-tensors":
        scheme = _only_scheme(declared)
        return None if scheme is None else _wrong_packed(module, scheme.weights)
    if module.stored != "packed rows" or config.raw.get("dynamic") or config.raw.get("extra_config"):
        return None
    if declared.method == "awq" and (config.string("version") or config.string("format") or "gemm").lower() == "gemm":
        return _wrong_awq(module, config)
    if declared.method == "auto-round" and "awq" in f"{config.raw.get('packing_format')}{config.raw.get('backend')}":
        return _wrong_awq(module, config)
    gptq_like = (config.string("checkpoint_format") or config.string("format") or "gptq").lower() in {"gptq", "gptq_v2"}
    return _wrong_gptq(module, config) if declared.method in {"gptq", "auto-round"} and gptq_like else None


def _numbers(config: Document, bits: tuple[int, ...]) -> tuple[int, int] | None:
    """Bits and group size, where both are numbers that can be computed with."""
    width, group = config.integer("bits"), config.integer("group_size")
    return None if width not in bits or group is None or (group != -1 and group < 1) else (width, group)


def _wrong_gptq(module: Module, config: Document) -> str | None:
    """Packed along the inputs: qweight [inputs x bits / 32, outputs], scales [groups, outputs]."""
    numbers, packed, scales = _numbers(config, (2, 3, 4, 8)), module.shape("qweight"), module.shape("scales")
    if numbers is None or len(packed) != 2 or len(scales) != 2 or module.dtype("qweight") != "I32":
        return None  # GPTQModel's `pack_dtype` may be another
    bits, group = numbers
    inputs = module.shape("g_idx")[0] if len(module.shape("g_idx")) == 1 else packed[0] * WORD // bits
    if packed[0] != -(-inputs * bits // WORD):
        return f"has {packed[0]:,} rows of packed weights for {inputs:,} inputs, and bits is {bits}"
    zeros = module.shape("qzeros")
    if len(zeros) == 2 and zeros[1] != -(-scales[1] * bits // WORD):
        return f"has {zeros[1]:,} columns of packed zero points for {scales[1]:,} outputs, and bits is {bits}"
    if group < inputs and scales[0] == -(-inputs // group):
        return None  # the last group may be smaller than the others
    return _wrong_number(scales[0], inputs, group)


def _wrong_awq(module: Module, config: Document) -> str | None:
    """Packed along the outputs: qweight [inputs, outputs x bits / 32], scales [groups, outputs]."""
    numbers, packed, scales = _numbers(config, (2, 3, 4, 8)), module.shape("qweight"), module.shape("scales")
    if numbers is None or len(packed) != 2 or len(scales) != 2:
        return None
    bits, group = numbers
    if packed[1] != -(-scales[1] * bits // WORD):
        return f"has {packed[1]:,} columns of packed weights for {scales[1]:,} outputs, and bits is {bits}"
    return _wrong_number(scales[0], packed[0], group)


def _wrong_number(groups: int, inputs: int, size: int) -> str | None:
    """Scales along the inputs. A group that is larger than the inputs is one group."""
    if size == -1 or size >= inputs:
        wanted = 1
    elif inputs % size:
        return f"has {inputs:,} inputs, which groups of {size:,} do not divide"
    else:
        wanted = inputs // size
    return None if groups == wanted else f"has {groups:,} scales for {inputs:,} inputs, and group_size is {size}"


def _wrong_packed(module: Module, weights: Document) -> str | None:
    """compressed-tensors: weight_packed [outputs, inputs x bits / 32], weight_scale [outputs, groups]."""
    bits, size = weights.integer("num_bits"), weights.integer("group_size")
    strategy, scale = weights.string("strategy"), module.shape("weight_scale")
    packed = module.parts.get("weight_packed")
    if len(scale) != 2 or size is None or size < 1 or strategy not in {"group", "tensor_group", None}:
        return None
    if packed is None:
        most = least = module.shape("weight")[1] if len(module.shape("weight")) == 2 else 0
    elif bits is None or bits < 1 or len(packed.shape) != 2:
        return None
    else:
        word = WORD if packed.dtype == "I32" else 8
        most = packed.shape[1] * word // bits
        least = (packed.shape[1] - 1) * word // bits + 1  # the last word may be filled in part
    if most and not least <= scale[1] * size <= most:
        return f"has {scale[1]:,} scales for {most:,} inputs, and group_size is {size}"
    return None


def _wrong_mlx(module: Module, config: Document) -> str | None:
    """MLX: weight [outputs, inputs x bits / 32], scales [outputs, groups]."""
    bits, size = config.integer("bits"), config.integer("group_size")
    weight, scales = module.shape("weight"), module.shape("scales")
    if module.stored != "mlx" or not bits or not size or not weight or len(scales) != len(weight):
        return None
    inputs = weight[-1] * WORD // bits
    if scales[-1] * size == inputs:
        return None
    return f"has {scales[-1]:,} scales for {inputs:,} inputs of {bits} bits, and group_size is {size}"
