"""The steps of a tokenizer.json: sequences unfolded, spaces written and read."""

from __future__ import annotations

from typing import Any

import pytest

from repokit.linter.examples import Example
from repokit.linter.rules.tokenizer_parts import MARKED, PREPENDED, STRIPPED, UNMARKED, pieces
from repokit.repo.repository import Repository
from repokit.repo.tokenizer_parts import TokenizerParts


def parts_of(change: dict[str, Any]) -> TokenizerParts:
    parts = TokenizerParts.of(Repository(Example("", change).source()))
    assert parts is not None
    return parts


def test_nested_sequences_are_unfolded_in_their_order() -> None:
    inner = {"type": "Sequence", "normalizers": [MARKED]}
    parts = parts_of(pieces(normalizer={"type": "Sequence", "normalizers": [PREPENDED, inner]}))
    assert [step.string("type") for step in parts.steps("normalizer")] == ["Prepend", "Replace"]


def test_there_are_none_without_a_tokenizer() -> None:
    assert TokenizerParts.of(Repository(Example("", {"tokenizer.json": None}).source())) is None


@pytest.mark.parametrize(("decoders", "spaces"), [([UNMARKED], 0), ([UNMARKED, STRIPPED], 1), ([STRIPPED] * 2, 2)])
def test_spaces_that_the_decoder_takes_away_are_counted(decoders: list[Any], spaces: int) -> None:
    assert parts_of(pieces(decoder={"type": "Sequence", "decoders": decoders})).stripped == spaces


def test_a_space_is_prepended() -> None:
    assert parts_of(pieces()).prepended == "\u2581"


def test_metaspace_leaves_it_open_whether_a_space_is_prepended() -> None:
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    assert parts_of(pieces(pre_tokenizer=metaspace)).prepended is None


def test_the_base_is_byte_level() -> None:
    assert parts_of({}).is_byte_level
