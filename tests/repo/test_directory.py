"""A repository in a folder: what is listed, what is followed, what is read."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from repokit.errors import LimitExceeded, MissingInput
from repokit.repo import directory
from repokit.repo.directory import Directory
from repokit.repo.source import Entry, Kind


def write(root: Path, **files: str) -> Path:
    for name, content in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def kinds(root: Path) -> dict[str, Kind]:
    return {path: entry.kind for path, entry in Directory(root).entries().items()}


def test_files_are_listed_sorted_with_their_sizes(tmp_path: Path) -> None:
    source = Directory(write(tmp_path, b="22", a="1", unet__a="333"))
    assert list(source.entries().items()) == [("a", Entry(1)), ("b", Entry(2)), ("unet/a", Entry(3))]


@pytest.mark.parametrize("folder", [".git", ".cache", ".venv", "__pycache__"])
def test_what_tools_keep_is_not_content(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "x").write_text("x")
    assert kinds(tmp_path) == {}


def test_other_hidden_files_are_content(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("x")
    assert list(kinds(tmp_path)) == [".env"]


def test_a_link_inside_is_the_file_it_leads_to(tmp_path: Path) -> None:
    write(tmp_path, real="12345")
    (tmp_path / "link").symlink_to("real")
    assert Directory(tmp_path).entries()["link"] == Entry(5)
    assert Directory(tmp_path).read("link") == b"12345"


def test_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("gone")
    assert kinds(tmp_path) == {"link": Kind.BROKEN_LINK}


def test_a_link_that_leads_out_is_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    write(tmp_path, secret="x")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path)
    assert kinds(root) == {"folder": Kind.OUTSIDE_LINK, "link": Kind.OUTSIDE_LINK}


def test_a_link_to_itself_is_broken(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert kinds(tmp_path) == {"loop": Kind.BROKEN_LINK}


def test_a_link_to_a_folder_above_is_not_walked(tmp_path: Path) -> None:
    write(tmp_path, sub__a="x")
    (tmp_path / "sub" / "up").symlink_to("..")
    assert kinds(tmp_path) == {"sub/a": Kind.FILE, "sub/up": Kind.OUTSIDE_LINK}


def test_a_snapshot_of_the_hub_s_cache_follows_its_blobs(tmp_path: Path) -> None:
    blob = tmp_path / "models--org--name" / "blobs" / "abc"
    snapshot = tmp_path / "models--org--name" / "snapshots" / "rev"
    blob.parent.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    blob.write_text("weights")
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
    assert Directory(snapshot).read("model.safetensors") == b"weights"


def test_a_folder_called_blobs_is_otherwise_outside(tmp_path: Path) -> None:
    write(tmp_path, blobs__abc="x", other__rev__y="y")
    (tmp_path / "other" / "rev" / "link").symlink_to("../../blobs/abc")
    assert kinds(tmp_path / "other" / "rev")["link"] is Kind.OUTSIDE_LINK


def test_pipes_and_sockets_are_special_and_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        assert kinds(tmp_path) == {"pipe": Kind.SPECIAL, "socket": Kind.SPECIAL}
    with pytest.raises(MissingInput):
        Directory(tmp_path).read("pipe")


def test_a_pipe_in_the_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    source = Directory(write(tmp_path, a="x"))
    source.entries()
    (tmp_path / "a").unlink()
    os.mkfifo(tmp_path / "a")
    with pytest.raises(MissingInput):
        source.read("a")


@pytest.mark.parametrize(
    ("offset", "length", "content"),
    [(0, None, b"0123456789"), (3, 4, b"3456"), (8, 10, b"89"), (20, 5, b""), (20, None, b""), (0, 0, b"")],
)
def test_ranges(tmp_path: Path, offset: int, length: int | None, content: bytes) -> None:
    assert Directory(write(tmp_path, a="0123456789")).read("a", offset, length) == content


def test_what_is_not_listed_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, a="x", sub__b="y")
    source = Directory(tmp_path / "sub")
    with pytest.raises(MissingInput, match="not in the repository"):
        source.read("../a")


def test_a_file_that_went_since_the_listing(tmp_path: Path) -> None:
    source = Directory(write(tmp_path, a="x"))
    source.entries()
    (tmp_path / "a").unlink()
    with pytest.raises(MissingInput, match="cannot be read"):
        source.read("a")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="cannot be listed"):
        Directory(tmp_path / "gone").entries()


def test_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MAX_FILES", 2)
    with pytest.raises(LimitExceeded, match="more than 2 files"):
        Directory(write(tmp_path, a="", b="", c="")).entries()


def test_too_deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MAX_DEPTH", 2)
    with pytest.raises(LimitExceeded, match="deeper than 2 folders"):
        Directory(write(tmp_path, a__b__c__d="")).entries()


def test_a_name_that_is_not_utf8_is_listed(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")).write_text("x")
    assert list(kinds(tmp_path)) == ["caf\udce9"]


def test_the_label_is_what_the_user_wrote(tmp_path: Path) -> None:
    assert Directory(tmp_path, "./here").label == "./here"
    assert Directory(tmp_path).label == str(tmp_path)
