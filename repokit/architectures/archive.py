"""The file that holds the members: read one by one, each compressed against a member that is like it.

    magic, 4 bytes: length of the index, the index (deflated JSON), the words, then the members (deflated or xz JSON)

The index says where each member lies, against which other one it is compressed (mistral against llama), and of which
transformers and day it is. Most of what a model type says, a relative of it says too: a file per type would be twice as
large.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

MAGIC: Final = b"repokit skeletons 1\n"
XZ: Final = b"\xfd7zXZ"
WINDOW: Final = 32 * 1024  # as far back as deflate looks
MOST_BYTES: Final = 4 << 20  # what the largest member needs unpacked, many times over
DEEPEST: Final = 10  # relatives of relatives that one member may need


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a member lies and what it is of."""

    offset: int
    length: int
    relative: str | None
    source: str
    transformers: str
    date: str


@dataclass(frozen=True, slots=True)
class Archive:
    """The index of an archive file, and the words that all members share."""

    path: Path
    words: bytes
    entries: Mapping[str, Entry]

    def document(self, model_type: str) -> dict[str, Any]:
        """The member document of a model type, with what the index says of it.

        Raises:
            KeyError: There is none.
            ValueError, zlib.error, OSError: The file is damaged.
        """
        entry = self.entries[model_type]
        document = json.loads(self.text(model_type))
        return {
            **document,
            "model_type": model_type,
            "source": entry.source,
            "transformers": entry.transformers,
            "date": entry.date,
        }

    def text(self, model_type: str, depth: int = 0) -> bytes:
        """A member's bytes, unpacked."""
        entry = self.entries[model_type]
        if depth > DEEPEST:
            raise ValueError("its relatives have no end")
        words = self.words + (b"" if entry.relative is None else self.text(entry.relative, depth + 1))
        with self.path.open("rb") as file:
            file.seek(entry.offset)
            return unpacked(file.read(entry.length), words)


def unpacked(content: bytes, words: bytes) -> bytes:
    """What was packed against these words.

    Raises:
        ValueError, zlib.error: It was not, or has been changed.
    """
    if content.startswith(XZ):
        return _unpacked_large(content)
    stream = zlib.decompressobj(zdict=words[-WINDOW:]) if words else zlib.decompressobj()
    text = stream.decompress(content, MOST_BYTES)
    if not stream.eof or stream.unused_data:
        raise ValueError("it does not end where it should")
    return text


def _unpacked_large(content: bytes) -> bytes:
    """One of the few members that are larger than the window, and so compress better without a relative."""
    import lzma

    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=1 << 27)  # preset 9 takes 65 MB
    try:
        text = stream.decompress(content, MOST_BYTES)
    except lzma.LZMAError as error:
        raise ValueError(str(error)) from None
    if not stream.eof or stream.unused_data:
        raise ValueError("it does not end where it should")
    return text


def packed(text: bytes, words: bytes) -> bytes:
    """The opposite of `unpacked`."""
    if not words:
        return zlib.compress(text, 9)
    stream = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_DEFAULT_STRATEGY, words[-WINDOW:])
    return stream.compress(text) + stream.flush()


@cache
def archive(path: Path) -> Archive:
    """Reads the index of an archive; the members stay on disk.

    Raises:
        ValueError, KeyError, TypeError, zlib.error, OSError: It is not one.
    """
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise ValueError("it does not begin as it should")
        length = int.from_bytes(file.read(4), "big")
        index = json.loads(unpacked(file.read(length), b""))
        words = unpacked(file.read(index["words"]), b"")
    start = len(MAGIC) + 4 + length + index["words"]
    entries: dict[str, Entry] = {}
    for model_type, (size, relative, source, *other) in index["members"].items():
        version, date = other or (index["transformers"], index["date"])
        entries[model_type] = Entry(start, size, relative, source, version, date)
        start += size
    return Archive(path, words, entries)


def written(
    members: Mapping[str, tuple[bytes, str | None]],
    said: Mapping[str, Mapping[str, str]],
    words: bytes,
    version: str,
    date: str,
) -> bytes:
    """The bytes of an archive.

    Args:
        members: Model type -> packed bytes and relative.
        said: Model type -> its `source`, `transformers` and `date`.
        words: What all members are packed against.
        version: The transformers that most members are of.
        date: The day that most members are of.
    """
    rows: dict[str, list[Any]] = {}
    for model_type, (content, relative) in members.items():
        own = (said[model_type]["transformers"], said[model_type]["date"])
        rows[model_type] = [
            len(content),
            relative,
            said[model_type]["source"],
            *(own if own != (version, date) else ()),
        ]
    shared = packed(words, b"")
    document = {"transformers": version, "date": date, "words": len(shared), "members": rows}
    index = packed(json.dumps(document, separators=(",", ":")).encode(), b"")
    return b"".join(
        [MAGIC, len(index).to_bytes(4, "big"), index, shared, *(content for content, _ in members.values())]
    )
