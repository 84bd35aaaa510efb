"""Slips of the pen: what is one, and what is another word."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from repokit.linter.rules.misnamed import is_misnamed
from repokit.linter.rules.slips import is_slip, meant_by

WORDS = st.text("abcdefgh_", min_size=4, max_size=12)


@pytest.mark.parametrize("slip", ["hiden_size", "hidden_sizes", "hidden_sise", "hiddne_size", "idden_size"])
def test_one_slip(slip):
    assert is_slip(slip, "hidden_size")


@pytest.mark.parametrize("other", ["hidden_size", "hidden_act", "hiden_sise", "hidden_size2", "size_hidden"])
def test_none_or_several(other):
    assert not is_slip(other, "hidden_size")


def test_short_words_are_not_taken_for_each_other():
    assert meant_by("fps", ["eps"]) is None


@given(WORDS, st.data())
def test_a_letter_left_out(word, data):
    place = data.draw(st.integers(0, len(word) - 1))
    assert is_slip(word[:place] + word[place + 1 :], word)


@given(WORDS, WORDS)
def test_it_works_both_ways(one, other):
    assert is_slip(one, other) == is_slip(other, one)


@pytest.mark.parametrize(
    "path", ["config.json.bak", "config.json~", "config (1).json", "config copy.json", "Config.json"]
)
def test_a_name_that_was_set_aside(path):
    assert is_misnamed(path, "config.json")


@pytest.mark.parametrize("path", ["config.jsonl.gz", "config_2.json", "config.json.md", "base_config.json"])
def test_a_name_of_its_own(path):
    assert not is_misnamed(path, "config.json")
