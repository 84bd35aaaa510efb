"""Faults of published repositories: tokenizers.

Each id is the kind of fault and the public thread that reports it. llama.cpp's converter tells pre-tokenizers by a hash
of what they make of one text (TK17); the rule looks at the expression, which decides it for a known vocabulary.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from repokit.linter.examples import CHATML, DELETE, VOCABULARY, Example, tokenizer_json
from repokit.linter.finding import Severity
from repokit.linter.rules.token_ids import with_added, with_rows
from repokit.linter.rules.tokenizer import ENCODER, MODEL
from repokit.linter.rules.tokenizer_portability import split_by

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
CONFIG: Final = "config.json"
JINJA: Final = "chat_template.jinja"
TOKENIZER: Final = "tokenizer_config.json"
TOKENIZER_JSON: Final = "tokenizer.json"
CARD: Final = "README.md"


def document(change) -> Any:
    """A change to tokenizer.json: the parsed document is handed over and may be edited."""

    def changed(before: bytes) -> bytes:
        parsed = json.loads(before)
        change(parsed)
        return json.dumps(parsed).encode()

    return changed


def without_token(token: str):
    """Takes a token out of the vocabulary; merges stay."""
    return document(lambda parsed: parsed["model"]["vocab"].pop(token))


def flagged(token: str, **flags: bool):
    """Changes the flags of an added token."""
    return document(
        lambda parsed: next(entry for entry in parsed["added_tokens"] if entry["content"] == token).update(flags)
    )


def without_added(*tokens: str):
    """The tokenizer without some of its added tokens, and their rows given to others."""
    kept = tuple(f"x{number}" if token in tokens else token for number, token in enumerate(VOCABULARY))
    return tokenizer_json(kept, tuple(token for token in VOCABULARY[:6] if token not in tokens))


def begins_with(token: str, number: int) -> dict[str, Any]:
    """A post-processor that puts a token before every text."""
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
    }


def piece(text: str) -> bytes:
    """One piece of a SentencePiece model."""
    field = b"\x0a" + bytes([len(text.encode())]) + text.encode() + b"\x15\0\0\0\0"
    return b"\x0a" + bytes([len(field)]) + field


SLOW: Final = {TOKENIZER_JSON: None, "vocab.json": dict(zip(VOCABULARY, range(32), strict=True)), "merges.txt": "a s\n"}
VLM: Final = {"architectures": ["LlavaForConditionalGeneration"], "vision_config": {"patch_size": 4}}
ROBERTA: Final = {
    **ENCODER,
    CONFIG: {"architectures": ["RobertaForMaskedLM"], "model_type": "roberta", "max_position_embeddings": 514},
}

FAULTS: Final[dict[str, tuple[str, Severity, Example]]] = {
    "TK01 ggml-org/llama.cpp#6111": (
        "TOK106",
        ERROR,
        Example("a token to pad with", {TOKENIZER_JSON: with_added("[PAD]", 32), TOKENIZER: {"pad_token": "[PAD]"}}),
    ),
    "TK01 ggml-org/llama.cpp#6111 (that nothing uses)": (
        "TOK207",
        WARNING,
        Example("a token that nothing uses", {TOKENIZER_JSON: with_added("[PAD]", 32)}),
    ),
    "TK01 arcee-ai/mergekit#428": (
        "TOK106",
        ERROR,
        Example(
            "two tokens of the other model",
            {TOKENIZER_JSON: lambda old: with_added("<|b|>", 33)(with_added("<|a|>", 32)(old))},
        ),
    ),
    "TK02 lm-sys/FastChat#153": ("TOK210", WARNING, Example("a row without a token", with_rows(33))),
    "TK02 (an id of config.json)": (
        "TOK110",
        ERROR,
        Example(
            "the token of an id was not published",
            {**with_rows(33), CONFIG: {"vocab_size": 33, "pad_token_id": 32}},
        ),
    ),
    "TK03 1kkiRen/Tokenizer-Changer#1": (
        "TOK102",
        ERROR,
        Example("a product was deleted", {TOKENIZER_JSON: without_token("as")}),
    ),
    "TK03 huggingface/transformers#9290": (
        "TOK115",
        ERROR,
        Example("two files of two models", {**SLOW, "vocab.json": {"a": 6, "s": 20}}),
    ),
    "TK05 ggml-org/llama.cpp#3633": (
        "TOK108",
        ERROR,
        Example("ids from 0", {"added_tokens.json": {"<unk>": 0, "<s>": 1, "</s>": 2}}),
    ),
    "TK05 huggingface/transformers#9246": (
        "TOK107",
        ERROR,
        Example("a gap, and no tokenizer.json", {**SLOW, "added_tokens.json": {"<a>": 34, "<b>": 40}, **with_rows(64)}),
    ),
    "TK05 huggingface/transformers#9246 (overlap)": (
        "TOK108",
        ERROR,
        Example("an id that is taken, and no tokenizer.json", {**SLOW, "added_tokens.json": {"<a>": 7}}),
    ),
    "TK05 huggingface/tokenizers#1169": (
        "TOK107",
        ERROR,
        Example("an id that is another token's", {TOKENIZER_JSON: with_added("~ing", 0), **with_rows(64)}),
    ),
    "TK05 huggingface/tokenizers#1366": (
        "TOK107",
        ERROR,
        Example(
            "a gap over an empty vocabulary",
            {
                TOKENIZER_JSON: document(
                    lambda parsed: (
                        parsed["model"].update(vocab={}, merges=[], unk_token=None),
                        parsed["added_tokens"].pop(0),
                    )
                ),
            },
        ),
    ),
    "TK07 microsoft/onnxruntime-extensions#987": (
        "TOK303",
        NOTE,
        Example("merges as pairs", {TOKENIZER_JSON: {"model": {"merges": [["a", "s"]]}}}),
    ),
    "TK07 (no schema)": (
        "TOK102",
        ERROR,
        Example("a kind of its own", {TOKENIZER_JSON: {"normalizer": {"type": "X"}}}),
    ),
    # Notes: transformers 5.24 itself writes this class, and older versions stop at it.
    "TK08 ml-explore/mlx-lm#683": (
        "TOK302",
        NOTE,
        Example("saved by 5", {TOKENIZER: {"tokenizer_class": "TokenizersBackend"}}),
    ),
    "TK08 unslothai/unsloth#8444": (
        "TOK302",
        NOTE,
        Example("exported", {TOKENIZER: {"tokenizer_class": "TokenizersBackend", "backend": DELETE}}),
    ),
    # Warnings: transformers 5.24 loads both with a generic class, 4 does not.
    "TK08 oobabooga/textgen#590": (
        "TOK206",
        WARNING,
        Example("misspelt", {TOKENIZER: {"tokenizer_class": "LLaMATokenizer"}}),
    ),
    "TK08 FreedomIntelligence/HuatuoGPT-II#18": (
        "TOK206",
        WARNING,
        Example("code that is not there", {TOKENIZER: {"tokenizer_class": "BaichuanTokenizer"}}),
    ),
    "TK09 arcee-ai/mergekit#185": (
        "TOK204",
        WARNING,
        Example("a slow class", {TOKENIZER: {"tokenizer_class": "LlamaTokenizer", "backend": DELETE}}),
    ),
    "TK09 nlpxucan/WizardLM#193": ("TOK101", ERROR, Example("its config alone", {TOKENIZER_JSON: None})),
    "TK09 mlabonne/llm-course#22": ("TOK101", ERROR, Example("nothing", {TOKENIZER_JSON: None, TOKENIZER: None})),
    # Notes: transformers 5.24 itself writes the list when it saves what it loaded; version 4 does not read it.
    "TK10 ml-explore/mlx-lm#661": ("TOK301", NOTE, Example("a list", {TOKENIZER: {"extra_special_tokens": ["<s>"]}})),
    "TK10 modelscope/ms-swift#8186": (
        "TOK301",
        NOTE,
        Example(
            "a list, and who wrote it", {TOKENIZER: {"extra_special_tokens": ["<s>"], "transformers_version": "5.2.0"}}
        ),
    ),
    "TK10 huggingface/transformers#45566": (
        "TOK301",
        NOTE,
        Example(
            "a list for an older reader", {TOKENIZER: {"extra_special_tokens": ["<|im_start|>"], "backend": DELETE}}
        ),
    ),
    "TK10 huggingface/transformers#47838": (
        "TOK203",
        WARNING,
        Example(
            "two lists",
            {TOKENIZER: {"additional_special_tokens": ["<|im_end|>"], "extra_special_tokens": ["<|im_start|>"]}},
        ),
    ),
    "TK10 huggingface/transformers#36032": (
        "TOK105",
        ERROR,
        Example("a method", {TOKENIZER: {"add_special_tokens": True}}),
    ),
    "TK10 (a token as an object)": (
        "TOK116",
        ERROR,
        Example("an object", {TOKENIZER: {"pad_token": {"content": "<pad>"}}}),
    ),
    "TK11 unslothai/unsloth#5451": (
        "TPL107",
        ERROR,
        Example(
            "a merge put the old end back",
            {
                CONFIG: {"eos_token_id": 2},
                "generation_config.json": {"eos_token_id": 2},
                TOKENIZER: {"eos_token": "</s>"},
                "special_tokens_map.json": {"eos_token": "</s>"},
            },
        ),
    ),
    "TK11 (two files)": (
        "TOK104",
        ERROR,
        Example("a map of the base", {"special_tokens_map.json": {"eos_token": "</s>"}}),
    ),
    "TK12 huggingface/tokenizers#1408": (
        "TOK214",
        WARNING,
        Example(
            "normalized, and something is put before",
            {
                TOKENIZER_JSON: document(
                    lambda parsed: (
                        parsed.update(normalizer={"type": "Prepend", "prepend": "\u2581"}),
                        parsed["added_tokens"][5].update(normalized=True),
                    )
                )
            },
        ),
    ),
    "TK12 huggingface/tokenizers#1408 (a token of the template)": (
        "TPL108",
        ERROR,
        Example(
            "normalized, and something is put before",
            {
                TOKENIZER_JSON: document(
                    lambda parsed: (
                        parsed.update(normalizer={"type": "Prepend", "prepend": "\u2581"}),
                        parsed["added_tokens"][4].update(normalized=True),
                    )
                )
            },
        ),
    ),
    "TK12 OpenRLHF/OpenRLHF#1069": (
        "TOK217",
        WARNING,
        Example("no longer special", {TOKENIZER_JSON: flagged("<|im_end|>", special=False)}),
    ),
    "TK12 huggingface/transformers#27132": (
        "TOK209",
        WARNING,
        Example(
            "known to one of two files",
            {TOKENIZER: {"added_tokens_decoder": {"32": {"content": "<tool>", "special": True}}}, **with_rows(64)},
        ),
    ),
    "TK12 huggingface/transformers#24233": (
        "TOK205",
        WARNING,
        Example("to be converted by whoever loads it", {TOKENIZER_JSON: None, "tokenizer.model": MODEL}),
    ),
    "TK12 01-ai/Yi-1.5#32": (
        "TOK218",
        WARNING,
        Example(
            "ids that one file has and the other lacks",
            {
                "tokenizer.model": b"".join(map(piece, VOCABULARY)),
                TOKENIZER_JSON: document(
                    lambda parsed: parsed["model"].update(
                        vocab={
                            token: number for token, number in parsed["model"]["vocab"].items() if not 6 <= number <= 13
                        },
                        merges=[],
                    )
                ),
            },
        ),
    ),
    "TK13 daulet/tokenizers#30": (
        "TOK201",
        WARNING,
        Example(
            "the state of a call",
            {
                TOKENIZER_JSON: {
                    "truncation": {"direction": "Right", "max_length": 128, "strategy": "LongestFirst", "stride": 0},
                }
            },
        ),
    ),
    "TK14 cardiffnlp/tweeteval#17": (
        "TOK216",
        WARNING,
        Example("no limit", {**ROBERTA, TOKENIZER: {"model_max_length": DELETE}}),
    ),
    "TK14 cardiffnlp/tweeteval#17 (the sentinel)": (
        "TOK216",
        WARNING,
        Example("10^30", {**ROBERTA, TOKENIZER: {"model_max_length": 1000000000000000019884624838656}}),
    ),
    "TK15 allenai/reward-bench#164": (
        "TPL304",
        WARNING,
        Example(
            "twice", {JINJA: "{{ bos_token }}" + CHATML, TOKENIZER_JSON: {"post_processor": begins_with("<s>", 1)}}
        ),
    ),
    "TK16 foundation-model-stack/fms-hf-tuning#470": (
        "TPL207",
        WARNING,
        Example(
            "a marker that is no token",
            {TOKENIZER_JSON: without_added("<|im_start|>")},
        ),
    ),
    "TK17 ggml-org/llama.cpp#17197": (
        "TOK304",
        NOTE,
        Example("an expression of one's own", {TOKENIZER_JSON: split_by(r"\p{L}+|[0-9]{5}|.")}),
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_known_fault_is_found(fault, report_of):
    code, severity, example = fault
    assert (code, severity) in {(finding.code, finding.severity) for finding in report_of(example).findings}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_no_rule_breaks_over_a_known_fault(fault, report_of):
    assert report_of(fault[2]).coverage.broken == {}
