"""The search for conditions finds what model code asks, and holds on every observation."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings, strategies as st

from repokit.architectures.deriver.conditions import Atoms, bits, condition
from repokit.architectures.deriver.features import Features, Observations
from repokit.architectures.grammar import expression

RNG = random.Random(1)
LAYERS = 6


def config() -> dict[str, object]:
    layers = RNG.randint(2, LAYERS)
    return {
        "layers": layers,
        "bias": RNG.random() < 0.5,
        "gated": RNG.random() < 0.5,
        "rank": RNG.choice([None, 4, 8]),
        "norm": RNG.choice(["rms", "layer", "none"]),
        "first_dense": RNG.randint(0, 3),
        "every": RNG.randint(1, 3),
        "layer_types": tuple(RNG.choice(["full", "sliding"]) for _ in range(layers)),
        "dense_layers": RNG.choice([(), (0,), (1, 2)]),
    }


CONFIGS = [config() for _ in range(120)]
FEATURES = Features(CONFIGS)  # type: ignore[arg-type]
SAMPLES = Observations(tuple((number, ()) for number in range(len(CONFIGS))))
EACH_LAYER = Observations(
    tuple((number, (layer,)) for number, one in enumerate(CONFIGS) for layer in range(int(str(one["layers"]))))
)


def held(text: str, seen: Observations) -> list[bool]:
    evaluate = expression(text).evaluate
    return [bool(evaluate(FEATURES.environments[sample], *indices)) for sample, indices in seen.points]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("bias", SAMPLES),
        ("rank is not None", SAMPLES),
        ("norm=='rms'", SAMPLES),
        ("bias and gated", SAMPLES),
        ("bias and (gated or rank is not None)", SAMPLES),
        ("bias and (norm=='rms' or (rank is None and gated))", SAMPLES),
        ("i<first_dense", EACH_LAYER),
        ("i>=first_dense and bias", EACH_LAYER),
        ("(i+1)%every==0 and i not in dense_layers", EACH_LAYER),
        ("layer_types[i]=='full'", EACH_LAYER),
        ("layer_types[i]=='full' and (bias or gated)", EACH_LAYER),
    ],
)
def test_what_models_ask_is_found(text: str, seen: Observations) -> None:
    wanted = held(text, seen)
    found = condition(bits(wanted), Atoms.over(FEATURES, seen), seconds=30)
    assert found is not None
    assert held(found, seen) == wanted


@settings(deadline=None, max_examples=30)
@given(st.lists(st.booleans(), min_size=len(CONFIGS), max_size=len(CONFIGS)))
def test_what_is_found_holds_everywhere(wanted: list[bool]) -> None:
    found = condition(bits(wanted), Atoms.over(FEATURES, SAMPLES), seconds=0.2)
    assert found is None or held(found, SAMPLES) == wanted
