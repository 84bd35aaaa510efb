from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from hypothesis import given, strategies as st

from repokit.rehearsal import git_ids

FILES = {
    "README.md": b"hello\n",
    "a/b/c.txt": b"c",
    "a/z": b"",
    "a.b": b"sorted before the folder a",
    "a0": b"sorted after the folder a",
    "weights.safetensors": b"\0" * 100,
}
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@needs_git
def test_ids_are_those_of_git(tmp_path):
    for path, content in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    _git(tmp_path, "init", "--quiet")
    _git(tmp_path, "add", "--all")
    _git(tmp_path, "commit", "--quiet", "--message", "first\n\nand more")
    blobs = {path: git_ids.blob_id(content) for path, content in FILES.items()}
    trees = git_ids.tree_ids(blobs)
    assert trees[""] == _git(tmp_path, "rev-parse", "HEAD^{tree}")
    assert trees["a/b"] == _git(tmp_path, "rev-parse", "HEAD:a/b")
    message = "first\n\nand more\n"
    commit = git_ids.commit_id(tree=trees[""], parents=[], author="ann", seconds=1_577_836_800, message=message)
    assert commit == _git(tmp_path, "rev-parse", "HEAD")


def test_a_pointer_is_that_of_the_specification():
    # The example of git-lfs docs/spec.md.
    sha256 = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"
    assert git_ids.pointer(sha256, 12345) == (
        b"version https://git-lfs.github.com/spec/v1\n"
        b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
        b"size 12345\n"
    )


_TREES = st.dictionaries(st.lists(st.sampled_from("abc"), min_size=3, max_size=3).map("/".join), st.just("0" * 40))


@given(_TREES, st.randoms())
def test_the_order_of_files_does_not_matter(blobs, random):
    shuffled = list(blobs.items())
    random.shuffle(shuffled)
    assert git_ids.tree_ids(blobs) == git_ids.tree_ids(dict(shuffled))


def _git(folder, *arguments):
    who = {"NAME": "ann", "EMAIL": "ann@users.noreply.localhost", "DATE": "1577836800 +0000"}
    identity = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in who.items()}
    clean = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, env={**os.environ, **identity, **clean}, capture_output=True, check=True, text=True)
    return done.stdout.strip()
