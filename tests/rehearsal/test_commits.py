from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from repokit.rehearsal.commits import Add, Commit, Commits, Delete, Message, applied, checked_path, regular_file
from repokit.rehearsal.refusals import EntryNotFound, HubError, Unprocessable

FILE = regular_file(b"x", "0" * 64)
OTHER = regular_file(b"other", "1" * 64)


def test_operations_apply_in_their_order():
    operations = [Delete("a", folder=True), Add("a/new", OTHER)]
    assert applied({"a/old": FILE, "b": FILE}, operations) == {"a/new": OTHER, "b": FILE}


def test_a_folder_to_delete_may_end_in_a_slash():
    assert applied({"a/b": FILE}, [Delete("a/", folder=True)]) == {}


def test_a_folder_is_not_deleted_as_a_file():
    with pytest.raises(EntryNotFound):
        applied({"a/b": FILE}, [Delete("a")])


def test_a_file_cannot_take_the_place_of_a_folder():
    with pytest.raises(Unprocessable):
        applied({"a/b": FILE}, [Add("a", FILE)])


@pytest.mark.parametrize("path", ["a/../b", "/a", "a/", "", ".", ".git/x", "x/.git/y", "a\0b", "a\tb", "é" * 128])
def test_a_path_that_git_refuses(path):
    with pytest.raises(Unprocessable):
        checked_path(path)


@given(st.text(max_size=20))
def test_a_path_is_kept_as_it_is_or_refused(path):
    try:
        assert checked_path(path) == path
    except Unprocessable:
        return
    assert ".." not in path.split("/")


_PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)
_OPERATIONS = st.lists(
    st.builds(Add, _PATHS, st.sampled_from([FILE, OTHER])) | st.builds(Delete, _PATHS, st.booleans()), max_size=6
)


@given(_OPERATIONS)
def test_a_tree_stays_a_tree(operations):
    try:
        files = applied({}, operations)
    except HubError:
        return
    assert list(files) == sorted(files)
    assert not any(other.startswith(f"{path}/") for path in files for other in files)


def test_a_commit_is_read_back_as_it_was_kept(tmp_path):
    commit = Commit({"a": FILE}, "f" * 40, 7, Message("ann", "title", "description"))
    oid = Commits(tmp_path).keep(commit)
    assert Commits(tmp_path)[oid] == commit


@pytest.mark.parametrize(("depth", "date"), [(0, "2020-01-01T00:00:00.000Z"), (90_061, "2020-01-02T01:01:01.000Z")])
def test_dates_come_from_a_logical_clock(depth, date):
    assert Commit({}, None, depth, Message("ann", "title")).date == date
