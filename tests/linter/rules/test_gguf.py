"""Faults of published GGUF repositories, and repositories that look like faults and are none."""

from __future__ import annotations

from typing import Any

import pytest

from repokit.linter.engine import lint
from repokit.linter.examples import Example
from repokit.linter.examples_gguf import MODEL, TOKENS, Typed, gguf, gguf_bytes, gguf_edited, in_parts, part, split
from repokit.linter.finding import Report, Severity
from repokit.linter.rules.card import with_lines
from repokit.linter.rules.gguf import ADAPTER, MATRIX
from repokit.linter.rules.gguf_tensors import PROJECTOR
from repokit.repo.card import README
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

BASE = gguf()[MODEL]
LLAMA_3 = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
SEES = {README: with_lines("pipeline_tag: image-text-to-text\n", drop="pipeline_tag")}


def report(change: dict[str, Any], base: str = "gguf") -> Report:
    with Repository(Example("", change, base).source()) as repository:
        return lint(repository)


def said(change: dict[str, Any], base: str = "gguf") -> set[tuple[str, str, str]]:
    """Code, severity and path of everything above a note."""
    found = report(change, base).at_least(Severity.WARNING)
    return {(finding.code, finding.severity.word, finding.path) for finding in found}


# Recipes after reports about published repositories, most of them issues of ggml-org/llama.cpp.
RECIPES = {
    "no pre-tokenizer": ({MODEL: gguf_edited({"tokenizer.ggml.pre": None})}, "GGF103", "error", MODEL),
    "smaug-bpe for llama 3 (7724)": (
        {MODEL: gguf_edited({"tokenizer.ggml.pre": "smaug-bpe", "tokenizer.ggml.tokens": [*TOKENS[:-4], *LLAMA_3]})},
        "GGF201",
        "warning",
        MODEL,
    ),
    "BPE without merges (ollama 10930)": (
        {MODEL: gguf_edited({"tokenizer.ggml.merges": None})},
        "GGF104",
        "error",
        MODEL,
    ),
    "unneeded tensors (6490)": (
        {MODEL: gguf_edited(add={"blk.0.attn_rot_embd.weight": ((16,), 0)})},
        "GGF202",
        "warning",
        MODEL,
    ),
    "cut into pieces (textgen 6187)": (
        {MODEL: None, "x.gguf.part1of2": BASE[:9000], "x.gguf.part2of2": BASE[9000:]},
        "GGF106",
        "error",
        "x.gguf.part1of2",
    ),
    "invalid magic in a part (8264)": (
        {**in_parts(2), part(2): b"USER" + split(2)[4:]},
        "FIL101",
        "error",
        part(2),
    ),
    "three parts by the header, two files (orbit 357)": (
        {**in_parts(2), part(1): split(1, metadata_of={"split.count": Typed("u16", 3)})},
        "GGF107",
        "error",
        part(1),
    ),
    "a part of three is missing": ({**in_parts(3), part(2, 3): None}, "GGF105", "error", part(1, 3)),
    "the first part says it is the second (wllama 135)": (
        {**in_parts(2), part(1): split(1, metadata_of={"split.no": Typed("u16", 1)})},
        "GGF107",
        "error",
        part(1),
    ),
    "the turn does not end (14314)": (
        {
            MODEL: gguf_edited(
                {
                    "tokenizer.ggml.eos_token_id": 2,
                    "tokenizer.ggml.tokens": [token.replace("<|im_end|>", "<|done|>") for token in TOKENS],
                    "tokenizer.chat_template": "{% for m in messages %}{{ m['content'] + '<|done|>' }}{% endfor %}",
                }
            )
        },
        "GGF116",
        "error",
        MODEL,
    ),
    "-1 as an id (7157)": (
        {MODEL: gguf_edited({"tokenizer.ggml.padding_token_id": 4294967295})},
        "GGF108",
        "error",
        MODEL,
    ),
    "a model that sees, and no encoder (unsloth 9365)": (SEES, "GGF203", "warning", README),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_fault_that_was_published_is_found(name: str) -> None:
    change, code, severity, path = RECIPES[name]
    assert said(change) == {(code, severity, path)}


# ---------------------------------------------------------------- what is no fault

CLEAN: dict[str, dict[str, Any]] = {
    "a config.json of a model_type alone": {"config.json": '{"model_type": "llama"}'},
    "several quantisations": {"example-Q8_0.gguf": BASE, "example-BF16.gguf": BASE},
    "split files in folders": {f"F32/{path}": content for path, content in in_parts(2).items() if content},
    "a split file beside a whole one": {path: content for path, content in in_parts(2).items() if content},
    "an encoder alone": {MODEL: None, "mmproj-F32.gguf": PROJECTOR},
    "a model and its encoder": {**SEES, "mmproj-F32.gguf": PROJECTOR},
    "an importance matrix": {"example.imatrix.gguf": MATRIX},
    "a LoRA adapter": {MODEL: None, "adapter-F32.gguf": ADAPTER},
    "an adapter beside its model": {"adapter-F32.gguf": ADAPTER},
    "an image model": {
        MODEL: None,
        "flux-Q8_0.gguf": gguf_bytes(
            {"general.architecture": "flux"}, {"double_blocks.0.img_mod.lin.weight": ((32, 4), 8)}
        ),
    },
    "an embedding model with a chat template": {
        MODEL: gguf_edited({"llama.pooling_type": 3, "tokenizer.ggml.eos_token_id": 2})
    },
    "an architecture that nobody knows": {MODEL: gguf_edited({"general.architecture": "frobnicate"})},
    "version 2": {
        MODEL: gguf_bytes({"general.architecture": "frobnicate"}, {"output_norm.weight": ((4,), 0)}, version=2)
    },
}


@pytest.mark.parametrize("name", CLEAN)
def test_what_is_legitimate_is_left_alone(name: str) -> None:
    result = report(CLEAN[name])
    loud = [(finding.code, finding.message) for finding in result.at_least(Severity.WARNING)]
    assert (loud, dict(result.coverage.broken), dict(result.coverage.not_checked)) == ([], {}, {})


def test_a_model_that_sees_is_not_asked_for_mmproj_where_transformers_loads_it() -> None:
    assert "GGF203" not in {finding.code for finding in report({**SEES, MODEL: BASE}, "single").findings}


def test_one_template_in_many_quantisations_is_one_finding() -> None:
    broken = gguf_edited({"tokenizer.chat_template": "{% for m in messages %}"})(BASE)
    found = [f for f in report({MODEL: broken, "b.gguf": broken}).findings if f.code == "GGF113"]
    assert [finding.names for finding in found] == [("b.gguf", MODEL)]


def test_one_broken_file_leaves_the_findings_about_others() -> None:
    change = {"a.gguf": gguf_edited({"tokenizer.ggml.merges": None})(BASE), "z.gguf": b"GGUF"}
    assert {("GGF104", "error", "a.gguf"), ("FIL101", "error", "z.gguf")} <= said(change)


def test_a_header_that_counts_four_billion_blocks_is_judged_at_once() -> None:
    found = [f for f in report({MODEL: gguf_edited({"llama.block_count": 2**32 - 1})}).findings if f.code == "GGF112"]
    assert len(found) == 1
    assert len(found[0].names) < 10_001


def test_a_hundred_thousand_missing_parts_are_not_listed() -> None:
    source = Memory({"README.md": b"---\nlicense: mit\n---\nx\n", "m-00001-of-99999.gguf": BASE})
    with Repository(source) as repository:
        found = [finding for finding in lint(repository).findings if finding.code == "GGF105"]
    assert [len(finding.names) for finding in found] == [100]
