"""What is declared and what is stored, taken apart."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies

from repokit.linter.examples import BASES, Example, edited, safetensors
from repokit.repo.memory import Memory
from repokit.repo.quantization import Declared, Quantization, keeps_weights, quantization, skip_list
from repokit.repo.quantized_parts import missing_parts
from repokit.repo.repository import Repository

FORMS = {
    "single": (),
    "gptq": ("packed rows",),
    "awq": ("packed rows",),
    "fp8": ("float8",),
    "bnb4": ("bitsandbytes 4-bit",),
    "bnb8": ("bitsandbytes int8",),
    "pack-quantized": ("packed",),
    "float-quantized": ("float8",),
    "int-quantized": ("int8",),
    "mxfp4": ("mxfp4",),
    "mlx": ("mlx",),
    "modelopt": ("float4",),
}


def facet(config: dict[str, Any] | None, tensors: dict[str, tuple[str, tuple[int, ...]]] | None = None) -> Quantization:
    files = {} if config is None else {"config.json": json.dumps(config).encode()}
    if tensors is not None:
        files["model.safetensors"] = safetensors(tensors)
    return quantization(Repository(Memory(files)))


def of_base(base: str, change: dict[str, Any] | None = None) -> Quantization:
    return quantization(Repository(Example("", change or {}, base).source()))


def declared(config: dict[str, Any]) -> Declared:
    found = facet({"quantization_config": config}).declared
    assert found is not None
    return found


@pytest.mark.parametrize("base", FORMS)
def test_forms_of_storage(base: str) -> None:
    assert of_base(base).forms == FORMS[base]


@pytest.mark.parametrize("base", sorted(set(FORMS) - {"single"}))
def test_a_module_that_a_method_wrote_lacks_nothing(base: str) -> None:
    found = of_base(base)
    assert found.declared is not None
    assert [missing_parts(module, found.declared) for module in found.modules if module.quantized] == [
        [] for module in found.modules if module.quantized
    ]


def test_modules_that_are_stored_alike_are_one() -> None:
    queries = [module for module in of_base("gptq").modules if module.pattern.endswith("q_proj")]
    assert [module.names for module in queries] == [
        ("model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj")
    ]


def test_modules_that_are_stored_differently_are_two() -> None:
    change = {"model.safetensors": edited(drop=("model.layers.0.self_attn.q_proj.scales",))}
    queries = [module for module in of_base("gptq", change).modules if module.pattern.endswith("q_proj")]
    assert sorted(len(module.parts) for module in queries) == [3, 4]


def test_fused_experts_have_their_parts_behind_an_underscore() -> None:
    found = of_base("mxfp4").modules
    experts = next(module for module in found if module.pattern.endswith("down_proj"))
    assert experts.parts.keys() == {"blocks", "scales", "bias"}


def test_weights_of_an_adapter_are_no_modules() -> None:
    assert of_base("lora").modules == ()


@pytest.mark.parametrize(
    ("config", "method"),
    [
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"quantization_config": {"load_in_4bit": True}}, "bitsandbytes"),
        ({"quantization_config": {"quant_method": "awq", "load_in_8bit": True}}, "bitsandbytes"),
        ({"quantization_config": {"quant_algo": "FP8", "producer": {"name": "modelopt"}}}, "modelopt"),
        ({"quantization_config": {"bits": 4}}, None),
        ({"compression_config": {"quant_method": "compressed-tensors"}}, "compressed-tensors"),
        ({"quantization": {"bits": 4}}, "mlx"),
        ({"quantization": {"bits": 4}, "quantization_config": {"bits": 4}}, "mlx"),
        ({"quantization": {"bits": 4}, "quantization_config": {"quant_method": "fp8"}}, "fp8"),
        ({"text_config": {"quantization_config": {"quant_method": "fp8"}}}, "fp8"),
    ],
)
def test_the_method_of_a_declaration(config: dict[str, Any], method: str | None) -> None:
    found = facet(config).declared
    assert found is not None
    assert found.method == method


@pytest.mark.parametrize("config", [None, {}, {"quantization_config": None}, {"quantization_config": []}])
def test_no_declaration(config: dict[str, Any] | None) -> None:
    assert facet(config).declared is None


def test_a_declaration_where_no_loader_looks() -> None:
    found = facet({"llm_config": {"quantization_config": {"quant_method": "awq"}}})
    assert (found.declared, [document.pointer for document in found.nested]) == (
        None,
        ["/llm_config/quantization_config"],
    )


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({"quant_method": "fp8"}, False),
        ({"quant_method": "fp8", "dequantize": True}, True),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, True),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": None}}}, True),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 4}}}}, False),
        ({"quant_method": "modelopt", "quant_algo": None, "kv_cache_quant_algo": "FP8"}, True),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, False),
    ],
)
def test_declarations_that_leave_weights_alone(config: dict[str, Any], *, kept: bool) -> None:
    assert keeps_weights(declared(config)) is kept


@pytest.mark.parametrize(
    ("config", "module", "entry"),
    [
        ({"quant_method": "fp8", "modules_to_not_convert": ["lm_head"]}, "lm_head", "lm_head"),
        (
            {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.1"]},
            "model.layers.1.mlp.up",
            "model.layers.1",
        ),
        ({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.1"]}, "model.layers.11.mlp.up", None),
        ({"quant_method": "fp8", "modules_to_not_convert": ["mlp.gate"]}, "model.layers.1.mlp.gate", "mlp.gate"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["gate"]}, "model.layers.1.mlp.gate_proj", None),
        ({"quant_method": "fp8", "ignored_layers": ["lm_head"]}, "lm_head", "lm_head"),
        ({"quant_method": "compressed-tensors", "ignore": ["lm_head"]}, "lm_head", "lm_head"),
        ({"quant_method": "compressed-tensors", "ignore": ["mlp.gate"]}, "model.layers.1.mlp.gate", None),
        ({"quant_method": "compressed-tensors", "ignore": ["re:.*"]}, "lm_head", None),
        ({"quant_method": "bitsandbytes", "llm_int8_skip_modules": ["lm_head"]}, "lm_head", "lm_head"),
        ({"quant_method": "awq", "modules_to_not_convert": None}, "lm_head", None),
    ],
)
def test_what_a_list_of_modules_covers(config: dict[str, Any], module: str, entry: str | None) -> None:
    found = skip_list(declared(config))
    assert found is not None
    assert found.covers()(module) == entry


def test_a_list_with_an_expression_is_not_plain() -> None:
    found = skip_list(declared({"quant_method": "fp8", "modules_to_not_convert": ["lm_head", r"layers\.\d+"]}))
    assert found is not None
    assert not found.plain


@pytest.mark.parametrize(
    ("name", "draft"),
    [
        ("mtp.fc", True),
        ("model.mtp_block.up_proj", True),
        ("model.layers.2.mlp.up_proj", True),
        ("model.layers.1.mlp.up_proj", False),
        ("lm_head", False),
    ],
)
def test_modules_that_draft_tokens(name: str, *, draft: bool) -> None:
    assert facet({"num_hidden_layers": 2}).is_draft(name) is draft


@given(
    strategies.dictionaries(
        strategies.sampled_from([f"m.{number}.{part}" for number in range(3) for part in ("weight", "qweight", "SCB")]),
        strategies.tuples(
            strategies.sampled_from(["BF16", "I32", "U8", "F8_E4M3"]),
            strategies.lists(strategies.integers(0, 3), max_size=3).map(tuple),
        ),
        min_size=1,
    )
)
def test_every_tensor_of_a_judged_pattern_is_in_one_module(tensors: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    modules = facet({}, tensors).modules
    held = [f"{name}.{part}" for module in modules for name in module.names for part in module.parts]
    assert sorted(held) == (sorted(tensors) if modules else [])


def test_every_base_of_a_method_is_here() -> None:
    assert {base for base in BASES if of_base(base).declared is not None} == set(FORMS) - {"single"}
