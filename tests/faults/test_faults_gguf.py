"""Faults of published repositories: GGUF files.

Each id is the kind of fault and the public thread that reports it.
"""

from __future__ import annotations

from typing import Final

import pytest

from repokit.linter.examples import Example
from repokit.linter.examples_gguf import CHAT, MODEL, TOKENS, Typed, gguf, gguf_edited, in_parts, part, split
from repokit.linter.finding import Severity
from repokit.linter.rules.gguf_beside import appending
from repokit.linter.rules.gguf_tokenizer import LLAMA_3_TOKENS

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
CARD: Final = "README.md"


# The token that ends a turn has a text that llama.cpp does not know, and only </s> is declared as an end.
UNSTOPPED: Final = {
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.tokens": [token.replace("<|im_end|>", "<|turn_end|>") for token in TOKENS],
    "tokenizer.chat_template": CHAT.replace("<|im_end|>", "<|turn_end|>"),
}


def file_with(metadata: dict[str, object] | None = None, **edit: object) -> dict[str, object]:
    """A change to the metadata and tensors of the base's only file."""
    return {MODEL: gguf_edited(metadata, **edit)}


def sees(old: bytes) -> bytes:
    """A card that says that the model takes images."""
    return old.replace(b"text-generation", b"image-text-to-text")


FAULTS: Final[dict[str, tuple[str, Severity, Example]]] = {
    "GG01 ggml-org/llama.cpp#7724": (
        "GGF201",
        WARNING,
        Example(
            "the rules of another model",
            file_with({"tokenizer.ggml.pre": "smaug-bpe", "tokenizer.ggml.tokens": LLAMA_3_TOKENS}),
            "gguf",
        ),
    ),
    "GG01 (none)": ("GGF103", ERROR, Example("no rules", file_with({"tokenizer.ggml.pre": None}), "gguf")),
    "GG01 (of tomorrow)": (
        "GGF301",
        NOTE,
        Example("new rules", file_with({"tokenizer.ggml.pre": "of-tomorrow"}), "gguf"),
    ),
    "GG02 ollama/ollama#10930": (
        "GGF104",
        ERROR,
        Example("no merges", file_with({"tokenizer.ggml.merges": None}), "gguf"),
    ),
    "GG02 (an empty list)": (
        "GGF104",
        ERROR,
        Example("no merges", file_with({"tokenizer.ggml.merges": Typed("array", [], "string")}), "gguf"),
    ),
    "GG03 ggml-org/llama.cpp#6490": (
        "GGF202",
        WARNING,
        Example("buffers", file_with(add={"blk.0.attn_rot_embd.weight": ((4,), 0)}), "gguf"),
    ),
    "GG03 (a name of nobody)": (
        "GGF302",
        NOTE,
        Example("a tensor", file_with(add={"blk.0.attn_new.weight": ((32,), 0)}), "gguf"),
    ),
    "GG03 (fewer blocks)": (
        "GGF112",
        ERROR,
        Example("two blocks declared", file_with({"llama.block_count": 2}), "gguf"),
    ),
    "GG04 oobabooga/textgen#6187": (
        "GGF106",
        ERROR,
        Example(
            "cut with split",
            {
                MODEL: None,
                "example-F32.gguf.part1of2": b"GGUF" + bytes(60),
                "example-F32.gguf.part2of2": bytes(64),
            },
            "gguf",
        ),
    ),
    "GG04 ggml-org/llama.cpp#8264": (
        "FIL101",
        ERROR,
        Example("a corrupt part", {**in_parts(), part(2): b"USER" + split(2)[4:]}, "gguf"),
    ),
    "GG04 guelfoweb/orbit#357": (
        "GGF105",
        ERROR,
        Example(
            "two of three parts",
            {MODEL: None, part(1, 3): split(1, 3), part(2, 3): split(2, 3)},
            "gguf",
        ),
    ),
    "GG04 guelfoweb/orbit#357 (another count inside)": (
        "GGF107",
        ERROR,
        Example(
            "three by the header",
            {**in_parts(), part(1): split(1, metadata_of={"split.count": Typed("u16", 3)})},
            "gguf",
        ),
    ),
    "GG04 guelfoweb/orbit#357 (another number of tensors)": (
        "GGF107",
        ERROR,
        Example(
            "more tensors by the header",
            {**in_parts(), part(1): split(1, metadata_of={"split.tensors.count": Typed("i32", 40)})},
            "gguf",
        ),
    ),
    "GG04 ngxson/wllama#135": (
        "GGF107",
        ERROR,
        Example(
            "another number inside",
            {**in_parts(), part(1): split(1, metadata_of={"split.no": Typed("u16", 1)})},
            "gguf",
        ),
    ),
    "GG06 ggml-org/llama.cpp#14314": (
        "GGF150",
        ERROR,
        Example(
            "the end of the configs, not the one that training appended",
            {
                **file_with({"tokenizer.ggml.add_eos_token": True}),
                "tokenizer.json": appending("</s>", 2),
            },
            "gguf",
        ),
    ),
    "GG06 (the turn)": (
        "GGF116",
        ERROR,
        Example("an end that is none", file_with(UNSTOPPED), "gguf"),
    ),
    "GG06 (the turn, by a text that llama.cpp knows)": (
        "GGF304",
        NOTE,
        Example("an end that is none", file_with({"tokenizer.ggml.eos_token_id": 2}), "gguf"),
    ),
    "GG07 ggml-org/llama.cpp#7157": (
        "GGF108",
        ERROR,
        Example("minus one", file_with({"tokenizer.ggml.padding_token_id": 4294967295}), "gguf"),
    ),
    "GG08 unslothai/unsloth#9365": ("GGF203", WARNING, Example("no image encoder", {CARD: sees}, "gguf")),
    "GG08 (another model under that name)": (
        "GGF204",
        WARNING,
        Example("no image encoder", {CARD: sees, "mmproj-F32.gguf": gguf()[MODEL]}, "gguf"),
    ),
    "TK15 janhq/cortex.cpp#618": (
        "GGF250",
        WARNING,
        Example(
            "the beginning twice",
            file_with({"tokenizer.ggml.add_bos_token": True, "tokenizer.chat_template": "<s>" + CHAT}),
            "gguf",
        ),
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_known_fault_is_found(fault, report_of):
    code, severity, example = fault
    assert (code, severity) in {(finding.code, finding.severity) for finding in report_of(example).findings}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_no_rule_breaks_over_a_known_fault(fault, report_of):
    assert report_of(fault[2]).coverage.broken == {}
