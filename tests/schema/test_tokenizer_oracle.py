"""Differential: what `Tokenizer` says of the outer shape of tokenizer.json, against the tokenizers library itself."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer as Library

from repokit.schema.document import problems
from repokit.schema.tokenizer import Tokenizer

FLAGS = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False, "special": True}
TOKEN = {"id": 1, "content": "<s>", **FLAGS}
TRUNCATION = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
PADDING = {
    "strategy": "BatchLongest",
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "a",
}
WHOLE = {
    "version": "1.0",
    "truncation": TRUNCATION,
    "padding": PADDING,
    "added_tokens": [TOKEN],
    "normalizer": None,
    "pre_tokenizer": None,
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"},
}


def without(document, key):
    return {name: value for name, value in document.items() if name != key}


VARIANTS = {
    "whole": WHOLE,
    **{f"without {key}": without(WHOLE, key) for key in WHOLE},
    **{f"{key} null": {**WHOLE, key: None} for key in WHOLE},
    **{f"{key} a number": {**WHOLE, key: 5} for key in WHOLE},
    **{f"truncation without {key}": {**WHOLE, "truncation": without(TRUNCATION, key)} for key in TRUNCATION},
    **{f"padding without {key}": {**WHOLE, "padding": without(PADDING, key)} for key in PADDING},
    **{f"added token without {key}": {**WHOLE, "added_tokens": [without(TOKEN, key)]} for key in TOKEN},
    "fixed padding": {**WHOLE, "padding": {**PADDING, "strategy": {"Fixed": 8}}},
    "unknown key": {**WHOLE, "comment": None},
    "unknown key of a token": {**WHOLE, "added_tokens": [{**TOKEN, "comment": 1}]},
    "unknown key of a truncation": {**WHOLE, "truncation": {**TRUNCATION, "comment": 1}},
    "float id": {**WHOLE, "added_tokens": [{**TOKEN, "id": 1.0}]},
    "negative id": {**WHOLE, "added_tokens": [{**TOKEN, "id": -1}]},
    "null token": {**WHOLE, "added_tokens": [None]},
    "negative stride": {**WHOLE, "truncation": {**TRUNCATION, "stride": -1}},
}


@pytest.mark.parametrize("document", VARIANTS.values(), ids=VARIANTS)
def test_model_agrees_with_the_library(document):
    try:
        Library.from_str(json.dumps(document))
    except Exception:  # noqa: BLE001 - the library raises a bare Exception
        assert problems(Tokenizer, document)
    else:
        assert not problems(Tokenizer, document)
