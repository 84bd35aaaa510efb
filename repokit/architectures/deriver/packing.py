"""Writes what was derived into the archive of data/architectures: one compressed member per model type."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from repokit.architectures.archive import DEEPEST, MOST_BYTES, packed, written
from repokit.architectures.deriver.classes import config_class
from repokit.architectures.deriver.coverage import TABLE, table
from repokit.architectures.deriver.running import record
from repokit.architectures.errors import NotCovered
from repokit.architectures.folding import folded, unfolded
from repokit.architectures.member import ARCHIVE, SUFFIX, Evidence, folder, known, member, parsed
from repokit.errors import InternalError

FINEST: Final = {"preset": 9 | lzma.PRESET_EXTREME, "dict_size": MOST_BYTES, "lc": 4, "lp": 0, "pb": 0}
SAID: Final = ("source", "transformers", "date")  # by the archive's index
LARGEST: Final = 400_000  # bytes of the archive
WORDS: Final = 14 * 1024  # of the window; the rest is for the relative
LONGEST: Final = 200  # a piece that is longer is taken apart
COMMON: Final = 3  # members that a piece must be in
CANDIDATES: Final = 60  # relatives that are tried for each member


def pack(work: Path, *, write: bool) -> Iterator[str]:
    """Packs all records; says what changes against the members that are there.

    Args:
        work: Folder of the records (`running`).
        write: Replace the members; else only say what would change.
    """
    documents = _documents(work)
    target = folder()
    for model_type in sorted({*documents, *known()}):
        before, now = _read(model_type), documents.get(model_type)
        yield from _differences(model_type, before, now)
    if write:
        left_out = _write(target, documents)
        _write_table(work, left_out)
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
    again = parsed(document["model_type"], short)
    for name, whole in document["classes"].items():
        again.architecture(name)
        if unfolded(short["classes"][name], short) != json.loads(json.dumps(whole)):
            raise ValueError(f"{name} is not what it was before it was folded")


def _usual(model_type: str) -> type[Any] | None:
    from transformers import CONFIG_MAPPING

    usual: type[Any] | None = CONFIG_MAPPING.get(model_type)
    return usual


def _read(model_type: str) -> dict[str, Any] | None:
    """The member document that is there now."""
    try:
        return dict(member(model_type).document)
    except (NotCovered, InternalError):
        return None


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


def _write(target: Path, documents: Mapping[str, Mapping[str, Any]]) -> list[str]:
    for path in target.glob(f"*{SUFFIX}"):
        path.unlink()
    target.mkdir(exist_ok=True)
    content, left_out = fitting(documents)
    (target / ARCHIVE).write_bytes(content)
    return left_out


def fitting(documents: Mapping[str, Mapping[str, Any]]) -> tuple[bytes, list[str]]:
    """An archive that is not larger than the wheel may carry, and the types that were left out for it.

    Left out are types of which no class is verified, those first that take most room for the little that they say.
    """
    kept, left_out = dict(documents), list[str]()
    content, sizes = archived(kept)
    while len(content) > LARGEST and (spare := [name for name in kept if _only_partial(kept[name])]):
        excess = len(content) - LARGEST
        for name in sorted(spare, key=lambda name: -sizes[name]):
            if excess > 0:
                excess -= sizes[name]
                left_out.append(name)
                del kept[name]
        content, sizes = archived(kept)
    return content, left_out


def _only_partial(document: Mapping[str, Any]) -> bool:
    return all(record["evidence"] == Evidence.PARTIAL for record in document["classes"].values())


def archived(documents: Mapping[str, Mapping[str, Any]]) -> tuple[bytes, dict[str, int]]:
    """The archive of these folded documents, and how much of it each takes.

    Each is packed against what all share, and against one that is like it.
    """
    texts = {model_type: _text(document) for model_type, document in sorted(documents.items())}
    pieces = {model_type: frozenset(_fragments(documents[model_type])) for model_type in texts}
    words = shared_words(pieces.values())
    relatives = _relatives(texts, pieces, words)
    members = {name: _smallest(text, words, texts, relatives[name]) for name, text in texts.items()}
    said = {model_type: {key: documents[model_type][key] for key in SAID} for model_type in texts}
    (version, date), _ = Counter((one["transformers"], one["date"]) for one in said.values()).most_common(1)[0]
    sizes = {name: len(content) for name, (content, _) in members.items()}
    return written(members, said, words, version, date), sizes


def _smallest(text: bytes, words: bytes, texts: Mapping[str, bytes], relative: str | None) -> tuple[bytes, str | None]:
    """A member's bytes, and the relative that is needed to read them."""
    near = packed(text, words + texts.get(str(relative), b""))
    large = lzma.compress(text, lzma.FORMAT_XZ, lzma.CHECK_CRC32, filters=[{"id": lzma.FILTER_LZMA2, **FINEST}])
    return (large, None) if len(large) < len(near) else (near, relative)


def _relatives(texts: Mapping[str, bytes], pieces: Mapping[str, frozenset[str]], words: bytes) -> dict[str, str | None]:
    """Which member each one is packed against: the edges that save most come first, as long as they close no circle."""
    savings: list[tuple[int, str, str]] = []
    for model_type, text in texts.items():
        alone = len(packed(text, words))
        near = sorted(texts, key=lambda other: -_likeness(pieces[other], pieces[model_type]))[: CANDIDATES + 1]
        savings += [
            (alone - len(packed(text, words + texts[other])), model_type, other)
            for other in near
            if other != model_type
        ]
    found: dict[str, str | None] = dict.fromkeys(texts)
    below = dict.fromkeys(texts, 0)  # how many generations hang on each
    for saved, model_type, other in sorted(savings, reverse=True):
        line = list(_ancestors(found, other))
        if saved <= 0 or found[model_type] is not None or model_type in line:
            continue
        if len(line) + below[model_type] <= DEEPEST:
            found[model_type] = other
            for distance, ancestor in enumerate(line, 1):
                below[ancestor] = max(below[ancestor], below[model_type] + distance)
    return found


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / max(1, len(one | other))


def _ancestors(relatives: Mapping[str, str | None], model_type: str) -> Iterator[str]:
    """A member, its relative, the relative of that, and so on."""
    here: str | None = model_type
    while here is not None:
        yield here
        here = relatives[here]


def shared_words(documents: Iterable[frozenset[str]]) -> bytes:
    """What many members hold word for word, the most frequent last: there deflate reaches it with the fewest bits."""
    counts = Counter(piece for pieces in documents for piece in pieces)
    worth = {text: (count - 1) * len(text) for text, count in counts.items() if count >= COMMON}
    chosen: list[str] = []
    for text in sorted(worth, key=lambda text: (-worth[text], text)):
        if sum(map(len, chosen)) + len(text) <= WORDS:
            chosen.append(text)
    return "".join(reversed(chosen)).encode()


def _write_table(work: Path, left_out: Iterable[str]) -> None:
    import transformers

    records = {path.stem: record(work, path.stem) or {} for path in sorted(work.glob("[A-Z]*.json"))}
    for kept in records.values():
        if kept.get("document", {}).get("model_type") in left_out:
            kept.pop("document")
            kept["error"] = "left out: no class is verified, and the archive has a limit"
    TABLE.write_text(table(records, transformers.__version__, datetime.now(UTC).date().isoformat()), encoding="utf-8")


def _text(document: Mapping[str, Any]) -> bytes:
    return _json({key: value for key, value in document.items() if key not in {"model_type", *SAID}}).encode()


def _json(value: Any) -> str:  # noqa: ANN401 - a JSON value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


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
    text = _json(value)
    if len(text) <= LONGEST:
        yield f"{_json(name)}:{text},"
    elif isinstance(value, list):
        for item in value:
            yield from _items(item)


def _items(item: Any) -> Iterator[str]:  # noqa: ANN401 - a JSON value
    text = _json(item)
    if len(text) <= LONGEST:
        yield f"{text},"
    elif isinstance(item, list):
        for inner in item:
            yield from _items(inner)
