"""The format of torch.save before 1.6: five pickles, then each storage as a count of elements and its bytes.

The pickles are a magic number, the protocol 1001, facts about the machine, the object, and the sorted storage keys
(torch/serialization.py `_legacy_save`). None tells its length, so they are read in growing pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final

from repokit.errors import MalformedFile, UnsupportedSource
from repokit.formats.inert_pickle import (
    MAX_PICKLE,
    MAX_STREAMS,
    Interpreted,
    UnreadablePickle,
    interpret,
    merged,
    unreadable,
)
from repokit.formats.pickle_globals import FoundGlobal
from repokit.formats.pickle_values import Pairs, PersistentId
from repokit.formats.torch_tensors import Storage, storage_of
from repokit.formats.torch_zip import Opened
from repokit.printable import count, printable

MAGIC: Final = 0x1950A86A20F9469CFC6C
PROTOCOL: Final = 1001
FIRST_PIECE: Final = 1024 * 1024  # the pickles of 8,000 tensors

Read = Callable[[int, int], bytes]


class _Streams:
    """Pickles one after another in a file."""

    def __init__(self, read: Read, file_size: int, path: str, start: int = 0) -> None:
        self._read = read
        self.size = file_size
        self._path = path
        self._data = read(0, min(FIRST_PIECE, file_size))
        self.position = start
        self.globals: tuple[FoundGlobal, ...] = ()

    @property
    def at_end(self) -> bool:
        """Whether the file has no more bytes."""
        return self.position >= self.size

    def next(self) -> Interpreted:
        """Reads one pickle; more of the file is fetched while it goes on.

        Raises:
            UnreadablePickle: It cannot be read; its globals are those of the pickles before it too.
        """
        while True:
            try:
                stream = interpret(self._data, path=self._path, start=self.position)
            except UnreadablePickle as error:
                if error.truncated and self._fetch():
                    continue
                error.globals = merged(self.globals, error.globals)
                raise
            self.position = stream.end
            self.globals = merged(self.globals, stream.globals)
            return stream

    def number_at(self, position: int) -> int:
        """The count of elements that stands before a storage."""
        return int.from_bytes(self._read(position, 8), "little", signed=True)

    def damaged(self, place: str | None, what: str) -> MalformedFile:
        """An error about the storages behind the pickles."""
        return MalformedFile(what, why=_DAMAGED, path=self._path, place=place)

    def _fetch(self) -> bool:
        """Four times as much of the file, from its beginning; False where there is no more to have."""
        before = len(self._data)
        length = min(4 * before, self.size, MAX_PICKLE)
        if length <= before:
            return False
        self._data = b""  # before the next piece is read: both together may be too much
        self._data = self._read(0, length)
        return len(self._data) > before


def open_legacy(read: Read, file_size: int, path: str) -> Opened:
    """Reads the pickles of a legacy file, and finds its storages.

    Raises:
        MalformedFile: It is no such file, or cut off.
        UnsupportedSource: It is another pickle, or was written on a big-endian machine.
    """
    streams = _Streams(read, file_size, path)
    first = streams.next()
    if first.value != MAGIC if type(first.value) is int else True:
        raise _no_checkpoint(streams, path)
    if streams.next().value != PROTOCOL:
        raise MalformedFile("has another protocol than torch.save writes", path=path)
    _check_machine(streams.next().value, path)
    body = streams.next()
    keys = streams.next().value
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or len(set(keys)) != len(keys):
        raise MalformedFile("has no list of storage keys behind its object", why=_DAMAGED, path=path)
    declared = _declared(body.persistent, path)

    @cache
    def begins() -> Mapping[str, int]:
        """When the first offset is asked for: a count is read for each storage."""
        return _begins(declared, keys, streams)

    def locate(storage: Storage) -> int:
        if storage.key not in begins():
            raise streams.damaged(f"storage {printable(storage.key, 80)}", "is missing: a tensor has no values")
        return begins()[storage.key]

    return Opened("legacy", body.value, streams.globals, locate, body.changed)


_DAMAGED: Final = "torch.load finds its storages by it"


def _no_checkpoint(streams: _Streams, path: str) -> MalformedFile | UnsupportedSource:
    """What to say of a pickle that torch.save did not write; the rest of the file is looked at too."""
    _rest(streams)
    hint = "load it where it was made and save the weights as safetensors"
    what = "is a plain pickle, not a checkpoint of torch.save"
    return unreadable(what, streams.globals, why=_PLAIN, hint=hint, path=path)


_PLAIN: Final = "its objects cannot be read without running what it says"


def _rest(streams: _Streams) -> None:
    """Reads pickles to the end of the file."""
    for _ in range(MAX_STREAMS):
        if streams.at_end:
            return
        streams.next()


def _check_machine(facts: object, path: str) -> None:
    known = dict(facts.text_items()) if isinstance(facts, Pairs) else {}
    if known.get("little_endian") is False:
        hint = "load and save it with torch on a little-endian machine"
        raise UnsupportedSource("was written on a big-endian machine", hint=hint, path=path)
    if known.get("little_endian") is not True:
        raise MalformedFile("does not say on which kind of machine it was written", why=_DAMAGED, path=path)


def _declared(persistent: Iterable[PersistentId], path: str) -> dict[str, Storage]:
    """The storages that the pickle refers to, by key."""
    declared: dict[str, Storage] = {}
    parts: dict[str, Storage] = {}
    for storage in map(storage_of, persistent):
        if isinstance(storage, Storage):
            whole = storage._replace(view=None, view_key=None)
            if storage.view_key is not None and parts.setdefault(storage.view_key, storage) != storage:
                place = f"view {printable(storage.view_key, 80)}"
                raise MalformedFile("is a name of two views", why=_DAMAGED, path=path, place=place)
            if declared.setdefault(storage.key, whole) != whole:
                place = f"storage {printable(storage.key, 80)}"
                raise MalformedFile("is a storage of two types or sizes", why=_DAMAGED, path=path, place=place)
    if both := parts.keys() & declared.keys():  # torch/serialization.py keeps both in one dict
        place = f"view {printable(min(both), 80)}"
        raise MalformedFile("is the name of a storage too", why=_DAMAGED, path=path, place=place)
    return declared


def _begins(declared: dict[str, Storage], keys: list[str], streams: _Streams) -> dict[str, int]:
    """Where the bytes of each storage begin, checked against the counts in the file."""
    begins: dict[str, int] = {}
    position = streams.position
    for key in keys:
        problem = None
        if (storage := declared.get(key)) is None:
            raise streams.damaged(f"storage {printable(key, 80)}", "belongs to no tensor")
        if (elements := streams.number_at(position)) != storage.elements:
            problem = f"has {elements:,} elements, and its tensors expect {storage.elements:,}"
        begins[key] = position + 8
        position += 8 + storage.size
        if position > streams.size:
            problem = f"ends {count(position - streams.size, 'byte')} too early: the file is truncated"
        if problem:
            raise streams.damaged(f"storage {printable(key, 80)}", problem)
    if position != streams.size:
        raise streams.damaged(None, f"has {streams.size - position:,} bytes behind its last storage")
    return begins


def scan_streams(read: Read, file_size: int, path: str, *, start: int = 0) -> tuple[FoundGlobal, ...]:
    """Everything that a legacy file, or plain pickles one after another, name, from `start` on.

    Raises:
        UnreadablePickle: It cannot be read to its end; its `globals` are what was found until there.
    """
    streams = _Streams(read, file_size, path, start)
    first = streams.next()
    if type(first.value) is int and first.value == MAGIC:
        for _ in range(4):
            streams.next()  # the storages behind them are raw values, which no loader unpickles
    else:
        _rest(streams)
    return streams.globals
