"""What a loader finds when it looks for weights."""

from __future__ import annotations

import json
from typing import Any

import pytest

from repokit.errors import MalformedFile, MissingInput
from repokit.linter.examples import Example, safetensors
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository
from repokit.repo.weights import INDEX, Weights


def weights(files: dict[str, bytes]) -> Weights:
    return Repository(Memory(files)).weights


def index(weight_map: dict[str, Any]) -> bytes:
    return json.dumps({"metadata": {}, "weight_map": weight_map}).encode()


def one(name: str = "a", shape: tuple[int, ...] = (2, 2), dtype: str = "F32") -> bytes:
    return safetensors({name: (dtype, shape)})


@pytest.mark.parametrize(
    ("present", "single"),
    [
        (["model.safetensors", INDEX, "adapter_model.safetensors"], "model.safetensors"),
        ([INDEX, "adapter_model.safetensors", "model.fp16.safetensors"], None),
        (["adapter_model.safetensors", "model.fp16.safetensors"], "adapter_model.safetensors"),
        (["model.fp16.safetensors"], "model.fp16.safetensors"),
        (["diffusion_pytorch_model.safetensors"], "diffusion_pytorch_model.safetensors"),
        (["unet/model.safetensors", "consolidated.safetensors"], None),
    ],
)
def test_which_single_file_is_loaded(present: list[str], single: str | None) -> None:
    assert weights(dict.fromkeys(present, b"")).single == single


@pytest.mark.parametrize(
    "other", ["model.safetensors.index.fp16.json", "consolidated.safetensors.index.json", "a.safetensors.index.json"]
)
def test_the_plain_index_comes_before_others(other: str) -> None:
    both = weights({INDEX: index({"a": "x.safetensors"}), other: index({"a": "y.safetensors"})})
    assert both.main == INDEX


def test_an_index_in_a_folder_is_not_the_root_s() -> None:
    assert weights({f"unet/{INDEX}": index({"a": "x.safetensors"})}).index is None


def test_there_may_be_no_weights() -> None:
    empty = weights({"config.json": b"{}"})
    assert (empty.main, empty.files, empty.tensors, empty.whole, empty.embedding) == (None, (), {}, {}, None)


@pytest.mark.parametrize("broken", [b"[]", b"{}", b'{"weight_map": []}', b'{"weight_map": {}}', b"{"])
def test_an_index_that_no_loader_can_use_is_malformed(broken: bytes) -> None:
    with pytest.raises(MalformedFile):
        _ = weights({INDEX: broken}).index


def test_entries_of_another_type_are_left_out() -> None:
    built = weights({INDEX: index({"a": "x.safetensors", "b": 3, "c": None})}).index
    assert built is not None
    assert built.weight_map == {"a": "x.safetensors"}


def test_the_index_decides_which_copy_counts() -> None:
    first, second = one(shape=(1, 1)), one(shape=(2, 2))
    files = {
        "1.safetensors": first,
        "2.safetensors": second,
        INDEX: index({"a": "1.safetensors", "b": "2.safetensors"}),
    }
    assert weights(files).tensors["a"].shape == (1, 1)


def test_tensors_of_what_is_there_are_known_without_the_rest() -> None:
    partly = weights({"1.safetensors": one(), INDEX: index({"a": "1.safetensors", "b": "2.safetensors"})})
    assert list(partly.tensors) == ["a"]
    with pytest.raises(MissingInput, match=r"2\.safetensors"):
        _ = partly.whole


def test_a_shard_without_what_it_should_hold_is_not_whole() -> None:
    with pytest.raises(MissingInput):
        _ = weights({"1.safetensors": one("b"), INDEX: index({"a": "1.safetensors"})}).whole


def test_the_weights_of_an_adapter_are_known_by_their_file() -> None:
    assert weights({"adapter_model.safetensors": one()}).of_adapter
    assert not weights({"model.safetensors": one()}).of_adapter
    assert not weights({}).of_adapter


def test_the_dtype_of_most_bytes_is_the_stored_one() -> None:
    tensors = {"a": ("BF16", (8, 8)), "b": ("F32", (2, 2)), "norm": ("F32", (4096,)), "ids": ("I64", (64, 64))}
    assert weights({"model.safetensors": safetensors(tensors)}).stored.dtype == "BF16"


def test_without_matrices_there_is_no_stored_dtype() -> None:
    assert weights({"model.safetensors": safetensors({"a": ("F32", (8,))})}).stored.dtype is None


@pytest.mark.parametrize(
    ("dtype", "shape", "packed"),
    [
        ("I32", (4, 4), True),
        ("U8", (4, 1), True),
        ("F8_E4M3", (4, 4), True),
        ("I64", (1, 4), False),
        ("U8", (1, 1, 4, 4), False),
        ("I32", (4,), False),
        ("BF16", (4, 4), False),
    ],
)
def test_dtypes_that_only_quantized_matrices_have(dtype: str, shape: tuple[int, ...], *, packed: bool) -> None:
    assert weights({"model.safetensors": one("a", shape, dtype)}).stored.packed is packed


@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "transformer.wte.weight",
        "bert.embeddings.word_embeddings.weight",
        "gpt_neox.embed_in.weight",
        "shared.weight",
        "backbone.embeddings.weight",
        "tok_embeddings.weight",
        "text_model.embeddings.token_embedding.weight",
    ],
)
def test_embeddings_of_the_families(name: str) -> None:
    assert [tensor.name for tensor in weights({"model.safetensors": one(name)}).embeddings] == [name]


@pytest.mark.parametrize(
    "name", ["embed_positions.weight", "model.embed_tokens.weight_scale", "patch_embedding.weight"]
)
def test_other_tables_are_no_token_embeddings(name: str) -> None:
    assert weights({"model.safetensors": one(name)}).embeddings == ()


def test_the_embedding_is_the_one_with_the_rows_of_the_vocabulary() -> None:
    tensors = {"a.embed_tokens.weight": ("F32", (9, 2)), "b.embed_tokens.weight": ("F32", (5, 2))}
    files = {"config.json": b'{"vocab_size": 5}', "model.safetensors": safetensors(tensors)}
    embedding = weights(files).embedding
    assert embedding is not None
    assert embedding.name == "b.embed_tokens.weight"


def test_rows_for_token_ids_are_of_the_weights_and_else_of_the_config() -> None:
    config = {"config.json": b'{"vocab_size": 5}'}
    assert weights({**config, "model.safetensors": one("wte.weight", (7, 2))}).token_rows == 7
    assert weights(config).token_rows == 5
    assert weights({}).token_rows is None


def test_stacks_are_the_blocks_of_transformers() -> None:
    files = Example("").files()
    assert weights(files).stacks == {"model.layers": {0, 1}}
