from __future__ import annotations

import hashlib
import os

import pytest

from repokit.errors import MissingInput, PublishError
from repokit.publisher.local_tree import hashed, listed
from repokit.repo.directory import Directory


def quiet(*_):
    pass


def test_files_are_listed_in_the_order_of_paths(tmp_path):
    for path in ("b/a", "a.b", "a/b", "a/B"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(b"")
    assert [file.path for file in listed(tmp_path)] == ["a.b", "a/B", "a/b", "b/a"]


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        "sub/.git/x",
        ".cache/huggingface/x",
        ".venv/lib/x.py",
        "sub/__pycache__/x.pyc",
        "repokit-manifest.json",
    ],
)
def test_what_stays_here(tmp_path, path):
    (tmp_path / "config.json").write_bytes(b"{}")
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_bytes(b"x")
    assert [file.path for file in listed(tmp_path)] == ["config.json"]


def test_what_is_published_is_what_is_linted(tmp_path):
    for path in ("config.json", "notes.repokit.txt", ".venv/x", "a/__pycache__/x", "a/b.py", ".git/x", ".hidden"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"x")
    assert [file.path for file in listed(tmp_path)] == list(Directory(tmp_path).entries())


@pytest.mark.parametrize("path", [".gitattributes", ".gitignore", ".eval_results/x.yaml", "sub/repokit-manifest.json"])
def test_what_is_published(tmp_path, path):
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_bytes(b"x")
    assert [file.path for file in listed(tmp_path)] == [path]


def test_the_manifest_is_published_on_request(tmp_path):
    (tmp_path / "repokit-manifest.json").write_bytes(b"{}")
    assert [file.path for file in listed(tmp_path, with_manifest=True)] == ["repokit-manifest.json"]


def test_a_directory_that_is_not_there(tmp_path):
    with pytest.raises(MissingInput, match="is not a directory"):
        listed(tmp_path / "absent")


def test_a_directory_with_nothing_in_it(tmp_path):
    with pytest.raises(MissingInput, match="no file"):
        listed(tmp_path)


@pytest.mark.parametrize("target", ["config.json", "/etc/hostname", "absent", "."])
def test_a_link_is_refused(tmp_path, target):
    (tmp_path / "config.json").write_bytes(b"{}")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(PublishError, match="link: is a link"):
        listed(tmp_path)


def test_a_pipe_is_refused_without_being_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PublishError, match="not a regular file"):
        listed(tmp_path)


def test_a_name_that_is_not_utf8_is_refused(tmp_path):
    try:
        (tmp_path / os.fsdecode(b"\xff")).write_bytes(b"x")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    with pytest.raises(PublishError, match="not UTF-8"):
        listed(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}\n", bytes(range(256)) * 5000], ids=["empty", "small", "two chunks"])
def test_hashes_are_those_of_sha256_and_git(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    (file,) = hashed(listed(tmp_path), quiet)
    assert (file.size, file.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    header = f"blob {len(content)}\0".encode()
    assert file.git_oid == hashlib.sha1(header + content, usedforsecurity=False).hexdigest()


def test_progress_ends_at_the_size_of_everything(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 3_000_000)
    (tmp_path / "b").write_bytes(b"x" * 10)
    seen = []
    hashed(listed(tmp_path), lambda *step: seen.append(step))
    assert seen[-1] == (3_000_010, 3_000_010)
    assert len(seen) >= 4


@pytest.mark.parametrize("change", ["grow", "replace", "delete"])
def test_a_file_that_changed_since_it_was_listed(tmp_path, change):
    place = tmp_path / "config.json"
    place.write_bytes(b"{}")
    files = listed(tmp_path)
    if change == "grow":
        place.write_bytes(b"{ }")
    elif change == "replace":
        (tmp_path / "other").write_bytes(b"[]")
        (tmp_path / "other").replace(place)
    else:
        place.unlink()
    with pytest.raises(PublishError, match=r"changed since the check: config\.json"):
        hashed(files, quiet)
