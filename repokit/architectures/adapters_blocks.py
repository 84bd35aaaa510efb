"""Methods of rotations and products: their tensors follow from divisors of a module's sizes.

Source: peft 0.21.2 tuners/{boft,hra,loha,lokr,oft}/layer.py.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from repokit.architectures.adapters_lora import Parts, rank
from repokit.architectures.adapters_modules import Module
from repokit.architectures.adapters_targets import Settings
from repokit.architectures.member import Kind

LARGEST: Final = 1 << 22  # inputs or outputs of a module. Divisors are looked for among as many numbers.


class Refused(ValueError):
    """PEFT stops at this module: its sizes do not fit the config."""


def whole(total: int, part: int) -> int:
    """How often a part goes into a whole."""
    if part < 1 or total % part:
        raise Refused(f"{total} is no multiple of {part}")
    return total // part


def known(module: Module) -> tuple[int, int]:
    inputs, outputs = module.sizes
    if inputs is None or outputs is None or max(inputs, outputs) > LARGEST or None in module.weight:
        raise TypeError(f"the sizes of {module.path} are not known")
    return inputs, outputs


def number(settings: Settings, key: str) -> int:
    if (value := settings.number(key)) is None:
        raise TypeError(f"{key} is not known")
    return value


def boft(module: Module, settings: Settings) -> Parts | None:
    """`boft_R` [factors, blocks, size, size]; without its CUDA extension PEFT takes one factor, so any number goes."""
    if module.kind not in {Kind.LINEAR, Kind.CONVOLUTION}:
        return None
    inputs, outputs = known(module)
    square = module.kind is Kind.CONVOLUTION
    width = inputs * (module.weight[2] or 0) ** 2 if square and len(module.weight) == 4 else inputs
    size, blocks = settings.whole("boft_block_size"), settings.whole("boft_block_num")
    size, blocks = (size, whole(width, size)) if size else (whole(width, blocks), blocks)
    return {"boft_R": (None, blocks, size, size), "boft_s": (1, outputs) if square else (outputs, 1)}


def hra(module: Module, settings: Settings) -> Parts | None:
    if module.kind not in {Kind.LINEAR, Kind.CONVOLUTION}:
        return None
    inputs, _ = known(module)
    if module.kind is Kind.CONVOLUTION:
        inputs *= (module.weight[2] or 0) ** 2
    return {"hra_u": (inputs, number(settings, "r"))}


def loha(module: Module, settings: Settings) -> Parts | None:
    if module.kind not in {Kind.LINEAR, Kind.CONVOLUTION}:
        return None
    inputs, outputs = known(module)
    size, kernel = rank(settings, module.path), module.weight[2:]
    if kernel and settings["use_effective_conv2d"] and set(kernel) != {1}:
        tall = kernel if len(kernel) == 2 else (*kernel, 1)
        sides = ({f"hada_t{n}": (size, size, *tall), f"hada_w{n}_a": (size, outputs), f"hada_w{n}_b": (size, inputs)}
                 for n in (1, 2))  # fmt: skip
    else:
        width = inputs
        for length in kernel:
            width *= length or 0
        sides = ({f"hada_w{n}_a": (outputs, size), f"hada_w{n}_b": (size, width)} for n in (1, 2))
    return {name: shape for side in sides for name, shape in side.items()}


def lokr(module: Module, settings: Settings) -> Parts | None:
    """A Kronecker product: outputs = a c, inputs = b d; each factor whole, or of low rank where that is smaller."""
    if module.kind not in {Kind.LINEAR, Kind.CONVOLUTION}:
        return None
    inputs, outputs = known(module)
    size, kernel = rank(settings, module.path), module.weight[2:]
    if size is None:
        raise TypeError("the rank is not known")
    factor = settings["decompose_factor"]
    (first_out, second_out), (first_in, second_in) = factors(outputs, factor), factors(inputs, factor)
    parts: dict[str, tuple[int | None, ...]] = {}
    if settings["decompose_both"] and size < max(first_out, first_in) / 2:
        parts |= {"lokr_w1_a": (first_out, size), "lokr_w1_b": (size, first_in)}
    else:
        parts["lokr_w1"] = (first_out, first_in)
    if size >= max(second_out, second_in) / 2:
        parts["lokr_w2"] = (second_out, second_in, *kernel)
    elif kernel and settings["use_effective_conv2d"] and set(kernel) != {1}:
        tall = kernel if len(kernel) == 2 else (*kernel, 1)
        parts |= {"lokr_t2": (size, size, *tall), "lokr_w2_a": (size, second_out), "lokr_w2_b": (size, second_in)}
    else:
        width = second_in
        for length in kernel:
            width *= length or 0
        parts |= {"lokr_w2_a": (second_out, size), "lokr_w2_b": (size, width)}
    return parts


@cache
def factors(size: int, factor: int) -> tuple[int, int]:
    """A size as a product, the smaller number first (peft 0.21 tuners/lokr/layer.py factorization)."""
    if factor > 0 and size % factor == 0:
        return factor, size // factor
    most = size if factor == -1 else factor
    small = large = 0
    total = size + 2
    for divisor in range(1, int(size**0.5) + 1):
        if size % divisor == 0 and divisor <= max(most, 1) and divisor + size // divisor < total:
            small, large, total = divisor, size // divisor, divisor + size // divisor
    return small, large


def oft(module: Module, settings: Settings) -> Parts | None:
    """Blocks of a rotation, each skew-symmetric: b (b - 1) / 2 numbers. Sizes that do not divide are adjusted."""
    if module.kind not in {Kind.LINEAR, Kind.CONVOLUTION, Kind.EMBEDDING}:
        return None
    inputs, outputs = known(module)
    width = outputs if module.kind is Kind.EMBEDDING else inputs
    if module.kind is Kind.CONVOLUTION:
        width *= (module.weight[2] or 0) ** 2
    blocks, size = settings.whole("r"), settings.whole("oft_block_size")
    if bool(blocks) is bool(size):
        raise TypeError("one of r and oft_block_size")
    if size:
        size = nearest_divisor(width, size)
        blocks = width // size
    else:
        blocks = nearest_divisor(width, blocks)
        size = width // blocks
    name = "oft_embedding_R.weight" if module.kind is Kind.EMBEDDING else "oft_R.weight"
    return {name: (1 if settings["block_share"] else blocks, size * (size - 1) // 2)}


@cache
def nearest_divisor(width: int, wanted: int) -> int:
    """The divisor that is nearest; the smaller of two (peft 0.21 tuners/oft/layer.py adjust_oft_parameters)."""
    if wanted >= width:
        return width
    higher = next(number for number in range(wanted, width + 1) if width % number == 0)
    lower = next(number for number in range(wanted, 0, -1) if width % number == 0)
    return lower if wanted - lower <= higher - wanted else higher
