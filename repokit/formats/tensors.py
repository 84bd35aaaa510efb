"""What a tensor is on disk: a name, a dtype, a shape and a byte range."""

from __future__ import annotations

from math import prod
from typing import Final, NamedTuple

# Bits per element of every dtype that safetensors 0.8 reads, in its own order (safetensors/src/tensor.rs `Dtype`),
# which is ascending alignment. Shapes of sub-byte dtypes count elements, not bytes.
DTYPE_BITS: Final[dict[str, int]] = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}

# How config.json spells the dtypes that a model can be held in (torch's names), and how a header does.
TORCH_NAMES: Final[dict[str, str]] = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
    "float4_e2m1fn_x2": "F4",
    "complex64": "C64",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
HEADER_NAMES: Final[dict[str, str]] = {header: torch for torch, header in TORCH_NAMES.items()}

FLOATS: Final = frozenset({"F64", "F32", "F16", "BF16"})


class TensorInfo(NamedTuple):
    """One entry of a header.

    Attributes:
        name: As it stands in the file, wrapper prefixes included.
        dtype: As a header spells it: a key of DTYPE_BITS.
        shape: Elements per dimension, outermost first; () for a scalar.
        begin: First byte, counted from the start of the file's data section.
        end: One past the last byte.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.begin


def byte_size(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Bytes that a tensor of this dtype and shape takes; None where sub-byte elements do not fill whole bytes."""
    bits = prod(shape) * DTYPE_BITS[dtype]
    return None if bits % 8 else bits // 8
