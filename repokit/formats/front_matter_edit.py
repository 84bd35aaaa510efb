"""Changes values of a model card's front matter and nothing else.

Comments, key order, spelling and the body stay byte for byte: a person wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from repokit.errors import MalformedFile
from repokit.formats.front_matter import Card, parse_card
from repokit.formats.front_matter_values import LINE, with_values


def with_metadata(data: bytes, values: Mapping[str, Any], path: str, *, without: Sequence[str] = ()) -> bytes:
    """A card with these values in its front matter.

    Keys whose value differs are rewritten in their place; new keys follow, in the order of `values`. A front matter in
    which keys cannot be told apart by lines (flow style, anchors) is written anew, comments lost.

    Args:
        data: The card; b"" for a new one.
        values: Front matter values; None as a value leaves the key alone.
        path: For messages.
        without: Keys that the card must not have.

    Raises:
        MalformedFile: The card does not parse.
    """
    card = parse_card(data, path)
    wanted = {key: value for key, value in values.items() if value is not None}
    text = data.decode("utf-8-sig")
    if card.metadata is None:
        return f"---\n{_dumped(wanted)}---\n{text}".encode()
    changed: dict[str, Any] = {key: value for key, value in wanted.items() if _differ(card.metadata, key, value)}
    changed |= {key: None for key in without if key in card.metadata}
    if not changed:
        return data
    if (precise := _precisely(text, card, changed, path)) is not None:
        return with_metadata(precise, values, path, without=without)
    result = {key: value for key, value in {**card.metadata, **changed}.items() if key not in without}
    candidates = (_edited(text, card, changed, at_end=at_end) for at_end in (True, False))
    return next((edited for edited in candidates if _holds(edited, result, card.body, path)), _anew(text, card, result))


def _differ(metadata: Mapping[str, Any], key: str, value: object) -> bool:
    """Whether a value is to be written. True is not 1: a person reads the difference, and so does the Hub."""
    return key not in metadata or repr(metadata[key]) != repr(value)


def _precisely(text: str, card: Card, changed: Mapping[str, Any], path: str) -> bytes | None:
    """The card with those values set that can be set alone, comments behind them kept; None where there is none."""
    lines = LINE.findall(text)
    opening = next(number for number, line in enumerate(lines) if line.strip() == "---")
    closing = next(number for number, line in enumerate(lines[opening + 1 :], opening + 1) if _closes(line))
    block = "".join(lines[opening + 1 : closing])
    wanted = {key: value for key, value in changed.items() if value is not None and key in card.lines}
    new = with_values(block, wanted, _spelled) if wanted else block
    if new == block:
        return None
    data = "".join([*lines[: opening + 1], new, *lines[closing:]]).encode()
    try:
        after = parse_card(data, path).metadata or {}
    except MalformedFile:
        return None
    done = {key: value for key, value in wanted.items() if not _differ(after, key, value)}
    return data if _holds(data, {**(card.metadata or {}), **done}, card.body, path) else None


def _spelled(value: object) -> str:
    """A scalar as it would stand behind its key."""
    return _dumped({"k": value}).removeprefix("k: ").rstrip("\n")


def _holds(data: bytes, metadata: Mapping[str, Any], body: str, path: str) -> bool:
    """Whether a card reads as it was meant to."""
    try:
        card = parse_card(data, path)
    except MalformedFile:
        return False
    if card.metadata is None or card.body != body:
        return False
    return card.metadata.keys() == metadata.keys() and not any(
        _differ(card.metadata, *item) for item in metadata.items()
    )


def _edited(text: str, card: Card, changed: Mapping[str, Any], *, at_end: bool) -> bytes:
    """The card with its lines edited.

    Args:
        text: The whole card.
        card: The same, parsed.
        changed: New values; None takes a key out.
        at_end: New keys go behind the others. Before them where the last value is a block of text: a block at the end
            has no line break at its own end, and would get one.
    """
    lines = LINE.findall(text)
    opening = next(number for number, line in enumerate(lines) if line.strip() == "---")
    closing = next(number for number, line in enumerate(lines[opening + 1 :], opening + 1) if _closes(line))
    block = _rewritten(lines[opening + 1 : closing], opening + 2, card, changed)
    added = {key: value for key, value in changed.items() if key not in card.lines}
    new = _dumped(added, _line_break(lines[opening]))
    inside = [*block, new] if at_end else [new, *block]
    return "".join([*lines[: opening + 1], *inside, *lines[closing:]]).encode()


def _anew(text: str, card: Card, metadata: Mapping[str, Any]) -> bytes:
    fences = f"---\n{_dumped(metadata)}---\n" if metadata else ""
    return f"{fences}{text[len(text) - len(card.body) :]}".encode()


def _closes(line: str) -> bool:
    return line.rstrip("\r\n").rstrip(" \t") == "---"


def _line_break(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :] or "\n"


def _dumped(values: Mapping[str, Any], line_break: str = "\n") -> str:
    """Block YAML, quoted where YAML 1.1 would read something else; "" for no values."""
    import yaml

    if not values:
        return ""
    text: str = yaml.dump(
        dict(values), Dumper=_dumper(), sort_keys=False, allow_unicode=True, default_flow_style=False, width=10**6
    )
    return text.replace("\n", line_break)


@cache
def _dumper() -> Any:  # noqa: ANN401 - a class of PyYAML, which is loaded late
    """PyYAML's safe dumper, which writes U+0085 and U+2028 raw and reads them back as line breaks; here escaped."""
    import yaml

    def quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = '"' if re.search("[\x85\u2028\u2029]", text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    dumper: Any = type("Dumper", (yaml.SafeDumper,), {})
    dumper.add_representer(str, quoted)
    return dumper


def _rewritten(lines: list[str], first: int, card: Card, changed: Mapping[str, Any]) -> list[str]:
    """The lines between the fences, those of changed keys replaced, or removed where the new value is None.

    Args:
        lines: Between the fences.
        first: The line number of the first of them in the file, from 1.
        card: The parsed card, which knows the line of each key.
        changed: New values.
    """
    starts = sorted((line - first, key) for key, line in card.lines.items())
    if not starts:
        return lines
    ends = [start for start, _ in starts[1:]] + [len(lines)]
    result = lines[: starts[0][0]]
    for (start, key), end in zip(starts, ends, strict=True):
        region = lines[start:end]
        if key in changed:
            value = {} if changed[key] is None else {key: changed[key]}
            region = [_dumped(value, _line_break(region[0]) if region else "\n"), *_belonging_to_the_next(region)]
        result += region
    return result


def _belonging_to_the_next(region: list[str]) -> list[str]:
    """The comment and blank lines at the end of a key's lines: they speak of what follows.

    Comments begin in the first column: what looks like one and is indented may be text of the value.
    """
    kept: list[str] = []
    for line in reversed(region[1:]):
        if line.strip() and not line.startswith("#"):
            break
        kept.insert(0, line)
    return kept
