"""Tensors that lie in parts: flat runs, rows, and boxes that interleave, as a plan holds them and as a build writes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from repokit.builder.checkpoints.stored import InFiles, Part, TensorAt
from repokit.builder.plan import Plan, Sources
from repokit.builder.reading import CHUNK, Reader
from repokit.operations import Box, Filled, Interleaved, Piece, View, WriteShard

SIDES = 4096  # of a matrix that takes several chunks to read


class Folder(InFiles):
    """A folder whose tensors a test places."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, SimpleNamespace())  # no test asks what else lies there


def joined(folder: InFiles, tensor: TensorAt) -> bytes:
    return b"".join(bytes(chunk) for chunk in folder.contents(tensor))


@st.composite
def cut(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], list[tuple[tuple[int, ...], tuple[int, ...]]]]:
    """A tensor, and the boxes of a grid over it: offsets and shapes."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    edges = []
    for length in shape:
        inner = draw(st.sets(st.integers(1, length - 1), max_size=2)) if length > 1 else set()
        edges.append([0, *sorted(inner), length])
    boxes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), ())]
    for bounds in edges:
        spans = list(pairwise(bounds))
        boxes = [((*at, low), (*size, high - low)) for at, size in boxes for low, high in spans]
    return np.arange(np.prod(shape), dtype="<u4").reshape(shape), draw(st.permutations(boxes))


@settings(deadline=None)
@given(cut())
def test_boxes_of_any_grid_become_the_tensor(tmp_path_factory, drawn):
    whole, boxes = drawn
    root = tmp_path_factory.mktemp("parts")
    parts = []
    for number, (at, size) in enumerate(boxes):
        box = whole[tuple(slice(first, first + length) for first, length in zip(at, size, strict=True))]
        (root / str(number)).write_bytes(b"head" + box.tobytes())
        parts.append(Part(str(number), 4, size, place=at))
    tensor = TensorAt("0", "U32", whole.shape, 0, parts=tuple(parts))
    assert joined(Folder(root), tensor) == whole.tobytes()


def test_runs_of_elements_follow_one_another(tmp_path):
    (tmp_path / "a").write_bytes(bytes(range(12)))
    runs = (Part("a", 8, (4,)), Part("a", 0, (2,)))
    assert joined(Folder(tmp_path), TensorAt("a", "U8", (2, 3), 0, parts=runs)) == bytes([8, 9, 10, 11, 0, 1])


def test_rows_need_nothing_in_memory(tmp_path):
    (tmp_path / "a").write_bytes(bytes(8))
    rows = (Part("a", 4, (2, 2), place=(2, 0)), Part("a", 0, (2, 2), place=(0, 0)))
    pieces = Folder(tmp_path).pieces(TensorAt("a", "U8", (4, 2), 0, parts=rows), Sources())
    assert [(piece.offset, piece.memory) for piece in pieces if isinstance(piece, Piece)] == [(0, 0), (4, 0)]


def test_columns_stand_in_memory_whole(tmp_path):
    (tmp_path / "a").write_bytes(bytes(16))
    columns = (Part("a", 0, (4, 2), place=(0, 0)), Part("a", 8, (4, 2), place=(0, 2)))
    (piece,) = Folder(tmp_path).pieces(TensorAt("a", "U8", (4, 4), 0, parts=columns), Sources())
    assert (type(piece), piece.memory) == (Interleaved, 16 + 8)


def test_parts_larger_than_a_chunk_are_put_together(tmp_path):
    whole = np.random.default_rng(0).integers(0, 2**16, (SIDES, SIDES // 4), dtype="<u2")
    (tmp_path / "left").write_bytes(whole[:, :100].tobytes())
    (tmp_path / "right").write_bytes(whole[:, 100:].tobytes())
    assert whole.nbytes > 2 * CHUNK
    parts = (
        Part("left", 0, (SIDES, 100), place=(0, 0)),
        Part("right", 0, (SIDES, SIDES // 4 - 100), place=(0, 100)),
    )
    assert joined(Folder(tmp_path), TensorAt("left", "U16", whole.shape, 0, parts=parts)) == whole.tobytes()


def test_a_part_that_is_transposed_is_brought_side_by_side(tmp_path):
    whole = np.arange(12, dtype="u1").reshape(3, 4)
    (tmp_path / "a").write_bytes(whole[:, 2:].T.tobytes())
    (tmp_path / "b").write_bytes(whole[:, :2].tobytes())
    parts = (Part("b", 0, (3, 2), place=(0, 0)), Part("a", 0, (3, 2), strides=(1, 3), place=(0, 2)))
    assert joined(Folder(tmp_path), TensorAt("b", "U8", (3, 4), 0, parts=parts)) == whole.tobytes()


@pytest.mark.parametrize("size", [0, 1, CHUNK, 2 * CHUNK + 1])
def test_zeros_are_as_many_as_asked_for(size):
    assert b"".join(map(bytes, Reader([]).contents(Filled(size=size)))) == bytes(size)


# ---------------------------------------------------------------- a plan that was read from a file


def box(**changed: object) -> Box:
    piece = Piece(source=0, offset=0, length=4)
    return Box.model_validate({"offsets": (0, 0), "shape": (2, 2), "piece": piece, **changed})


def viewed(shape: tuple[int, ...], strides: tuple[int, ...]) -> Piece:
    view = View(shape=shape, strides=strides, itemsize=1)
    return Piece(source=0, offset=0, length=view.span, view=view)


def planned(*boxes: Box, shape: tuple[int, ...] = (2, 2), size: int = 4) -> Plan:
    content = Interleaved(shape=shape, itemsize=1, boxes=boxes)
    shard = WriteShard(path="model.safetensors", header=b"", pieces=(content,), size=size)
    return Plan.model_validate(
        {
            "repokit": "0",
            "output": "out",
            "manifest": "off",
            "sources": [{"path": "a", "size": 4, "mtime_ns": 0}],
            "operations": [shard],
            "left_out": [],
            "summary": {"tensors": 1, "parameters": 4, "weight_bytes": 4, "source_bytes": 4, "shards": 1},
        }
    )


def test_a_plan_that_fits_together_is_taken():
    assert planned(box()).size == 4


def test_a_plan_comes_back_from_json_as_it_was():
    plan = planned(box())
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


@pytest.mark.parametrize(
    "wrong",
    [
        box(offsets=(1, 0)),
        box(offsets=(-1, 0)),
        box(offsets=(0,)),
        box(shape=(4, 1)),
        box(shape=(2, 1)),
        box(piece=Piece(source=0, offset=0, length=3)),
        box(piece=Piece(source=1, offset=0, length=4)),
        box(piece=Piece(source=0, offset=0, length=2, cast="F16>F32")),
        box(piece=Piece(source=0, offset=1, length=4)),
        box(piece=viewed((2, 2), (0, 0))),
        box(piece=viewed((1,) * 63 + (2, 2), (1,) * 63 + (2, 1))),
        box(piece=viewed((1, 4), (2**63, 1))),
    ],
)
def test_a_box_that_does_not_fit_is_refused(wrong):
    with pytest.raises(ValidationError, match="has a piece that cannot be read"):
        planned(wrong)


def test_boxes_that_leave_a_hole_are_refused():
    with pytest.raises(ValidationError, match="has a piece that cannot be read"):
        planned(box(), shape=(2, 3), size=6)


@pytest.mark.parametrize("shape", [(2**61, 0), (1,) * 64 + (0,), (0,)])
def test_a_tensor_that_no_array_holds_is_refused(shape):
    with pytest.raises(ValidationError, match="has a piece that cannot be read"):
        planned(shape=shape, size=0)


def test_a_tensor_is_cast_from_the_dtype_of_its_elements():
    document = planned(box()).model_dump()
    document["operations"][0]["pieces"][0]["cast"] = "F32>BF16"
    with pytest.raises(ValidationError, match="has a piece that cannot be read"):
        Plan.model_validate(document)
