"""Any change of a tensor, and any change of a config value that changes a tensor, is told.

small_configs.json holds configs of families that transformers saved in a small size, without the keys that no tensor
depends on. The tensors of each are what the skeleton says, so that the config alone is the example.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from repokit.architectures import ConfigUnusable, Evidence, NotCovered, Skeleton, evidence, skeleton
from repokit.architectures.solving import changed
from repokit.formats.safetensors import header_bytes, in_file_order
from repokit.formats.tensors import TensorInfo
from repokit.linter.rule import Reads
from repokit.linter.rules import RULES
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

CONFIGS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("small_configs.json").read_text("utf-8"))
# Beside the rules for tensors, those for configs that no class takes: what follows from them is not told.
OF_CONFIGS = {"CFG105", "CFG110", "CFG112", "CFG113", "CFG114", "CFG116", "FIL104"}
OF_TENSORS = [
    rule for rule in RULES if rule.reads < Reads.TENSORS and (rule.code.startswith("WGT") or rule.code in OF_CONFIGS)
]
SAMPLE = 120  # mutants of a normal run; all of them under `full`

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Mutant:
    """What was changed, and what came of it."""

    what: str
    config: Mapping[str, Any]
    tensors: Shapes


def verified() -> list[str]:
    return [name for name, config in CONFIGS.items() if evidence(config["model_type"], name) is Evidence.VERIFIED]


def repository(config: Mapping[str, Any], tensors: Shapes) -> Repository:
    placed = in_file_order(TensorInfo(name, "F32", shape, 0, 0) for name, shape in tensors.items())
    weights = header_bytes(placed, {"format": "pt"}) + bytes(placed[-1].end if placed else 0)
    return Repository(Memory({"config.json": json.dumps(config).encode(), "model.safetensors": weights}))


def codes(config: Mapping[str, Any], tensors: Shapes) -> set[str]:
    opened = repository(config, tensors)
    return {finding.code for rule in OF_TENSORS for finding in rule.check(opened)}


@cache
def tensors_of(name: str) -> Shapes:
    return {tensor: tuple(size or 1 for size in shape) for tensor, shape in skeleton(CONFIGS[name]).shapes.items()}


# ---------------------------------------------------------------- mutants


def mutants(name: str) -> Iterator[Mutant]:
    yield from mutants_of_tensors(name)
    yield from mutants_of_values(name)


def mutants_of_tensors(name: str) -> Iterator[Mutant]:
    """One tensor of every template lost, misnamed, or of another shape."""
    wanted, held, config = skeleton(CONFIGS[name]), tensors_of(name), CONFIGS[name]
    ones = {template.name: tensor for tensor, template in wanted.templates.items()}
    for tensor in ones.values():
        rest = {other: shape for other, shape in held.items() if other != tensor}
        shape = held[tensor]
        if not wanted.dispensable.search(tensor):
            yield Mutant(f"{tensor} lost", config, rest)
            yield Mutant(f"{tensor} misnamed", config, {**rest, f"{tensor}_x": shape})
        larger = (*shape[:-1], shape[-1] + 1) if shape else (2,)
        yield Mutant(f"{tensor} of another shape", config, {**rest, tensor: larger})


def mutants_of_values(name: str) -> Iterator[Mutant]:
    """Every value of the config on which a tensor depends, changed."""
    wanted, held, config = skeleton(CONFIGS[name]), tensors_of(name), CONFIGS[name]
    for key in wanted.member.config.defaults:
        for value in other_values(wanted.environment[key]):
            other = changed(config, wanted, key, value)
            if asks_for_others(wanted, other):
                yield Mutant(f"{key} {value}", other, held)
                break


def other_values(value: object) -> list[object]:
    match value:
        case bool():
            return [not value]
        case int():
            return [value * 2, value + 1]
        case _:
            return []


def asks_for_others(wanted: Skeleton, config: Mapping[str, Any]) -> bool:
    """Whether other tensors follow from this config, or none. Loaders do not mind some that are too many."""
    try:
        other = skeleton(config).shapes
    except ConfigUnusable:
        return True
    differing = {name for name, _ in wanted.shapes.items() ^ other.items()}
    return any(name in other or not wanted.ignored.search(name) for name in differing)


def unnoticed(name: str, some: list[Mutant]) -> list[str]:
    usual = codes(CONFIGS[name], tensors_of(name))
    return [mutant.what for mutant in some if not codes(mutant.config, mutant.tensors) - usual]


# ---------------------------------------------------------------- tests


def test_forty_architectures_take_part() -> None:
    assert len(verified()) >= 40


@pytest.mark.parametrize("name", CONFIGS)
def test_what_a_skeleton_says_is_exact(name: str) -> None:
    try:
        tensors = tensors_of(name)
    except NotCovered:
        pytest.skip("this version has no skeleton of it")
    assert codes(CONFIGS[name], tensors) - {"WGT108", "WGT203"} == set()


def test_a_sample_of_mutants_is_noticed() -> None:
    chosen = random.Random(4)
    names = verified()
    for name in chosen.sample(names, min(len(names), SAMPLE // 6)):
        every = list(mutants(name))
        assert (name, unnoticed(name, chosen.sample(every, min(len(every), 6)))) == (name, [])


@pytest.mark.full
@pytest.mark.parametrize("name", CONFIGS)
def test_every_mutant_is_noticed(name: str) -> None:
    if name not in verified():
        pytest.skip("not every tensor of it is known")
    assert unnoticed(name, list(mutants(name))) == []
