"""Adapters: pairs of factors and their ranks."""

from __future__ import annotations

import pytest

from repokit.linter.examples import Example, Tensors, safetensors
from repokit.repo.adapter import Adapter, adapters
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository


def adapter(tensors: Tensors, config: bytes = b'{"r": 4}') -> Adapter:
    files = {"adapter_config.json": config, "adapter_model.safetensors": safetensors(tensors)}
    (found,) = adapters(Repository(Memory(files)))
    return found


def test_factors_are_paired_by_module() -> None:
    (first, *_) = adapters(Repository(Example("", base="lora").source()))
    assert len(first.pairs) == 4
    assert {(pair.rank, pair.fits, pair.embedding) for pair in first.pairs.values()} == {(4, True, False)}


@pytest.mark.parametrize("ending", [".weight", ""])
@pytest.mark.parametrize("kind", ["lora_", "lora_embedding_"])
def test_spellings_of_factors(kind: str, ending: str) -> None:
    tensors = {f"m.{kind}A{ending}": ("F32", (4, 8)), f"m.{kind}B{ending}": ("F32", (8, 4))}
    assert list(adapter(tensors).pairs) == ["m"]


@pytest.mark.parametrize("name", ["m.lora_magnitude_vector", "m.weight", "base_model.vera_A", "m.lora_E"])
def test_other_tensors_are_no_factors(name: str) -> None:
    assert adapter({name: ("F32", (4, 4))}).pairs == {}


@pytest.mark.parametrize("shape", [(64,), (0, 8), (0,)])
def test_what_is_no_matrix_has_no_rank(shape: tuple[int, ...]) -> None:
    pair = adapter({"m.lora_A.weight": ("F32", shape)}).pairs["m"]
    assert (pair.rank, pair.fits) == (None, True)


def test_convolutions_have_ranks_too() -> None:
    tensors = {"m.lora_A.weight": ("F32", (4, 8, 3, 3)), "m.lora_B.weight": ("F32", (8, 4, 1, 1))}
    assert adapter(tensors).pairs["m"].rank == 4


def test_an_adapter_in_each_folder() -> None:
    files = {**Example("", base="lora").files(), "b/adapter_config.json": b'{"r": 2}'}
    found = adapters(Repository(Memory(files)))
    assert [(entry.config.path, entry.weights) for entry in found] == [
        ("adapter_config.json", "adapter_model.safetensors"),
        ("b/adapter_config.json", None),
    ]
