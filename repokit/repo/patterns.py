"""How much a regular expression of a tokenizer unfolds to when it is compiled."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_PART: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\(|\)|\{(\d*),?(\d*)\}|.", re.DOTALL)


def repeats(pattern: str) -> int:
    """The largest product of counted repeats that stand inside each other: 1,000,000 for `((a{1,100}){100}){100}`.

    Oniguruma, which the tokenizers library uses, unfolds them: memory and time of the compiled pattern grow with it.
    """
    levels = [1]  # from the outside in: the largest product in each group so far
    last = 1  # of the group or character that a count would repeat
    for part in _PART.finditer(pattern):
        match part[0]:
            case "(":
                levels.append(1)
                last = 1
            case ")" if len(levels) > 1:
                last = levels.pop()
                levels[-1] = max(levels[-1], last)
            case _ if part[1] is not None and (part[1] or part[2]):
                last *= max(int(number) for number in (part[1], part[2]) if number)
                levels[-1] = max(levels[-1], last)
            case _:
                last = 1
    return max(levels)


def patterns_in(value: Any) -> Iterator[str]:  # noqa: ANN401 - any part of a tokenizer.json
    """Every regular expression in a component of a tokenizer.json: `{"Regex": ...}`."""
    pending = [value]
    while pending:
        match pending.pop():
            case {"Regex": str(pattern)}:
                yield pattern
            case dict(fields):
                pending.extend(fields.values())
            case list(items):
                pending.extend(items)
