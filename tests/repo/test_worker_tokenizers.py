"""What the worker says about tokenizer.json files."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given, settings, strategies as st

from repokit.repo.worker import Encoded, Limits, Worker

needs_rlimits = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the limits of this system are weaker")

VOCAB = {"<unk>": 0, "<s>": 1, "</s>": 2, "a": 3, "b": 4}
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
}


def document(**changes):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    parts = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": VOCAB[token], "content": token, **flags} for token in ("<unk>", "<s>", "</s>")],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": TEMPLATE,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": VOCAB, "unk_token": "<unk>"},
    }
    return json.dumps({**parts, **changes}).encode()


def split_on(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


@pytest.fixture(scope="module")
def worker():
    with Worker(Limits(cpu_seconds=1.0, wall_seconds=60.0, memory_bytes=192 << 20, output=1 << 16)) as started:
        yield started


def test_a_sound_file_loads_with_the_number_of_its_tokens(worker):
    answer = worker.tokenizer(document())
    assert (answer.problem, answer.vocab_size) == (None, 5)


def test_special_tokens_are_looked_up(worker):
    answer = worker.tokenizer(document(), special=["</s>", "<pad>", "\ud800"])
    assert answer.ids == {"</s>": 2, "<pad>": None, "\ud800": None}


def test_texts_are_encoded_with_and_without_special_tokens(worker):
    answer = worker.tokenizer(document(), probes=["a b", "</s>", "zzz", ""])
    assert answer.probes == (
        Encoded((3, 4), (1, 3, 4)),
        Encoded((2,), (1, 2)),
        Encoded((0,), (1, 0)),
        Encoded((), (1,)),
    )


def test_truncation_and_padding_in_the_file_do_not_count(worker):
    truncation = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
    padding = {
        "strategy": {"Fixed": 9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<unk>",
    }
    answer = worker.tokenizer(document(truncation=truncation, padding=padding), probes=["a b a b"])
    assert answer.probes == (Encoded((3, 4, 3, 4), (1, 3, 4, 3, 4)),)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (document()[:200], "EOF while parsing"),
        (b"", "EOF while parsing"),
        (b"[]", "invalid"),
        (b"\xff\xfe", "expected value"),
        (document(version="2.0"), "Unknown tokenizer version"),
        (document(model={"type": "Zzz", "vocab": VOCAB}), "did not match any variant"),
        (document(pre_tokenizer=split_on("((")), "end pattern with unmatched parenthesis"),
        (document(normalizer=None, surplus=1), "expected `,` or `}`"),
    ],
)
def test_a_broken_file_is_a_problem_in_the_words_of_the_library(worker, broken, message):
    problem = worker.tokenizer(broken, probes=["a"]).problem
    assert problem is not None
    assert problem.kind == "failed"
    assert message in problem.message


def test_a_panic_while_loading_is_a_result(worker):
    broken = document(normalizer={"type": "Precompiled", "precompiled_charsmap": "!!!!"})
    problem = worker.tokenizer(broken).problem
    assert problem is not None
    assert problem.kind == "crash"


def test_a_panic_while_encoding_is_the_result_of_that_text(worker):
    answer = worker.tokenizer(document(post_processor={**TEMPLATE, "special_tokens": {}}), probes=["a"])
    assert answer.problem is None
    assert [probe.error and probe.error.kind for probe in answer.probes] == ["crash"]


def test_the_request_after_a_panic_is_answered_by_another_child(worker):
    worker.tokenizer(document(normalizer={"type": "Precompiled", "precompiled_charsmap": "!!!!"}))
    starts = worker.starts
    assert worker.tokenizer(document()).vocab_size == 5
    assert worker.starts == starts + 1


def test_an_exception_while_encoding_is_the_result_of_that_text(worker):
    unknown = document(model={"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "<nothing>"}, added_tokens=[])
    answer = worker.tokenizer(unknown, probes=["a", "b", "a"])
    assert [probe.error and probe.error.kind for probe in answer.probes] == [None, "failed", None]


def test_a_lone_surrogate_cannot_be_encoded(worker):
    (probe,) = worker.tokenizer(document(), probes=["\ud800"]).probes
    assert probe.error is not None
    assert probe.error.kind == "type"


def test_backtracking_without_end_is_a_result(worker):
    answer = worker.tokenizer(document(pre_tokenizer=split_on("(a+)+$")), probes=["a" * 60 + "!"])
    assert [probe.error and probe.error.kind for probe in answer.probes] == ["crash"]  # Oniguruma gives up, Rust panics


@needs_rlimits
def test_text_that_a_normalizer_blows_up_is_a_limit(worker):
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
    answer = worker.tokenizer(document(normalizer={"type": "Sequence", "normalizers": [step] * 3}), probes=["a" * 40])
    assert answer.problem is None
    assert [probe.error and probe.error.kind for probe in answer.probes] == ["limit"]


def test_more_ids_than_the_limit_are_a_limit(worker):
    answer = worker.tokenizer(document(), probes=["a " * (1 << 15), "a"])
    assert answer.probes[0].error is not None
    assert answer.probes[0].error.kind == "limit"


def test_a_large_id_is_not_allocated_for(worker):
    answer = worker.tokenizer(
        document(model={"type": "WordLevel", "vocab": {**VOCAB, "z": 2**31}, "unk_token": "<unk>"}), special=["z"]
    )
    assert (answer.vocab_size, answer.ids) == (6, {"z": 2**31})


@needs_rlimits
def test_a_large_document_may_take_more_than_a_small_one():
    words = document(
        model={"type": "WordLevel", "vocab": {f"w{i}": i for i in range(250_000)}, "unk_token": "w0"}, added_tokens=[]
    )
    with Worker(Limits(memory_bytes=64 << 20)) as tight:
        assert tight.tokenizer(words).vocab_size == 250_000


def test_templates_and_tokenizers_share_a_child():
    with Worker() as fresh:
        assert fresh.tokenizer(document(), probes=["a"]).vocab_size == 5
        assert fresh.render("{{ 1 }}", {}).text == "1"
        assert fresh.tokenizer(document(), probes=["a"]).vocab_size == 5
        assert fresh.starts == 1


@settings(deadline=None, max_examples=100)
@given(
    data=st.one_of(st.binary(max_size=200), st.integers(0, len(document())).map(lambda cut: document()[:cut])),
    text=st.text(st.characters()),
)
def test_no_document_breaks_the_protocol(worker, data, text):
    answer = worker.tokenizer(data, probes=[text])
    assert len(answer.probes) == (0 if answer.problem else 1)
    assert worker.tokenizer(document(), probes=["a b"]).probes == (Encoded((3, 4), (1, 3, 4)),)
