"""The vocabulary of a tokenizer.json as a table: missing rows, tokens that no merge makes, rows that changed places.

A trainer numbers the characters that it starts from, in the order of their code points, and then what each merge
makes, in the order of the merges (tokenizers trainers/bpe.rs). Files that were trained so show every later edit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repokit.repo.repository import Repository
    from repokit.repo.tokenizer import Tokenizer

_BYTE: Final = re.compile(r"<0x[0-9A-F]{2}>")
# Lists of rows that follow each other: shorter ones may do so by chance.
SHORTEST: Final = 50


@dataclass(frozen=True, slots=True)
class MergeTable:
    """A byte pair encoding.

    Attributes:
        count: Merges.
        unmade: Tokens of several characters that no merge makes and no file adds; the first of them.
        exchanged: Two tokens whose places in an otherwise unbroken order are exchanged; None where there are none.
    """

    count: int
    unmade: tuple[str, ...]
    exchanged: tuple[str, str] | None


def merge_table(repository: Repository) -> MergeTable | None:
    """The merges of tokenizer.json against its vocabulary; None where its model has none."""
    return repository.remember(("merge table", "tokenizer.json"), lambda: _merge_table(repository))


def _merge_table(repository: Repository) -> MergeTable | None:
    tokenizer = repository.tokenizer
    document = None if tokenizer is None else tokenizer.document
    model = None if document is None else document.mapping("model")
    if tokenizer is None or model is None or not isinstance(model.raw.get("vocab"), dict):
        return None
    merges = model.raw.get("merges")
    if not isinstance(merges, list) or model.string("type") not in {"BPE", None}:
        return None
    prefix, suffix = model.string("continuing_subword_prefix") or "", model.string("end_of_word_suffix") or ""
    made = [left + right.removeprefix(prefix) for left, right in map(_parts, merges)]
    unmade = [] if model.flag("ignore_merges") else list(_unmade(tokenizer, frozenset(made), prefix, suffix))
    return MergeTable(len(made), tuple(unmade), None if prefix or suffix else _exchanged(tokenizer.vocabulary, made))


def _parts(merge: Any) -> tuple[str, str]:  # noqa: ANN401 - what a file holds
    match merge:
        case str():
            left, _, right = merge.partition(" ")
            return left, right
        case [str(left), str(right)]:
            return left, right
    return "", ""


def _unmade(tokenizer: Tokenizer, made: frozenset[str], prefix: str, suffix: str) -> Iterator[str]:
    """Tokens that text never becomes: of several characters, made by no merge, and not looked for as a whole."""
    model = None if tokenizer.document is None else tokenizer.document.mapping("model")
    named = tokenizer.special | {token.content for token in tokenizer.added}
    unknown = None if model is None else model.string("unk_token")
    for token in tokenizer.vocabulary:
        if len(token) > 1 and token not in made and token not in named and token != unknown:
            plain = token.removesuffix(suffix).removeprefix(prefix)
            if len(plain) > 1 and not _BYTE.fullmatch(token):
                yield token


def _exchanged(vocabulary: Mapping[str, int], made: Sequence[str]) -> tuple[str, str] | None:
    """Two tokens that changed places, where all others stand in the order in which a trainer numbers them."""
    letters = sorted({token for token in vocabulary if len(token) == 1}.difference(made))
    for order in ((*letters, *made), made, letters):
        if len(order) >= SHORTEST and (pair := transposed([vocabulary.get(token, -1) for token in order])):
            return order[pair[0]], order[pair[1]]
    return None


def transposed(numbers: Sequence[int]) -> tuple[int, int] | None:
    """The two places whose numbers must be exchanged so that all follow each other; None where that does not help."""
    first = min(numbers)
    wrong = [index for index, number in enumerate(numbers) if number != first + index]
    if len(wrong) != 2:
        return None
    one, other = wrong
    fits = numbers[one] == first + other and numbers[other] == first + one
    return (one, other) if fits else None


def misplaced_piece(repository: Repository) -> str | None:
    """The one piece of a Unigram vocabulary whose score does not fit its place.

    Trainers number pieces by falling scores (SentencePiece's and tokenizers' unigram trainers); those without a score
    stand where they like.
    """
    return repository.remember(("misplaced piece", "tokenizer.json"), lambda: _misplaced_piece(repository))


def _misplaced_piece(repository: Repository) -> str | None:
    tokenizer = repository.tokenizer
    model = None if tokenizer is None or tokenizer.document is None else tokenizer.document.mapping("model")
    entries = None if model is None else model.raw.get("vocab")
    if tokenizer is None or not isinstance(entries, list):
        return None
    known = tokenizer.special
    pieces = [(entry[0], entry[1]) for entry in entries if _is_scored(entry) and entry[0] not in known]
    if len(pieces) < SHORTEST:
        return None
    index = out_of_order([score for _, score in pieces])
    return None if index is None else str(pieces[index][0])


def _is_scored(entry: Any) -> bool:  # noqa: ANN401 - what a file holds
    match entry:
        case [str(), int() | float() as score]:
            return score != 0
    return False


def out_of_order(scores: Sequence[float]) -> int | None:
    """The place of the one score without which, or without it and the one behind it, the others never rise.

    None where all fall, or several are wrong.
    """
    rises = [index for index in range(1, len(scores)) if scores[index] > scores[index - 1]]
    if not 1 <= len(rises) <= 2 or rises[-1] - rises[0] > 2:
        return None
    for index in (rises[0] - 1, rises[0]):
        for width in (1, 2):
            rest = [*scores[max(index - 2, 0) : index], *scores[index + width : index + width + 3]]
            if all(one >= other for one, other in pairwise(rest)) and _is_all(rises, index, width):
                return index
    return None


def _is_all(rises: Sequence[int], index: int, width: int) -> bool:
    """Whether every rise is at one of the places that are left out, or right behind them."""
    return all(index <= rise <= index + width for rise in rises)


def holes(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Ids below the largest one that no token has."""
    taken = set(tokenizer.ids.values())
    return tuple(number for number in range(tokenizer.max_id + 1) if number not in taken)
