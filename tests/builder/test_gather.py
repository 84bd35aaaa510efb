from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from repokit.builder.transforms import gather
from repokit.builder.transforms.gather import gathered
from repokit.operations import View

ITEMS = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<u8"}


@st.composite
def views(draw):
    """A view over a storage of bytes that is just large enough for it."""
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    strides = tuple(draw(st.integers(0, 7)) for _ in shape)
    return View(shape=shape, strides=strides, itemsize=draw(st.sampled_from([1, 2, 4, 8])))


def expected(storage, view):
    """What numpy makes of it."""
    elements = np.frombuffer(storage, ITEMS[view.itemsize])
    strides = tuple(stride * view.itemsize for stride in view.strides)
    return np.lib.stride_tricks.as_strided(elements, view.shape, strides).tobytes() if view.size else b""


def read_from(storage):
    return lambda offset, length: memoryview(storage)[offset : offset + length]


@given(views(), st.integers(1, 64), st.randoms(use_true_random=False))
def test_any_view_is_read_in_the_order_of_its_indexes(view, block, rng):
    storage = rng.randbytes(view.span)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "BLOCK", block)
        assert b"".join(gathered(read_from(storage), view)) == expected(storage, view)


@given(views(), st.integers(1, 64))
def test_nothing_is_read_beyond_the_span(view, block):
    asked = []

    def read(offset, length):
        asked.append(offset + length)
        return memoryview(bytes(length))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "BLOCK", block)
        list(gathered(read, view))
    assert max(asked, default=0) <= view.span


def test_an_expanded_tensor_is_never_whole_in_memory(monkeypatch):
    monkeypatch.setattr(gather, "BLOCK", 64)
    view = View(shape=(1000, 8), strides=(0, 1), itemsize=4)
    assert max(len(block) for block in gathered(read_from(bytes(32)), view)) <= 64


def test_rows_that_lie_apart_are_read_one_by_one(monkeypatch):
    monkeypatch.setattr(gather, "BLOCK", 16)
    asked = []

    def read(offset, length):
        asked.append(length)
        return memoryview(bytes(length))

    list(gathered(read, View(shape=(3, 2), strides=(1000, 1), itemsize=4)))
    assert asked == [8, 8, 8]
