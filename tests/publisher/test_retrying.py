from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, strategies as st

from repokit.hub.errors import Unanswered
from repokit.publisher.retrying import LONGEST_IN_ALL, WAITS, Patience


class Busy:
    """Answers after some failures."""

    def __init__(self, failures, retry_after=None):
        self.failures = failures
        self.error = Unanswered("busy", retry_after=retry_after)
        self.calls = 0

    def __call__(self):
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return "done"


def test_an_answer_at_once_needs_no_waiting():
    waits = []
    assert Patience(waits.append).persist(Busy(0)) == "done"
    assert waits == []


def test_waits_grow():
    waits = []
    assert Patience(waits.append).persist(Busy(3)) == "done"
    assert waits == [1, 2, 4]


def test_it_gives_up():
    waits = []
    busy = Busy(1000)
    with pytest.raises(Unanswered):
        Patience(waits.append).persist(busy)
    assert (busy.calls, waits) == (len(WAITS) + 1, list(WAITS))


def test_the_hub_is_left_alone_as_long_as_it_asks():
    waits = []
    Patience(waits.append).persist(Busy(2, retry_after=50))
    assert waits == [50, 50]


def nobody():
    raise Unanswered("refused", connected=False)


def test_an_address_where_nobody_ever_was_is_not_waited_for():
    waits = []
    with pytest.raises(Unanswered, match="refused"):
        Patience(waits.append).persist(nobody)
    assert waits == []


def test_a_hub_that_was_there_before_is_waited_for():
    waits = []
    patience = Patience(waits.append)
    patience.persist(Busy(0))
    with pytest.raises(Unanswered):
        patience.persist(nobody)
    assert waits == list(WAITS)


def test_a_day_is_not_waited_for():
    waits = []
    with pytest.raises(Unanswered):
        Patience(waits.append).persist(Busy(1, retry_after=86_400))
    assert waits == []


@given(st.lists(st.tuples(st.integers(0, 8), st.none() | st.floats(0, 2000)), max_size=20))
def test_a_push_waits_a_quarter_of_an_hour_at_most(outages):
    waits = []
    patience = Patience(waits.append)
    for failures, retry_after in outages:
        with contextlib.suppress(Unanswered):
            patience.persist(Busy(failures, retry_after))
    assert sum(waits) <= LONGEST_IN_ALL


def test_other_errors_are_not_waited_out():
    def broken():
        raise KeyError

    with pytest.raises(KeyError):
        Patience(lambda _: pytest.fail("waited")).persist(broken)
