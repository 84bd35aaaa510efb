"""Changes values of a model card's front matter and nothing else.

Comments, key order, spelling and the body stay byte for byte: a person wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from repokit.formats.front_matter import Card, parse_card


def with_metadata(data: bytes, values: Mapping[str, Any], path: str) -> bytes:
    """A card with these values in its front matter.

    Keys whose value differs are rewritten in their place; new keys follow at the end, in the order of `values`.

    Args:
        data: The card; b"" for a new one.
        values: Front matter values; None as a value leaves the key alone.
        path: For messages.

    Raises:
        MalformedFile: The card does not parse.
    """
    card = parse_card(data, path)
    wanted = {key: value for key, value in values.items() if value is not None}
    text = data.decode("utf-8-sig")
    if card.metadata is None:
        return f"---\n{_dumped(wanted)}---\n{text}".encode()
    changed = {key: value for key, value in wanted.items() if card.metadata.get(key) != value}
    if not changed:
        return data
    lines = text.splitlines(keepends=True)
    opening = next(number for number, line in enumerate(lines) if line.strip() == "---")
    closing = next(number for number, line in enumerate(lines[opening + 1 :], opening + 1) if _closes(line))
    block = _rewritten(lines[opening + 1 : closing], opening + 2, card, changed)
    added = {key: value for key, value in changed.items() if key not in card.metadata}
    return "".join([*lines[: opening + 1], *block, _dumped(added), *lines[closing:]]).encode()


def _closes(line: str) -> bool:
    return line.rstrip() == "---"


def _dumped(values: Mapping[str, Any]) -> str:
    """Block YAML, quoted where YAML 1.1 would read something else; "" for no values."""
    import yaml

    if not values:
        return ""
    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True, default_flow_style=False, width=10**6)


def _rewritten(lines: list[str], first: int, card: Card, changed: Mapping[str, Any]) -> list[str]:
    """The lines between the fences, those of changed keys replaced.

    Args:
        lines: Between the fences.
        first: The line number of the first of them in the file, from 1.
        card: The parsed card, which knows the line of each key.
        changed: New values.
    """
    starts = sorted((line - first, key) for key, line in card.lines.items())
    ends = [start for start, _ in starts[1:]] + [len(lines)]
    result = lines[: starts[0][0]] if starts else list(lines)
    for (start, key), end in zip(starts, ends, strict=True):
        region = lines[start:end]
        if key in changed:
            region = [_dumped({key: changed[key]}), *_belonging_to_the_next(region)]
        result += region
    return result


def _belonging_to_the_next(region: list[str]) -> list[str]:
    """The comment and blank lines at the end of a key's lines: they speak of what follows."""
    kept: list[str] = []
    for line in reversed(region[1:]):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        kept.insert(0, line)
    return kept
