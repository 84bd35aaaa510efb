"""A repository in memory reads as one in a folder does."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from repokit.errors import MissingInput
from repokit.repo.directory import Directory
from repokit.repo.memory import Memory
from repokit.repo.source import Entry, Kind


def test_entries_are_sorted() -> None:
    assert list(Memory({"b": b"1", "a": b""}).entries().items()) == [("a", Entry(0)), ("b", Entry(1))]


def test_special_entries_are_listed_and_not_read() -> None:
    source = Memory({"a": b"1"}, special={"link": Entry(0, Kind.BROKEN_LINK)})
    assert source.entries()["link"].kind is Kind.BROKEN_LINK
    with pytest.raises(MissingInput):
        source.read("link")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=st.binary(max_size=40), offset=st.integers(0, 50), length=st.none() | st.integers(0, 50))
def test_ranges_are_those_of_a_folder(tmp_path: Path, content: bytes, offset: int, length: int | None) -> None:
    (tmp_path / "a").write_bytes(content)
    assert Memory({"a": content}).read("a", offset, length) == Directory(tmp_path).read("a", offset, length)
