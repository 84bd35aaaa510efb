"""Arrays of numpy and of the standard library; torch's are in tests/oracles/test_memory.py."""

from __future__ import annotations

import array

import ml_dtypes
import numpy as np
import pytest

from repokit.builder.checkpoints.arrays import described
from repokit.builder.checkpoints.memory_weights import MemoryWeights
from repokit.errors import UnsupportedSource, UsageError

DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16, "I64": "<i8", "I32": "<i4", "I16": "<i2",
    "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?", "C64": "<c8",
    "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip


def content(value):
    weights = MemoryWeights({"a": value})
    return b"".join(weights.contents(weights.tensors["a"]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_is_described_as_a_header_spells_it(dtype):
    assert described("a", np.zeros((2, 3), DTYPES[dtype])) == (dtype, (2, 3))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "view",
    [
        lambda values: values,
        lambda values: values.T,
        lambda values: values[:, ::2],
        lambda values: values[1:, 1:],
        lambda values: np.broadcast_to(values[:1], (5, 6)),
        lambda values: values[1, 1:2].reshape(()),
        lambda values: values[:0],
    ],
    ids=["plain", "transposed", "stepped", "sliced", "expanded", "scalar", "empty"],
)
def test_its_bytes_are_those_of_a_contiguous_copy(dtype, view):
    values = view(np.arange(24).reshape(4, 6).astype(DTYPES[dtype]))
    assert content(values) == values.tobytes()


@pytest.mark.parametrize(
    ("value", "dtype"), [(memoryview(b"abcd"), "U8"), (memoryview(array.array("f", [1, 2])), "F32")], ids=["B", "f"]
)
def test_a_memoryview_is_an_array(value, dtype):
    assert (described("a", value)[0], content(value)) == (dtype, value.tobytes())


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([1, 2], "is no array: list"),
        (np.array(["a"]), "has the dtype"),
        (np.zeros(2, np.complex128), "has the dtype complex128"),
        (np.zeros(2, ">f4"), "big-endian"),
        (np.arange(6)[::-1], "reverse order"),
    ],
    ids=["list", "text", "complex128", "big-endian", "reversed"],
)
def test_what_cannot_be_written_is_refused(value, reason):
    with pytest.raises(UnsupportedSource, match=reason):
        content(value)


def test_a_refusal_names_the_tensor():
    with pytest.raises(UnsupportedSource, match=r"^model\.norm\.weight is no array"):
        _ = MemoryWeights({"model.norm.weight": None}).tensors


def test_a_key_that_is_no_string_is_refused():
    with pytest.raises(UsageError, match="1 is no name"):
        MemoryWeights({1: np.zeros(2)})


def same_memory(one, other):
    weights = MemoryWeights({"one": one, "other": other})
    return weights.same_memory(weights.tensors["one"], weights.tensors["other"])


def test_two_views_of_the_same_elements_are_the_same_memory():
    values = np.zeros((4, 6))
    assert same_memory(values, values[:])


def test_a_transposed_square_is_not_the_same_memory():
    values = np.zeros((4, 4))
    assert not same_memory(values, values.T)


def test_a_copy_is_not_the_same_memory():
    values = np.zeros((4, 6))
    assert not same_memory(values, values.copy())


def test_an_array_is_opened_only_when_its_bytes_are_asked_for():
    class Lazy:
        dtype, shape = np.dtype("f4"), (2,)

        @property
        def __array_interface__(self):
            raise AssertionError("opened")

    assert MemoryWeights({"a": Lazy()}).tensors["a"].size == 8
