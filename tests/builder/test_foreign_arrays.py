"""Arrays that are not what they seem: wrappers, marks that change values, memory that goes away."""

from __future__ import annotations

import ctypes
import gc
import weakref

import numpy as np
import pytest

from repokit.builder.checkpoints.arrays import opened
from repokit.builder.checkpoints.memory_weights import MemoryWeights
from repokit.errors import PlanError, UnsupportedSource


def content(value):
    weights = MemoryWeights({"a": value})
    return b"".join(weights.contents(weights.tensors["a"]))


class Lazy(dict):
    """Makes each array when it is asked for, as a dict of weights on a disk does."""

    def __getitem__(self, key):
        return super().__getitem__(key)()

    def items(self):
        return ((key, self[key]) for key in self)


class Interface:
    """A float32 array of two elements, with an interface of its own."""

    dtype, shape = np.dtype("float32"), (2,)

    def __init__(self, **fields):
        self.__array_interface__ = {"version": 3, "typestr": "<f4", "shape": (2,), **fields}


class Tracked(np.ndarray):
    """An array that can be watched while it goes away."""


# ------------------------------------------------------------------------------------------------ lifetime


def test_a_chunk_keeps_the_array_that_it_is_of():
    weights = MemoryWeights(Lazy(a=lambda: np.zeros(4, "f4").view(Tracked)))
    (chunk,) = weights.contents(weights.tensors["a"])
    watched = weakref.ref(chunk.obj.owner[0])
    gc.collect()
    assert watched() is not None


def test_a_chunk_that_is_gone_keeps_nothing():
    values = np.zeros(4, "f4").view(Tracked)
    watched = weakref.ref(values)
    memory = opened("a", values).memory
    del values, memory
    gc.collect()
    assert watched() is None


# ------------------------------------------------------------------------------------------------ mappings that change


def growing():
    sizes = iter(range(4, 100))
    return Lazy(a=lambda: np.zeros(next(sizes), "f4"))


def test_an_array_of_another_shape_than_before_is_refused():
    weights = MemoryWeights(growing())
    with pytest.raises(PlanError, match="has changed"):
        list(weights.contents(weights.tensors["a"]))


def test_a_name_that_is_gone_is_refused():
    arrays = {"a": np.zeros(2, "f4")}
    weights = MemoryWeights(arrays)
    planned = weights.tensors["a"]
    arrays.clear()
    with pytest.raises(PlanError, match="has changed"):
        list(weights.contents(planned))


# ------------------------------------------------------------------------------------------------ interfaces


@pytest.mark.parametrize("data", [bytes(8), memoryview(bytes(8)), (0, True)], ids=["bytes", "memoryview", "nothing"])
def test_memory_without_an_address_is_not_read(data):
    with pytest.raises(UnsupportedSource, match="cannot be read"):
        content(Interface(data=data))


def test_an_interface_that_contradicts_its_array_is_refused():
    memory = ctypes.create_string_buffer(16)
    with pytest.raises(PlanError, match="has changed"):
        content(Interface(data=(ctypes.addressof(memory), False), typestr="<f8"))


# ------------------------------------------------------------------------------------------------ torch


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_values_that_are_negated_lazily_are_written_as_they_are(torch):
    assert content(torch._neg_view(torch.ones(2))) == np.full(2, -1, "f4").tobytes()


def test_values_that_are_conjugated_lazily_are_written_as_they_are(torch):
    assert content(torch.tensor([1 + 2j]).conj()) == np.array([1 - 2j], "c8").tobytes()


@pytest.mark.parametrize("view", ["conj", "_neg_view"])
def test_the_same_memory_under_another_mark_is_not_the_same(torch, view):
    values = torch.tensor([1 + 2j])
    weights = MemoryWeights({"a": values, "b": values.conj() if view == "conj" else torch._neg_view(values)})
    assert not weights.same_memory(weights.tensors["a"], weights.tensors["b"])


def wrapper(torch):
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls):
            return torch.Tensor._make_wrapper_subclass(cls, (4,), dtype=torch.float32)

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            return args[0]

    return Wrapper()


def fake(torch):
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(4)


ABSENT = {
    "wrapper": wrapper,
    "fake": fake,
    "meta": lambda torch: torch.ones(4, device="meta"),
    "sparse": lambda torch: torch.eye(3).to_sparse(),
    "compressed": lambda torch: torch.eye(3).to_sparse_csr(),
    "nested": lambda torch: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "jagged": lambda torch: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "quantized": lambda torch: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
}


@pytest.mark.filterwarnings("ignore")  # torch's, about features that are new or going away
@pytest.mark.parametrize("kind", ABSENT)
def test_a_tensor_without_memory_of_its_own_is_refused(torch, kind):
    with pytest.raises(UnsupportedSource):
        content(ABSENT[kind](torch))
