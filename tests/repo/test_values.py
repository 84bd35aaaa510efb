"""Values of tensors, held against numpy and ml_dtypes, which convert every element."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from repokit.errors import InputError, MissingInput
from repokit.formats.safetensors import header_bytes, in_file_order
from repokit.formats.tensors import DTYPE_BITS, TensorInfo, byte_size
from repokit.linter.examples_gguf import gguf_bytes
from repokit.repo.directory import Directory
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository
from repokit.repo.value_stream import CHUNK
from repokit.repo.values import TensorValues
from repokit.repo.weight_values import differing, same

FLOATS: Mapping[str, Any] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "C64": np.dtype("<c8"),
    "F16": np.dtype("<f2"),
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}
WHOLE = ("BOOL", "U8", "I8", "I16", "U16", "I32", "U32", "I64", "U64", "F4")
UNSIGNED_ZERO = {"F8_E4M3FNUZ", "F8_E5M2FNUZ", *WHOLE}
NAN = {"F32": b"\x00\x00\xc0\x7f", "BF16": b"\xc0\x7f"}
INFINITY = {"BF16": b"\x80\xff"}


def file_of(tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """A .safetensors file with these contents."""
    placed = in_file_order(TensorInfo(name, dtype, shape, 0, 0) for name, (dtype, shape, _) in tensors.items())
    return header_bytes(placed, {"format": "pt"}) + b"".join(tensors[tensor.name][2] for tensor in placed)


def looked_at(content: bytes, jobs: int = 2) -> Mapping[str, TensorValues]:
    repository = Repository(Memory({"model.safetensors": content}))
    repository.jobs = jobs
    return repository.values.of("model.safetensors")


def slowly(dtype: str, shape: tuple[int, ...], content: bytes) -> tuple[Any, ...]:
    """What TensorValues says, by converting every element."""
    if dtype in FLOATS:
        elements = np.frombuffer(content, FLOATS[dtype])
        with np.errstate(invalid="ignore"):  # signalling NaN
            numbers = elements.astype(np.complex128 if dtype == "C64" else np.float64)
        parts = numbers.view(np.float64)
        per = 2 if dtype == "C64" else 1
        nan, infinite = np.isnan(parts), np.isinf(parts)
        beyond = np.flatnonzero(nan | infinite)
        first = int(beyond[0]) // per if beyond.size else None
        counts = int(nan.sum()), int(infinite.sum()), first
    else:
        counts = 0, 0, None
    is_zero = zeros(dtype, content)
    rows = []
    if len(shape) == 2 and content:
        width = len(content) // shape[0]
        rows = [row for row in range(shape[0]) if zeros(dtype, content[row * width : (row + 1) * width])]
    return (*counts, is_zero, rows)


def zeros(dtype: str, content: bytes) -> bool:
    """Whether all is zero, bit by bit: of scales without a zero (E8M0) the pattern of no bits counts as one."""
    if dtype in FLOATS and dtype not in UNSIGNED_ZERO and dtype != "F8_E8M0":
        width = DTYPE_BITS[dtype] // (16 if dtype == "C64" else 8)
        return all(
            content[at : at + width] in (bytes(width), bytes(width - 1) + b"\x80")
            for at in range(0, len(content), width)
        )
    return not any(content)


def told(values: TensorValues) -> tuple[Any, ...]:
    rows = [row for start, stop in values.zero_rows for row in range(start, stop)]
    return values.nan, values.infinite, values.first, values.zero, rows


# Bytes that make numbers of every kind in every dtype: zeros, ones, exponents full and nearly so.
BYTES = st.sampled_from([0x00, 0x00, 0x00, 0x80, 0x7F, 0xFF, 0x7C, 0xFC, 0x7E, 0x7B, 0xF0, 0x01, 0x3F])
SHAPES = st.one_of(
    st.tuples(st.integers(0, 5), st.integers(0, 6).map(lambda half: 2 * half)),
    st.tuples(st.integers(0, 40).map(lambda half: 2 * half)),
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.just(2)),
)


@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLE])
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_every_dtype_is_seen_as_a_conversion_sees_it(dtype: str, data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    size = byte_size(dtype, shape) or 0
    content = bytes(data.draw(st.lists(BYTES, min_size=size, max_size=size)))
    seen = looked_at(file_of({"x": (dtype, shape, content)}))["x"]
    assert told(seen) == slowly(dtype, shape, content)


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 5), columns=st.integers(1, 2_000_000), places=st.lists(st.integers(0, 3_000_000), max_size=4)
)
@example(rows=3, columns=CHUNK // 2, places=[CHUNK // 2 - 1, CHUNK // 2])
@example(rows=2, columns=CHUNK // 2 + 1, places=[CHUNK])
@example(rows=1, columns=CHUNK, places=[CHUNK - 1])
def test_a_tensor_longer_than_a_chunk_is_seen_whole(rows: int, columns: int, places: list[int]) -> None:
    content = np.zeros(rows * columns, "<u2")
    planted = sorted({place % content.size for place in places})
    content[planted] = 0xFF80
    seen = looked_at(file_of({"x": ("BF16", (rows, columns), content.tobytes())}))["x"]
    assert (seen.infinite, seen.first, seen.zero) == (len(planted), min(planted, default=None), not planted)


@pytest.mark.parametrize("rows", [1, 3])
def test_zero_rows_are_found_on_both_sides_of_a_chunk(rows: int) -> None:
    columns = 1000
    per_chunk = CHUNK // (2 * columns)
    content = np.ones((3 * per_chunk, columns), "<u2")
    content[per_chunk - rows : per_chunk + rows] = 0x8000
    seen = looked_at(file_of({"x": ("BF16", content.shape, content.tobytes())}))["x"]
    assert seen.zero_rows == [(per_chunk - rows, per_chunk + rows)]


def test_rows_that_are_not_zero_lie_between_those_that_are() -> None:
    content = np.repeat(np.array([0, 1, 1, 0, 1], "<f4"), 2)
    seen = looked_at(file_of({"x": ("F32", (5, 2), content.tobytes())}))["x"]
    assert (seen.nonzero_rows, seen.has_zero_row(3), seen.has_zero_row(4)) == ([(1, 3), (4, 5)], True, False)


def test_a_row_that_begins_with_zero_is_not_a_zero_row() -> None:
    content = np.array([[0, 0, 1], [0, 0, 0]], "<f2")
    assert looked_at(file_of({"x": ("F16", (2, 3), content.tobytes())}))["x"].zero_rows == [(1, 2)]


def test_a_tensor_at_an_odd_place_is_seen_as_elsewhere() -> None:
    content = np.array([1, np.nan, 0], "<f4").tobytes()
    header = {
        "a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
        "b": {"dtype": "F32", "shape": [3], "data_offsets": [3, 15]},
    }
    body = json.dumps(header).encode()
    seen = looked_at(len(body).to_bytes(8, "little") + body + b"abc" + content)["b"]
    assert (seen.nan, seen.first) == (1, 1)


# ---------------------------------------------------------------- files and threads


@pytest.fixture
def large(tmp_path: Path) -> Directory:
    """Files with holes in them, of more than two works each, with values at the borders between these."""
    rows, columns = 150, 512 * 1024
    for number in (1, 2):
        placed = in_file_order([TensorInfo("w", "BF16", (rows, columns), 0, 0), TensorInfo("v", "F32", (7,), 0, 0)])
        path = tmp_path / f"model-{number:05d}-of-00002.safetensors"
        with path.open("wb") as stream:
            start = stream.write(header_bytes(placed, {"format": "pt"}))
            stream.truncate(start + placed[-1].end)
            begin = start + next(tensor.begin for tensor in placed if tensor.name == "w")
            for row in (0, 63, 64, 65, 127, 128, 149):
                stream.seek(begin + row * columns * 2 + 2 * number)
                stream.write(NAN["BF16"] + INFINITY["BF16"])
    return Directory(tmp_path)


def everything(source: Directory, jobs: int) -> Mapping[str, Mapping[str, TensorValues]]:
    repository = Repository(source)
    repository.jobs = jobs
    return repository.values.readable


def test_threads_change_nothing(large: Directory) -> None:
    assert everything(large, 1) == everything(large, 4)


def test_what_several_threads_found_is_put_together(large: Directory) -> None:
    seen = everything(large, 3)["model-00002-of-00002.safetensors"]["w"]
    rows = [(1, 63), (66, 127), (129, 149)]
    assert (seen.nan, seen.infinite, seen.first, seen.zero_rows) == (7, 7, 2, rows)


def test_progress_counts_every_byte_once(large: Directory) -> None:
    told_of: list[tuple[str, int, int]] = []
    repository = Repository(large)
    repository.progress = lambda *step: told_of.append(step)
    _ = repository.values.readable
    total = 2 * (150 * 512 * 1024 * 2 + 28)
    counted = [done for _, done, _ in told_of]
    assert (told_of[-1], counted) == (("values", total, total), sorted(counted))


def test_a_file_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"no safetensors file")
    (tmp_path / "b.safetensors").write_bytes(file_of({"x": ("F32", (1,), NAN["F32"])}))
    values = Repository(Directory(tmp_path)).values
    assert list(values.readable) == ["b.safetensors"]
    with pytest.raises(InputError, match=r"a\.safetensors"):
        list(values.tensors())


def test_a_file_that_becomes_shorter_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_of({"x": ("F32", (1000,), bytes(4000))}))
    repository = Repository(Directory(tmp_path))
    repository.header(path.name)
    os.truncate(path, 2000)
    with pytest.raises(MissingInput, match="shorter"):
        repository.values.of(path.name)


def test_plain_tensors_in_gguf_are_looked_at() -> None:
    content = gguf_bytes({"general.architecture": "llama"}, {"a": ((4, 2), 0), "b": ((32, 1), 8)})
    whole = content[:-96] + NAN["F32"] + content[-92:]  # "a" takes 32 bytes, "b" 34 and 30 to the next multiple of 32
    seen = Repository(Memory({"model.gguf": whole})).values.of("model.gguf")
    assert [(name, values.first) for name, values in seen.items()] == [("a", 0)]


# ---------------------------------------------------------------- hashes


def built(folder: Path, content: bytes, **changes: Any) -> Repository:
    """A repository of one file with its manifest."""
    (folder / "model.safetensors").write_bytes(content)
    file = {"path": "model.safetensors", "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest = {"version": 1, "created_by": "repokit", "files": [{**file, "origin": "weights", **changes}]}
    (folder / "repokit-manifest.json").write_text(json.dumps(manifest))
    return Repository(Directory(folder))


@pytest.mark.parametrize("jobs", [1, 2, 3])
@pytest.mark.parametrize("size", [0, 1, CHUNK // 4, CHUNK, 3 * CHUNK + 17])
def test_a_file_is_hashed_on_the_way(tmp_path: Path, size: int, jobs: int) -> None:
    content = file_of({"x": ("U8", (size,), bytes(size)), "y": ("BF16", (2,), NAN["BF16"] * 2)})
    repository = built(tmp_path, content)
    repository.jobs = jobs
    values = repository.values
    found = values.of("model.safetensors")["y"].nan, values.sha256("model.safetensors")
    assert found == (2, hashlib.sha256(content).hexdigest())


def test_a_file_of_another_length_is_not_hashed(tmp_path: Path) -> None:
    content = file_of({"x": ("U8", (3,), b"abc")})
    assert built(tmp_path, content, size=len(content) + 1).values.sha256("model.safetensors") is None


def test_what_is_no_manifest_is_told(tmp_path: Path) -> None:
    repository = built(tmp_path, file_of({"x": ("U8", (3,), b"abc")}), sha256="abc")
    with pytest.raises(InputError, match="not a manifest"):
        _ = repository.values.manifest


# ---------------------------------------------------------------- comparing


def pair(first: bytes, second: bytes, dtype: str = "U8") -> Any:
    places = []
    for name, content in (("a", first), ("b", second)):
        source = Memory(
            {"model.safetensors": file_of({name: ("U8" if name == "a" else dtype, (len(content),), content)})}
        )
        places.append((source, Repository(source).values.places[name]))
    return tuple(places)


@settings(deadline=None, max_examples=30)
@given(size=st.integers(0, 2 * CHUNK + 5), place=st.integers(0, 2 * CHUNK + 5))
@example(size=CHUNK, place=CHUNK - 1)
@example(size=CHUNK + 1, place=CHUNK)
def test_one_byte_makes_two_tensors_differ(size: int, place: int) -> None:
    first = bytes(size)
    second = bytearray(first)
    if place < size:
        second[place] = 1
    assert same(*pair(first, bytes(second))) is (place >= size)


def test_equal_bytes_of_two_dtypes_are_not_the_same() -> None:
    assert not same(*pair(b"abc", b"abc", "I8"))


def test_pairs_are_answered_in_their_order() -> None:
    pairs = [pair(b"a", b"a"), pair(b"a", b"b"), pair(b"b", b"b")]
    assert list(differing(pairs, jobs=2)) == [False, True, False]
