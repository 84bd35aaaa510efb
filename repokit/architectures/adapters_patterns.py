"""Regular expressions of strangers, held against whole module paths in bounded time.

adapter_config.json may choose its modules by an expression, and Python's own engine can be made to think about one for
years. Here an expression becomes a program whose states are followed all at once (Thompson, 1968), so that time grows
with its length times that of the text. What such a program cannot express (references to groups, looking behind) is
not guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from re import _constants, _parser  # type: ignore[attr-defined]  # the tree of an expression, as `re` itself reads it
from typing import Any, Final, NamedTuple

LONGEST: Final = 8_192  # characters of an expression: those that name every layer of a model have some 5,000
MOST_STATES: Final = 20_000
MOST_STEPS: Final = 30_000_000  # of one expression over all names: some ten seconds

_FLAGS: Final = re.UNICODE.value


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


_CATEGORIES: Final[dict[Any, Callable[[str], bool]]] = {
    _constants.CATEGORY_DIGIT: str.isdecimal,
    _constants.CATEGORY_NOT_DIGIT: lambda character: not character.isdecimal(),
    _constants.CATEGORY_SPACE: str.isspace,
    _constants.CATEGORY_NOT_SPACE: lambda character: not character.isspace(),
    _constants.CATEGORY_WORD: _is_word,
    _constants.CATEGORY_NOT_WORD: lambda character: not _is_word(character),
}


class Undecided(ValueError):
    """The expression is none, or one whose matches are not worked out here."""


class _State(NamedTuple):
    """One state: what it takes, and where it leads.

    Attributes:
        test: Takes one character; None for a state that takes none.
        next: The states that follow.
        look: For a state that takes none: whether it may be passed at this place of the text.
    """

    test: Callable[[str], bool] | None
    next: tuple[int, ...]
    look: Callable[[str, int], bool] | None = None


class Pattern:
    """A regular expression that a whole text must match, as `re.fullmatch` would have it.

    Raises:
        Undecided: See there.
    """

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise Undecided(f"{len(text):,} characters")
        try:
            tree = _parser.parse(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise Undecided(str(error)) from None
        if tree.state.flags & ~_FLAGS:
            raise Undecided("flags")
        self._states: list[_State] = []
        self._steps = 0
        self._end = self._add(None, ())
        try:
            self._start = self._sequence(tree, self._end)
        except RecursionError as error:
            raise Undecided(str(error)) from None

    def matches(self, text: str) -> bool:
        """Whether the whole text matches.

        Raises:
            Undecided: It takes too long.
        """
        return any(self._end in reached for at, reached in self._run(self._start, text, 0) if at == len(text))

    def _run(self, start: int, text: str, at: int) -> Iterator[tuple[int, set[int]]]:
        """The states that are reached after each character from `at` on."""
        reached = self._closed([start], text, at)
        while reached:
            yield at, reached
            if at == len(text):
                return
            self._steps += len(reached)
            if self._steps > MOST_STEPS:
                raise Undecided("too many steps")
            character = text[at]
            at += 1
            states = self._states
            taken = [follower for state in reached if (test := states[state].test) and test(character)
                     for follower in states[state].next]  # fmt: skip
            reached = self._closed(taken, text, at)

    def _closed(self, states: Iterable[int], text: str, at: int) -> set[int]:
        """These states and all that follow without a character."""
        found: set[int] = set()
        pending = list(states)
        while pending:
            number = pending.pop()
            if number in found:
                continue
            found.add(number)
            state = self._states[number]
            if state.test is None and (state.look is None or state.look(text, at)):
                pending.extend(state.next)
        self._steps += len(found)
        return found

    def _add(
        self,
        test: Callable[[str], bool] | None,
        follow: tuple[int, ...],
        look: Callable[[str, int], bool] | None = None,
    ) -> int:
        if len(self._states) >= MOST_STATES:
            raise Undecided("too many states")
        self._states.append(_State(test, follow, look))
        return len(self._states) - 1

    def _sequence(self, tree: Iterable[tuple[Any, Any]], after: int) -> int:
        """The first state of a sequence of parts that ends in `after`."""
        for operator, argument in reversed(list(tree)):
            after = self._part(operator, argument, after)
        return after

    def _part(self, operator: Any, argument: Any, after: int) -> int:  # noqa: ANN401 - nodes of `re`
        if (test := _one_character(operator, argument)) is not None:
            return self._add(test, (after,))
        match operator:
            case _constants.BRANCH:
                return self._add(None, tuple(self._sequence(branch, after) for branch in argument[1]))
            case _constants.SUBPATTERN if not argument[1] and not argument[2]:
                return self._sequence(argument[3], after)
            case _constants.MAX_REPEAT | _constants.MIN_REPEAT:
                least, most, body = argument
                return self._repeat(least, most, body, after)
            case _constants.AT if (place := _PLACES.get(argument)) is not None:
                return self._add(None, (after,), place)
            case _constants.ASSERT | _constants.ASSERT_NOT if argument[0] > 0:
                return self._add(None, (after,), self._ahead(argument[1], wanted=operator is _constants.ASSERT))
            case _:
                raise Undecided(str(operator).lower())

    def _repeat(self, least: int, most: Any, body: Any, after: int) -> int:  # noqa: ANN401 - MAXREPEAT is of no public type
        if most is _constants.MAXREPEAT:
            loop = self._add(None, ())
            self._states[loop] = _State(None, (self._sequence(body, loop), after))
            after = loop
        else:
            end = after
            for _ in range(int(most) - least):
                after = self._add(None, (self._sequence(body, after), end))
        for _ in range(least):
            after = self._sequence(body, after)
        return after

    def _ahead(self, body: Any, *, wanted: bool) -> Callable[[str, int], bool]:  # noqa: ANN401 - a node of `re`
        start, end = -1, self._add(None, ())
        start = self._sequence(body, end)
        seen: dict[tuple[str, int], bool] = {}

        def look(text: str, at: int) -> bool:
            if (text, at) not in seen:
                if len(seen) > MOST_STATES:
                    seen.clear()
                seen[text, at] = any(end in reached for _, reached in self._run(start, text, at))
            return seen[text, at] is wanted

        return look


def _at_boundary(text: str, at: int) -> bool:
    before, after = at > 0 and _is_word(text[at - 1]), at < len(text) and _is_word(text[at])
    return before is not after


_PLACES: Final[dict[Any, Callable[[str, int], bool]]] = {
    _constants.AT_BEGINNING: lambda _, at: at == 0,
    _constants.AT_BEGINNING_STRING: lambda _, at: at == 0,
    _constants.AT_END: lambda text, at: at == len(text),
    _constants.AT_END_STRING: lambda text, at: at == len(text),
    _constants.AT_BOUNDARY: _at_boundary,
    _constants.AT_NON_BOUNDARY: lambda text, at: not _at_boundary(text, at),
}


def _one_character(operator: Any, argument: Any) -> Callable[[str], bool] | None:  # noqa: ANN401 - nodes of `re`
    match operator:
        case _constants.LITERAL:
            return chr(argument).__eq__
        case _constants.NOT_LITERAL:
            return chr(argument).__ne__
        case _constants.ANY:
            return "\n".__ne__
        case _constants.IN:
            return _class(argument)
        case _:
            return None


def _class(items: list[tuple[Any, Any]]) -> Callable[[str], bool]:
    """A set of characters: `[^a-z]`."""
    negated = items[0][0] is _constants.NEGATE
    tests = [_in_class(operator, argument) for operator, argument in items[negated:]]
    return lambda character: any(test(character) for test in tests) is not negated


def _in_class(operator: Any, argument: Any) -> Callable[[str], bool]:  # noqa: ANN401 - nodes of `re`
    match operator:
        case _constants.LITERAL:
            return chr(argument).__eq__
        case _constants.RANGE:
            first, last = map(chr, argument)
            return lambda character: first <= character <= last
        case _constants.CATEGORY if argument in _CATEGORIES:
            return _CATEGORIES[argument]
        case _:
            raise Undecided(str(operator).lower())


@cache
def pattern(text: str) -> Pattern:
    """The program of an expression.

    Raises:
        Undecided: See there.
    """
    return Pattern(text)
