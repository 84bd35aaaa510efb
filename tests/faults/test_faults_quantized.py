"""Faults of published repositories: quantized weights.

Each id is the kind of fault and the public thread that reports it.
"""

from __future__ import annotations

from typing import Final

import pytest

from repokit.linter.examples import DELETE, Example, edited
from repokit.linter.examples_quantized import AWQ, BNB, FLOAT, FP8, PACKED
from repokit.linter.finding import Severity
from repokit.repo.weights import SINGLE

ERROR, WARNING = Severity.ERROR, Severity.WARNING
CONFIG: Final = "config.json"
KEY: Final = "quantization_config"
UP: Final = "model.layers.0.mlp.up_proj"
QUERY: Final = "model.layers.0.self_attn.q_proj"
GROUP: Final = "group_0"


def declared(**change: object) -> dict[str, object]:
    """A change to the quantization_config."""
    return {CONFIG: {KEY: change}}


def unpacked(*parts: str, dtype: str) -> dict[str, object]:
    """One module in full precision, its packed parts gone."""
    gone = tuple(f"{UP}.{part}" for part in parts)
    return {SINGLE: edited(drop=gone, add={f"{UP}.weight": (dtype, (24, 16))})}


FAULTS: Final[dict[str, tuple[str, Severity, Example]]] = {
    "QT01 vllm-project/vllm#11122": (
        "QNT101",
        ERROR,
        Example(
            "in the language model's part alone",
            {CONFIG: {KEY: DELETE, "llm_config": {"model_type": "llama", KEY: AWQ}}},
            "awq",
        ),
    ),
    "QT01 (nowhere)": ("QNT101", ERROR, Example("the config of the base", {CONFIG: {KEY: DELETE}}, "awq")),
    "QT01 (GPTQ)": ("QNT101", ERROR, Example("the config of the base", {CONFIG: {KEY: DELETE}}, "gptq")),
    "QT01 (FP8)": ("QNT101", ERROR, Example("the config of the base", {CONFIG: {KEY: DELETE}}, "fp8")),
    "QT01 (bitsandbytes)": ("QNT101", ERROR, Example("the config of the base", {CONFIG: {KEY: DELETE}}, "bnb4")),
    "QT01 (bitsandbytes, 8 bits)": (
        "QNT101",
        ERROR,
        Example("the config of the base", {CONFIG: {KEY: DELETE}}, "bnb8"),
    ),
    "QT01 (MXFP4)": ("QNT101", ERROR, Example("the config of the base", {CONFIG: {KEY: DELETE}}, "mxfp4")),
    "QT01 (NVFP4)": ("QNT101", ERROR, Example("the config of the base", {CONFIG: {KEY: DELETE}}, "modelopt")),
    "QT01 (int8)": ("QNT101", ERROR, Example("the config of the base", {CONFIG: {KEY: DELETE}}, "int-quantized")),
    "QT02 unslothai/unsloth#1601": ("QNT102", ERROR, Example("merged into 16 bits", {CONFIG: {KEY: BNB}})),
    "QT02 unslothai/unsloth-zoo#808": (
        "QNT102",
        ERROR,
        Example("merged into 16 bits", {CONFIG: {"text_config": {"vocab_size": 32, KEY: BNB}}}),
    ),
    "QT02 (AWQ)": ("QNT102", ERROR, Example("plain weights", {CONFIG: {KEY: AWQ}})),
    "QT02 (FP8)": ("QNT102", ERROR, Example("plain weights", {CONFIG: {KEY: FP8}})),
    "QT02 (in shards)": ("QNT102", ERROR, Example("plain weights", {CONFIG: {KEY: BNB}}, "sharded")),
    "QT03 vllm-project/llm-compressor#1533": (
        "QNT102",
        ERROR,
        Example("saved without packing", {CONFIG: {KEY: PACKED}}),
    ),
    "QT03 (an AWQ module without its scales)": (
        "QNT103",
        ERROR,
        Example("scales were lost", {SINGLE: edited(drop=(f"{UP}.scales",))}, "awq"),
    ),
    "QT03 (zero points)": (
        "QNT103",
        ERROR,
        Example("zero points were lost", {SINGLE: edited(drop=(f"{UP}.qzeros",))}, "gptq"),
    ),
    "QT03 (the map of bitsandbytes)": (
        "QNT103",
        ERROR,
        Example("a map was lost", {SINGLE: edited(drop=(f"{UP}.weight.quant_map",))}, "bnb4"),
    ),
    "QT03 (the state of bitsandbytes)": (
        "QNT103",
        ERROR,
        Example("a state was lost", {SINGLE: edited(drop=(f"{UP}.weight.quant_state.bitsandbytes__nf4",))}, "bnb4"),
    ),
    "QT03 (a packed shape)": (
        "QNT103",
        ERROR,
        Example("a shape was lost", {SINGLE: edited(drop=(f"{UP}.weight_shape",))}, "pack-quantized"),
    ),
    "QT04 casper-hansen/AutoAWQ#589": (
        "QNT104",
        ERROR,
        Example("a plain module", unpacked("qweight", "qzeros", "scales", dtype="F16"), "awq"),
    ),
    "QT04 vllm-project/vllm#53950": (
        "QNT104",
        ERROR,
        Example("scales of what is listed", declared(ignore=["lm_head", UP]), "float-quantized"),
    ),
    "QT04 vllm-project/vllm#53950 (a scale alone)": (
        "QNT104",
        ERROR,
        Example(
            "the scale of a plain module that is listed",
            {
                **declared(ignore=["lm_head", UP]),
                SINGLE: edited(add={f"{UP}.weight": ("BF16", (24, 16))}),
            },
            "float-quantized",
        ),
    ),
    "QT04 sgl-project/sglang#35797": (
        "QNT203",
        WARNING,
        Example(
            "one of the modules that draft",
            {
                **declared(ignore=["lm_head", "mtp.fc"]),
                SINGLE: edited(
                    add={
                        f"mtp.{name}.weight": ("BF16", (16, 16))
                        for name in ("fc", "layers.0.self_attn.q_proj", "layers.0.mlp.up_proj")
                    }
                ),
            },
            "float-quantized",
        ),
    ),
    "QT05 vllm-project/llm-compressor#2255": (
        "QNT105",
        ERROR,
        Example(
            "zero points of a symmetric scheme",
            {SINGLE: edited(add={f"{UP}.weight_zero_point": ("I32", (3, 2))})},
            "pack-quantized",
        ),
    ),
    "QT05 vllm-project/llm-compressor#2255 (the other way)": (
        "QNT105",
        ERROR,
        Example(
            "none, of a scheme with zero points",
            declared(config_groups={GROUP: {"weights": {"symmetric": False}}}),
            "pack-quantized",
        ),
    ),
    "QT05 vllm-project/vllm#25047": (
        "QNT108",
        ERROR,
        Example(
            "scales of the cache",
            {
                SINGLE: edited(
                    add={
                        f"model.layers.{layer}.self_attn.{part}_scale": ("F32", ())
                        for layer in range(2)
                        for part in "kv"
                    }
                )
            },
            "float-quantized",
        ),
    ),
    "QT05 (the scale of another method)": (
        "QNT105",
        ERROR,
        Example(
            "scales without `_inv`",
            {SINGLE: edited(rename=lambda name: name.replace("weight_scale_inv", "weight_scale"))},
            "fp8",
        ),
    ),
    "QT06 vllm-project/compressed-tensors#447": (
        "QNT106",
        ERROR,
        Example(
            "groups of 12 in 16 columns",
            declared(config_groups={GROUP: {"weights": {"group_size": 12}}}),
            "pack-quantized",
        ),
    ),
    "QT06 (GPTQ)": ("QNT106", ERROR, Example("another group size", declared(group_size=4), "gptq")),
    "QT06 (AWQ)": ("QNT106", ERROR, Example("another group size", declared(group_size=16), "awq")),
    "QT06 (bits)": ("QNT106", ERROR, Example("another number of bits", declared(bits=8), "gptq")),
    "QT08 vllm-project/vllm#1114": ("QNT201", WARNING, Example("bfloat16", {CONFIG: {"dtype": "bfloat16"}}, "awq")),
    "QT08 vllm-project/vllm#1114 (the older key)": (
        "QNT201",
        WARNING,
        Example("bfloat16", {CONFIG: {"dtype": DELETE, "torch_dtype": "bfloat16"}}, "awq"),
    ),
    "QT02 (what an adapter leaves)": (
        "QNT102",
        ERROR,
        Example("merged, with both keys", {CONFIG: {KEY: {**FLOAT, "quantization_status": "frozen"}}}),
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_known_fault_is_found(fault, report_of):
    code, severity, example = fault
    assert (code, severity) in {(finding.code, finding.severity) for finding in report_of(example).findings}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_no_rule_breaks_over_a_known_fault(fault, report_of):
    assert report_of(fault[2]).coverage.broken == {}
