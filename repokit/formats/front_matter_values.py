"""Single values of a front matter: changed where they stand, so that a comment behind them stays; read as typed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import yaml

MAX_LENGTH: Final = 256 * 1024  # characters; places come from a parser in Python, which takes a second a megabyte

_SCALARS: Final = (str, int, float)


# The line breaks of front_matter.py.
LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def parts(text: str) -> tuple[str, str, str] | None:
    """A card up to its front matter, what stands between the fences, and the rest; None where there are no fences."""
    lines = LINE.findall(text)
    fences = [number for number, line in enumerate(lines) if line.rstrip() == "---"][:2]
    if len(fences) < 2 or any(line.strip() for line in lines[: fences[0]]):
        return None
    first, last = fences
    return "".join(lines[: first + 1]), "".join(lines[first + 1 : last]), "".join(lines[last:])


def texts_in(block: str) -> dict[str, Any]:
    """The mapping with every scalar as the text that was typed; the block has been parsed before."""
    import yaml

    texts = yaml.load(block, Loader=yaml.BaseLoader)  # noqa: S506 - gives strings alone
    return texts if isinstance(texts, dict) else {}


def without_equal_keys(block: str) -> tuple[str, list[str]] | None:
    """Without the later ones of top-level keys that stand twice with the same value, and those keys.

    Returns:
        None where none does, where two values differ, or where keys do not begin lines of their own.
    """
    import yaml

    if len(block) > MAX_LENGTH:
        return None
    try:
        root = yaml.compose(block, Loader=yaml.BaseLoader)
        if not isinstance(root, yaml.MappingNode) or root.flow_style:
            return None
        texts = [(key.value, yaml.serialize(value)) for key, value in root.value]
    except (yaml.YAMLError, RecursionError):
        return None
    if len(dict(texts)) != len(set(texts)):
        return None  # which of two values is meant, only a person knows
    starts = [block.rfind("\n", 0, key.start_mark.index) + 1 for key, _ in root.value]
    again = [number for number, pair in enumerate(texts) if pair in texts[:number]]
    for number in reversed(again):
        end = starts[number + 1] if number + 1 < len(starts) else len(block)
        block = block[: starts[number]] + _belonging_to_the_next(block[starts[number] : end]) + block[end:]
    return (block, [texts[number][0] for number in again]) if again else None


def _belonging_to_the_next(region: str) -> str:
    """The comment and blank lines at the end of a key's lines."""
    lines = LINE.findall(region)
    kept = len(lines)
    while kept > 1 and (not lines[kept - 1].strip() or lines[kept - 1].startswith("#")):
        kept -= 1
    return "".join(lines[kept:])


class _Cut(NamedTuple):
    start: int
    end: int
    new: str


def with_values(block: str, values: Mapping[str, Any], spelled: Callable[[Any], str]) -> str:
    """The block with those of the values set that can be set without touching anything else; the others are left.

    A scalar takes the place of a scalar, and a list that of a list of as many items, or of one with more of them.

    Args:
        block: What stands between the fences; it has been parsed before.
        values: Top-level key to new value.
        spelled: A scalar as YAML, on one line where that is possible.
    """
    import yaml

    if len(block) > MAX_LENGTH:
        return block
    try:
        root = yaml.compose(block, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return block
    if not isinstance(root, yaml.MappingNode):
        return block
    nodes = {key.value: value for key, value in root.value}
    cuts = [
        cut for key, value in values.items() if key in nodes for cut in _cuts(block, nodes[key], value, spelled) or ()
    ]
    for start, end, new in sorted(cuts, reverse=True):
        block = block[:start] + new + block[end:]
    return block


def _cuts(block: str, node: yaml.Node, value: object, spelled: Callable[[Any], str]) -> list[_Cut] | None:
    """What to replace; None where the value cannot be set without more."""
    import yaml

    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, value, spelled)
    if not isinstance(node, yaml.SequenceNode) or not isinstance(value, list):
        return None
    if len(node.value) == len(value):
        found = [_scalar(item, new, spelled) for item, new in zip(node.value, value, strict=True)]
        return None if None in found else [cut for cuts in found for cut in cuts or ()]
    gone = list(_left_out(node, value))
    if node.flow_style or len(node.value) - len(gone) != len(value):
        return None
    lines = [_line(block, item) for item in gone]
    return None if None in lines else [line for line in lines if line is not None]


def _scalar(node: yaml.Node, value: object, spelled: Callable[[Any], str]) -> list[_Cut] | None:
    """A scalar in the place of another; none where it says the same already."""
    import yaml

    if not isinstance(node, yaml.ScalarNode) or not isinstance(value, _SCALARS):
        return None
    if _means(node, value):
        return []
    text = spelled(value)
    start, end = node.start_mark, node.end_mark
    if "\n" in text or start.line != end.line or start.index == end.index:
        return None
    return [_Cut(start.index, end.index, text)]


def _means(node: yaml.Node, value: object) -> bool:
    import yaml

    if not isinstance(node, yaml.ScalarNode):
        return False
    return repr(yaml.SafeLoader("").construct_object(node)) == repr(value)


def _left_out(node: yaml.SequenceNode, value: list[Any]) -> Iterator[yaml.Node]:
    """Items of a sequence that the new list leaves out, where it is the same but for these."""
    wanted = iter(value)
    expected: object = next(wanted, None)
    for item in node.value:
        if _means(item, expected) and expected is not None:
            expected = next(wanted, None)
        else:
            yield item


def _line(block: str, item: yaml.Node) -> _Cut | None:
    """The whole line of an item that has one of its own."""
    start = block.rfind("\n", 0, item.start_mark.index) + 1
    end = block.find("\n", item.start_mark.index) + 1 or len(block)
    line = block[start:end]
    own = item.start_mark.line == item.end_mark.line and line.lstrip().startswith("-")
    return _Cut(start, end, "") if own else None
