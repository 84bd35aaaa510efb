"""The search for arithmetic finds what model code writes, and never claims what is not so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from repokit.architectures.deriver.arithmetic import search
from repokit.architectures.grammar import expression

RNG = np.random.default_rng(0)
CONFIGS = {
    "hidden_size": RNG.integers(1, 40, 60) * 16.0,
    "num_heads": RNG.integers(1, 9, 60) * 1.0,
    "kv_heads": RNG.integers(1, 5, 60) * 1.0,
    "ratio": RNG.choice([0.5, 1.0, 2.0, 2.5], 60),
    "stages": RNG.integers(1, 5, 60) * 1.0,
}


def valued(text: str) -> np.ndarray:
    evaluate = expression(text).evaluate
    rows = [{key: column[row].item() for key, column in CONFIGS.items()} for row in range(60)]
    rows = [{key: int(value) if value.is_integer() else value for key, value in row.items()} for row in rows]
    return np.array([float(evaluate(row)) for row in rows])


@pytest.mark.parametrize(
    "text",
    [
        "hidden_size",
        "3*hidden_size",
        "hidden_size//2",
        "hidden_size+2",
        "2*hidden_size-1",
        "ceil(hidden_size/16)",
        "ceil(hidden_size/64)*64",
        "hidden_size*num_heads",
        "hidden_size//num_heads",
        "int(hidden_size*ratio)",
        "num_heads*2**stages",
        "(hidden_size//num_heads)*(hidden_size//num_heads)+1",
        "hidden_size+2*kv_heads*(hidden_size//num_heads)",
        "ceil(int(int(hidden_size*ratio)*2/3)/64)*64",
        "max(hidden_size,num_heads)",
        "hidden_size*num_heads+hidden_size*kv_heads",
    ],
)
def test_what_models_compute_is_found(text: str) -> None:
    target = valued(text)
    found = search(target, CONFIGS, seconds=30)
    assert found is not None
    assert (valued(found) == target).all()


def test_what_no_key_decides_is_not_found() -> None:
    assert search(RNG.integers(1, 10**6, 60) * 1.0, CONFIGS, seconds=30) is None


def test_the_simplest_of_two_spellings_is_taken() -> None:
    columns = {"a_rather_long_name_of_the_same": CONFIGS["hidden_size"], "width": CONFIGS["hidden_size"]}
    assert search(CONFIGS["hidden_size"], columns, seconds=30) == "width"


@settings(deadline=None, max_examples=60)
@given(factor=st.integers(1, 9), rest=st.integers(-3, 40), key=st.sampled_from(sorted(CONFIGS)))
def test_every_linear_form_is_found(factor: int, rest: int, key: str) -> None:
    target = factor * CONFIGS[key] + rest
    found = search(target, CONFIGS, seconds=30)
    whole = (target == np.round(target)).all()
    assert not whole or (found is not None and (valued(found) == target).all())
