"""tokenizer.json -> its mutants: vocabulary, merges, added tokens, and every key of the rest."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

from edit import Edit
from json_mutants import of_value, written

SAMPLED = 12  # entries of the vocabulary, merges and added tokens; one of a kind behaves like the next


def of_tokenizer(content: bytes) -> Iterator[Edit]:
    """Mutants of a whole file."""
    document = json.loads(content)
    yield from of_value(document, skip=_is_long)
    for part in (_vocabulary, _merges, _added):
        for operation, place, changed in part(document):
            yield Edit(operation, place, written(changed))


def _is_long(pointer: tuple[str | int, ...]) -> bool:
    """The entries of the vocabulary, which `_vocabulary` goes through."""
    return pointer[:2] == ("model", "vocab") and len(pointer) > 2


def of_vocabulary(content: bytes) -> Iterator[Edit]:
    """Mutants of vocab.json."""
    vocabulary = json.loads(content)
    for operation, place, changed in _vocabulary({"model": {"vocab": vocabulary}}):
        yield Edit(operation, place.removeprefix("/model/vocab"), written(changed["model"]["vocab"]))


Mutation = tuple[str, str, Any]


def _vocabulary(document: Any) -> Iterator[Mutation]:
    vocabulary = document["model"]["vocab"]
    random = Random(5)
    for index in sorted(random.sample(range(len(vocabulary)), min(SAMPLED, len(vocabulary)))):
        if isinstance(vocabulary, dict):
            yield from _entries(document, list(vocabulary), index)
        else:
            yield from _pieces(document, index)


def _entries(document: Any, tokens: list[str], index: int) -> Iterator[Mutation]:
    token, other = tokens[index], tokens[index - 1]
    place = f"/model/vocab/{token}"

    def removed(vocab: dict[str, int]) -> None:
        del vocab[token]

    def renamed(vocab: dict[str, int]) -> None:
        vocab[token + "x"] = vocab.pop(token)

    def swapped(vocab: dict[str, int]) -> None:
        vocab[token], vocab[other] = vocab[other], vocab[token]

    def moved(vocab: dict[str, int]) -> None:
        vocab[token] = max(vocab.values()) + 1

    def shared(vocab: dict[str, int]) -> None:
        vocab[token] = vocab[other]

    for change in (removed, renamed, swapped, moved, shared):
        copied = copy.deepcopy(document)
        change(copied["model"]["vocab"])
        yield f"vocabulary entry {change.__name__}", place, copied


def _pieces(document: Any, index: int) -> Iterator[Mutation]:
    """Of Unigram: a list of pieces with scores, whose places are the ids."""

    def removed(vocab: list[Any]) -> None:
        del vocab[index]

    def renamed(vocab: list[Any]) -> None:
        vocab[index] = [vocab[index][0] + "x", vocab[index][1]]

    def swapped(vocab: list[Any]) -> None:
        vocab[index], vocab[index - 1] = vocab[index - 1], vocab[index]

    def rescored(vocab: list[Any]) -> None:
        vocab[index] = [vocab[index][0], vocab[index][1] - 10]

    for change in (removed, renamed, swapped, rescored):
        copied = copy.deepcopy(document)
        change(copied["model"]["vocab"])
        yield f"vocabulary entry {change.__name__}", f"/model/vocab/{index}", copied


def _merges(document: Any) -> Iterator[Mutation]:
    merges = document["model"].get("merges") or []
    for index in sorted(Random(6).sample(range(len(merges)), min(SAMPLED // 2, len(merges)))):
        copied = copy.deepcopy(document)
        del copied["model"]["merges"][index]
        yield "merge removed", f"/model/merges/{index}", copied
        copied = copy.deepcopy(document)
        first = copied["model"]["merges"]
        first[index], first[0] = first[0], first[index]
        yield "merges swapped", f"/model/merges/{index}", copied


def _added(document: Any) -> Iterator[Mutation]:
    for index, token in enumerate((document.get("added_tokens") or ())[:SAMPLED]):
        place = f"/added_tokens/{index}"
        copied = copy.deepcopy(document)
        del copied["added_tokens"][index]
        yield "added token removed", place, copied
        for key, value in token.items():
            if index >= 2:  # the first two are gone through key by key
                copied = copy.deepcopy(document)
                changed = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else value + "x"
                copied["added_tokens"][index][key] = changed
                yield f"added token: other {key}", f"{place}/{key}", copied
