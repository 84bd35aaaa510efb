"""Faults of published repositories: weight files, indexes, checkpoints that were never merged.

Each id is the kind of fault and the public thread that reports it.
"""

from __future__ import annotations

import io
import zipfile
from typing import Final

import pytest

from repokit.linter.examples import (
    DELETE,
    Example,
    Tensors,
    edited,
    safetensors,
    shard,
    sharded,
    single,
    tensors_of,
)
from repokit.linter.finding import Severity
from repokit.repo.weights import ADAPTER, INDEX, SINGLE

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
CONFIG: Final = "config.json"
EMBEDDING: Final = "model.embed_tokens.weight"
HEAD: Final = "lm_head.weight"
QUERY: Final = "base_model.model.model.layers.0.self_attn.q_proj."


def with_header(content: bytes, change) -> bytes:
    """A .safetensors file whose header went through `change` as text; the data stays."""
    length = int.from_bytes(content[:8], "little")
    header = change(content[8 : 8 + length].decode()).encode()
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def raw(header: str, data: int) -> bytes:
    """A .safetensors file with this header and as many bytes of data."""
    return len(header).to_bytes(8, "little") + header.encode() + bytes(data)


def with_metadata(spelled: str):
    """A change to the `__metadata__` of a header."""
    return lambda content: with_header(content, lambda text: text.replace('{"format":"pt"}', spelled))


def saved_by_torch() -> bytes:
    """The archive that torch.save makes of one tensor, as far as its signature goes."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        writer.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        writer.writestr("archive/version", "3\n")
    return archive.getvalue()


def without_layer(name: str) -> bool:
    return not name.startswith("model.layers.1.")


def head_stripped() -> Example:
    """The head was taken out of shard and map, and the old total stayed."""
    kept = edited(drop=(HEAD,))
    return Example("tensors stripped, total kept", {shard(3): kept, INDEX: {"weight_map": {HEAD: DELETE}}}, "sharded")


def second_set(*, tall: bool) -> dict[str, bytes]:
    """A complete second set of shards with the same names, of the same shapes or of others."""
    tensors = tensors_of(single()[SINGLE])
    if tall:
        tensors = {name: (kind, (32, 24) if "down_proj" in name else shape) for name, (kind, shape) in tensors.items()}
    first = {name: info for name, info in tensors.items() if without_layer(name)}
    second = {name: info for name, info in tensors.items() if not without_layer(name)}
    return {shard(1, 2): safetensors(first), shard(2, 2): safetensors(second)}


def experts(numbers: range, part: str = "up_proj.weight") -> Tensors:
    block = "model.layers.{}.mlp.experts.{}."
    return {(block + part).format(layer, number): ("BF16", (24, 16)) for layer in range(2) for number in numbers}


def fused(number: int) -> Tensors:
    block = "model.layers.{}.mlp.experts."
    return {
        block.format(layer) + part: ("BF16", (number, *shape))
        for layer in range(2)
        for part, shape in {"gate_up_proj": (48, 16), "down_proj": (16, 24)}.items()
    }


MOE: Final = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 4}

FAULTS: Final[dict[str, tuple[str, Severity, Example]]] = {
    "ST01 kohya-ss/sd-scripts#990": (
        "FIL101",
        ERROR,
        Example("torch.save under another name", {SINGLE: saved_by_torch()}),
    ),
    "ST01 EricTan7/VeritasPP#2": (
        "FIL101",
        ERROR,
        Example(
            "a header of zeros",
            {
                shard(1): lambda old: (
                    bytes(8 + int.from_bytes(old[:8], "little")) + old[8 + int.from_bytes(old[:8], "little") :]
                )
            },
            "sharded",
        ),
    ),
    "ST02 PersuGPT/PersuGPT.github.io#2": (
        "FIL101",
        ERROR,
        Example("the end of a shard is gone", {shard(1): lambda old: old[:-100]}, "sharded"),
    ),
    "ST02 (trailing bytes)": ("FIL101", ERROR, Example("more than the header says", {SINGLE: lambda old: old + b"\0"})),
    "ST03 safetensors/safetensors#401": (
        "FIL101",
        ERROR,
        Example(
            "one key twice",
            {
                "extra/model.safetensors": raw(
                    '{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},'
                    '"a":{"dtype":"F32","shape":[4],"data_offsets":[16,32]}}',
                    32,
                )
            },
        ),
    ),
    "ST03 safetensors/safetensors#401 (equal offsets)": (
        "FIL101",
        ERROR,
        Example(
            "one key twice, which the library reads",
            {
                "extra/model.safetensors": raw(
                    '{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},'
                    '"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
                    16,
                )
            },
        ),
    ),
    "ST03 antirez/h3.c#48": (
        "FIL101",
        ERROR,
        Example(
            "two tensors on the same bytes",
            {
                "extra/model.safetensors": raw(
                    '{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},'
                    '"b":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
                    16,
                )
            },
        ),
    ),
    "ST03 antirez/h3.c#48 (hole)": (
        "FIL101",
        ERROR,
        Example(
            "bytes between tensors that are no tensor's",
            {
                "extra/model.safetensors": raw(
                    '{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},'
                    '"b":{"dtype":"F32","shape":[4],"data_offsets":[80,96]}}',
                    96,
                )
            },
        ),
    ),
    "ST03 ml-explore/mlx#3363": (
        "FIL101",
        ERROR,
        Example(
            "a million numbers in four bytes",
            {
                "extra/model.safetensors": raw(
                    '{"a":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}}',
                    4,
                )
            },
        ),
    ),
    "ST04 kekzl/imp#1603": (
        "FIL101",
        ERROR,
        Example(
            "a dtype that does not exist",
            {SINGLE: lambda old: with_header(old, lambda text: text.replace('"BF16"', '"FP16"', 1))},
        ),
    ),
    # A note, because the page of the design settles it: safetensors and transformers 5.24 read such files.
    "ST05 foundation-model-stack/fastsafetensors#96": (
        "WGT301",
        NOTE,
        Example("no format", {SINGLE: with_metadata("{}")}),
    ),
    "ST05 safetensors/safetensors#278": (
        "FIL101",
        ERROR,
        Example("a number in the metadata", {SINGLE: with_metadata('{"format":"pt","step":0}')}),
    ),
    "ST07 safetensors/safetensors#466": (
        "WGT102",
        ERROR,
        Example("only metadata", {"extra/model.safetensors": safetensors({})}),
    ),
    "WV01 axolotl-ai-cloud/axolotl#933": (
        "WGT101",
        ERROR,
        Example("the embedding was not gathered", {SINGLE: edited(add={EMBEDDING: ("BF16", (0,))})}),
    ),
    "WV01 OpenRLHF/OpenRLHF#839": (
        "WGT101",
        ERROR,
        Example(
            "a few projections were not gathered",
            {
                shard(2): edited(
                    add={f"model.layers.1.self_attn.{part}_proj.weight": ("BF16", (0,)) for part in ("k", "v", "o")}
                )
            },
            "sharded",
        ),
    ),
    "WV01 safetensors/safetensors#498": (
        "WGT101",
        ERROR,
        Example(
            "an adapter without values",
            {ADAPTER: lambda old: safetensors(dict.fromkeys(tensors_of(old), ("F32", (0,))))},
            "lora",
        ),
    ),
    "IX01 sgl-project/sglang#32279": ("IDX101", ERROR, Example("a shard was lost", {shard(2): None}, "sharded")),
    "IX01 Blaizzy/mlx-vlm#1827": (
        "IDX101",
        ERROR,
        Example(
            "shards were renamed",
            {
                **{shard(number): None for number in (1, 2, 3)},
                **{f"weights.0{number - 1}.safetensors": sharded()[shard(number)] for number in (1, 2, 3)},
            },
            "sharded",
        ),
    ),
    "IX02 huggingface/huggingface_hub#4725": (
        "IDX103",
        ERROR,
        Example("a tensor that is nowhere", {INDEX: {"weight_map": {"mtp.fc.weight": shard(2)}}}, "sharded"),
    ),
    "IX04 1CatAI/1Cat-vLLM#407": (
        "IDX105",
        ERROR,
        Example("a head twice", {shard(2): edited(add={HEAD: ("F32", (32, 16))})}, "sharded"),
    ),
    "IX05 sgl-project/sglang#35107": ("IDX107", ERROR, Example("two splits", second_set(tall=False), "sharded")),
    "IX05 unslothai/unsloth-zoo#808": ("IDX107", ERROR, Example("an old split", second_set(tall=True), "sharded")),
    "IX06 Edge0-AI/Edge0#104": ("IDX203", WARNING, head_stripped()),
    "IX07 huggingface/huggingface_hub#4221": (
        "IDX204",
        WARNING,
        Example("counted on one of many", {INDEX: {"metadata": {"total_parameters": 7}}}, "sharded"),
    ),
    "FM02 ml-explore/mlx-lm#1718": (
        "FIL203",
        ERROR,
        Example("only a pickle", {SINGLE: None, "pytorch_model.bin": saved_by_torch()}),
    ),
    "FM04 zz1358m/SofT-GRPO-master#2": (
        "FIL205",
        ERROR,
        Example(
            "parts of verl",
            {SINGLE: None, **{f"model_world_size_2_rank_{rank}.pt": saved_by_torch() for rank in (0, 1)}},
        ),
    ),
    "FM04 facebookresearch/dinov2#487": (
        "FIL205",
        ERROR,
        Example(
            "a file a rank", {SINGLE: None, **{f"model_final.rank_{rank}.pth": saved_by_torch() for rank in (0, 1)}}
        ),
    ),
    # What accelerate writes counts as state of a run: both words are errors with the same way out.
    "FM04 huggingface/accelerate#2848": (
        "FIL201",
        ERROR,
        Example(
            "what accelerate saves of FSDP",
            {
                SINGLE: None,
                **{f"pytorch_model_fsdp_0/{name}": b"x" for name in ("__0_0.distcp", "__1_0.distcp", ".metadata")},
            },
        ),
    ),
    "FM04 (torchtune)": (
        "FIL203",
        ERROR,
        Example("parts of torchtune", {SINGLE: None, "hf_model_0001.pt": saved_by_torch()}),
    ),
    "FM08 delphi-suite/delphi#84": (
        "FIL201",
        ERROR,
        Example("state of a run", {"optimizer.pt": b"PK", "scheduler.pt": b"PK", "trainer_state.json": "{}"}),
    ),
    "KY07 2U1/Qwen-VL-Series-Finetune#259": (
        "WGT203",
        WARNING,
        Example("a draft layer that a merge dropped", {CONFIG: {"num_nextn_predict_layers": 1}}),
    ),
    "KY07 2U1/Qwen-VL-Series-Finetune#259 (Qwen's spelling)": (
        "WGT203",
        WARNING,
        Example("in the text model", {CONFIG: {"text_config": {"vocab_size": 32, "mtp_num_hidden_layers": 1}}}),
    ),
    # Loaders of one generation read it, those of the other drop it: a matter of versions, and so a note.
    "KY08 sgl-project/sglang#38618": (
        "WGT302",
        NOTE,
        Example("experts in one tensor", {CONFIG: MOE, SINGLE: edited(add=fused(4))}),
    ),
    "KY08 NVIDIA/Megatron-LM#5844": (
        "WGT105",
        ERROR,
        Example("two experts of four", {CONFIG: {"num_local_experts": 4}, SINGLE: edited(add=experts(range(2)))}),
    ),
    "KY08 (both layouts)": (
        "WGT110",
        ERROR,
        Example("one layer fused, one not", {CONFIG: MOE, SINGLE: edited(add=fused(4) | experts(range(4)))}),
    ),
    "KY08 (too few in one tensor)": (
        "WGT105",
        ERROR,
        Example("two experts of four", {CONFIG: MOE, SINGLE: edited(add=fused(2))}),
    ),
    "TI03 huggingface/transformers#43429": (
        "CFG110",
        ERROR,
        Example(
            "tied in the text model alone",
            {
                CONFIG: {
                    "architectures": ["Mistral3ForConditionalGeneration"],
                    "tie_word_embeddings": DELETE,
                    "text_config": {"vocab_size": 32, "tie_word_embeddings": True},
                },
                SINGLE: edited(drop=(HEAD,)),
            },
        ),
    ),
    "TI03 (both levels)": (
        "CFG110",
        ERROR,
        Example("two flags", {CONFIG: {"tie_word_embeddings": False, "text_config": {"tie_word_embeddings": True}}}),
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_known_fault_is_found(fault, report_of):
    code, severity, example = fault
    assert (code, severity) in {(finding.code, finding.severity) for finding in report_of(example).findings}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_no_rule_breaks_over_a_known_fault(fault, report_of):
    assert report_of(fault[2]).coverage.broken == {}
