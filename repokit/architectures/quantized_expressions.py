"""Regular expressions out of a config, run so that none of them can take for ever.

Lists of modules may hold expressions, and anyone may have written them. Those whose time can grow without bound are
not run, and the rest have a time in which all of them must be done. The names that they see are our own, and short.
"""

from __future__ import annotations

import re
import time
import warnings
from typing import Final

MAX_LENGTH: Final = 4096  # of one expression
MAX_FREE: Final = 4  # of repeats without end, whose number is the exponent of the time that a mismatch takes
MAX_CHOICES: Final = 12  # of optional parts
MAX_COUNT: Final = 16  # of a counted repeat
SECONDS: Final = 2.0  # for all expressions of a config together; lists of real repositories take milliseconds

_TOKEN: Final = re.compile(
    r"(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<open>\((?:\?(?:P=|P<\w+>|<?[=!]|\(|[aiLmsux]+\)|.))?)"
    r"|(?P<close>\))|(?P<repeat>[*+?]|\{\d*,?\d*\})|(?P<other>.)",
    re.DOTALL,
)
_DIGITS: Final = frozenset({r"\d", "[0-9]"})  # the numbers of a name are short
# Expressions that say the same about all modules that differ only in their numbers: no digit, no class of characters,
# and no single dot that could stand for a digit between the dots of a name.
_ANY_NUMBER: Final = re.compile(r"\^?(?:[A-Za-z_-]|\.\*|\\\.(?!\.)|(?<=[A-Za-z_])\.(?=[A-Za-z_])|[|()$])*")


class TooSlow(Exception):
    """The expressions of a config took longer than any real list does."""


class Clock:
    """The time that all expressions of a config have together."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._left = seconds

    def match(self, expression: re.Pattern[str], name: str) -> bool:
        """Whether the expression fits from the start of the name.

        Raises:
            TooSlow: The time is up.
        """
        begun = time.perf_counter()
        found = expression.match(name) is not None
        self._spend(begun)
        return found

    def compiled(self, pattern: str) -> re.Pattern[str] | None:
        """The expression; None where it is none, or may take for ever.

        Raises:
            TooSlow: The time is up.
        """
        begun = time.perf_counter()
        found = compiled(pattern)
        self._spend(begun)
        return found

    def _spend(self, begun: float) -> None:
        self._left -= time.perf_counter() - begun
        if self._left < 0:
            raise TooSlow


def compiled(pattern: str) -> re.Pattern[str] | None:
    """The expression; None where it is none, or may take for ever."""
    if not _bounded(pattern):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(pattern)
    except (re.error, RecursionError, OverflowError, ValueError):
        return None


def looks_at_numbers(pattern: str) -> bool:
    """Whether modules that differ only in their numbers may be told apart."""
    return _ANY_NUMBER.fullmatch(pattern) is None


def _bounded(pattern: str) -> bool:
    """Whether a mismatch takes no more time than a small power of the length of a name.

    A group must not be repeated without end: what is inside may be split up in too many ways.
    """
    free = choices = 0
    last = ""
    if len(pattern) > MAX_LENGTH:
        return False
    for token in _TOKEN.finditer(pattern):
        kind, text = str(token.lastgroup), token[0]
        if (kind == "escape" and text[1].isdigit()) or text.startswith(("(?P=", "(?(")):
            return False
        if kind == "repeat" and text != "{}":
            endless, most = _repeat(text)
            if (endless or most > 1) and last == ")":
                return False
            free += endless and last not in _DIGITS
            choices += not endless
            if most > MAX_COUNT:
                return False
        last = ")" if kind == "close" else text
    return free <= MAX_FREE and choices <= MAX_CHOICES


def _repeat(text: str) -> tuple[bool, int]:
    """Whether it has no end, and else how often at most."""
    if text in {"*", "+"}:
        return True, 0
    if text == "?":
        return False, 1
    least, comma, most = text[1:-1].partition(",")
    if comma and not most:
        return True, 0
    return False, int((most or least or "0")[:9])
