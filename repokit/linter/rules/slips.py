"""Slips of the pen: a letter left out, put in, replaced, or two that changed places."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import zip_longest
from typing import Final


def is_slip(word: str, meant: str) -> bool:
    """Whether one slip makes `word` of `meant`. Digits count things, and are not mistaken for letters."""
    if word == meant or abs(len(word) - len(meant)) > 1:
        return False
    start = next(i for i, (left, right) in enumerate(zip_longest(word, meant)) if left != right)
    ours, theirs = word[start:], meant[start:]
    if any(letter.isdigit() for letter in (ours[:1], theirs[:1])):
        return False
    left_out, put_in, replaced = ours == theirs[1:], ours[1:] == theirs, ours[1:] == theirs[1:]
    swapped = ours[:2] == theirs[1::-1] and ours[2:] == theirs[2:]
    return left_out or put_in or replaced or swapped


SHORTEST: Final = 4  # `fps` and `eps` are two words, not one with a slip


def meant_by(word: str, known: Iterable[str]) -> str | None:
    """The first of the known words of which this one is a slip; short ones are too near each other to tell."""
    return next((meant for meant in known if len(meant) >= SHORTEST and is_slip(word, meant)), None)


def misspelt(keys: Iterable[str], known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Keys that are not known, each with the known key of which it is a slip and which is not there; in their order."""
    present = list(keys)
    absent = sorted(set(known).difference(present))
    for key in present:
        if key not in known and (meant := meant_by(key, absent)) is not None:
            yield key, meant
