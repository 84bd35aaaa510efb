from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, strategies as st

from repokit.publisher.changes import LocalFile, RemoteFile, changes


def local(path, content=b"x"):
    git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    return LocalFile(path, len(content), hashlib.sha256(content).hexdigest(), git)


def regular(path, content=b"x"):
    file = local(path, content)
    return RemoteFile(path, file.size, None, file.git_oid)


def large(path, content=b"x"):
    file = local(path, content)
    return RemoteFile(path, file.size, file.sha256, "0" * 40)


def test_each_file_is_in_one_part():
    found = changes(
        [local("new"), local("same"), local("big", b"2")],
        [regular("same"), large("big", b"1"), regular("old")],
        parent="f" * 40,
    )
    assert [file.path for file in found.added] == ["new"]
    assert [file.path for file in found.changed] == ["big"]
    assert [file.path for file in found.unchanged] == ["same"]
    assert [file.path for file in found.deleted] == ["old"]
    assert found.parent == "f" * 40


@pytest.mark.parametrize("remote", [regular, large])
def test_equal_content_is_unchanged_however_the_hub_stores_it(remote):
    assert changes([local("a")], [remote("a")], parent=None).is_empty


@pytest.mark.parametrize("remote", [regular, large])
def test_other_content_of_equal_size_is_a_change(remote):
    assert [file.path for file in changes([local("a", b"1")], [remote("a", b"2")], parent=None).changed] == ["a"]


def test_the_pointer_of_a_large_file_is_not_its_content():
    file = local("a")
    assert not RemoteFile("a", file.size, "1" * 64, file.git_oid).holds(file)


def test_what_the_hub_put_there_is_kept():
    found = changes([], [regular(".gitattributes"), regular("old")], parent=None)
    assert [file.path for file in found.kept] == [".gitattributes"]
    assert [file.path for file in found.deleted] == ["old"]


def test_gitattributes_of_the_directory_replaces_the_hubs():
    found = changes([local(".gitattributes", b"new")], [regular(".gitattributes")], parent=None)
    assert [file.path for file in found.changed] == [".gitattributes"]


def test_the_size_of_an_upload_counts_what_is_sent():
    found = changes([local("a", b"123"), local("b", b"4567"), local("c")], [regular("b"), regular("c")], parent=None)
    assert ([file.path for file in found.uploads], found.upload_size) == (["a", "b"], 7)


_TREES = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([b"1", b"2", b"33"]))


@given(_TREES, _TREES, st.sampled_from([regular, large]), st.sets(st.sampled_from("abcdef")))
def test_the_changes_turn_the_remote_tree_into_the_local_one(here, there, remote, keep):
    files = [local(path, content) for path, content in here.items()]
    found = changes(files, [remote(path, content) for path, content in there.items()], parent=None, keep=keep)
    tree = {path: local(path, content).sha256 for path, content in there.items()}
    for file in found.deleted:
        del tree[file.path]
    tree.update({file.path: file.sha256 for file in found.uploads})
    kept = {path: local(path, there[path]).sha256 for path in keep & (there.keys() - here.keys())}
    assert tree == {file.path: file.sha256 for file in files} | kept


@given(_TREES, _TREES)
def test_nothing_is_sent_that_is_there(here, there):
    found = changes(
        [local(path, content) for path, content in here.items()],
        [regular(path, content) for path, content in there.items()],
        parent=None,
    )
    assert {file.path for file in found.uploads} == {path for path in here if here[path] != there.get(path)}
