"""Indexes: what they name, what may be opened, and how they compare with the shards."""

from __future__ import annotations

import posixpath
import unicodedata

import pytest
from hypothesis import given, strategies as st

from repokit.repo.document import Document
from repokit.repo.weight_index import Index, is_shard_path, placement


def index(weight_map: dict[str, str], path: str = "model.safetensors.index.json") -> Index:
    return Index(Document(path, {"weight_map": weight_map}), weight_map)


def test_shards_lie_beside_the_index() -> None:
    built = index({"a": "x.safetensors", "b": "w.safetensors"}, "unet/model.safetensors.index.json")
    assert built.shards == ("unet/w.safetensors", "unet/x.safetensors")


def test_shards_that_lead_away_are_refused_and_not_listed() -> None:
    built = index({"a": "../x.safetensors", "b": "w.safetensors"})
    assert (built.shards, built.refused) == (("w.safetensors",), ("../x.safetensors",))


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "..",
        "./a.safetensors",
        "../a.safetensors",
        "x/../a.safetensors",
        "/etc/passwd",
        "~/a.safetensors",
        "x//a.safetensors",
        "x/",
        "C:\\a.safetensors",
        "..\\a.safetensors",
        "\\\\host\\share\\a.safetensors",
        "https://example.org/a.safetensors",
        "file:///a.safetensors",
        "a\0.safetensors",
        "a\n.safetensors",
        "a\u202e.safetensors",
        "\uff0e\uff0e\uff0fa.safetensors",
        "a" * 300 + ".safetensors",
        "a/" * 3000 + "a.safetensors",
    ],
)
def test_paths_that_are_not_opened(path: str) -> None:
    assert not is_shard_path(path)


@pytest.mark.parametrize("path", ["a.safetensors", "sub/a.safetensors", "a..b.safetensors", "modèle.safetensors"])
def test_plain_paths(path: str) -> None:
    assert is_shard_path(path)


@pytest.mark.parametrize("path", ["model.bin", "model.safetensors.index.json", "safetensors"])
def test_a_shard_is_a_safetensors_file(path: str) -> None:
    assert not is_shard_path(path)


@given(
    st.text(max_size=30)
    | st.lists(st.sampled_from(["..", ".", "", "a", "~", "C:", "\\", "\uff0e\uff0e"]), max_size=5).map("/".join)
)
def test_a_shard_path_never_leaves_its_folder(stem: str) -> None:
    path = f"{stem}/model.safetensors"
    if is_shard_path(path):
        folded = unicodedata.normalize("NFKC", path)
        joined = posixpath.normpath(posixpath.join("/folder", folded))
        assert joined == f"/folder/{folded}"


NAMES = st.sampled_from("abcdef")
SHARDS = st.sampled_from(["1.safetensors", "2.safetensors", "3.safetensors"])


@given(
    st.dictionaries(NAMES, SHARDS, min_size=1),
    st.dictionaries(SHARDS, st.frozensets(NAMES)),
)
def test_a_placement_says_of_every_name_where_it_is(
    weight_map: dict[str, str], contents: dict[str, frozenset[str]]
) -> None:
    built = index(weight_map)
    held = {shard: names for shard, names in contents.items() if shard in built.shards}
    placed = placement(built, held)
    for shard, names in held.items():
        wanted = {name for name, where in weight_map.items() if where == shard}
        elsewhere = frozenset().union(*(other for path, other in held.items() if path != shard))
        assert set(placed.absent.get(shard, ())) == wanted - names
        assert set(placed.unlisted.get(shard, ())) == names - weight_map.keys()
        assert set(placed.repeated.get(shard, ())) == (names & elsewhere) - wanted
