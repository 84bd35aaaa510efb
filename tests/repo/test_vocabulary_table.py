"""The vocabulary as a table: rows that changed places."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from repokit.repo.vocabulary_table import out_of_order, transposed


@given(st.integers(0, 1000), st.integers(2, 60))
def test_rows_in_order_show_nothing(first: int, length: int) -> None:
    assert transposed(list(range(first, first + length))) is None


@given(st.integers(0, 1000), st.integers(2, 60), st.data())
def test_two_exchanged_rows_are_found(first: int, length: int, data: st.DataObject) -> None:
    one, other = sorted(data.draw(st.lists(st.integers(0, length - 1), min_size=2, max_size=2, unique=True)))
    numbers = list(range(first, first + length))
    numbers[one], numbers[other] = numbers[other], numbers[one]
    assert transposed(numbers) == (one, other)


@given(st.lists(st.integers(-1, 80), min_size=1, max_size=60))
def test_what_is_found_puts_the_rows_in_order(numbers: list[int]) -> None:
    found = transposed(numbers)
    if found is not None:
        numbers[found[0]], numbers[found[1]] = numbers[found[1]], numbers[found[0]]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_missing_row_is_no_exchange() -> None:
    assert transposed([5, 6, 8, 9]) is None


FALLING = [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]


def test_scores_that_fall_show_nothing() -> None:
    assert out_of_order(FALLING) is None


@pytest.mark.parametrize("place", range(1, 5))
def test_a_score_that_does_not_fit_its_place_is_found(place: int) -> None:
    scores = [*FALLING]
    scores[place] -= 10
    assert out_of_order(scores) == place


@pytest.mark.parametrize("place", range(1, 5))
def test_two_exchanged_scores_are_found(place: int) -> None:
    scores = [*FALLING]
    scores[place - 1], scores[place] = scores[place], scores[place - 1]
    assert out_of_order(scores) in {place - 1, place}


def test_scores_without_an_order_show_nothing() -> None:
    assert out_of_order([-1.0, -5.0, -2.0, -6.0, -3.0, -7.0, -4.0]) is None
