"""What an overlay changes, for people: unified diffs of texts, a line for every tensor file."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from repokit.errors import InputError
from repokit.formats.safetensors import Header, read_header
from repokit.printable import count, printable, size
from repokit.repo.overlay import Assembled
from repokit.repo.source import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repokit.repo.overlay import Overlay
    from repokit.repo.source import Source

_CONTEXT: Final = 3  # lines around a change, as diff -u has them
_MOST_TEXT: Final = 256 * 1024 * 1024  # what a repository reads as text (repo/repository.py)
_SHOWN_WHOLE: Final = 64 * 1024  # a larger file that goes, or comes, is a line
_LONGEST: Final = 2000  # characters of a line: some files are one line of megabytes
_MOST_RENAMED: Final = 5
_HUNK: Final = re.compile(r"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")


@dataclass(frozen=True, slots=True)
class Difference:
    """How one file changes.

    Attributes:
        path: The file.
        change: `edited`, `added` or `deleted`.
        text: A unified diff, or one line; with line ends.
    """

    path: str
    change: str
    text: str


def differences(overlay: Overlay) -> Iterator[Difference]:
    """Every file that differs from the source below, sorted by path."""
    below = overlay.base.entries()
    for path, content in overlay.changed.items():
        change = "deleted" if content is None else "edited" if path in below else "added"
        yield Difference(path, change, _shown(overlay, path, change))


def _shown(overlay: Overlay, path: str, change: str) -> str:
    if path.endswith(".safetensors") or isinstance(overlay.changed[path], Assembled):
        return _tensor_line(overlay, path, change)
    old, new = _text(overlay.base, path), _text(overlay, path)
    if old is None or new is None or (change != "edited" and len(old + new) > _SHOWN_WHOLE):
        source = overlay.base if change == "deleted" else overlay
        return _line(path, f"{change}, {size(source.entries()[path].size)}")
    names = ("/dev/null" if change == "added" else f"a/{path}", "/dev/null" if change == "deleted" else f"b/{path}")
    return unified(old, new, *names)


def _line(path: str, text: str) -> str:
    return f"{printable(path, 400)}: {text}\n"


def _text(source: Source, path: str) -> str | None:
    """A file as text; "" for one that is not there, None for one that is no text."""
    entry = source.entries().get(path)
    if entry is None:
        return ""
    if entry.kind is not Kind.FILE or entry.size > _MOST_TEXT:
        return None
    try:
        text = source.read(path).decode()
    except (InputError, UnicodeDecodeError):
        return None
    return None if "\0" in text else text


# ---------------------------------------------------------------- texts


def unified(old: str, new: str, old_name: str, new_name: str) -> str:
    """A unified diff, as `patch` and `git apply` take it, unsafe characters escaped.

    What both texts begin and end with is set aside first: an index has 60,000 lines, of which a few change.
    """
    before, after = _lines(old), _lines(new)
    head = _alike(before, after)
    tail = _alike(before[head:][::-1], after[head:][::-1])
    first = max(0, head - _CONTEXT)
    one = before[first : len(before) - max(0, tail - _CONTEXT)]
    other = after[first : len(after) - max(0, tail - _CONTEXT)]
    lines = difflib.unified_diff(one, other, printable(old_name, 400), printable(new_name, 400), n=_CONTEXT)
    return "".join(_shifted(line, first) for line in lines)


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _alike(some: list[str], others: list[str]) -> int:
    """How many lines two lists have in common at their beginning."""
    number = 0
    for one, other in zip(some, others, strict=False):
        if one != other:
            break
        number += 1
    return number


def _shifted(line: str, lines: int) -> str:
    """A line of a diff: numbers counted from the beginning of the file, the rest safe to show."""
    if found := _HUNK.match(line):
        old, new = int(found[1]) + lines, int(found[3]) + lines
        return f"@@ -{old}{found[2] or ''} +{new}{found[4] or ''} @@\n"
    bare = line.removesuffix("\n").removesuffix("\r")
    shown = "\t".join(printable(part, _LONGEST) for part in bare.split("\t"))
    return shown + (line[len(bare) :] if line.endswith("\n") else "\n\\ No newline at end of file\n")


# ---------------------------------------------------------------- tensors


def _tensor_line(overlay: Overlay, path: str, change: str) -> str:
    if change != "edited":
        source = overlay.base if change == "deleted" else overlay
        return _line(path, f"{change}, {size(source.entries()[path].size)}")
    try:
        old, new = _header(overlay.base, path), _header(overlay, path)
    except InputError:
        return _line(path, f"written anew, {size(overlay.entries()[path].size)}")
    return _line(path, "; ".join(_tensor_changes(overlay, path, old, new)) or "its tensors in another order")


def _header(source: Source, path: str) -> Header:
    size = source.entries()[path].size
    return read_header(lambda offset, length: source.read(path, offset, length), size, path)


def _tensor_changes(overlay: Overlay, path: str, old: Header, new: Header) -> Iterator[str]:
    renamed = _renamed(overlay, path, old, new)
    names = {tensor.name for tensor in new.tensors}
    gone = [tensor.name for tensor in old.tensors if tensor.name not in names and tensor.name not in renamed]
    came = names - {tensor.name for tensor in old.tensors} - set(renamed.values())
    if renamed:
        pairs = [f"{printable(one)} -> {printable(other)}" for one, other in renamed.items()]
        yield f"{count(len(renamed), 'tensor')} renamed: {_some(pairs)}"
    if gone:
        yield f"{count(len(gone), 'tensor')} removed: {_some([printable(name) for name in gone])}"
    if came:
        yield f"{count(len(came), 'tensor')} added: {_some([printable(name) for name in sorted(came)])}"
    if (old.metadata or {}) != (new.metadata or {}):
        yield f"metadata {printable(dict(old.metadata or {}), 300)} -> {printable(dict(new.metadata or {}), 300)}"


def _some(shown: list[str]) -> str:
    rest = len(shown) - _MOST_RENAMED
    return ", ".join(shown[:_MOST_RENAMED]) + (f" and {rest:,} more" if rest > 0 else "")


def _renamed(overlay: Overlay, path: str, old: Header, new: Header) -> dict[str, str]:
    """Old name to new name, of tensors whose bytes are those of the old one."""
    content = overlay.changed[path]
    if not isinstance(content, Assembled):
        return {}
    places = {old.data_start + tensor.begin: tensor.name for tensor in old.tensors if tensor.end > tensor.begin}
    found: dict[str, str] = {}
    position = iter(content.ranges)
    part, start = next(position, None), 0
    for tensor in sorted(new.tensors, key=lambda tensor: tensor.begin):
        while part is not None and tensor.begin >= start + part.length:
            start += part.length
            part = next(position, None)
        if part is None or part.path != path or tensor.end == tensor.begin:
            continue
        name = places.get(part.offset + tensor.begin - start)
        if name is not None and name != tensor.name:
            found[name] = tensor.name
    return dict(sorted(found.items()))
