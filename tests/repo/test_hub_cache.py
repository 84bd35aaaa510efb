"""The cache of what was read of the Hub: it may lose anything, and never gives back anything else."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from repokit.repo.hub_cache import Cache, default_folder


def entries(folder):
    return sorted(path for path in folder.glob("hub/??/*") if path.is_file())


def test_what_was_kept_is_given_back(tmp_path):
    Cache(tmp_path).put("a", "b", content=b"content")
    assert Cache(tmp_path).get("a", "b") == b"content"


@pytest.mark.parametrize("key", [("a",), ("ab",), ("a", "b", ""), ("b", "a")])
def test_another_key_has_nothing(tmp_path, key):
    Cache(tmp_path).put("a", "b", content=b"content")
    assert Cache(tmp_path).get(*key) is None


@pytest.mark.parametrize("change", [lambda stored: stored[:-1], lambda _: b"", lambda stored: stored[:-1] + b"X"])
def test_what_was_damaged_is_not_there(tmp_path, change):
    Cache(tmp_path).put("a", content=b"content")
    (path,) = entries(tmp_path)
    path.write_bytes(change(path.read_bytes()))
    assert Cache(tmp_path).get("a") is None


def test_nobody_else_can_read_it(tmp_path):
    before = os.umask(0)
    try:
        Cache(tmp_path / "cache").put("a", content=b"of a private repository")
    finally:
        os.umask(before)
    (path,) = entries(tmp_path / "cache")
    modes = [stat.S_IMODE(place.stat().st_mode) for place in (tmp_path / "cache" / "hub", path.parent, path)]
    assert modes == [0o700, 0o700, 0o600]


def test_a_place_that_is_no_folder_keeps_nothing(tmp_path):
    (tmp_path / "file").touch()
    cache = Cache(tmp_path / "file")
    cache.put("a", content=b"content")
    assert cache.get("a") is None


def test_a_cache_that_may_only_be_read_is_read(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(30, "Read-only file system")

    Cache(tmp_path).put("a", content=b"content")
    monkeypatch.setattr(os, "utime", refused)
    monkeypatch.setattr(os, "open", refused)
    cache = Cache(tmp_path)
    cache.put("b", content=b"more")
    assert (cache.get("a"), cache.get("b")) == (b"content", None)


def test_a_disk_that_is_full_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    cache = Cache(tmp_path)
    monkeypatch.setattr(Path, "replace", full)
    cache.put("a", content=b"content")
    assert (cache.get("a"), entries(tmp_path)) == (None, [])


def test_without_a_folder_nothing_is_kept():
    cache = Cache(None)
    cache.put("a", content=b"content")
    assert cache.get("a") is None


def test_what_was_used_last_is_kept_longest(tmp_path):
    cache = Cache(tmp_path)
    for number in range(10):
        cache.put(str(number), content=bytes(1000))
    for age, path in enumerate(entries(tmp_path)):
        os.utime(path, (age, age))
    cache.get("3")
    cache.prune(most=5000, kept=3200)
    left = [number for number in range(10) if cache.get(str(number)) is not None]
    assert (3 in left, len(left)) == (True, 3)


def test_a_cache_that_is_small_enough_is_left_alone(tmp_path):
    cache = Cache(tmp_path)
    cache.put("a", content=bytes(1000))
    cache.prune(most=2000, kept=10)
    assert cache.get("a") is not None


def test_where_it_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("REPOKIT_CACHE_DIR", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_folder() == tmp_path / "mine"
    monkeypatch.delenv("REPOKIT_CACHE_DIR")
    assert default_folder() == tmp_path / "xdg" / "repokit"


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has a folder of its own")
def test_without_a_word_it_lies_where_caches_lie(monkeypatch, tmp_path):
    for name in ("REPOKIT_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "repokit"
