"""Members are small because they share their words, and say after unpacking what went in."""

from __future__ import annotations

import json
import zlib

import pytest

pytest.importorskip("torch")

from repokit.architectures.deriver.packing import compressed, shared_words
from repokit.architectures.folding import folded

pytestmark = pytest.mark.oracle
LAYERS = [[f"model.layers.{{i}}.{name}.weight", ["hidden_size", "hidden_size"]] for name in ("q", "k", "v", "o")]
RECORD = {"evidence": "verified", "configs": 24, "prefix": "model", "blocks": [["True", ["layers"], False, LAYERS]]}


def document(number: int) -> dict[str, object]:
    config = {"class": f"C{number}", "defaults": {"hidden_size": number}, "aliases": [], "derive": {}, "subs": {}}
    return folded({"model_type": f"m{number}", "config": config, "classes": {f"Class{number}": RECORD}})


DOCUMENTS = [document(number) for number in range(6)]


def test_what_members_share_makes_them_smaller() -> None:
    text = json.dumps(DOCUMENTS[0], separators=(",", ":")).encode()
    assert len(compressed(text, shared_words(DOCUMENTS))) < 0.6 * len(compressed(text, b""))


def test_a_member_comes_back() -> None:
    text, words = json.dumps(DOCUMENTS[0]).encode(), shared_words(DOCUMENTS)
    assert zlib.decompressobj(zdict=words).decompress(compressed(text, words)) == text


def test_the_words_fit_the_window() -> None:
    assert len(shared_words([document(number) for number in range(400)])) <= 32 * 1024
