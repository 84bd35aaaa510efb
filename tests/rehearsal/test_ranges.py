from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from repokit.rehearsal.ranges import wanted_range
from repokit.rehearsal.refusals import RangeNotSatisfiable

CONTENT = bytes(range(100))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-9", (0, 10)),
        ("bytes=90-", (90, 10)),
        ("bytes=90-1000", (90, 10)),
        ("bytes=-10", (90, 10)),
        ("bytes=-1000", (0, 100)),
        ("bytes= 0 - 9", (0, 10)),
    ],
)
def test_a_part_is_cut_out(header, expected):
    assert wanted_range(header, 100) == expected


@pytest.mark.parametrize("header", ["", "bytes=-", "bytes=9-0", "bytes=0-1,3-4", "lines=0-9", "bytes=a-b", "bytes=٣-"])
def test_what_is_not_one_range_is_the_whole(header):
    assert wanted_range(header, 100) is None


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_a_range_outside_is_refused_with_the_size(header):
    with pytest.raises(RangeNotSatisfiable) as refused:
        wanted_range(header, 100)
    assert refused.value.headers == {"Content-Range": "bytes */100"}


def test_nothing_can_be_cut_out_of_nothing():
    with pytest.raises(RangeNotSatisfiable):
        wanted_range("bytes=0-", 0)


@given(st.text("bytes=-0123456789, ") | st.builds("bytes={}-{}".format, st.integers(0, 200), st.integers(0, 200)))
def test_a_range_lies_inside(header):
    try:
        found = wanted_range(header, 100)
    except RangeNotSatisfiable:
        return
    if found is not None:
        offset, size = found
        assert len(CONTENT[offset : offset + size]) == size > 0
