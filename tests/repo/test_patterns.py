from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from repokit.repo.patterns import patterns_in, repeats


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a", 1),
        (r"\p{N}{1,3}| ?\p{L}+", 3),
        ("((a{1,1000}){1,1000}){1,100}", 100_000_000),
        ("(a{10}b{20}){3}", 60),
        ("a{10}b{10}", 10),
        ("(a{5}){2,}", 10),
        (r"\{9}{4}", 4),
        ("[{9}]{4}", 4),
        ("a{,7}", 7),
        ("a{}", 1),
        ("(((", 1),
        (")))", 1),
    ],
)
def test_counts_inside_counts_are_multiplied(pattern: str, expected: int) -> None:
    assert repeats(pattern) == expected


@settings(deadline=None)
@given(st.text("()[]{}\\,0123a", max_size=30))
def test_any_text_has_a_number(pattern: str) -> None:
    assert repeats(pattern) >= 0


def test_patterns_are_found_at_any_depth() -> None:
    component = {"type": "Sequence", "pretokenizers": [{"pattern": {"Regex": "a"}}, {"pattern": {"String": "b"}}]}
    assert list(patterns_in(component)) == ["a"]
