"""Writes what was derived into data/architectures: one compressed member per model type, and the words they share."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from repokit.architectures.deriver.classes import config_class
from repokit.architectures.deriver.coverage import TABLE, table
from repokit.architectures.deriver.running import record
from repokit.architectures.folding import folded, unfolded
from repokit.architectures.member import DICTIONARY, SUFFIX, Evidence, folder, parsed, unpacked

WINDOW: Final = 32 * 1024  # as far back as deflate looks
COMMON: Final = 3  # types that a fragment must occur in


def pack(work: Path, *, write: bool) -> Iterator[str]:
    """Packs all records; says what changes against the members that are there.

    Args:
        work: Folder of the records (`running`).
        write: Replace the members; else only say what would change.
    """
    documents = _documents(work)
    target = folder()
    for model_type in sorted({*documents, *_present(target)}):
        before, now = _read(target / f"{model_type}{SUFFIX}"), documents.get(model_type)
        yield from _differences(model_type, before, now)
    if write:
        _write(target, documents)
        _write_table(work)
    size = sum(path.stat().st_size for path in target.iterdir())
    yield f"{len(documents)} members, {size:,} bytes"


def _documents(work: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(work.glob("[A-Z]*.json")):
        kept = record(work, path.stem) or {}
        document = kept.get("document")
        if not document or not document["classes"] or not document["model_type"]:
            continue
        model_type = document["model_type"]
        if model_type in found and config_class(path.stem) is not _usual(model_type):
            continue  # two config classes of one model type: config.json means the one that AutoConfig takes
        found[model_type] = folded(document)
        _prove(found[model_type], document)
    return found


def _prove(short: Mapping[str, Any], document: Mapping[str, Any]) -> None:
    """Reads a folded document back: it must say what was derived, in the grammar."""
    known = parsed(document["model_type"], short)
    for name, whole in document["classes"].items():
        known.architecture(name)
        if unfolded(short["classes"][name], short) != json.loads(json.dumps(whole)):
            raise ValueError(f"{name} is not what it was before it was folded")


def _usual(model_type: str) -> type[Any] | None:
    from transformers import CONFIG_MAPPING

    usual: type[Any] | None = CONFIG_MAPPING.get(model_type)
    return usual


def _present(target: Path) -> list[str]:
    return [path.name.removesuffix(SUFFIX) for path in target.glob(f"*{SUFFIX}")]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        document: dict[str, Any] = unpacked(path.read_bytes())
    except (OSError, ValueError, zlib.error):
        return None
    return document


def _differences(model_type: str, before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> Iterator[str]:
    old, new = (before or {}).get("classes", {}), (now or {}).get("classes", {})
    for name in sorted({*old, *new}):
        was = old.get(name, {}).get("evidence", Evidence.NONE)
        became = new.get(name, {}).get("evidence", Evidence.NONE)
        if was != became:
            yield f"{model_type} {name}: {was} -> {became}"
        elif before and now and unfolded(old[name], before)["blocks"] != unfolded(new[name], now)["blocks"]:
            yield f"{model_type} {name}: other tensors"
    if before and now and before["config"]["defaults"] != now["config"]["defaults"]:
        yield f"{model_type}: other defaults"


def _write(target: Path, documents: Mapping[str, Mapping[str, Any]]) -> None:
    texts = {model_type: _text(document) for model_type, document in documents.items()}
    words = shared_words(documents.values())
    for path in target.iterdir():
        path.unlink()
    (target / DICTIONARY).write_bytes(words)
    for model_type, text in texts.items():
        (target / f"{model_type}{SUFFIX}").write_bytes(compressed(text, words))


def _write_table(work: Path) -> None:
    import transformers

    records = {path.stem: record(work, path.stem) or {} for path in sorted(work.glob("[A-Z]*.json"))}
    TABLE.write_text(table(records, transformers.__version__, datetime.now(UTC).date().isoformat()), encoding="utf-8")


def _text(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def compressed(text: bytes, words: bytes) -> bytes:
    """A member's bytes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_DEFAULT_STRATEGY, words)
    return packer.compress(text) + packer.flush()


def shared_words(documents: Iterable[Mapping[str, Any]]) -> bytes:
    """What the members have in common, the most frequent last: deflate points back to it instead of repeating it."""
    counts: Counter[str] = Counter()
    for document in documents:
        counts.update(set(_fragments(document)))
    worth = {text: (count - 1) * len(text) for text, count in counts.items() if count >= COMMON}
    chosen: list[str] = []
    size = 0
    for text in sorted(worth, key=lambda text: (-worth[text], text)):
        if size + len(text) > WINDOW:
            break
        chosen.append(text)
        size += len(text)
    return "".join(reversed(chosen)).encode()[-WINDOW:]


def _fragments(document: Mapping[str, Any]) -> Iterator[str]:
    """Pieces of a document that others may hold word for word."""
    for key in ("config", "common", "classes"):
        for name, value in document[key].items():
            yield from _pieces(name, value)
    for part in document["parts"]:
        yield from _items(part)


def _pieces(name: str, value: Any) -> Iterator[str]:  # noqa: ANN401 - a JSON value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _pieces(key, inner)
        return
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if len(text) <= 160:
        yield f'"{name}":{text},'
    elif isinstance(value, list):
        for item in value:
            yield from _items(item)


def _items(item: Any) -> Iterator[str]:  # noqa: ANN401 - a JSON value
    text = json.dumps(item, separators=(",", ":"), ensure_ascii=False)
    if len(text) <= 200:
        yield f"{text},"
    elif isinstance(item, list):
        for inner in item:
            yield from _items(inner)
