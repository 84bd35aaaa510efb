"""Archives by their directories: bounded reading, hostile bytes."""

from __future__ import annotations

import ast
import io
import zipfile

import pytest
from hypothesis import given, strategies as st

from repokit.errors import UnsupportedSource
from repokit.repo.archives import DEEPEST, ArchiveFile, archives, array_header
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository
from repokit.repo.source import Entry


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def opened(content: bytes, name: str = "x.zip") -> ArchiveFile:
    return archives(Repository(Memory({name: content})))[name]


def nested(depth: int) -> bytes:
    content = b"x"
    for _ in range(depth):
        content = zipped({"inner": content})
    return content


def test_members_are_those_of_the_directory() -> None:
    file = opened(zipped({"a.txt": b"one", "b/c.txt": b"two"}))
    assert [member.filename for member in file.members] == ["a.txt", "b/c.txt"]


def test_a_small_member_is_read_whole() -> None:
    file = opened(zipped({"a.txt": b"one"}))
    assert file.contents(file.members[0]) == b"one"


def test_a_member_that_inflates_to_more_is_not_read_whole() -> None:
    file = opened(zipped({"a.txt": bytes(3_000_000)}))
    assert file.contents(file.members[0]) is None


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_inflates_without_a_limit_is_not_inflated(method: int) -> None:
    file = opened(zipped({"a.txt": b"one"}, method))
    assert file.beginning(file.members[0]) == b""


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_the_depth_of_archives_in_archives_is_counted(depth: int) -> None:
    assert opened(nested(depth)).depth() == depth


def test_what_lies_deeper_is_not_counted() -> None:
    assert opened(nested(9)).depth() == DEEPEST + 1


def test_a_name_without_an_archive_in_it_is_left_alone() -> None:
    assert archives(Repository(Memory({"x.zip": b"text"}))) == {}


def test_an_archive_without_its_directory_is_not_called_clean() -> None:
    with pytest.raises(UnsupportedSource, match="is no whole zip archive"):
        opened(zipped({"a.txt": b"one"})[:-10])


class Vast:
    """A zip archive whose directory is said to have gigabytes."""

    label = "vast"
    size = 8 * 1024**3
    end = b"PK\x05\x06" + bytes(4) + b"\x01\0\x01\0" + (2**32 - 100).to_bytes(4, "little") + bytes(6)

    def entries(self) -> dict[str, Entry]:
        return {"x.zip": Entry(self.size)}

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        assert length is not None
        assert length <= 2 * 1024 * 1024, f"{path} is read whole"
        left = max(0, self.size - len(self.end) - offset)
        return (b"PK\x03\x04" + bytes(length))[:length] if left >= length else bytes(left) + self.end


def test_a_directory_of_gigabytes_is_not_read() -> None:
    with pytest.raises(UnsupportedSource):
        archives(Repository(Vast()))


@given(st.binary(max_size=300))
def test_any_bytes_are_an_archive_or_are_said_to_be_none(content: bytes) -> None:
    try:
        found = archives(Repository(Memory({"x.zip": b"PK" + content})))
    except UnsupportedSource:
        return
    assert list(found) == ["x.zip"]


@given(st.data())
def test_a_changed_byte_is_an_answer_too(data: st.DataObject) -> None:
    content = bytearray(zipped({"a.npy": b"\x93NUMPY\x01\x00" + bytes(80), "b.zip": zipped({"c": b"d"})}))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        file = opened(bytes(content))
    except (UnsupportedSource, KeyError):  # refused, or no longer begun like an archive
        return
    assert (1 <= file.depth() <= DEEPEST, len(list(file.arrays)) <= 2) == (True, True)


# ---------------------------------------------------------------- headers of arrays


def npy(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


@pytest.mark.parametrize(
    ("kind", "shape", "size"),
    [("<f4", (2, 3), 24), ("|u1", (), 1), ("|b1", (7,), 7), ("|S5", (2,), 10), ("<U5", (2,), None), ("|O", (1,), None)],
)
def test_the_size_of_an_array_is_worked_out(kind: str, shape: tuple[int, ...], size: int | None) -> None:
    header = array_header(npy(repr({"descr": kind, "fortran_order": False, "shape": shape}) + "\n"))
    assert header is not None
    assert header.size == size


def test_objects_are_told_apart() -> None:
    header = array_header(npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}\n"))
    assert header is not None
    assert header.is_pickled


@pytest.mark.parametrize("header", ["print(1)", "{'descr': '<f4'}", "{'descr': '<f4', 'shape': (-1,)}", "(" * 200])
def test_what_describes_no_array_is_none(header: str) -> None:
    assert array_header(npy(header)) is None


@given(st.text(st.characters(max_codepoint=255), max_size=60))
def test_any_header_is_an_array_or_none(text: str) -> None:
    header = array_header(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("latin-1"))
    assert header is None or ast.literal_eval(text.strip())["shape"] == header.shape
