"""Expressions over keys that hold one number or a list of height and width: `patch_size`, `image_size`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator


def sided(text: str, keys: Iterable[str]) -> list[str]:
    """An expression, and what it is where a key may be one number or a list of height and width.

    Code that computes with both sides of one number mentions it twice: first for the height, then for the width.
    """
    forms = [text]
    for key in keys:
        mention = re.compile(rf"(?<![\w.]){re.escape(key)}(?![\w.])(?:\[(-?\d)\])?")
        if mention.search(text):
            forms = [form for known in forms for form in _sided(known, key, mention)]
    return list(dict.fromkeys([text, *forms]))


def _sided(text: str, key: str, mention: re.Pattern[str]) -> list[str]:
    count = len(mention.findall(text))
    sides = (["first"] * count, ["last"] * count, ["first"] * (count // 2) + ["last"] * (count - count // 2))

    def spelled(names: Iterator[str]) -> str:
        def side(found: re.Match[str]) -> str:
            name = next(names)
            return f"{ {'0': 'first', None: name}.get(found[1], 'last') }({key})"

        return mention.sub(side, text)

    return [spelled(iter(names)) for names in sides]
