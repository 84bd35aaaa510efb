"""Numbers of parameters in the names of models."""

from __future__ import annotations

import pytest

from repokit.repo.identity import sizes


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Example 7B", [7 * 10**9]),
        ("example-0.5b-instruct", [5 * 10**8]),
        ("Mixtral-8x7B", [56 * 10**9]),
        ("Qwen3-30B-A3B", [30 * 10**9]),
        ("gemma-3-270m", [270 * 10**6]),
        ("gemma-3n-E4B", []),
        ("Example 2", []),
        ("v2.7beta", []),
        ("1T", [10**12]),
        ("", []),
    ],
)
def test_what_a_name_says(name, parameters):
    assert [size.parameters for size in sizes(name)] == parameters
