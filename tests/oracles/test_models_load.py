"""The oracle itself: transformers loads what it wrote, and the comparison sees what it should."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from loading import differing_tensors, load_report, same_tensors
from make_models import CASES, KNOWN, MODELS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("name", ["llama", "qwen3-tied-sharded-bf16", "llama-variant-fp16"])
def test_an_untouched_repository_loads_clean(models, name):
    assert load_report(models / name, **CASES[name].load).clean


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_every_untouched_repository_loads_clean(models, name):
    assert load_report(models / name, **CASES[name].load).clean


def test_a_tensor_that_was_taken_out_is_missing(models, tmp_path):
    name = "model.layers.1.mlp.up_proj.weight"
    repository = change_tensors(models / "llama", tmp_path, lambda tensors: tensors.pop(name))
    assert load_report(repository).missing == {name}


def test_a_tensor_that_the_model_does_not_have_is_unexpected(models, tmp_path):
    repository = change_tensors(
        models / "llama", tmp_path, lambda tensors: tensors.update(extra=tensors["model.norm.weight"].clone())
    )
    assert load_report(repository).unexpected == {"extra"}


def test_a_tied_head_is_not_missing_and_is_among_the_tensors(models):
    report = load_report(models / "llama-tied")
    assert not report.missing
    assert "lm_head.weight" in report.tensors


def test_a_second_load_gives_the_same_tensors(models):
    assert same_tensors(load_report(models / "llama").tensors, load_report(models / "llama").tensors)


def test_one_bit_is_a_difference():
    import torch

    assert differing_tensors({"zero": torch.tensor(0.0)}, {"zero": torch.tensor(-0.0)}) == {"zero"}


def test_a_nan_is_no_difference():
    import torch

    assert same_tensors({"nan": torch.tensor([float("nan")])}, {"nan": torch.tensor([float("nan")])})


def test_another_dtype_is_a_difference():
    import torch

    assert not same_tensors({"zero": torch.zeros(2)}, {"zero": torch.zeros(2, dtype=torch.bfloat16)})


def test_a_name_on_one_side_is_a_difference():
    import torch

    assert differing_tensors({"a": torch.zeros(1), "b": torch.zeros(1)}, {"a": torch.zeros(1)}) == {"b"}


@pytest.mark.parametrize("fact", KNOWN)
def test_a_known_fact_holds_for_these_cases_and_no_others(models, fact):
    assert {name for name in MODELS if FACTS[fact](models / name)} == KNOWN[fact]


def change_tensors(repository, tmp_path, change):
    from safetensors.torch import load_file, save_file

    copy = shutil.copytree(repository, tmp_path / "repository")
    weights = copy / "model.safetensors"
    tensors = load_file(weights)
    change(tensors)
    save_file(tensors, weights, metadata={"format": "pt"})
    return copy


def has_special_ids_beyond_the_vocabulary(repository: Path) -> bool:
    size = vocabulary_size(repository)
    return size is not None and any(
        number >= size
        for file in ("config.json", "generation_config.json")
        if (repository / file).exists()
        for number in special_ids(read(repository / file))
    )


def has_more_rows_than_tokens(repository: Path) -> bool:
    from tokenizers import Tokenizer

    size, file = vocabulary_size(repository), repository / "tokenizer.json"
    return size is not None and file.exists() and size > Tokenizer.from_file(str(file)).get_vocab_size()


def has_no_fast_tokenizer(repository: Path) -> bool:
    return not (repository / "tokenizer.json").exists()


def has_padding(repository: Path) -> bool:
    file = repository / "tokenizer.json"
    return file.exists() and read(file)["padding"] is not None


FACTS = {
    "special ids beyond the vocabulary": has_special_ids_beyond_the_vocabulary,
    "more embedding rows than tokens": has_more_rows_than_tokens,
    "no fast tokenizer": has_no_fast_tokenizer,
    "padding in tokenizer.json": has_padding,
}


def read(path: Path) -> Any:
    return json.loads(path.read_bytes())


def vocabulary_size(repository: Path) -> int | None:
    config = read(repository / "config.json")
    return config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")


def special_ids(value: Any) -> Iterator[int]:
    """The numbers under keys such as eos_token_id and image_token_index, at any depth."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        if key.endswith(("_token_id", "_token_index")):
            yield from (number for number in (inner if isinstance(inner, list) else [inner]) if number is not None)
        yield from special_ids(inner)
