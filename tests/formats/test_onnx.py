"""Which files an ONNX model keeps its tensors in: what a writer wrote, and what nobody wrote."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, strategies as st

from repokit.errors import InputError, MalformedFile
from repokit.formats.onnx import WINDOW, External, external_tensors
from repokit.linter.examples_onnx import onnx_model

LOCATIONS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=300)


def read(content: bytes) -> tuple[External, ...]:
    return external_tensors(lambda offset, length: content[offset : offset + length], len(content), "model.onnx")


def test_everything_in_one_file():
    assert read(onnx_model()) == ()


@given(st.lists(st.tuples(LOCATIONS, st.integers(1, 2**62))))
def test_what_was_written_is_read(outside):
    wanted = [External(f"w{number}", location, length) for number, (location, length) in enumerate(outside)]
    assert list(read(onnx_model(*outside))) == wanted


@given(st.binary())
def test_nothing_else_than_an_input_error(content):
    with contextlib.suppress(InputError):
        read(content)


@given(st.data())
def test_an_altered_model_gives_tensors_or_an_input_error(data):
    content = bytearray(onnx_model(("data", 64), ("more", 8)))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(InputError):
        read(bytes(content))


@pytest.mark.parametrize("length", [0, 1, 20, 60])
def test_a_model_that_is_cut_off(length):
    with pytest.raises(MalformedFile):
        read(onnx_model(("data", 64))[:length])


def test_weights_inside_are_stepped_over():
    content, ranges = onnx_model(("data", 64), inside=8 * WINDOW), []

    def ranged(offset: int, length: int) -> bytes:
        ranges.append(length)
        return content[offset : offset + length]

    assert [tensor.location for tensor in external_tensors(ranged, len(content), "model.onnx")] == ["data"]
    assert sum(ranges) <= 2 * WINDOW


def test_a_picture_is_named():
    with pytest.raises(MalformedFile, match="a zip archive"):
        read(b"PK\x03\x04" + bytes(60))


def test_entries_that_are_no_numbers_say_nothing_of_the_end():
    content = onnx_model(("data", 64)).replace(b"\x0264", b"\x02xy")
    assert [tensor.end for tensor in read(content)] == [None]
