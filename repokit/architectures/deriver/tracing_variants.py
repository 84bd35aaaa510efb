"""What was computed for one layer, said for every layer.

`depths[2]*16` was computed in one turn of a loop; the tensors of all turns follow `16*depths[i]`, or `16*depths[i-1]`
where their numbers run from one, or `16*depths[j]` where theirs is the second number of their name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from repokit.architectures.grammar import FUNCTIONS, INDICES

MOST: Final = 400  # expressions, and as many conditions
MOST_TEXT: Final = 200
MOST_NUMBERS: Final = 5  # asked about by one condition: if there are more, they are those of a loop

_WORD: Final = re.compile(r"(?<![\w.'])[A-Za-z_][\w.]*")
_QUOTED: Final = re.compile(r"'[^']*'")
_CALLED: Final = re.compile(r"([A-Za-z_]\w*)\(")
_LITERAL: Final = re.compile(r"\[(\d+)\]")
_FIRST: Final = re.compile(r"^\d+(?=%| in )")
_LAST: Final = re.compile(r"(?<=[^=<>!](?:==|!=|<=|>=))\d+$|(?<=[^=<>!][<>])\d+$")
_POWER: Final = re.compile(r"\b2\*\*(\d+)\b")
_INDEX: Final = re.compile(r"(?<![\w.'])i(?![\w.'(])")
_BRACKETED: Final = re.compile(r"\([^()]*\)|\[[^\]]*\]")
_SCALED: Final = re.compile(r"(\d+)\*(.+)")
_DIVIDED: Final = re.compile(r"(.+)//(\d+)")
_KEYWORDS: Final = {"and", "or", "not", "in", "is", "if", "else", "None", "True", "False", *FUNCTIONS}
_TURNS: Final = ("i", "i+1", "i-1", "j")


def keys_in(text: str) -> set[str]:
    """The keys of the config in an expression."""
    words = set(_WORD.findall(_QUOTED.sub("''", text)))
    return {word for word in words - _KEYWORDS if word not in INDICES}


def ordered(
    held: Iterable[str], computed: Iterable[str], decided: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Candidate expressions and conditions, with their variants, simplest first.

    Args:
        held: What modules hold as attributes: these come before the others.
        computed: What else was computed.
        decided: Comparisons and truth tests.
    """
    first = _simplest(_with_variants(held))
    others = _simplest(_with_variants(computed))
    expressions = _distinct(text for text in (*first, *others) if keys_in(text))
    return expressions, _distinct(_simplest(_with_variants(_counted(decided))))


def _simplest(texts: Iterable[str]) -> list[str]:
    return sorted(dict.fromkeys(texts), key=lambda text: (len(_WORD.findall(text)), len(text)))


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for text in texts:
        if len(text) <= MOST_TEXT and len(found) < MOST and _in_grammar(text):
            found.setdefault(_canonical(text), text)
    return tuple(found.values())


def _canonical(text: str) -> str:
    """The same for products, and for sums, of the same things in another order."""
    for operator in "*+":
        parts = text.split(operator)
        if len(parts) > 1 and all(re.fullmatch(r"[\w.]+(\[[\w+-]+\])?", part) for part in parts):
            return operator.join(sorted(parts))
    return text


def _in_grammar(text: str) -> bool:
    """Terms are composed in the grammar; only a function may be one that it has not."""
    return FUNCTIONS.keys() >= set(_CALLED.findall(text))


def _with_variants(texts: Iterable[str]) -> Iterator[str]:
    known = list(dict.fromkeys(texts))
    yield from known
    for text in known:
        yield from _turned(text)
    yield from _doubled(known)


def _counted(texts: Iterable[str]) -> Iterator[str]:
    """`i>=first` in place of `3>=first` and the like, where the numbers of a loop were seen: two of them or more."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for text in texts:
        match = None if _INDEX.search(text) else _FIRST.search(text) or _LAST.search(text)
        place = (text[: match.start()], text[match.end() :]) if match else (text, "")
        places[place].append(text)
    for (before, after), seen in places.items():
        if len(seen) > 1:
            yield from (f"{before}{_atom(turn)}{after}" for turn in _TURNS)
        if len(seen) < MOST_NUMBERS:
            yield from seen


def _turned(text: str) -> Iterator[str]:
    """The text with index variables in place of literal indices, and with other turns in place of `i`."""
    literals = sorted({int(number) for number in _LITERAL.findall(text)})
    for number in literals:
        for turn in _TURNS:
            yield _LITERAL.sub(lambda match, at=number, turn=turn: f"[{_moved(turn, int(match[1]) - at)}]", text)  # type: ignore[misc]
    if match := _POWER.search(text):
        yield from (f"{text[: match.start()]}2**{_atom(turn)}{text[match.end() :]}" for turn in _TURNS)
    if _INDEX.search(text):
        for turn in _TURNS[1:]:
            yield _moved_subscripts(_INDEX.sub(_atom(turn), text))


def _moved(turn: str, distance: int) -> str:
    shift = int(turn[1:] or 0) + distance
    return f"{turn[0]}{shift:+d}" if shift else turn[0]


def _atom(turn: str) -> str:
    return f"({turn})" if len(turn) > 1 else turn


def _moved_subscripts(text: str) -> str:
    """`[(i+1)]` as `[i+1]`, `(i+1)-1` as `i`."""
    text = text.replace("(i+1)-1", "i").replace("(i-1)+1", "i")
    return re.sub(r"\[\((\w[+-]\d+)\)\]", r"[\1]", text)


def _doubled(texts: list[str]) -> Iterator[str]:
    """`x*2**i` where 2*x, 4*x, 8*x were computed, `x//2**i` where x//2, x//4 were."""
    multiples: dict[str, set[int]] = defaultdict(set)
    fractions: dict[str, set[int]] = defaultdict(set)
    for text in texts:
        if (match := _SCALED.fullmatch(text)) and _is_power(int(match[1])) and _is_factor(match[2]):
            multiples[match[2]].add(int(match[1]))
        if (match := _DIVIDED.fullmatch(text)) and _is_power(int(match[2])):
            fractions[match[1]].add(int(match[2]))
    for rest, factors in multiples.items():
        if len(factors) > 1 or 2**3 in factors:
            yield from (f"{rest}*2**{turn}" for turn in ("i", "(i+1)", "(i-1)", "(i+2)", "j"))
    for rest, factors in fractions.items():
        if len(factors) > 1:
            yield from (f"{rest}//2**{turn}" for turn in ("i", "(i+1)", "(i-1)", "j"))


def _is_factor(text: str) -> bool:
    return re.search(r"[+\-/%]", _BRACKETED.sub("", text)) is None


def _is_power(number: int) -> bool:
    return number > 1 and number & (number - 1) == 0
