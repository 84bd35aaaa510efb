"""The members' short form: the classes of a model type share most of their blocks, and most of what is said of them.

In a folded document `parts` holds each block once, its templates without the prefix of the base model, and a class
names them by number, a text before them being the prefix that they have there: `["model.", 0, 1, "", 2]`. `common`
holds what is said of most classes; a class that has it not says null.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

BLOCKS: Final = ("blocks", "memory")
OWN: Final = frozenset({*BLOCKS, "evidence", "configs"})


def folded(document: Mapping[str, Any]) -> dict[str, Any]:
    """The short form of a member document."""
    parts: dict[str, int] = {}
    classes = {name: _short(record, parts) for name, record in document["classes"].items()}
    common = _common(list(classes.values()))
    return {
        **document,
        "parts": [json.loads(part) for part in parts],
        "common": common,
        "classes": {name: _own(record, common) for name, record in classes.items()},
    }


def _short(record: Mapping[str, Any], parts: dict[str, int]) -> dict[str, Any]:
    found = dict(record)
    for key in BLOCKS:
        if key in record:
            found[key] = list(_numbered(record[key], f"{record['prefix']}." if record.get("prefix") else "", parts))
    return found


def _numbered(blocks: list[Any], base: str, parts: dict[str, int]) -> Iterator[str | int]:
    current = ""
    for condition, ranges, free, entries in blocks:
        prefix = base if base and all(name.startswith(base) for name, *_ in entries) else ""
        if prefix != current:
            yield prefix
            current = prefix
        bare = [[name.removeprefix(prefix), *rest] for name, *rest in entries]
        part = json.dumps([condition, ranges, free, bare], separators=(",", ":"))
        yield parts.setdefault(part, len(parts))


def _common(records: list[dict[str, Any]]) -> dict[str, Any]:
    """What more than half of the classes say."""
    said = Counter(
        (key, json.dumps(value, sort_keys=True))
        for record in records
        for key, value in record.items()
        if key not in OWN
    )
    return {key: json.loads(value) for (key, value), count in said.items() if 2 * count > max(2, len(records))}


def _own(record: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in record.items() if key not in common or common[key] != value}
    return {**found, **{key: None for key in common if key not in record}}


def unfolded(record: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """A class's record in full; records of documents that were never folded are returned as they are.

    Raises:
        KeyError, IndexError, TypeError: The record names a part that is not there.
    """
    found = {key: value for key, value in {**document.get("common", {}), **record}.items() if value is not None}
    for key in BLOCKS:
        if key in found and "parts" in document:
            found[key] = list(_whole(found[key], document["parts"]))
    return found


def _whole(numbers: list[Any], parts: list[Any]) -> Iterator[list[Any]]:
    prefix = ""
    for number in numbers:
        if isinstance(number, str):
            prefix = number
            continue
        condition, ranges, free, entries = parts[number]
        yield [condition, ranges, free, [[prefix + name, *rest] for name, *rest in entries]]
