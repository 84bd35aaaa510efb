"""The shipped data is what a derivation gives: some types are derived again and held against it."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("torch")

from repokit.architectures.completion import complete
from repokit.architectures.deriver.building import Sample
from repokit.architectures.deriver.classes import config_class, model_types
from repokit.architectures.deriver.deriving import Budget, Derivation
from repokit.architectures.deriver.fields import keyword_arguments
from repokit.architectures.deriver.sampling import Sampler
from repokit.architectures.errors import NotCovered
from repokit.architectures.expansion import expand
from repokit.architectures.member import Evidence, Member, member

pytestmark = pytest.mark.oracle
DRAWN = 3


def covered() -> list[str]:
    """Config classes of which every class is verified in the shipped data."""
    found = []
    for name, classes in model_types().items():
        try:
            known = member(config_class(name).model_type)
        except NotCovered:
            continue
        if known.config.name == name and all(_verified(known, one) for one in classes):
            found.append(name)
    return found


def _verified(known: Member, name: str) -> bool:
    return name in known.raw and known.architecture(name).evidence is Evidence.VERIFIED


def drawn() -> list[str]:
    return random.Random(20261130).sample(covered(), DRAWN)


@pytest.fixture(
    scope="module", params=[0, *(pytest.param(number, marks=pytest.mark.full) for number in range(1, DRAWN))]
)
def name(request: pytest.FixtureRequest) -> str:
    return drawn()[request.param]


def test_a_second_derivation_verifies_the_same_classes(name: str) -> None:
    derived = Derivation(name, model_types()[name], Budget(explore=6, fit=6, fresh=10), seed=7).run()
    assert {one for one, record in derived["classes"].items() if record["evidence"] == "verified"} == set(
        model_types()[name]
    )


def test_the_shipped_data_is_exact_on_configs_that_nothing_was_fitted_to(name: str) -> None:
    sampler = Sampler(name, model_types()[name], seed=99)
    sampler.explore(seconds=4)
    known = member(config_class(name).model_type)
    fresh = sampler.fresh(12, seconds=20)
    assert fresh
    assert [sample.given for sample in fresh if not exact(known, sampler, sample)] == []


def exact(known: Member, sampler: Sampler, sample: Sample) -> bool:
    environment = complete(known.config, keyword_arguments(sample.given, sampler.inventory.subs))
    return all(expand(known.architecture(one).disk, environment).shapes == held for one, held in sample.shapes.items())
