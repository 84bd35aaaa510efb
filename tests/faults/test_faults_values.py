"""Faults of published repositories that only values of tensors show: with --deep.

Each id is the kind of fault and the public thread that reports it.
"""

from __future__ import annotations

from typing import Final

import pytest

from repokit.linter.examples import Example, edited, lora, safetensors, shard, sharded, single, tensors_of
from repokit.linter.examples_values import INFINITY, NAN, copied, one_after_another, planted, valued, zero_rows, zeroed
from repokit.linter.finding import Severity
from repokit.linter.rules.misnamed import MANIFEST, manifest_of
from repokit.repo.weights import ADAPTER, SINGLE

ERROR, WARNING = Severity.ERROR, Severity.WARNING
CONFIG: Final = "config.json"
UP: Final = "model.layers.1.mlp.up_proj.weight"
HEAD: Final = "lm_head.weight"
EMBEDDING: Final = "model.embed_tokens.weight"
NETWORK: Final = safetensors({"conv_in.weight": ("F32", (4, 4))})
TIED: Final = {CONFIG: {"tie_word_embeddings": True}}


def in_float16(content: bytes) -> bytes:
    return safetensors({name: ("F16", shape) for name, (_, shape) in tensors_of(content).items()})


def flipped(content: bytes) -> bytes:
    """Sixteen bytes of data turned around; the header stays."""
    return content[:-32] + bytes(byte ^ 0xFF for byte in content[-32:-16]) + content[-16:]


def of_rank_8(content: bytes) -> bytes:
    tensors = tensors_of(content)
    return safetensors(
        {name: (dtype, tuple(8 if size == 4 else size for size in shape)) for name, (dtype, shape) in tensors.items()}
    )


def with_head_of_embedding(content: bytes) -> bytes:
    """The last shard, with the values of the embedding, which lies in the first, in its head."""
    first = Example("", base="sharded").files()[shard(1)]
    length = 8 + int.from_bytes(first[:8], "little")
    return valued(lambda *_: first[length:], HEAD)(content)


FAULTS: Final[dict[str, tuple[str, Severity, Example]]] = {
    "ST08 vllm-project/vllm#53537": (
        "FIL120",
        ERROR,
        Example("bytes of a shard", {MANIFEST: manifest_of(sharded()), shard(2): flipped}, "sharded"),
    ),
    "ST08 (one file)": (
        "FIL120",
        ERROR,
        Example("bytes of the weights", {MANIFEST: manifest_of(single()), SINGLE: flipped}),
    ),
    "WV02 ICTMCG/Make-Your-Anchor#9": (
        "WGT120",
        ERROR,
        Example(
            "one value", {SINGLE: one_after_another(in_float16, planted(NAN, 3, UP)), CONFIG: {"dtype": "float16"}}
        ),
    ),
    "WV02 NikoNairre/CT-CIG#3": (
        "WGT120",
        ERROR,
        Example(
            "two networks of a pipeline",
            {
                f"{part}/diffusion_pytorch_model.safetensors": planted(NAN, 0, "conv_in.weight")(NETWORK)
                for part in ("unet", "controlnet")
            },
        ),
    ),
    "WV02 (infinite)": ("WGT120", ERROR, Example("an overflow", {SINGLE: planted(INFINITY, 3, UP)})),
    "WV02 (in a shard)": ("WGT120", ERROR, Example("one value", {shard(2): planted(NAN, 3, UP)}, "sharded")),
    "WV02 (in an adapter)": (
        "WGT120",
        ERROR,
        Example("one value", {ADAPTER: planted(NAN, 3, "0.self_attn.q_proj.lora_B.weight")}, "lora"),
    ),
    "WV02 (in scales)": (
        "WGT120",
        ERROR,
        Example("one scale", {SINGLE: planted(NAN, 0, "0.mlp.up_proj.scales")}, "awq"),
    ),
    "WV03 microsoft/BitNet#608": (
        "WGT121",
        ERROR,
        Example(
            "the feed-forward part",
            {SINGLE: zeroed(*(f"layers.0.mlp.{part}_proj.weight" for part in ("gate", "up", "down")))},
        ),
    ),
    "WV03 (one matrix)": ("WGT220", WARNING, Example("one matrix", {SINGLE: zeroed("layers.0.mlp.up_proj.weight")})),
    "WV03 (in shards)": ("WGT121", ERROR, Example("the queries", {shard(2): zeroed("q_proj.weight")}, "sharded")),
    "WV04 axolotl-ai-cloud/axolotl#3772": (
        "ADP120",
        ERROR,
        Example(
            "an eighth of the rows",
            {
                ADAPTER: one_after_another(of_rank_8, zero_rows(1, 8, "lora_B.weight")),
                "adapter_config.json": {"r": 8},
            },
            "lora",
        ),
    ),
    "WV04 (half of the rows)": (
        "ADP120",
        ERROR,
        Example("half of the rows", {ADAPTER: zero_rows(4, 8, "lora_B.weight")}, "lora"),
    ),
    "TI01 huggingface/transformers#45127": ("WGT122", ERROR, Example("two matrices", TIED)),
    "TI01 (in shards)": ("WGT122", ERROR, Example("two matrices", TIED, "sharded")),
    "TI02 hiyouga/LlamaFactory#10560": (
        "WGT221",
        WARNING,
        Example("one matrix twice", {**TIED, shard(3): with_head_of_embedding}, "sharded"),
    ),
    "TI02 (one file)": ("WGT221", WARNING, Example("one matrix twice", {**TIED, SINGLE: copied(EMBEDDING, HEAD)})),
    "BL03 unslothai/unsloth#869": ("WGT222", WARNING, Example("the base once more", against="single")),
    "BL03 (in shards)": ("WGT222", WARNING, Example("the base once more", base="sharded", against="single")),
}

# What headers tell of the same faults, without --deep.
OF_HEADERS: Final[dict[str, tuple[str, Severity, Example]]] = {
    "WV04 huggingface/peft#3251": (
        "ADP103",
        ERROR,
        Example(
            "one dimension",
            {
                ADAPTER: edited(
                    add={
                        name: (dtype, (64,)) for name, (dtype, _) in tensors_of(lora()[ADAPTER]).items() if "_A" in name
                    }
                )
            },
            "lora",
        ),
    ),
    "WV03 microsoft/BitNet#608 (shorter than its header says)": (
        "FIL101",
        ERROR,
        Example("cut off", {SINGLE: single()[SINGLE][:-64]}),
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_known_fault_is_found(fault, deep_report_of):
    code, severity, example = fault
    assert (code, severity) in {(finding.code, finding.severity) for finding in deep_report_of(example).findings}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_no_rule_breaks_over_a_known_fault(fault, deep_report_of):
    assert deep_report_of(fault[2]).coverage.broken == {}


@pytest.mark.parametrize("fault", OF_HEADERS.values(), ids=OF_HEADERS.keys())
def test_a_known_fault_is_found_by_headers(fault, report_of):
    code, severity, example = fault
    assert (code, severity) in {(finding.code, finding.severity) for finding in report_of(example).findings}
