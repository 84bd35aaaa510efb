"""config.json and the configs inside it."""

from __future__ import annotations

from typing import Any

import pytest

from repokit.repo.config import Config


def config(**raw: Any) -> Config:
    return Config("config.json", raw)


def test_the_text_model_is_the_config_itself_where_nothing_is_nested() -> None:
    built = config(vocab_size=5)
    assert built.text is built


@pytest.mark.parametrize(
    "key", ["text_config", "text_encoder", "decoder", "generator", "llm_config", "language_config"]
)
def test_the_text_model_of_a_composed_one(key: str) -> None:
    built = config(vocab_size=5, **{key: {"vocab_size": 7}})
    assert (built.text.pointer, built.vocab_size) == (f"/{key}", 7)


def test_the_vocabulary_of_the_whole_counts_where_the_text_model_has_none() -> None:
    assert config(vocab_size=5, text_config={}).vocab_size == 5


def test_levels_are_listed_from_outside_in() -> None:
    built = config(thinker_config={"text_config": {}}, vision_config={}, quantization_config={"sub_config": {}})
    assert [level.pointer for level in built.levels] == [
        "",
        "/thinker_config",
        "/vision_config",
        "/thinker_config/text_config",
    ]


@pytest.mark.parametrize(
    ("raw", "composed"),
    [
        ({}, False),
        ({"quantization_config": {}}, False),
        ({"rope_parameters": {}}, False),
        ({"vision_config": {}}, True),
        ({"is_encoder_decoder": True}, True),
        ({"is_encoder_decoder": False}, False),
    ],
)
def test_what_is_composed(raw: dict[str, Any], *, composed: bool) -> None:
    assert config(**raw).composed is composed


@pytest.mark.parametrize(
    ("raw", "dtype", "place"),
    [
        ({"dtype": "bfloat16", "torch_dtype": "float16"}, "BF16", "/dtype"),
        ({"torch_dtype": "float16"}, "F16", "/torch_dtype"),
        ({"text_config": {"dtype": "float32"}}, "F32", "/text_config/dtype"),
        ({"dtype": {"": "bfloat16"}, "torch_dtype": "float16"}, "F16", "/torch_dtype"),
        ({"dtype": "auto"}, None, "/dtype"),
        ({}, None, None),
    ],
)
def test_the_declared_dtype_and_where_it_stands(raw: dict[str, Any], dtype: str | None, place: str | None) -> None:
    assert (config(**raw).dtype, config(**raw).dtype_place) == (dtype, place)


@pytest.mark.parametrize(
    ("raw", "tied"),
    [
        ({}, None),
        ({"tie_word_embeddings": False, "text_config": {"tie_word_embeddings": True}}, False),
        ({"text_config": {"tie_word_embeddings": True}}, True),
        ({"tie_word_embeddings": "true"}, None),
    ],
)
def test_whether_the_head_is_the_embedding(raw: dict[str, Any], tied: object) -> None:
    assert config(**raw).tie_word_embeddings is tied


@pytest.mark.parametrize(
    ("raw", "rows"),
    [
        ({"vocab_size": 32}, (32,)),
        ({"vocab_size": 32, "additional_vocab_size": 4}, (32, 36)),
        ({"model_type": "mllama", "text_config": {"model_type": "mllama_text_model", "vocab_size": 32}}, (40,)),
        ({"model_type": "moshi", "vocab_size": 32}, (33,)),
        ({"vocab_size": 0}, ()),
        ({"vocab_size": -1}, ()),
        ({"vocab_size": "32"}, ()),
        ({}, ()),
    ],
)
def test_rows_of_the_embedding(raw: dict[str, Any], rows: tuple[int, ...]) -> None:
    assert config(**raw).embedding_rows == rows


@pytest.mark.parametrize(
    ("raw", "labels"),
    [({}, 2), ({"id2label": {"0": "a"}}, 1), ({"id2label": {"0": "a"}, "num_labels": 3}, 3), ({"num_labels": None}, 2)],
)
def test_how_many_labels(raw: dict[str, Any], labels: int) -> None:
    assert config(**raw).labels == labels


def test_layers_and_experts_go_by_many_names() -> None:
    assert [config(**{key: 7}).layers for key in ("num_hidden_layers", "n_layer", "n_layers", "num_layers")] == [7] * 4
    assert [config(**{key: 7}).experts for key in ("num_experts", "num_local_experts", "n_routed_experts")] == [7] * 3
    assert config(text_config={"num_experts": 3}).experts == 3


def test_quantization_may_be_declared_for_the_text_model() -> None:
    nested = config(text_config={"quantization_config": {"quant_method": "awq"}}).quantization
    assert nested is not None
    assert nested.pointer == "/text_config/quantization_config"
