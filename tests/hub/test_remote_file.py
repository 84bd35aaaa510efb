from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, strategies as st

from repokit.hub.remote_file import RemoteFile, is_folder, remote_file

BLOB = "0123456789" * 4
SHA256 = "ab" * 32


def entry(**changes):
    return {"type": "file", "path": "a/b.json", "size": 3, "oid": BLOB, **changes}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, RemoteFile("a/b.json", 3, BLOB)),
        ({"lfs": None}, RemoteFile("a/b.json", 3, BLOB)),
        ({"lfs": {"oid": SHA256, "size": 3, "pointerSize": 1}}, RemoteFile("a/b.json", 3, BLOB, SHA256)),
        ({"size": 0, "xetHash": "c" * 64}, RemoteFile("a/b.json", 0, BLOB)),
        ({"path": "..a/.b./c..d"}, RemoteFile("..a/.b./c..d", 3, BLOB)),
        ({"path": "\x1b[31m\u202e"}, RemoteFile("\x1b[31m\u202e", 3, BLOB)),
    ],
)
def test_a_line_of_a_tree_is_a_file(changes, expected):
    assert remote_file(entry(**changes)) == expected


@pytest.mark.parametrize(
    "changes",
    [
        *({"path": path} for path in ("", "..", "../a", "a/../b", "a/./b", "/a", "a//b", "a/", "a\0b", "\ud800", 7)),
        {"path": "a" * 5000},
        *({"size": size} for size in (-1, True, 3.0, "3", None, 2**63)),
        *({"oid": oid} for oid in ("", "x" * 40, BLOB + "0", BLOB[:39], f"{BLOB}\n", None)),
        *({"lfs": lfs} for lfs in ({"size": 3}, {"oid": SHA256[:60]}, {"oid": 7}, "x")),
    ],
    ids=str,
)
def test_what_no_hub_would_list_is_none(changes):
    assert remote_file(entry(**changes)) is None


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=3))
def test_anything_else_is_none(value):
    assert (remote_file(value), is_folder(value)) == (None, False)


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_only_its_own_content_is_held(content, other):
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    small = RemoteFile("a", len(content), blob)
    large = RemoteFile("a", len(content), BLOB, hashlib.sha256(content).hexdigest())
    assert [small.holds(content), large.holds(content)] == [True, True]
    assert [small.holds(other), large.holds(other)] == [other == content] * 2
