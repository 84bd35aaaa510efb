from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings, strategies as st

from repokit.rehearsal.patterns import GITATTRIBUTES, is_ignored, is_large, matches


def test_the_hubs_template_has_35_patterns():
    assert len(GITATTRIBUTES.splitlines()) == 35


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.bin", "a.bin", True),
        ("*.bin", "deep/in/a.bin", True),
        ("*.bin", "a.bin.txt", False),
        ("a/*.bin", "a/b.bin", True),
        ("a/*.bin", "a/b/c.bin", False),
        ("/a.bin", "a.bin", True),
        ("/a.bin", "b/a.bin", False),
        ("saved_model/**/*", "saved_model/x", True),
        ("saved_model/**/*", "saved_model/x/y/z", True),
        ("**/a", "x/y/a", True),
        ("**/a", "a", True),
        ("a/**", "a/b/c", True),
        ("a?c", "abc", True),
        ("a?c/d", "a/c/d", False),
        ("*tfevents*", "runs/events.out.tfevents.1", True),
    ],
)
def test_patterns_match_as_git_matches_them(pattern, path, expected):
    assert matches(pattern, path) is expected


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("*.bin filter=lfs -text", True),
        ("*.bin text", False),
        ("# *.bin filter=lfs", False),
        ("*.bin filter=lfs\nsmall.bin -filter", False),
        ("*.bin filter=lfs\nsmall.bin !filter", False),
        ("*.bin filter=lfs\nsmall.bin filter=other", False),
        ("small.bin -filter\n*.bin filter=lfs", True),
        ("", False),
        ("\n\n", False),
    ],
)
def test_the_last_attribute_decides(attributes, expected):
    assert is_large("small.bin", attributes) is expected


@pytest.mark.parametrize(
    ("gitignore", "path", "expected"),
    [
        ("*.bin", "a/b.bin", True),
        ("build/", "build/a", True),
        ("build/", "build", False),
        ("build", "deep/build/a", True),
        ("*\n!keep", "keep", False),
        ("*.bin\n!keep.bin", "a.bin", True),
        ("# a", "# a", False),
        (r"\#a", "#a", True),
        ("", "a", False),
    ],
)
def test_gitignore(gitignore, path, expected):
    assert is_ignored(path, gitignore) is expected


_NAMES = st.text("ab.", min_size=1, max_size=3).filter(lambda name: set(name) != {"."})
_PATHS = st.lists(_NAMES, min_size=1, max_size=3).map("/".join)
_PATTERNS = st.lists(st.sampled_from(["a", "b", ".", "*", "?", "a*", "**"]), min_size=1, max_size=3).map("/".join)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_gitignore_agrees_with_git(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ignored")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)  # noqa: S607 - whichever git there is

    @settings(max_examples=40, deadline=None)
    @given(_PATTERNS, st.lists(_PATHS, min_size=1, max_size=20, unique=True))
    def agree(pattern, paths):
        (folder / ".gitignore").write_text(pattern + "\n")
        command = ["git", "-C", str(folder), "-c", "core.excludesFile=", "check-ignore", "--no-index", "--stdin"]
        told = subprocess.run(command, input="\n".join(paths), capture_output=True, text=True, check=False)
        assert {path for path in paths if is_ignored(path, pattern)} == set(told.stdout.splitlines())

    agree()
