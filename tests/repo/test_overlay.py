"""Edits of a repository that is not written: what is read is what would be there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from repokit.errors import MalformedFile, MissingInput
from repokit.formats.safetensors import header_bytes, in_file_order, read_header
from repokit.formats.tensors import DTYPE_BITS, TensorInfo, byte_size
from repokit.repo.memory import Memory
from repokit.repo.overlay import Assembled, Overlay, RefusedEditError
from repokit.repo.rebuilt_index import rebuilt_index
from repokit.repo.source import Source

FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]


def written(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> bytes:
    """A file whose tensors lie in the order given, each filled with a byte of its own."""
    placed, position = [], 0
    for name, (dtype, shape) in tensors.items():
        size = byte_size(dtype, shape) or 0
        placed.append(TensorInfo(name, dtype, shape, position, position + size))
        position += size
    data = b"".join(bytes([65 + number]) * (t.end - t.begin) for number, t in enumerate(placed))
    return header_bytes(placed, metadata or {}) + data


def values(source: Source, path: str = FILE) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Name to dtype, shape and bytes, read from a source as a loader would."""
    size = source.entries()[path].size
    header = read_header(lambda offset, length: source.read(path, offset, length), size, path)
    return {
        tensor.name: (
            tensor.dtype,
            tensor.shape,
            source.read(path, header.data_start + tensor.begin, tensor.end - tensor.begin),
        )
        for tensor in header.tensors
    }


def metadata_of(source: Source, path: str = FILE) -> Mapping[str, str] | None:
    return read_header(
        lambda offset, length: source.read(path, offset, length), source.entries()[path].size, path
    ).metadata


THREE: Tensors = {"a": ("U8", (3,)), "b": ("F32", (2,)), "c": ("BF16", (2, 2))}


@pytest.fixture
def base() -> Memory:
    return Memory(
        {FILE: written(THREE, {"format": "pt", "by": "me"}), "config.json": b"{}\n", "x/y.txt": b"old"}, "here"
    )


@pytest.fixture
def overlay(base: Memory) -> Overlay:
    return Overlay(base)


# ---------------------------------------------------------------- files


def test_it_is_the_base_where_nothing_changed(base: Memory, overlay: Overlay) -> None:
    assert (overlay.label, overlay.entries()) == ("here", base.entries())


def test_a_written_file_is_read_back(overlay: Overlay) -> None:
    assert overlay.with_file("config.json", b"0123456789").read("config.json", 2, 3) == b"234"


def test_a_new_file_is_listed_in_its_place(overlay: Overlay) -> None:
    assert list(overlay.with_file("data.json", b"").entries()) == ["config.json", "data.json", FILE, "x/y.txt"]


def test_a_deleted_file_is_not_listed(overlay: Overlay) -> None:
    assert "config.json" not in overlay.without("config.json").entries()


def test_a_deleted_file_cannot_be_read(overlay: Overlay) -> None:
    with pytest.raises(MissingInput):
        overlay.without("config.json").read("config.json")


def test_what_is_not_there_cannot_be_deleted(overlay: Overlay) -> None:
    with pytest.raises(RefusedEditError):
        overlay.without("none.json")


def test_the_content_that_was_there_is_no_change(overlay: Overlay) -> None:
    assert overlay.with_file("config.json", b"[]\n").with_file("config.json", b"{}\n").changed == {}


def test_a_new_file_that_goes_again_is_no_change(overlay: Overlay) -> None:
    assert overlay.with_file("new", b"1").without("new").changed == {}


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a//b", "C:x"])
def test_no_new_file_leaves_the_repository(overlay: Overlay, path: str) -> None:
    with pytest.raises(RefusedEditError):
        overlay.with_file(path, b"")


def test_an_edit_leaves_the_overlay_that_it_was_asked_of(overlay: Overlay) -> None:
    overlay.with_file("config.json", b"[]")
    assert overlay.changed == {}


# ---------------------------------------------------------------- tensors


def test_a_renamed_tensor_keeps_its_bytes(overlay: Overlay) -> None:
    before, after = values(overlay), values(overlay.with_tensors(FILE, rename={"a": "z"}))
    assert after == {"z": before["a"], "b": before["b"], "c": before["c"]}


def test_names_can_change_places(overlay: Overlay) -> None:
    before, after = values(overlay), values(overlay.with_tensors(FILE, rename={"a": "b", "b": "a"}))
    assert (after["a"], after["b"]) == (before["b"], before["a"])


def test_a_dropped_tensor_is_gone(overlay: Overlay) -> None:
    before, after = values(overlay), values(overlay.with_tensors(FILE, drop={"b"}))
    assert after == {"a": before["a"], "c": before["c"]}


def test_a_file_that_loses_its_last_tensor_is_gone(overlay: Overlay) -> None:
    assert FILE not in overlay.with_tensors(FILE, drop=set(THREE)).entries()


def test_metadata_stays_where_it_is_not_named(overlay: Overlay) -> None:
    assert metadata_of(overlay.with_tensors(FILE, drop={"b"})) == {"format": "pt", "by": "me"}


def test_metadata_is_replaced_whole(overlay: Overlay) -> None:
    assert metadata_of(overlay.with_tensors(FILE, metadata={"format": "mlx"})) == {"format": "mlx"}


def test_tensors_lie_as_a_build_lays_them(overlay: Overlay) -> None:
    edited = overlay.with_tensors(FILE, rename={"a": "z"})
    header = read_header(lambda offset, length: edited.read(FILE, offset, length), edited.entries()[FILE].size, FILE)
    assert list(header.tensors) == in_file_order(header.tensors)
    assert header.data_start % 8 == 0


def test_an_edit_that_changes_nothing_leaves_the_file(overlay: Overlay) -> None:
    assert overlay.with_tensors(FILE, metadata={"by": "me", "format": "pt"}).changed == {}


@pytest.mark.parametrize("rename", [{"a": "b"}, {"a": "x", "b": "x"}, {"a": "__metadata__"}, {"none": "x"}])
def test_a_rename_that_cannot_be_is_refused(overlay: Overlay, rename: dict[str, str]) -> None:
    with pytest.raises(RefusedEditError):
        overlay.with_tensors(FILE, rename=rename)


def test_a_rename_onto_a_dropped_name_is_allowed(overlay: Overlay) -> None:
    before, after = values(overlay), values(overlay.with_tensors(FILE, rename={"a": "b"}, drop={"b"}))
    assert after["b"] == before["a"]


def test_a_name_that_no_tensor_can_have_is_refused(overlay: Overlay) -> None:
    with pytest.raises(MalformedFile):
        overlay.with_tensors(FILE, rename={"a": "\x1b[2J"})


def test_a_second_edit_is_told_in_places_of_the_base(overlay: Overlay) -> None:
    edited = overlay.with_tensors(FILE, rename={"a": "z"}).with_tensors(FILE, drop={"b"}).changed[FILE]
    assert isinstance(edited, Assembled)
    assert {part.path for part in edited.ranges} == {FILE}
    assert sum(part.length for part in edited.ranges) == 3 + 8


def test_a_file_of_bytes_is_edited_too(overlay: Overlay) -> None:
    edited = overlay.with_file("new.safetensors", written(THREE)).with_tensors("new.safetensors", drop={"a"})
    assert list(values(edited, "new.safetensors")) == ["b", "c"]


DTYPES = st.sampled_from([dtype for dtype in DTYPE_BITS if DTYPE_BITS[dtype] >= 8])
NAMES = st.text("abcd.", min_size=1, max_size=4)
FILES = st.dictionaries(
    NAMES, st.tuples(DTYPES, st.lists(st.integers(0, 3), max_size=2).map(tuple)), min_size=1, max_size=6
)


@given(FILES, st.data())
def test_any_chain_of_edits_keeps_every_byte(tensors: Tensors, data: st.DataObject) -> None:
    overlay = Overlay(Memory({FILE: written(tensors)}))
    expected = values(overlay)
    for number in range(data.draw(st.integers(1, 3))):
        names = sorted(expected)
        drop = data.draw(st.sets(st.sampled_from(names), max_size=len(names) - 1))
        kept = [name for name in names if name not in drop]
        rename = {name: f"{name}_{number}" for name in data.draw(st.sets(st.sampled_from(kept)))}
        overlay = overlay.with_tensors(FILE, rename=rename, drop=drop)
        expected = {rename.get(name, name): expected[name] for name in kept}
    assert values(overlay) == expected


@given(FILES, st.data())
def test_any_range_is_a_piece_of_the_whole(tensors: Tensors, data: st.DataObject) -> None:
    edited = Overlay(Memory({FILE: written(tensors)})).with_tensors(
        FILE, rename={name: f"{name}_x" for name in tensors}
    )
    whole = edited.read(FILE)
    assert len(whole) == edited.entries()[FILE].size
    offset = data.draw(st.integers(0, len(whole) + 2))
    length = data.draw(st.integers(0, len(whole) + 2))
    assert edited.read(FILE, offset, length) == whole[offset : offset + length]


# ---------------------------------------------------------------- an index


ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
FIRST: Tensors = {"a": ("BF16", (2, 2)), "b": ("BF16", (4,))}
SECOND: Tensors = {"c": ("BF16", (3, 3))}
WHOLE = {ONE: written(FIRST), TWO: written(SECOND)}
MAP = {"a": ONE, "b": ONE, "c": TWO}


def index(source: Mapping[str, bytes], path: str = INDEX, shards: tuple[str, ...] = ()) -> dict:
    return json.loads(rebuilt_index(Memory(source), path, shards))


def indexed(metadata: object, weight_map: object = MAP, **other: object) -> dict[str, bytes]:
    return {**WHOLE, INDEX: json.dumps({"metadata": metadata, "weight_map": weight_map, **other}).encode()}


def test_an_index_says_what_the_headers_say() -> None:
    assert index(indexed({}, {"gone": ONE, "c": TWO})) == {"metadata": {"total_size": 34}, "weight_map": MAP}


def test_an_index_is_written_as_transformers_writes_it() -> None:
    content = rebuilt_index(Memory(indexed({"z": 1, "total_size": 0})), INDEX)
    assert content.decode() == json.dumps(json.loads(content), indent=2, sort_keys=True) + "\n"


def test_metadata_that_was_there_stays() -> None:
    assert index(indexed({"note": "x", "total_size": 1}, extra=2)) == {
        "extra": 2,
        "metadata": {"note": "x", "total_size": 34},
        "weight_map": MAP,
    }


@pytest.mark.parametrize(("said", "counted"), [(17, 17), (13, 13), (12, 17), (99, 17), ("17", 17)])
def test_a_number_of_parameters_is_counted_anew_where_it_cannot_be(said: object, counted: int) -> None:
    assert index(indexed({"total_parameters": said}))["metadata"]["total_parameters"] == counted


def test_no_number_of_parameters_is_added() -> None:
    assert "total_parameters" not in index(indexed({}))["metadata"]


def test_an_index_that_is_not_there_is_made_of_the_shards() -> None:
    assert index(WHOLE, shards=(TWO, ONE))["weight_map"] == MAP


def test_a_shard_that_is_not_there_is_left_out() -> None:
    assert index({INDEX: indexed({})[INDEX], ONE: WHOLE[ONE]})["weight_map"] == {"a": ONE, "b": ONE}


def test_an_index_of_nothing_is_refused() -> None:
    with pytest.raises(MissingInput):
        index({INDEX: indexed({})[INDEX]})


def test_a_tensor_in_two_shards_stays_where_the_index_has_it() -> None:
    files = {**indexed({}, {"a": TWO}), TWO: written({**SECOND, "a": ("BF16", (2, 2))})}
    assert index(files, shards=(ONE, TWO))["weight_map"]["a"] == TWO


def test_shards_of_a_folder_are_named_as_seen_from_it() -> None:
    files = {f"unet/{path}": content for path, content in WHOLE.items()}
    assert index(files, f"unet/{INDEX}", tuple(files))["weight_map"] == MAP


def test_a_shard_outside_of_the_folder_is_never_opened() -> None:
    files = indexed({}, {**MAP, "x": "../secret.safetensors"})
    assert index(files)["weight_map"] == MAP


def test_ranges_side_by_side_are_read_in_one_go(overlay: Overlay) -> None:
    edited = overlay.with_file("w", written({"a": ("F32", (2,)), "b": ("F32", (2,))}))
    again = Overlay(Memory({"w": edited.read("w")})).with_tensors("w", rename={"a": "aa"}).changed["w"]
    assert isinstance(again, Assembled)
    assert len(again.ranges) == 1
    assert all(one.offset + one.length != other.offset for one, other in pairwise(again.ranges))
