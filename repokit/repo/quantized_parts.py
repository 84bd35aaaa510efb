"""Which tensors a quantized module must have, by method.

Source: what bitsandbytes 0.50 and compressed-tensors 0.20 write, and the loaders of the other methods: GPTQModel and
AutoAWQ, transformers 5.24 quantizers/ and integrations/, vLLM's modelopt.py, mlx-lm's utils.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from repokit.repo.quantization import F8, schemes

if TYPE_CHECKING:
    from repokit.repo.quantization import Declared, Module


def missing_parts(module: Module, declared: Declared) -> list[str]:
    """What a quantized module lacks; [] where the form is not the method's, so that nothing can be said."""
    needed = NEEDED.get(declared.method or "")
    return [] if needed is None else [part for part in needed(module, declared) if part not in module.parts]


def row_parts(module: Module, declared: Declared) -> Iterator[str]:
    """GPTQ, AWQ, AutoRound: `qweight` with scales and zero points."""
    parts, config = module.parts.keys(), declared.config
    if not parts & {"qweight", "qzeros", "scales", "g_idx"} or "weight" in parts:
        return
    yield from ("qweight", "scales")
    if config.flag("zero_point") is not False and not parts & {"scaled_zeros", "zeros"}:
        yield "qzeros"
    if declared.method == "gptq" and config.flag("desc_act"):
        yield "g_idx"


def bitsandbytes_parts(module: Module, declared: Declared) -> Iterator[str]:
    """4 bits: the state of each weight. 8 bits: the scales of its rows."""
    weight, parts = module.parts.get("weight"), module.parts
    companions = [part for part in parts if part.startswith("weight.")]
    eight = declared.config.flag("load_in_8bit")
    if "SCB" in parts or (eight and weight is not None and weight.dtype == "I8"):
        yield from ("weight", "SCB")
    elif companions or (not eight and weight is not None and weight.dtype == "U8" and weight.shape[1:] == (1,)):
        yield from ("weight", "weight.absmax", "weight.quant_map")
        if not any(part.startswith("weight.quant_state.") for part in parts):
            yield "weight.quant_state.bitsandbytes__nf4"
        if module.dtype("weight.absmax") == "U8" or any("nested" in part for part in parts):
            yield from ("weight.nested_absmax", "weight.nested_quant_map")


def float8_parts(module: Module, declared: Declared) -> Iterator[str]:
    """FP8: a scale under one of its names."""
    weight = module.parts.get("weight")
    if weight is not None and weight.dtype in F8 and len(weight.shape) > 1 and module.scale is None:
        yield "weight_scale_inv" if declared.method == "fp8" else "weight_scale"
    elif weight is None and module.parts.keys() & {"weight_scale", "weight_scale_inv"}:
        yield "weight"


def compressed_parts(module: Module, declared: Declared) -> Iterator[str]:
    """compressed-tensors: by format, where every group has the same."""
    if "scale_packed" in module.parts:
        return  # marlin-24 of older versions (0.17 and before): `scale_packed` and `meta`
    if "weight_packed" in module.parts or module.parts.keys() & {"weight_shape", "weight_global_scale"}:
        forms = {scheme.form for scheme in schemes(declared.config)}
        yield from ("weight_packed", "weight_scale")
        if forms == {"pack-quantized"}:
            yield "weight_shape"
        elif forms == {"nvfp4-pack-quantized"}:
            yield "weight_global_scale"
    elif "weight" in module.parts and module.parts["weight"].dtype == "I8":
        yield "weight_scale"
    else:
        yield from float8_parts(module, declared)


def modelopt_parts(module: Module, declared: Declared) -> Iterator[str]:
    """ModelOpt: NVFP4 has scales in two steps, FP8 in one."""
    if module.stored == "float4" and module.dtype("weight_scale") in F8:
        yield "weight_scale_2"
    yield from float8_parts(module, declared)


def mxfp4_parts(module: Module, _: Declared) -> Iterator[str]:
    """Experts of gpt-oss: blocks and their scales."""
    if module.parts.keys() & {"blocks"} or (module.dtype("scales") == "U8" and "weight" not in module.parts):
        yield from ("blocks", "scales")


def mlx_parts(module: Module, declared: Declared) -> Iterator[str]:
    """MLX: scales, and biases in the mode `affine`, which is the default."""
    if module.dtype("weight") == "U32":
        yield "scales"
        own = (value for value in declared.config.raw.values() if isinstance(value, dict))
        if all(level.get("mode") in (None, "affine") for level in (declared.config.raw, *own)):
            yield "biases"


NEEDED: Final[dict[str, Callable[[Module, Declared], Iterator[str]]]] = {
    "gptq": row_parts,
    "awq": row_parts,
    "auto-round": row_parts,
    "bitsandbytes": bitsandbytes_parts,
    "fp8": float8_parts,
    "fbgemm_fp8": float8_parts,
    "compressed-tensors": compressed_parts,
    "modelopt": modelopt_parts,
    "mxfp4": mxfp4_parts,
    "mlx": mlx_parts,
}
