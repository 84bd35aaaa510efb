"""Untrusted text on its way to a terminal, a log or an annotation."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from repokit.printable import count, printable, size, some


@given(st.text() | st.text(st.characters(categories=["C", "Z"])))
def test_whatever_comes_in_is_one_printable_line(text):
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) <= 10 * 200


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=200))
def test_ordinary_text_stays_as_it_is(text):
    assert printable(text) == text


def test_long_text_is_cut():
    assert printable("x" * 500, limit=10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_960, "1.0 MB")],
)
def test_sizes_are_decimal(number, text):
    assert size(number) == text


def test_counts_have_separators_and_the_right_number():
    assert (count(1, "tensor"), count(60_000, "tensor")) == ("1 tensor", "60,000 tensors")


def test_long_lists_say_how_many_more():
    assert some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert some(["a", "b"]) == "a, b"
