"""The tensor types of ggml: what they are called, and how many bytes their blocks take.

Source: ggml/include/ggml.h `enum ggml_type` and ggml/src/ggml.c `type_traits` of ggml-org/llama.cpp, as of November
2026. A test holds the table against the one of the `gguf` package.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class GgmlType(NamedTuple):
    """One type.

    Attributes:
        name: As ggml spells it: `Q4_K`.
        block: Elements that are stored together; rows are multiples of it.
        size: Bytes of one block.
    """

    name: str
    block: int
    size: int


GGML_TYPES: Final[dict[int, GgmlType]] = {
    0: GgmlType("F32", 1, 4),
    1: GgmlType("F16", 1, 2),
    2: GgmlType("Q4_0", 32, 18),
    3: GgmlType("Q4_1", 32, 20),
    6: GgmlType("Q5_0", 32, 22),
    7: GgmlType("Q5_1", 32, 24),
    8: GgmlType("Q8_0", 32, 34),
    9: GgmlType("Q8_1", 32, 40),
    10: GgmlType("Q2_K", 256, 84),
    11: GgmlType("Q3_K", 256, 110),
    12: GgmlType("Q4_K", 256, 144),
    13: GgmlType("Q5_K", 256, 176),
    14: GgmlType("Q6_K", 256, 210),
    15: GgmlType("Q8_K", 256, 292),
    16: GgmlType("IQ2_XXS", 256, 66),
    17: GgmlType("IQ2_XS", 256, 74),
    18: GgmlType("IQ3_XXS", 256, 98),
    19: GgmlType("IQ1_S", 256, 50),
    20: GgmlType("IQ4_NL", 32, 18),
    21: GgmlType("IQ3_S", 256, 110),
    22: GgmlType("IQ2_S", 256, 82),
    23: GgmlType("IQ4_XS", 256, 136),
    24: GgmlType("I8", 1, 1),
    25: GgmlType("I16", 1, 2),
    26: GgmlType("I32", 1, 4),
    27: GgmlType("I64", 1, 8),
    28: GgmlType("F64", 1, 8),
    29: GgmlType("IQ1_M", 256, 56),
    30: GgmlType("BF16", 1, 2),
    34: GgmlType("TQ1_0", 256, 54),
    35: GgmlType("TQ2_0", 256, 66),
    39: GgmlType("MXFP4", 32, 17),
    40: GgmlType("NVFP4", 64, 36),
    41: GgmlType("Q1_0", 128, 18),
}

# Types that ggml once had. 36 was one of them too, and is now what BitNet writes.
REMOVED: Final[dict[int, str]] = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}

# Types of others, whose files are published by the hundreds and which llama.cpp refuses.
_OTHERS: Final = (
    (range(36, 37), "BitNet"),
    (range(97, 100), "ik_llama.cpp"),  # Q8_0_X4 ...
    (range(133, 159), "ik_llama.cpp"),  # Q6_0, IQ2_K ... IQ1_KT
    (range(202, 236), "ik_llama.cpp"),  # rows interleaved: Q4_0_R8 ...
    (range(335, 345), "ik_llama.cpp"),  # IQ2_BN_R4, IQ2_K_R4 ...
    (range(352, 353), "ik_llama.cpp"),  # IQ5_KS_R4
    (range(397, 400), "ik_llama.cpp"),  # Q8_K_R16, Q8_KV_R8, Q8_K_R8
)
_NEXT: Final = range(42, 97)  # what ggml gives out next; 42 is Q2_0, whose blocks no release has fixed yet


def reader_of(number: int) -> str | None:
    """Who reads a type that is not in the table: the program, or `a newer llama.cpp`; None where nobody is known."""
    if number in _NEXT:
        return "a newer llama.cpp"
    return next((program for numbers, program in _OTHERS if number in numbers), None)


# What a whole file is called after, by the number in general.file_type: include/llama.h `llama_ftype` of the same day,
# without LLAMA_FTYPE_ and MOSTLY_. A test holds it against the one of the `gguf` package.
FILE_TYPES: Final[dict[int, str]] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
    40: "Q1_0",
}
