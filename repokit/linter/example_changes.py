"""What an example of a rule changes in its base, told in a few lines: for the rule's page and its JSON.

The two repositories are compared file by file, because a change may be a function: JSON by its values, weights by the
names, dtypes and shapes of their tensors, GGUF files by their metadata too, text by its lines, and the rest by what it
begins with.
"""

from __future__ import annotations

import difflib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile, zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from repokit.errors import InputError
from repokit.formats.gguf import MAGIC, GgufArray, read_gguf
from repokit.formats.safetensors import Header, read_header
from repokit.formats.signature import identify
from repokit.linter.examples import BASES, Example
from repokit.printable import count, printable, some
from repokit.repo.source import Kind

if TYPE_CHECKING:
    from repokit.formats.tensors import TensorInfo

LINES: Final = 6  # of one file; a page is read on a screen
_VALUE: Final = 60  # characters of one value
_AROUND: Final = 16  # characters shown beside what differs in a long text
_ESCAPED_CONTROLS: Final = 0.1  # more of a "text" are bytes that no text has

Value = Any  # of a JSON document


def changes(example: Example) -> tuple[str, ...]:
    """A line a difference, `-` for what is gone and `+` for what is new; none where nothing differs."""
    before, after = BASES[example.base](), example.files()
    gone = [path for path in example.change if path in before and path not in after]
    special = [path for path, change in example.change.items() if isinstance(change, Kind)]
    removed = [path for path in gone if path not in special]
    return (
        *_given(example),
        *([f"- {some(removed)}"] if removed else []),
        *(f"{printable(path, 80)}: now a {example.change[path]!s}" for path in special),
        *(line for path in example.change if path in after for line in _of_file(path, before.get(path), after[path])),
    )


def _given(example: Example) -> Iterator[str]:
    """What the caller knows beside the files."""
    if (known := example.identity) is not None:
        parts = {"repo": known.repo, "name": known.name, "family": known.family, "variant": known.variant}
        told = ", ".join(f"{key} {value}" for key, value in parts.items() if value)
        yield printable(f"known from {known.origin}: {told}", 100)
    if example.against is not None:
        yield f"compared with its base: {example.against}"


def middle_cut(lines: Sequence[str], limit: int) -> list[str]:
    """At most `limit` lines: what is left out of the middle is counted, because an example ends with what it is for."""
    left = len(lines) - limit
    if left <= 0:
        return list(lines)
    first = limit // 3
    return [*lines[:first], f"({count(left + 1, 'more line')})", *lines[left + 1 + first :]]


def _of_file(path: str, old: bytes | None, new: bytes) -> Iterator[str]:
    path = printable(path, 80)
    if old is None:
        yield f"+ {path}"
        yield from (f"    {line}" for line in _bounded(list(_content(new))))
    elif old != new:
        lines = _bounded(list(_differences(old, new))) or ["the same, written otherwise"]
        yield from [f"{path}: {lines[0]}"] if len(lines) == 1 else [f"{path}:", *(f"    {line}" for line in lines)]


def shortened(text: str) -> str:
    """At most _VALUE characters, safe to show."""
    return printable(text, _VALUE)


def _bounded(lines: list[str]) -> list[str]:
    """The first LINES, and how many are left out."""
    left = len(lines) - LINES
    return lines if left <= 1 else [*lines[:LINES], f"and {count(left, 'more line')}"]


def _content(new: bytes) -> Iterator[str]:
    """A file that the base does not have."""
    if (header := _safetensors(new)) is not None:
        yield from _tensors({}, _infos(header))
    elif (found := _gguf(new)) is not None:
        yield from _items("", {}, found.metadata)
        yield from _tensors({}, found.tensors)
    elif isinstance(document := _json(new), dict):
        yield from _items("", {}, document)
    elif (text := _text(new)) is not None:
        yield from (shortened(line) for line in text.splitlines() if line.strip())
    else:
        yield _binary(new)


def _differences(old: bytes, new: bytes) -> Iterator[str]:
    headers = _safetensors(old), _safetensors(new)
    if headers[0] is not None and headers[1] is not None:
        yield from _weights(headers[0], headers[1], old, new)
        return
    metadata = _gguf(old), _gguf(new)
    if metadata[0] is not None and metadata[1] is not None:
        yield from _gguf_differences(metadata[0], metadata[1])
        return
    documents = _json(old), _json(new)
    if isinstance(documents[0], dict | list) and isinstance(documents[1], dict | list):
        yield from _values("", *documents)
        return
    if headers[0] is not None:
        yield _no_header(old, new)
        return
    texts = _text(old), _text(new)
    if texts[0] is not None and texts[1] is not None:
        yield from _lines(texts[0].splitlines(), texts[1].splitlines())
    else:
        yield f"now {_binary(new)}"


# ---------------------------------------------------------------- JSON


def _json(content: bytes) -> Value:
    """The document; None where it is none, or one that only a lenient reader takes."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _values(place: str, old: Value, new: Value) -> Iterator[str]:
    """Where two documents differ. Types count: `1`, `1.0` and `true` are three values to a strict reader."""
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _items(place, old, new)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from _values(_below(place, str(index)), *pair)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _longer_or_shorter(place, old, new)
    elif (type(old), old) != (type(new), new):
        yield f"{_named(place)}{_pair(_spelled(old), _spelled(new))}"


def _items(place: str, old: Mapping[str, Value], new: Mapping[str, Value]) -> Iterator[str]:
    gone = [_below(place, key) for key in old if key not in new]
    if gone:
        yield f"- {some(gone)}"
    for key in new:
        below = _below(place, key)
        if key not in old:
            yield f"+ {_shown(below)}: {shortened(_spelled(new[key]))}"
        else:
            yield from _values(below, old[key], new[key])


def _longer_or_shorter(place: str, old: list[Value], new: list[Value]) -> Iterator[str]:
    gone, come = [item for item in old if item not in new], [item for item in new if item not in old]
    if not (gone or come) or len(gone) + len(come) > LINES:
        yield f"{_named(place)}{_pair(_spelled(old), _spelled(new))}"
        return
    yield from (f"- {_shown(_below(place, shortened(_spelled(item))))}" for item in gone)
    yield from (f"+ {_shown(_below(place, shortened(_spelled(item))))}" for item in come)


def _below(place: str, key: str) -> str:
    return f"{place}/{key}" if place else key


def _named(place: str) -> str:
    return f"{_shown(place)}: " if place else ""


def _shown(place: str) -> str:
    return printable(place, 100)


def _spelled(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False)


# ---------------------------------------------------------------- weights

Info = tuple[str, tuple[int, ...]]


def _safetensors(content: bytes) -> Header | None:
    try:
        return read_header(lambda offset, length: content[offset : offset + length], len(content), "example")
    except InputError:
        return None


def _no_header(old: bytes, new: bytes) -> str:
    """What became of a .safetensors file that its library refuses now."""
    if old.startswith(new):
        return f"cut after {len(new):,} of {len(old):,} bytes"
    texts = [_header_text(content) for content in (old, new)]
    return f"header: {_pair(*texts)}" if all(texts) else f"now {_binary(new)}"


def _header_text(content: bytes) -> str:
    """The JSON at the beginning, as far as it is text; nothing where there is none."""
    length = int.from_bytes(content[:8], "little")
    text = content[8 : 8 + length] if length < len(content) else b""
    return text.decode(errors="replace") if text.startswith(b"{") else ""


def _infos(header: Header) -> dict[str, Info]:
    return {tensor.name: (str(tensor.dtype), tensor.shape) for tensor in header.tensors}


def _weights(old: Header, new: Header, before: bytes, after: bytes) -> Iterator[str]:
    said = [
        *_items("__metadata__", old.metadata or {}, new.metadata or {}),
        *_tensors(_infos(old), _infos(new)),
    ]
    values = [tensor.name for tensor in new.tensors if _moved(tensor, old, new, before, after)]
    if values:
        said.append(f"other values in {count(len(values), 'tensor')}: {_first(values)}")
    yield from said or ["the same tensors, in a header that is written otherwise"]


def _moved(tensor: TensorInfo, old: Header, new: Header, before: bytes, after: bytes) -> bool:
    """Whether a tensor of the same name, dtype and shape has other values."""
    was = next((other for other in old.tensors if other.name == tensor.name), None)
    if was is None or (was.dtype, was.shape) != (tensor.dtype, tensor.shape):
        return False
    return _data(was, old, before) != _data(tensor, new, after)


def _data(tensor: TensorInfo, header: Header, content: bytes) -> bytes:
    return content[header.data_start + tensor.begin : header.data_start + tensor.end]


def _tensors(old: Mapping[str, Info], new: Mapping[str, Info]) -> Iterator[str]:
    """Names renamed, dropped and added, and those whose dtype or shape is another."""
    gone, come = [name for name in old if name not in new], [name for name in new if name not in old]
    renamed = _renamed({name: old[name] for name in gone}, {name: new[name] for name in come})
    yield from _many([f"{_shown(was)} -> {_shown(now)}" for was, now in renamed.items()], "renamed")
    yield from _many([f"- {_tensor(name, old[name])}" for name in gone if name not in renamed], "dropped")
    yield from _many([f"+ {_tensor(name, new[name])}" for name in come if name not in renamed.values()], "added")
    both = [name for name in old if name in new and old[name] != new[name]]
    other = [f"{_shown(name)}: {_dtype_and_shape(old[name])} -> {_dtype_and_shape(new[name])}" for name in both]
    yield from _many(other, "changed")


def _many(lines: list[str], verb: str) -> list[str]:
    """A line a tensor; of many tensors the first two and their number."""
    return lines if len(lines) <= LINES - 2 else [*lines[:2], f"and {count(len(lines) - 2, 'more tensor')} {verb}"]


def _renamed(gone: Mapping[str, Info], come: Mapping[str, Info]) -> dict[str, str]:
    """Old name to new name, where what came is what went: the same dtype, shape and end of the name."""
    pairs: dict[str, str] = {}
    for name, info in gone.items():
        free = [other for other, found in come.items() if found == info and other not in pairs.values()]
        best = max(free, key=lambda other, name=name: _common_end(name, other), default=None)  # type: ignore[misc]
        if best is not None and _common_end(name, best) > 1:
            pairs[name] = best
    return pairs


def _common_end(one: str, other: str) -> int:
    """How many of the last parts of two dotted names are equal."""
    parts = zip(reversed(one.split(".")), reversed(other.split(".")), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], parts))


def _tensor(name: str, info: Info) -> str:
    return f"{_shown(name)} {_dtype_and_shape(info)}"


def _dtype_and_shape(info: Info) -> str:
    return f"{info[0]} [{', '.join(str(size) for size in info[1])}]"


def _first(names: list[str]) -> str:
    return shortened(", ".join(names[:3]) + (", ..." if len(names) > 3 else ""))


# ---------------------------------------------------------------- GGUF


class _Gguf(NamedTuple):
    metadata: Mapping[str, Value]
    kinds: Mapping[str, str]  # of the values: a signed and an unsigned 2 are not the same to llama.cpp
    tensors: Mapping[str, Info]


def _gguf(content: bytes) -> _Gguf | None:
    if not content.startswith(MAGIC):
        return None
    try:
        header = read_gguf(lambda offset, length: content[offset : offset + length], len(content), "example")
    except InputError:
        return None
    return _Gguf(
        {key: _listed(entry.value) for key, entry in header.metadata.items()},
        {key: entry.kind for key, entry in header.metadata.items()},
        {tensor.name: (f"type {tensor.kind}", tensor.dims) for tensor in header.tensors},
    )


def _gguf_differences(old: _Gguf, new: _Gguf) -> Iterator[str]:
    yield from _items("", old.metadata, new.metadata)
    for key, kind in new.kinds.items():
        if old.kinds.get(key, kind) != kind and old.metadata[key] == new.metadata[key]:
            yield f"{_shown(key)}: {old.kinds[key]} -> {kind}"
    yield from _tensors(old.tensors, new.tensors)


def _listed(value: Value) -> Value:
    """An array of texts as a list, so that its items are compared one by one; others by their first bytes."""
    if not isinstance(value, GgufArray):
        return value
    if value.kind == "string":
        return [item.decode(errors="replace") for item in value.strings]
    return f"{value.kind}[{len(value)}] {value.raw[:16].hex(' ', 4)}"


# ---------------------------------------------------------------- text and the rest


def _text(content: bytes) -> str | None:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    controls = sum(character < " " and character not in "\n\t\r\x1b" for character in text)
    return None if controls > _ESCAPED_CONTROLS * len(text) else text


def _lines(old: list[str], new: list[str]) -> Iterator[str]:
    if old and new and not set(old) & set(new):
        yield from (f"+ {shortened(line)}" for line in new if line.strip())
        return
    said = False
    for kind, begin, end, from_, to in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        for was, now in zip_longest(old[begin:end], new[from_:to]):
            said = True
            yield from _line(was, now)
    if not said:
        yield "the same lines, ended otherwise"


def _line(was: str | None, now: str | None) -> Iterator[str]:
    if was is not None and now is not None:
        was, now = _focused(was, now)
    yield from ([f"- {shortened(was)}"] if was is not None else [])
    yield from ([f"+ {shortened(now)}"] if now is not None else [])


def _binary(content: bytes) -> str:
    what = _packed(content) or identify(content[:512])
    return f"{count(len(content), 'byte')}, {what or 'beginning with ' + shortened(repr(content[:12]))}"


def _packed(content: bytes) -> str | None:
    """The first members of a zip archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [f"{member.filename} ({count(member.file_size, 'byte')})" for member in archive.infolist()]
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        return None
    return f"a zip archive of {some(members)}"


def _pair(old: str, new: str) -> str:
    return " -> ".join(_focused(old, new))


def _focused(old: str, new: str) -> tuple[str, str]:
    """Two texts, cut down to where they differ when they are long."""
    if max(len(old), len(new)) <= _VALUE:
        return shortened(old), shortened(new)
    begin = _common(old, new)
    end = _common(old[begin:][::-1], new[begin:][::-1])
    return _window(old, begin, len(old) - end), _window(new, begin, len(new) - end)


def _window(text: str, begin: int, end: int) -> str:
    first, last = max(0, begin - _AROUND), min(len(text), end + _AROUND)
    cut = text[first:last]
    if len(cut) > _VALUE:
        cut = f"{cut[: _VALUE // 2]}…{cut[-_VALUE // 2 :]}"
    return printable(f"{'…' if first else ''}{cut}{'…' if last < len(text) else ''}")


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
