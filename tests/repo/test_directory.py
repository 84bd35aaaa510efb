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


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_folder_with_the_name_of_a_file_is_listed(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / "unet").mkdir()
    assert kinds(tmp_path) == {name: Kind.FOLDER}


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


# ------------------------------------------------------------------------------------------------ leniency

LENIENT = directory.Leniency(outside=lambda path: path.endswith(".bin"), unneeded=lambda folder: folder == "wandb/")


def test_a_link_that_may_lead_out_is_followed(tmp_path: Path) -> None:
    write(tmp_path, disk__a="12345")
    (tmp_path / "root").mkdir()
    for name in ("a.bin", "a.txt"):
        (tmp_path / "root" / name).symlink_to("../disk/a")
    source = Directory(tmp_path / "root", leniency=LENIENT)
    assert source.entries() == {"a.bin": Entry(5), "a.txt": Entry(5, Kind.OUTSIDE_LINK)}
    assert (source.outside, source.read("a.bin")) == ({"a.bin"}, b"12345")


def test_a_link_inside_does_not_lead_out(tmp_path: Path) -> None:
    write(tmp_path, a="x")
    (tmp_path / "a.bin").symlink_to("a")
    source = Directory(tmp_path, leniency=LENIENT)
    source.entries()
    assert source.outside == set()


def test_a_link_to_a_folder_is_not_followed_with_leniency(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a.bin").symlink_to("../disk")
    assert Directory(tmp_path / "root", leniency=LENIENT).entries()["a.bin"].kind is Kind.OUTSIDE_LINK


@pytest.mark.parametrize(
    ("link", "what"),
    [
        ("gone", "is a broken link (to gone)"),
        ("link", "is a broken link (to link)"),
        ("..", "is a link to a folder (to ..)"),
        ("/dev/null", "is a link to outside of the repository (to /dev/null)"),
        ("a\x1b[2J", "is a broken link (to a\\x1b[2J)"),
    ],
)
def test_what_cannot_be_read_is_described(tmp_path: Path, link: str, what: str) -> None:
    (tmp_path / "link").symlink_to(link)
    with pytest.raises(MissingInput) as caught:
        Directory(tmp_path).read("link")
    assert str(caught.value) == f"link: {what}"


@pytest.mark.parametrize("shape", ["flat", "deep"])
def test_a_folder_with_too_many_files_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    monkeypatch.setattr(directory, "MAX_BELOW", 3)
    for number in range(4):
        write(tmp_path, **{f"data__{number}" if shape == "flat" else f"data__{number}__x": "x"})
    write(tmp_path, a="x", other__b="x")
    source = Directory(tmp_path, leniency=LENIENT)
    assert list(source.entries()) == ["a", "other/b"]
    assert source.unlisted == {"data/": "has more than 3 files"}


def test_a_folder_that_is_too_deep_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MAX_DEPTH", 2)
    source = Directory(write(tmp_path, a="x", b__c__d__e="x"), leniency=LENIENT)
    assert list(source.entries()) == ["a"]
    assert source.unlisted == {"b/": "is nested deeper than 2 folders"}


def test_a_folder_at_its_limit_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MAX_BELOW", 2)
    source = Directory(write(tmp_path, d__a="", d__b=""), leniency=LENIENT)
    assert (list(source.entries()), source.unlisted) == (["d/a", "d/b"], {})


def test_too_many_files_at_the_top_are_refused_with_leniency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MAX_FILES", 2)
    with pytest.raises(LimitExceeded, match="more than 2 files"):
        Directory(write(tmp_path, a="", b="", c=""), leniency=LENIENT).entries()


@pytest.mark.skipif(os.geteuid() == 0, reason="no mode stops root")
def test_a_folder_of_logs_that_cannot_be_listed_is_passed_over(tmp_path: Path) -> None:
    (write(tmp_path, a="x") / "wandb").mkdir(mode=0)
    source = Directory(tmp_path, leniency=LENIENT)
    assert list(source.entries()) == ["a"]
    assert source.unlisted == {"wandb/": "cannot be listed: Permission denied"}


@pytest.mark.skipif(os.geteuid() == 0, reason="no mode stops root")
def test_another_folder_that_cannot_be_listed_is_refused(tmp_path: Path) -> None:
    (write(tmp_path, a="x") / "other").mkdir(mode=0)
    with pytest.raises(MissingInput, match="other/: cannot be listed"):
        Directory(tmp_path, leniency=LENIENT).entries()


def test_a_file_that_goes_during_the_listing_is_not_there(tmp_path: Path) -> None:
    class Gone:
        name, path = "a", str(tmp_path / "a")

        def is_symlink(self) -> bool:
            return False

        def stat(self, *, follow_symlinks: bool) -> os.stat_result:
            return Path(self.path).stat(follow_symlinks=follow_symlinks)

    assert Directory(tmp_path)._entry(Gone(), "a") is None
