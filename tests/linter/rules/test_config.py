"""config.json: what counts as a dtype, a token and a layer, at every level."""

from __future__ import annotations

from typing import Any

import pytest

from repokit.linter.engine import lint
from repokit.linter.examples import Example, edited
from repokit.linter.finding import Finding
from repokit.linter.rules.config import is_torch_dtype
from repokit.linter.selection import Selection
from repokit.repo.repository import Repository

FAMILY = Selection(select=("CFG",))


def found(change: dict[str, Any], base: str = "single") -> list[Finding]:
    return [*lint(Repository(Example("", change, base).source()), FAMILY).findings]


def places(config: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(finding.code, finding.place) for finding in found({"config.json": config})]


@pytest.mark.parametrize("name", ["bfloat16", "half", "uint4", "float8_e4m3fn", "float4_e2m1fn_x2", "float6_e2m3fn"])
def test_dtypes_of_this_torch_and_the_next(name: str) -> None:
    assert is_torch_dtype(name)


@pytest.mark.parametrize("name", ["auto", "", "torch.float16", "fp16", "bf16", "BF16", "float99", "int4x", "nn"])
def test_other_words_are_no_dtypes(name: str) -> None:
    assert not is_torch_dtype(name)


@pytest.mark.oracle
def test_every_dtype_of_torch_is_known() -> None:
    torch = pytest.importorskip("torch")
    names = [name for name, value in vars(torch).items() if isinstance(value, torch.dtype)]
    # Placeholders of quantization, in which no model is held.
    unknown = {name for name in names if not is_torch_dtype(name) and not name.startswith(("q", "bit"))}
    assert unknown == set()


def test_a_dtype_is_judged_at_every_level() -> None:
    assert places({"vision_config": {"dtype": "torch.float16"}}) == [("CFG102", "/vision_config/dtype")]


def test_layer_types_are_counted_at_every_level() -> None:
    text = {"num_hidden_layers": 2, "layer_types": ["full_attention"], "vocab_size": 32}
    assert places({"text_config": text}) == [("CFG104", "/text_config/layer_types")]


def test_a_quantization_config_is_no_model() -> None:
    assert places({"quantization_config": {"dtype": "whatever", "vocab_size": -3}}) == []


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"vocab_size": True}, []),  # a wrong type is another rule's
        ({"num_hidden_layers": 0}, ["CFG105"]),
        ({"vocab_size": 2**63}, ["CFG105"]),
    ],
)
def test_sizes_that_no_model_has(config: dict[str, Any], code: list[str]) -> None:
    assert [finding.code for finding in found({"config.json": config})] == code


def test_ids_are_held_against_the_rows_of_the_weights() -> None:
    """Mllama has eight rows more than vocab_size says, and its image token is the first of them."""
    rows = dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), ("BF16", (40, 16)))
    change = {
        "config.json": {"model_type": "mllama_text_model", "image_token_index": 32, "rope_theta": 10000.0},
        "model.safetensors": edited(add=rows),
    }
    assert found(change) == []


def test_ids_are_held_against_the_vocabulary_where_there_are_no_weights() -> None:
    change = {"config.json": {"bos_token_id": 32}, "model.safetensors": None}
    assert [finding.place for finding in found(change)] == ["/bos_token_id"]


def test_an_unreadable_embedding_leaves_ids_unjudged() -> None:
    report = lint(Repository(Example("", {"model.safetensors": b"x"}).source()), FAMILY)
    assert "CFG103" in report.coverage.not_checked


@pytest.mark.parametrize("value", [None, [], "absent"])
def test_architectures_may_not_be_empty(value: object) -> None:
    from repokit.linter.examples import DELETE

    change = {"config.json": {"architectures": DELETE if value == "absent" else value}}
    assert [finding.code for finding in found(change)] == ["CFG201"]


def test_an_adapter_needs_no_architectures() -> None:
    assert found({"config.json": '{"model_type": "llama"}'}, "lora") == []


def test_a_config_of_timm_names_no_model_type() -> None:
    assert found({"config.json": '{"architecture": "resnet50", "pretrained_cfg": {"tag": "a1"}}'}) == []
