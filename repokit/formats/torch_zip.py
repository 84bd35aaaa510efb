"""The zip format of torch.save: `ROOT/data.pkl`, `ROOT/data/KEY` for each storage, `ROOT/byteorder`, `ROOT/version`."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import Final, Literal, NamedTuple

from repokit.errors import MalformedFile, UnsupportedSource
from repokit.formats.inert_pickle import (
    MAX_OPCODES,
    MAX_PICKLE,
    UnreadablePickle,
    interpret,
    interpret_all,
    merged,
    unreadable,
)
from repokit.formats.pickle_globals import FoundGlobal, Grade, is_name
from repokit.formats.pickle_values import Opaque, PersistentId, Value
from repokit.formats.torch_archive import (
    STORED,
    Archive,
    Member,
    beginning,
    contents,
    contents_at,
    is_zip,
    local_contents,
    read_archive,
)
from repokit.formats.torch_tensors import Locate, Storage
from repokit.printable import printable, size

Read = Callable[[int, int], bytes]

MAX_OTHER: Final = 64 * 1024 * 1024  # bytes of a member that is neither data.pkl nor a storage, and may be a pickle


class Opened(NamedTuple):
    """A checkpoint whose pickle was read.

    Attributes:
        format: Which of the two formats it is in.
        value: What torch.load would return, inert.
        globals: Everything that its pickles name.
        locate: Where a storage begins in the file.
        changed: Results of calls that the pickle changes afterwards.
    """

    format: Literal["zip", "legacy"]
    value: Value
    globals: tuple[FoundGlobal, ...]
    locate: Locate
    changed: tuple[Opaque, ...]


def open_zip(read: Read, file_size: int, path: str) -> Opened:
    """Reads the pickles of an archive.

    Raises:
        MalformedFile: It is no archive that torch.save wrote.
        UnsupportedSource: It is another archive of torch, or one of another byte order.
    """
    try:
        archive = read_archive(read, file_size, path)
    except MalformedFile as error:
        raise _with_salvage(error, read, file_size, path) from None
    _refuse_others(archive, path)
    _refuse_look_alikes(archive, path)
    root = archive.root
    if root is None or (main := archive.members.get(f"{root}/data.pkl")) is None:
        found = _all_pickles(read, archive, path, Limits())
        raise unreadable("is a zip archive, but not one of torch.save: it has no data.pkl", found, why=_WHAT, path=path)
    main_read = interpret(contents(read, main, path, MAX_PICKLE), path=path, member=main.name)
    if main_read.end != main.size:
        what = f"goes on for {main.size - main_read.end:,} bytes behind its end"
        raise MalformedFile(what, why="what stands there shows to some readers only", path=path, place=main.name)
    _check_byte_order(read, archive, root, path)
    storages = _Storages(read, archive, root, path)
    keys = {f"{root}/data/{key}" for key in map(_key_of, main_read.persistent) if key is not None}
    others = [m for m in archive.members.values() if m.name not in keys and m is not main]
    limits = Limits()
    limits.count(main.size, main_read.opcodes, main_read.globals, path)
    found = merged(main_read.globals, *(_scanned(read, member, path, limits) for member in others))
    return Opened("zip", main_read.value, found, storages.locate, main_read.changed)


def _key_of(reference: PersistentId) -> str | None:
    match reference.value:
        case ("storage" | b"storage", _, str(key), *_):
            return key
    return None


_WHAT: Final = "a loader would not find a state dict in it"


def _refuse_look_alikes(archive: Archive, path: str) -> None:
    """Names that differ in case only, or from what torch.save writes: torch finds its members by either.

    mz_zip_reader_locate_file without MZ_ZIP_FLAG_CASE_SENSITIVE: torch takes `DATA.pkl` for `data.pkl` where it meets
    that first, and `BYTEORDER` for `byteorder`.
    """
    seen: dict[str, str] = {}
    for name in archive.members:
        folded = name.lower()
        tail = folded.partition("/")[2]
        if folded in seen or (tail in _FIXED and name.partition("/")[2] != tail):
            other = seen.get(folded, tail)
            what = f"is in the archive beside {printable(other, 80)}" if folded in seen else f"is spelled unlike {tail}"
            raise MalformedFile(what, why="torch does not tell the two apart", path=path, place=name)
        seen[folded] = name


_FIXED: Final = frozenset({"data.pkl", "byteorder", "version"})


def _refuse_others(archive: Archive, path: str) -> None:
    """Names the archives of torch that hold more than tensors."""
    tails = {name.partition("/")[2]: name for name in archive.members}
    for tail, (what, hint) in _OTHERS.items():
        if tail in tails or any(name.startswith(tail) for name in tails if tail.endswith("/")):
            raise UnsupportedSource(what, why="it carries a program, not a state dict", hint=hint, path=path)


_OTHERS: Final[dict[str, tuple[str, str]]] = {
    "constants.pkl": (
        "is a TorchScript program",
        "torch.save(torch.jit.load(PATH).state_dict(), ...) gives a state dict",
    ),
    "code/": ("is a TorchScript program", "torch.save(torch.jit.load(PATH).state_dict(), ...) gives a state dict"),
    "archive_format": (
        "is a program of torch.export (.pt2)",
        "torch.save(torch.export.load(PATH).state_dict, ...) gives a state dict",
    ),
    "serialized_exported_program.json": (
        "is a program of torch.export (.pt2)",
        "torch.save(torch.export.load(PATH).state_dict, ...) gives a state dict",
    ),
    ".data/extern_modules": (
        "is a package of torch.package, which carries Python code",
        "load the model with torch.package and save its state_dict()",
    ),
}


def _check_byte_order(read: Read, archive: Archive, root: str, path: str) -> None:
    member = archive.members.get(f"{root}/byteorder")
    if member is None:
        return  # torch before 2.1 wrote none
    order = contents(read, member, path, 64)
    if order == b"big":
        hint = "load and save it with torch on a little-endian machine"
        raise UnsupportedSource("was written on a big-endian machine", hint=hint, path=path)
    if order != b"little":
        raise MalformedFile(f"names the byte order {printable(order, 20)}", path=path, place=member.name)


class _Storages:
    """Where storages begin; each is looked up once."""

    def __init__(self, read: Read, archive: Archive, root: str, path: str) -> None:
        self._read = read
        self._archive = archive
        self._root = root
        self._path = path
        self._known: dict[str, tuple[str | None, int, int]] = {}

    def locate(self, storage: Storage) -> int:
        """Where the contents of a storage begin.

        Raises:
            MalformedFile: It is missing, or not of the size that the pickle tells.
            UnsupportedSource: It is compressed.
        """
        if storage.view is not None or storage.in_legacy:
            what = "is a view of a storage, which only the legacy format has"
            raise MalformedFile(what, why=_DISAGREE, path=self._path, place=f"data/{printable(storage.key, 80)}")
        known = self._known.get(storage.key)
        if known is None:
            known = self._known[storage.key] = (storage.dtype, storage.size, self._begin(storage))
        if known[:2] != (storage.dtype, storage.size):
            what = "is a storage of two types or sizes"
            raise MalformedFile(what, why=_DISAGREE, path=self._path, place=f"data/{storage.key}")
        return known[2]

    def _begin(self, storage: Storage) -> int:
        place = f"data/{printable(storage.key, 80)}"
        if not _KEY.fullmatch(storage.key):
            raise MalformedFile("is no key of a storage", why=_DISAGREE, path=self._path, place=place)
        member = self._archive.members.get(f"{self._root}/data/{storage.key}")
        if member is None:
            raise MalformedFile("is missing: a tensor has no values", why=_DISAGREE, path=self._path, place=place)
        if member.size != storage.size:
            what = f"has {member.size:,} bytes, and its tensors expect {storage.size:,}"
            raise MalformedFile(what, why=_DISAGREE, path=self._path, place=place)
        if member.method != STORED:
            hint = "torch.save stores them; load the file with torch and save it again"
            raise UnsupportedSource("is a compressed storage", why=_COMPRESSED, hint=hint, path=self._path, place=place)
        return contents_at(self._read, member, self._path)


_KEY: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,200}")
_DISAGREE: Final = "pickle and archive contradict each other; the file is damaged or made up"
_COMPRESSED: Final = "tensors are copied by their place in the file"


# ------------------------------------------------------------------------------------------------ scanning


class Limits:
    """What looking into the members of one file, archives in it included, may take together.

    A member may be 200 times as large as what the archive has of it, and an archive itself; a pickle may have as many
    opcodes as it has bytes.
    """

    def __init__(self) -> None:
        self.content = 2 * MAX_PICKLE
        self.opcodes = 2 * MAX_OPCODES

    def count(self, content: int, opcodes: int, found: tuple[FoundGlobal, ...], path: str) -> None:
        """Takes off what a member took.

        Raises:
            UnreadablePickle: Nothing is left; with the globals of that member.
        """
        self.content -= content
        self.opcodes -= opcodes
        if self.content < 0 or self.opcodes < 0:
            raise ExhaustedScan(found, path)


class ExhaustedScan(UnreadablePickle):
    """There is more in a file than is looked at."""

    def __init__(self, found: tuple[FoundGlobal, ...], path: str) -> None:
        super().__init__("holds more than can be looked at", why="no real file does; a bomb does", path=path)
        self.globals = found


def scan_zip(
    read: Read, file_size: int, path: str, *, within: str = "", depth: int = 0, limits: Limits | None = None
) -> tuple[FoundGlobal, ...]:
    """Everything that the members of any zip archive name, if they are pickles or archives of pickles.

    Args:
        read: As of `read_torch_file`.
        file_size: Bytes of the archive.
        path: For messages.
        within: The member that is the archive, with a slash at its end, where it lies in another one.
        depth: How many archives it lies in.
        limits: What is left of those of the whole file.

    Raises:
        UnreadablePickle: A member is a pickle and cannot be read, or the archive is one that two readers would read
            differently; its `globals` are what was found all the same.
    """
    try:
        archive = read_archive(read, file_size, path)
    except MalformedFile as error:
        raise _with_salvage(error, read, file_size, path) from None
    return _all_pickles(read, archive, path, limits or Limits(), within=within, depth=depth)


def _with_salvage(error: MalformedFile, read: Read, file_size: int, path: str) -> UnreadablePickle:
    found = salvaged(read, file_size, path)
    return unreadable(error.what, found, why=error.why or _WHAT, hint=error.hint, path=path, place=error.place)


def _all_pickles(
    read: Read, archive: Archive, path: str, limits: Limits, *, within: str = "", depth: int = 0
) -> tuple[FoundGlobal, ...]:
    groups: list[tuple[FoundGlobal, ...]] = []
    broken: MalformedFile | None = None
    for member in archive.members.values():
        if _STORAGE.fullmatch(member.name):
            continue  # raw values, which no loader unpickles
        try:
            groups.append(_scanned(read, member, path, limits, within=within, depth=depth))
        except ExhaustedScan as error:
            error.globals = merged(*groups, error.globals)
            raise
        except MalformedFile as error:
            broken = broken or error
            groups.append(error.globals if isinstance(error, UnreadablePickle) else ())
    if broken is None:
        return merged(*groups)
    found = merged(*groups)
    known = {one.dotted for one in found}
    found += tuple(one for one in salvaged(read, archive.directory, path) if one.dotted not in known)
    raise unreadable(broken.what, found, why=broken.why or _WHAT, hint=broken.hint, path=path, place=broken.place)


_STORAGE: Final = re.compile(r"[^/]+/data/[0-9]+")
_PICKLE_NAME: Final = re.compile(r".*\.(?:pkl|pickle|joblib|dill)", re.IGNORECASE)


def _scanned(
    read: Read, member: Member, path: str, limits: Limits, *, within: str = "", depth: int = 0
) -> tuple[FoundGlobal, ...]:
    """What a member names if it is a pickle, by its name or by its contents; () where it is none.

    Raises:
        UnreadablePickle: It is a pickle, and cannot be read.
    """
    by_name = _PICKLE_NAME.fullmatch(member.name) is not None
    if member.size > MAX_OTHER and not by_name:
        head = beginning(read, member, path)
        if is_zip(head):
            what = f"is an archive of {size(member.size)} in another"
            raise unreadable(what, (), why=_WHAT, path=path, place=within + member.name)
        if not is_pickled(head):
            return ()
    limits.count(min(member.size, MAX_PICKLE), _MEMBER, (), path)
    data = contents(read, member, path, MAX_PICKLE)
    name = within + member.name
    if is_zip(data[:4]):
        return _inner_archive(data, name, path, limits, depth)
    if (start := pickle_in_array(data[:512])) is None:
        return ()
    try:
        streams = interpret_all(data, path=path, member=name, start=start)
    except UnreadablePickle as error:
        limits.count(0, error.opcodes, error.globals, path)
        attack = any(one.grade is Grade.EXECUTES and is_name(one.module, one.name) for one in error.globals)
        if by_name or start or is_pickled(data) or attack:
            raise
        return ()  # text, or values of something else
    found = merged(*(stream.globals for stream in streams))
    limits.count(0, sum(stream.opcodes for stream in streams), found, path)
    return found


_MEMBER: Final = 100  # opcodes that could be carried out while a member is opened


def _inner_archive(data: bytes, name: str, path: str, limits: Limits, depth: int) -> tuple[FoundGlobal, ...]:
    if depth >= MAX_ARCHIVES:
        raise unreadable("lies in too many archives to be looked at", (), why=_WHAT, path=path, place=name)
    inside = scan_zip(
        lambda offset, length: data[offset : offset + length],
        len(data),
        path,
        within=f"{name}/",
        depth=depth + 1,
        limits=limits,
    )
    return tuple(one if one.member.startswith(name) else one._replace(member=f"{name}/{one.member}") for one in inside)


def is_pickled(head: bytes) -> bool:
    """Whether data begin as a pickle of protocol 2 to 5 (earlier ones begin as text may), or as an array of objects."""
    return bool(pickle_in_array(head)) or (head[:1] == b"\x80" and head[1:2] in {b"\x02", b"\x03", b"\x04", b"\x05"})


def pickle_in_array(head: bytes) -> int | None:
    """Where a pickle begins: behind the header of a NumPy array of objects; None for one of numbers; else 0.

    numpy/lib/format.py: magic, version, length of the header, and a dict in Python's spelling.
    """
    if not head.startswith(b"\x93NUMPY"):
        return 0
    wide = head[6:7] != b"\x01"
    begin = 12 if wide else 10
    end = begin + int.from_bytes(head[8:begin], "little")
    return end if b"O" in head[begin:end] else None


def salvaged(read: Read, file_size: int, path: str) -> tuple[FoundGlobal, ...]:
    """What the pickles of a damaged archive name, as far as they can be found by their local headers.

    For the message only: such a file is refused whatever is found.
    """
    data = read(0, min(file_size, MAX_SALVAGE))
    groups = []
    for found in islice(re.finditer(rb"PK\x03\x04", data), MAX_LOCAL):
        begin = local_contents(data, found.start())
        try:
            groups.append(interpret(data[: begin + MAX_TRIED], path=path, start=begin).globals)
        except UnreadablePickle as error:
            groups.append(tuple(one for one in error.globals if one.grade is Grade.EXECUTES))
    return merged(*groups)


MAX_ARCHIVES: Final = 3  # archives in archives that are looked into
MAX_SALVAGE: Final = 4 * 1024 * 1024
MAX_LOCAL: Final = 16  # local headers that are tried
MAX_TRIED: Final = 256 * 1024  # bytes behind each
