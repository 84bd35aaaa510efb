"""Indexes against shards, over generated splits: whatever is moved, lost or repeated is named, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given, strategies as st

from repokit.linter.engine import lint
from repokit.linter.examples import Example, safetensors, shard
from repokit.linter.finding import Finding
from repokit.linter.rules import index
from repokit.linter.selection import Selection
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository
from repokit.repo.weights import INDEX

NAMES = [f"model.layers.{layer}.{part}.weight" for layer in range(4) for part in ("up", "down", "norm")]
SIZE = 8  # bytes of a BF16 tensor of 2 x 2

# Each tensor's shard, out of three.
splits = st.lists(st.integers(1, 3), min_size=len(NAMES), max_size=len(NAMES)).map(
    lambda numbers: {name: shard(number) for name, number in zip(NAMES, numbers, strict=True)}
)
chosen = st.sets(st.sampled_from(NAMES), min_size=1, max_size=5)


def repository(held: Mapping[str, set[str]], weight_map: Mapping[str, str], metadata: object = None) -> Repository:
    """Shards that hold these names, and an index that says something."""
    files = {path: safetensors(dict.fromkeys(sorted(names), ("BF16", (2, 2)))) for path, names in held.items()}
    document = {"metadata": {} if metadata is None else metadata, "weight_map": dict(weight_map)}
    return Repository(Memory({**files, INDEX: json.dumps(document).encode()}))


def held_by(weight_map: Mapping[str, str]) -> dict[str, set[str]]:
    return {path: {name for name, where in weight_map.items() if where == path} for path in weight_map.values()}


def findings(built: Repository) -> list[Finding]:
    return [*lint(built, Selection(select=("IDX",))).findings]


def named(found: list[Finding], code: str) -> set[str]:
    return {name for finding in found if finding.code == code for name in finding.names}


@given(splits)
def test_a_true_index_is_clean(weight_map: dict[str, str]) -> None:
    metadata = {"total_size": SIZE * len(NAMES), "total_parameters": 4 * len(NAMES)}
    assert findings(repository(held_by(weight_map), weight_map, metadata)) == []


@given(splits, chosen)
def test_tensors_that_no_shard_holds_are_named(weight_map: dict[str, str], lost: set[str]) -> None:
    held = {path: names - lost for path, names in held_by(weight_map).items()}
    found = findings(repository(held, weight_map))
    assert named(found, "IDX103") == lost
    assert {finding.code for finding in found} == {"IDX103"}


@given(splits, chosen)
def test_tensors_that_the_index_forgot_are_named(weight_map: dict[str, str], forgotten: set[str]) -> None:
    short = {name: path for name, path in weight_map.items() if name not in forgotten}
    listed = set(short.values())
    held = {path: names for path, names in held_by(weight_map).items() if path in listed}
    found = findings(repository(held, short))
    assert named(found, "IDX104") == forgotten & set().union(*held.values())


@given(splits, chosen)
def test_tensors_in_a_second_shard_are_named(weight_map: dict[str, str], repeated: set[str]) -> None:
    held = held_by(weight_map)
    other = min(held)
    copied = {name for name in repeated if weight_map[name] != other}
    held[other] |= copied
    found = findings(repository(held, weight_map))
    assert named(found, "IDX105") == copied


@given(splits, st.integers(-10, 10).filter(bool))
def test_any_other_total_is_wrong(weight_map: dict[str, str], difference: int) -> None:
    metadata = {"total_size": SIZE * len(NAMES) + difference}
    assert [finding.code for finding in findings(repository(held_by(weight_map), weight_map, metadata))] == ["IDX203"]


def test_a_missing_shard_leaves_the_total_unjudged() -> None:
    weight_map = {NAMES[0]: shard(1), NAMES[1]: shard(2)}
    found = findings(repository({shard(1): {NAMES[0]}}, weight_map, {"total_size": 1}))
    assert [finding.code for finding in found] == ["IDX101"]


def test_every_index_is_judged_in_its_own_folder() -> None:
    files = {
        "unet/diffusion_pytorch_model.safetensors.index.json": json.dumps(
            {"metadata": {}, "weight_map": {"a": "diffusion_pytorch_model-00001-of-00001.safetensors"}}
        ).encode()
    }
    found = findings(Repository(Memory(files)))
    assert [(finding.path, finding.names) for finding in found] == [
        (next(iter(files)), ("unet/diffusion_pytorch_model-00001-of-00001.safetensors",))
    ]


def test_diffusers_reads_its_index_before_the_single_file() -> None:
    """Only transformers prefers the single file: here it is a second set, as its names collide."""
    name = "diffusion_pytorch_model"
    weights = safetensors({"a": ("F32", (1,))})
    document = {"metadata": {}, "weight_map": {"a": f"{name}-00001-of-00001.safetensors"}}
    files = {
        f"{name}.safetensors": weights,
        f"{name}-00001-of-00001.safetensors": weights,
        f"{name}.safetensors.index.json": json.dumps(document).encode(),
    }
    assert [finding.code for finding in findings(Repository(Memory(files)))] == ["IDX107"]


@pytest.mark.parametrize(
    ("first", "last"),
    [("model-00000-of-00002", "model-00002-of-00002"), ("model-00001-of-000008", "model_00002-of-00072"), ("a", "b")],
)
def test_names_of_shards_are_free(first: str, last: str) -> None:
    weight_map = {NAMES[0]: f"{first}.safetensors", NAMES[1]: f"{last}.safetensors"}
    assert findings(repository(held_by(weight_map), weight_map)) == []


def test_quantized_weights_are_not_counted() -> None:
    weight_map = {"a.qweight": shard(1, 1)}
    files = {
        shard(1, 1): safetensors({"a.qweight": ("I32", (8, 8))}),
        INDEX: json.dumps({"metadata": {"total_parameters": 512}, "weight_map": weight_map}).encode(),
    }
    assert findings(Repository(Memory(files))) == []


def test_a_refused_shard_is_never_opened() -> None:
    example = Example("", {INDEX: {"weight_map": {"model.norm.weight": "../secret.safetensors"}}}, "sharded")
    asked: list[str] = []

    class Watched(Memory):
        def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
            asked.append(path)
            return super().read(path, offset, length)

    lint(Repository(Watched(example.files())))
    assert [path for path in asked if "secret" in path] == []


def test_rules_of_the_family_are_the_ones_of_its_module() -> None:
    assert {rule.code[:3] for rule in index.RULES} == {"IDX"}
