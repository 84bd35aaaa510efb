"""Tokenizers of kinds that the examples of rules do not show."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from repokit.linter.engine import lint
from repokit.linter.examples import Change, Example, tokenizer_json
from repokit.linter.finding import Severity
from repokit.linter.rules.token_ids import with_added, with_rows
from repokit.linter.rules.tokenizer import reads_text
from repokit.linter.selection import Selection
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

MODEL = b"\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02"


def codes(change: dict[str, Change], base: str = "single") -> set[str]:
    """TOK errors and warnings about a changed base."""
    with Repository(Example("", change, base).source()) as repository:
        report = lint(repository, Selection(select=("TOK",)))
    assert report.coverage.broken == {}
    return {finding.code for finding in report.at_least(Severity.WARNING)}


# ---------------------------------------------------------------- who needs a tokenizer


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("LlamaForCausalLM", True),
        ("BertModel", True),
        ("T5ForConditionalGeneration", True),
        ("LlavaForConditionalGeneration", True),
        ("WhisperForConditionalGeneration", True),
        ("Wav2Vec2ForCTC", True),
        ("CLIPModel", True),
        ("VisionEncoderDecoderModel", True),
        ("AutoModelForImageTextToText", True),
        ("Wav2Vec2ForSequenceClassification", False),
        ("HubertModel", False),
        ("BeitForImageClassification", False),
        ("ImageGPTForCausalImageModeling", False),
        ("DecisionTransformerModel", False),
        ("VitsModel", False),
    ],
)
def test_models_for_text_are_told_by_their_class(architecture: str, expected: bool) -> None:  # noqa: FBT001
    config = {"model_type": "x", "architectures": [architecture], "vocab_size": 32}
    files = {"config.json": json.dumps(config).encode(), "model.safetensors": b""}
    assert reads_text(Repository(Memory(files))) is expected


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "vit", "architectures": ["ViTForImageClassification"]},
        {"architectures": ["Voice"], "vocab_size": 32},
        {"model_type": "llama", "vocab_size": 32},
    ],
)
def test_a_config_that_does_not_say_so_is_of_no_text_model(config: dict[str, Any]) -> None:
    files = {"config.json": json.dumps(config).encode(), "model.safetensors": b""}
    assert not reads_text(Repository(Memory(files)))


def test_a_folder_without_weights_is_not_asked_for_a_tokenizer() -> None:
    gone = dict.fromkeys(("model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"))
    assert codes(gone) == set()


# ---------------------------------------------------------------- what must pass, from published repositories


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(with_rows(40), id="rows padded above the tokenizer"),
        pytest.param({"tokenizer_config.json": {"bos_token": None}}, id="no bos, and an id for it in config.json"),
        pytest.param({"tokenizer_config.json": {"model_max_length": 10**30}}, id="no length in a rotary decoder"),
        pytest.param(
            {"tokenizer_config.json": {"extra_special_tokens": ["<s>"], "is_local": True}}, id="saved twice by 5"
        ),
        pytest.param({"tekken.json": "{}", "params.json": "{}"}, id="Mistral's own format beside it"),
        pytest.param({"config.json": {"model_type": "newer_than_we_are"}}, id="a model_type that is newer than we are"),
    ],
)
def test_published_repositories_that_work_pass(change: dict[str, Change]) -> None:
    assert codes(change) == set()


@pytest.mark.parametrize("token", ["<pad>", "<old>"])
def test_a_stale_added_tokens_json_is_a_warning_at_most(token: str) -> None:
    assert all(code.startswith("TOK2") for code in codes({"added_tokens.json": {token: 32}}))


# ---------------------------------------------------------------- vocabularies of other kinds


@pytest.mark.parametrize("rows", [2, 3])
def test_more_pieces_than_rows_is_an_error(rows: int) -> None:
    change = {**with_rows(rows), "tokenizer.json": None, "tokenizer.model": MODEL * 3, "tokenizer_config.json": None}
    assert ("TOK106" in codes(change)) is (rows < 3)


def test_what_an_unread_vocabulary_leaves_open_is_not_checked() -> None:
    with Repository(Example("", {"tokenizer.json": None, "tokenizer.model": MODEL}).source()) as repository:
        report = lint(repository, Selection(select=("TOK111",)))
    assert (report.findings, list(report.coverage.not_checked)) == ((), ["TOK111"])


def test_eos_is_judged_where_the_decoder_spells_its_id_out() -> None:
    decoder = {"added_tokens_decoder": {"7": {"content": "<|im_end|>", "special": True}}}
    change = {"tokenizer.json": None, "tokenizer.model": MODEL, "tokenizer_config.json": decoder}
    assert "TOK111" in codes(change)


def test_a_language_model_with_vocab_and_merges_has_a_tokenizer() -> None:
    vocabulary = json.loads(tokenizer_json())["model"]["vocab"]
    assert codes({"tokenizer.json": None, "vocab.json": vocabulary, "merges.txt": "#version: 0.2\na s\n"}) == set()


# ---------------------------------------------------------------- text from outside


@settings(deadline=None)
@given(st.text(min_size=1, max_size=12).filter(str.isprintable).map(lambda text: text + "\x1b\u202e\n"))
def test_tokens_reach_no_terminal_as_they_are(token: str) -> None:
    change = {"tokenizer.json": with_added(token, 90), "tokenizer_config.json": {"mask_token": token + "x"}}
    with Repository(Example("", change).source()) as repository:
        report = lint(repository, Selection(select=("TOK107", "TOK209", "TOK106", "TOK207")))
    shown = [part for finding in report.findings for part in (finding.message, finding.hint or "") if part]
    assert report.findings
    assert [part for part in shown if not part.isprintable()] == []
