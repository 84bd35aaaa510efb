"""Quantized repositories with the faults that were published, and those that look like them and are right."""

from __future__ import annotations

from typing import Any

import pytest

from repokit.linter.engine import lint
from repokit.linter.examples import DELETE, Example, edited
from repokit.linter.examples_quantized import everywhere
from repokit.linter.selection import Selection
from repokit.repo.repository import Repository

KEY = "quantization_config"
UP = "model.layers.0.mlp.up_proj"
WEIGHTS = "model.safetensors"
VISION = {"vision_config": {"model_type": "clip_vision_model"}}
PACKED = {
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int"}}},
    "format": "pack-quantized",
    "quant_method": "compressed-tensors",
}
MTP = {"mtp.fc.weight": ("BF16", (16, 32)), "mtp.layers.0.mlp.up_proj.weight": ("BF16", (24, 16))}


def said(base: str, change: dict[str, Any]) -> list[tuple[str, str]]:
    report = lint(Repository(Example("", change, base).source()), Selection(select=("QNT",)))
    assert report.coverage.broken == {}
    return [(finding.code, finding.severity.word) for finding in report.findings]


def group(**weights: object) -> dict[str, Any]:
    """A change of how the one group of compressed-tensors quantizes weights."""
    return {KEY: {"config_groups": {"group_0": {"weights": weights}}}}


@pytest.mark.parametrize(
    ("base", "change", "code"),
    [
        # The declaration is where no loader looks.
        pytest.param(
            "awq",
            {
                "config.json": {
                    KEY: DELETE,
                    "llm_config": {"model_type": "llama", KEY: {"quant_method": "awq"}},
                    **VISION,
                }
            },
            "QNT101",
            id="quantization_config only inside llm_config",
        ),
        pytest.param("bnb4", {"config.json": {KEY: DELETE}}, "QNT101", id="4-bit weights without a declaration"),
        pytest.param("mxfp4", {"config.json": {KEY: DELETE}}, "QNT101", id="packed experts without a declaration"),
        # The declaration is stale.
        pytest.param(
            "single",
            {"config.json": {KEY: {"quant_method": "bitsandbytes", "load_in_4bit": True}}},
            "QNT102",
            id="bitsandbytes over full-precision weights",
        ),
        pytest.param(
            "single",
            {"config.json": {"text_config": {"model_type": "llama", KEY: {"quant_method": "fp8"}}, **VISION}},
            "QNT102",
            id="text_config.quantization_config over full-precision weights",
        ),
        pytest.param("single", {"config.json": {KEY: PACKED}}, "QNT102", id="declared packed, stored plain"),
        # Companions are missing.
        pytest.param("gptq", {WEIGHTS: edited(drop=(f"{UP}.qzeros",))}, "QNT103", id="gptq without zero points"),
        pytest.param("awq", {WEIGHTS: edited(drop=(f"{UP}.scales",))}, "QNT103", id="awq without scales"),
        pytest.param(
            "gptq",
            {"config.json": {KEY: {"desc_act": True}}, WEIGHTS: edited(drop=(f"{UP}.g_idx",))},
            "QNT103",
            id="ordered columns without their order",
        ),
        pytest.param("bnb4", {WEIGHTS: edited(drop=(f"{UP}.weight.quant_map",))}, "QNT103", id="bnb without its map"),
        pytest.param(
            "bnb4",
            {WEIGHTS: edited(drop=(f"{UP}.weight.quant_state.bitsandbytes__nf4",))},
            "QNT103",
            id="bnb without its state",
        ),
        pytest.param(
            "bnb4",
            {WEIGHTS: edited(add={f"{UP}.weight.absmax": ("U8", (6,))})},
            "QNT103",
            id="double quantization without the second scales",
        ),
        pytest.param("bnb8", {WEIGHTS: edited(drop=(f"{UP}.SCB",))}, "QNT103", id="int8 without scales"),
        pytest.param("fp8", {WEIGHTS: edited(drop=(f"{UP}.weight",))}, "QNT103", id="scales without a weight"),
        pytest.param(
            "pack-quantized", {WEIGHTS: edited(drop=(f"{UP}.weight_scale",))}, "QNT103", id="packed without scales"
        ),
        pytest.param(
            "int-quantized", {WEIGHTS: edited(drop=(f"{UP}.weight_scale",))}, "QNT103", id="I8 without scales"
        ),
        pytest.param(
            "modelopt", {WEIGHTS: edited(drop=(f"{UP}.weight_scale_2",))}, "QNT103", id="nvfp4 without its second scale"
        ),
        pytest.param("mlx", {WEIGHTS: edited(drop=(f"{UP}.biases",))}, "QNT103", id="affine without biases"),
        # The list of modules that stay plain.
        pytest.param(
            "float-quantized",
            {
                "config.json": {KEY: {"ignore": ["lm_head", UP]}},
                WEIGHTS: edited(add={f"{UP}.weight": ("BF16", (24, 16))}),
            },
            "QNT104",
            id="weight_scale of a module that is in the ignore list",
        ),
        pytest.param(
            "float-quantized",
            {WEIGHTS: edited(drop=(f"{UP}.weight_scale",), add={f"{UP}.weight": ("BF16", (24, 16))})},
            "QNT104",
            id="one layer stored plain and not listed",
        ),
        # Names, presence and granularity of scales.
        pytest.param(
            "int-quantized",
            {WEIGHTS: edited(add={f"{UP}.weight_zero_point": ("I8", (24, 1))})},
            "QNT105",
            id="weight_zero_point though symmetric",
        ),
        pytest.param("int-quantized", {"config.json": group(symmetric=False)}, "QNT105", id="asymmetric without zeros"),
        pytest.param("int-quantized", {"config.json": group(strategy="tensor")}, "QNT105", id="channel, not tensor"),
        pytest.param("fp8", {"config.json": {KEY: {"weight_block_size": [4, 8]}}}, "QNT105", id="another block size"),
        pytest.param(
            "float-quantized",
            {WEIGHTS: edited(rename=lambda name: name.replace("weight_scale", "weight_scale_inv"))},
            "QNT105",
            id="the spelling of another method",
        ),
        pytest.param(
            "float-quantized",
            {
                "config.json": {
                    KEY: {"config_groups": {"group_0": {"input_activations": {"dynamic": False, "strategy": "tensor"}}}}
                }
            },
            "QNT105",
            id="static activations without scales",
        ),
        pytest.param(
            "float-quantized",
            {
                WEIGHTS: edited(
                    add={f"model.layers.0.self_attn.{side}_proj.{side}_scale": ("F32", (1,)) for side in "kv"}
                )
            },
            "QNT108",
            id="k_scale and v_scale that kv_cache_scheme does not announce",
        ),
        # Numbers against shapes.
        pytest.param("gptq", {"config.json": {KEY: {"group_size": 5}}}, "QNT106", id="gptq: no divisor"),
        pytest.param("gptq", {"config.json": {KEY: {"group_size": -1}}}, "QNT106", id="gptq: per column declared"),
        pytest.param("awq", {"config.json": {KEY: {"group_size": 12}}}, "QNT106", id="awq: no divisor"),
        pytest.param("awq", {"config.json": {KEY: {"bits": 8}}}, "QNT106", id="awq: other bits"),
        pytest.param("pack-quantized", {"config.json": group(group_size=12)}, "QNT106", id="packed: no divisor"),
        pytest.param("pack-quantized", {"config.json": group(num_bits=8)}, "QNT106", id="packed: other bits"),
        pytest.param(
            "bnb4", {WEIGHTS: edited(add={f"{UP}.weight.absmax": ("F32", (5,))})}, "QNT106", id="no block size"
        ),
        pytest.param("mlx", {"config.json": {"quantization": {"bits": 8}, KEY: {"bits": 8}}}, "QNT106", id="mlx: bits"),
        # Values.
        pytest.param("fp8", {"config.json": {KEY: {"scale_fmt": "e8m0"}}}, "QNT107", id="a value of no method"),
        pytest.param("fp8", {"config.json": {KEY: {"quant_method": DELETE}}}, "QNT107", id="no method"),
    ],
)
def test_faults(base: str, change: dict[str, Any], code: str) -> None:
    assert said(base, change) == [(code, "error")]


@pytest.mark.parametrize(
    ("base", "change", "code"),
    [
        pytest.param("awq", {"config.json": {"dtype": "bfloat16"}}, "QNT201", id="awq declared as bfloat16"),
        pytest.param(
            "gptq", {"quantize_config.json": '{"bits": 4, "group_size": 128}'}, "QNT202", id="a side file that differs"
        ),
        pytest.param(
            "float-quantized",
            {"config.json": {KEY: {"ignore": ["lm_head", "mtp.fc"]}}, WEIGHTS: edited(add=MTP)},
            "QNT203",
            id="only one module of the draft layers is listed",
        ),
    ],
)
def test_what_bites_some_readers(base: str, change: dict[str, Any], code: str) -> None:
    assert said(base, change) == [(code, "warning")]


def double_quantized(rows: int, columns: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    blocks = -(-rows * columns // 64)
    return {
        "weight.absmax": ("U8", (blocks,)),
        "weight.nested_absmax": ("F32", (-(-blocks // 256),)),
        "weight.nested_quant_map": ("F32", (256,)),
    }


@pytest.mark.parametrize(
    ("base", "change"),
    [
        pytest.param("float-quantized", {WEIGHTS: edited(add=MTP)}, id="draft layers in BF16, none of them listed"),
        pytest.param(
            "fp8",
            {WEIGHTS: edited(add={"model.layers.2.mlp.up_proj.weight": ("BF16", (24, 16))})},
            id="a draft layer behind the last layer",
        ),
        pytest.param(
            "gptq",
            {
                "config.json": {KEY: {"lm_head": True}},
                WEIGHTS: edited(
                    drop=("lm_head.weight",),
                    add={
                        "lm_head.qweight": ("I32", (2, 32)),
                        "lm_head.qzeros": ("I32", (2, 4)),
                        "lm_head.scales": ("F16", (2, 32)),
                    },
                ),
            },
            id="the head quantized, the embedding not",
        ),
        pytest.param(
            "float-quantized",
            {
                "config.json": {KEY: {"kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"}}},
                WEIGHTS: edited(add={"model.layers.0.self_attn.k_scale": ("F32", (1,))}),
            },
            id="scales of the cache, announced",
        ),
        pytest.param(
            "modelopt",
            {
                "hf_quant_config.json": '{"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}',
                WEIGHTS: edited(add={"model.layers.0.self_attn.k_proj.k_scale": ("F32", ())}),
            },
            id="scales of the cache, announced by ModelOpt",
        ),
        pytest.param(
            "single",
            {WEIGHTS: edited(add={f"{UP}.weight": ("F8_E4M3", (24, 16)), "scaled_fp8": ("F8_E4M3", (0,))})},
            id="cast weights with the marker without elements",
        ),
        pytest.param(
            "single",
            {"config.json": {KEY: {"quant_method": "compressed-tensors", "config_groups": {}, "format": "dense"}}},
            id="nothing but activations",
        ),
        pytest.param("single", {"config.json": {KEY: {"quant_method": "quanto", "weights": "int8"}}}, id="on the fly"),
        pytest.param(
            "single", {"config.json": {KEY: {"quant_method": "fp8", "dequantize": True}}}, id="undone on load"
        ),
        pytest.param("bnb4", {WEIGHTS: edited(add=everywhere(double_quantized))}, id="double quantization"),
        pytest.param("gptq", {"config.json": {KEY: {"checkpoint_format": "marlin"}}}, id="another packing of gptq"),
        pytest.param("gptq", {"config.json": {KEY: {"group_size": 4, "dynamic": {"-:.*": {}}}}}, id="rules by module"),
        pytest.param(
            "mlx",
            {
                "config.json": {key: {"bits": 8, UP: {"bits": 4, "group_size": 8}} for key in ("quantization", KEY)},
                WEIGHTS: edited(
                    add={
                        name: info
                        for name, info in everywhere(
                            lambda rows, columns: {"weight": ("U32", (rows, columns // 4))}
                        ).items()
                        if not name.startswith(UP)
                    }
                ),
            },
            id="settings of one module in MLX",
        ),
        pytest.param(
            "fp8",
            {
                "config.json": {KEY: {"modules_to_not_convert": ["up_proj"]}},
                WEIGHTS: edited(
                    drop=tuple(f"model.layers.{layer}.mlp.up_proj.weight_scale_inv" for layer in range(2)),
                    add={f"model.layers.{layer}.mlp.up_proj.weight": ("BF16", (24, 16)) for layer in range(2)},
                ),
            },
            id="the end of a name in the list",
        ),
        pytest.param(
            "float-quantized",
            {
                "config.json": {KEY: {"ignore": ["re:.*layers.0.mlp.*"]}},
                WEIGHTS: edited(drop=(f"{UP}.weight_scale",), add={f"{UP}.weight": ("BF16", (24, 16))}),
            },
            id="an expression in the list",
        ),
        pytest.param("gptq", {"quantize_config.json": '{"per_channel": false}'}, id="a side file of another tool"),
    ],
)
def test_right_though_it_looks_wrong(base: str, change: dict[str, Any]) -> None:
    assert said(base, change) == []


def test_an_unknown_method_is_a_note_and_nothing_else() -> None:
    config = {KEY: {"quant_method": "frobnicate", "bits": 99, "group_size": 0}}
    assert said("gptq", {"config.json": config}) == [("QNT301", "note")]


def test_what_only_newer_readers_refuse_is_a_note() -> None:
    assert said("pack-quantized", {"config.json": group(actorder="group")}) == [("QNT302", "note")]


def test_one_finding_names_every_module() -> None:
    names = tuple(name for name in everywhere(lambda _rows, _columns: {"scales": ("F16", (2,))}))
    report = lint(
        Repository(Example("", {WEIGHTS: edited(drop=names)}, "gptq").source()), Selection(select=("QNT103",))
    )
    assert [len(finding.names) for finding in report.findings] == [14]


def test_weights_that_are_not_all_there_are_not_judged() -> None:
    config = {KEY: {"quant_method": "bitsandbytes", "load_in_4bit": True}}
    example = Example("", {"config.json": config, "model-00002-of-00003.safetensors": None}, "sharded")
    report = lint(Repository(example.source()), Selection(select=("QNT102",)))
    assert (list(report.findings), list(report.coverage.not_checked)) == ([], ["QNT102"])
