"""Folders of torch.distributed.checkpoint, without torch: `.metadata`, and `__RANK_N.distcp` beside it.

`.metadata` is a pickle of dataclasses (torch/distributed/checkpoint/metadata.py): which tensors there are, of which
dtype and shape, which boxes of them are stored, and where. In the other files lies one archive of torch.save for each
box: dcp_chunks.py says where in it the elements begin.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from repokit.errors import MalformedFile, UnsupportedSource
from repokit.formats.boxes import untiled
from repokit.formats.inert_pickle import Most, UnreadablePickle, interpret
from repokit.formats.paths import unsafe
from repokit.formats.pickle_globals import FoundGlobal, Grade
from repokit.formats.pickle_values import Global, Opaque, Pairs, Value
from repokit.formats.tensors import TORCH_NAMES
from repokit.formats.torch_containers import fault_of
from repokit.formats.torch_file import check_globals
from repokit.printable import count, printable

METADATA: Final = ".metadata"
# 100,000 tensors in one box each take 12.7 million opcodes and 2.7 million objects, 128,000 boxes of 2,000 tensors 8.8.
MOST: Final = Most(opcodes=48_000_000, objects=12_000_000)
MAX_DIMENSIONS: Final = 64
MAX_LENGTH: Final = 2**60  # elements of a dimension, bytes of a file
MAX_DEPTH: Final = 64  # keys above a tensor
MAX_KEYS: Final = 4096  # characters of them together: the names of an optimizer's tensors hold those of the model's
MAX_CHUNKS: Final = 250_000  # of all tensors: MOST allows 175,000 written out, but one list may be that of many

Sizes = tuple[int, ...]


class Chunk(NamedTuple):
    """A box of a tensor, stored by itself.

    Attributes:
        offsets: The place of its first element in the tensor, per dimension.
        sizes: Its elements per dimension.
        file: Where it lies, relative to the folder of `.metadata`.
        begin: The first byte of its archive in that file.
        length: Bytes of its archive.
    """

    offsets: Sizes
    sizes: Sizes
    file: str
    begin: int
    length: int


class Entry(NamedTuple):
    """A tensor of the checkpoint. Every element lies in exactly one of its chunks; those without any are left out.

    Attributes:
        name: All keys from the top, joined by dots.
        dtype: As a header of safetensors spells it.
        shape: Elements per dimension, outermost first; of F4 as torch counts them, two to a byte.
        chunks: Where its elements are.
    """

    name: str
    dtype: str
    shape: Sizes
    chunks: tuple[Chunk, ...]


class DcpMetadata:
    """What `.metadata` says. Only tensors that are asked for are looked at: those of an optimizer never are.

    Attributes:
        path: For messages.
        tensors: The names of all tensors, in order, with the keys under which the state dict held each: the key of a
            model's state dict has dots itself.
        pickled: The same of all else: each is a pickle of its own, which nothing here reads.
        globals: Everything that the pickle names.
    """

    def __init__(self, path: str, value: Value, found: tuple[FoundGlobal, ...]) -> None:
        self.path = path
        self.globals = found
        self._chunks = 0  # of the tensors that were looked at
        fields = self._fields(value, "Metadata", "the whole")
        entries = self._entries(fields.get("state_dict_metadata"))
        keys = self._keys(fields.get("planner_data"))
        self._stored = self._places(fields.get("storage_data"))
        self._tensors = {name: value for name, value in entries.items() if _is(value, "TensorStorageMetadata")}
        self.tensors = {name: keys.get(name, (name,)) for name in self._tensors}
        self.pickled = {name: keys.get(name, (name,)) for name in entries if name not in self._tensors}
        self.has_keys = bool(keys)

    def entries(self, names: Mapping[str, str]) -> dict[str, Entry]:
        """The tensors of these names, all that is said of them checked. They can be asked for once.

        The objects of the pickle, 4 kB a tensor, are let go: a plan of 100,000 tensors needs the memory.

        Args:
            names: Names in the checkpoint by what they are to be called.

        Raises:
            MalformedFile: What is said contradicts itself, or some of it has no place.
            UnsupportedSource: It is of a kind that safetensors cannot hold, or stored in a way that is not read.
        """
        found = {wanted: self._entry(name) for wanted, name in names.items()}
        self._tensors, self._stored = {}, {}
        return found

    # -------------------------------------------------------------------------------------------- the dataclasses

    def _entry(self, name: str) -> Entry:
        if (fault := fault_of(name)) is not None:
            raise self._malformed(f"names a tensor that {fault}", name)
        fields = self._fields(self._tensors[name], "TensorStorageMetadata", name)
        shape = self._sizes(fields.get("size"), name)
        dtype = self._dtype(fields.get("properties"), name)
        boxes = [box for box in self._boxes(fields.get("chunks"), len(shape), name) if 0 not in box[1]]
        if (problem := untiled(shape, boxes)) is not None:
            raise self._malformed(f"says where some of it lies: {problem}", name, why=_INCOMPLETE)
        return Entry(name, dtype, shape, tuple(self._chunk(name, *box) for box in boxes))

    def _fields(self, value: Value, kind: str, name: str) -> dict[str, Value]:
        """The fields of a dataclass.

        Raises:
            MalformedFile: It is another object, or was changed by more than its fields.
        """
        if not _is(value, kind) or not isinstance(value, Opaque) or value.items is not None or value.pairs is not None:
            raise self._malformed(f"has no {kind} where torch writes one", name)
        if value.state is None:
            return {}
        fields = dict(value.state.text_items()) if isinstance(value.state, Pairs) else None
        if fields is None or not isinstance(value.state, Pairs) or len(fields) != len(value.state.pairs):
            raise self._malformed(f"has a {kind} with other fields than torch's", name)
        return fields

    def _entries(self, value: Value) -> dict[str, Value]:
        found = self._by_name(value, "state_dict_metadata")
        for name, entry in found.items():
            if not _is(entry, "TensorStorageMetadata") and not _is(entry, "BytesStorageMetadata"):
                raise self._malformed("is neither a tensor nor a pickled value", name)
        return found

    def _keys(self, value: Value) -> dict[str, tuple[str, ...]]:
        """The keys of each entry, where the planner kept them: flattened names alone do not tell where a key ends."""
        if not isinstance(value, Pairs):
            return {}
        found = {}
        for name, keys in self._by_name(value, "planner_data").items():
            if isinstance(keys, tuple) and 0 < len(keys) <= MAX_DEPTH and all(map(_is_key, keys)):
                found[name] = tuple(map(str, keys))
                if sum(map(len, found[name])) > MAX_KEYS:
                    raise self._malformed(f"has keys of more than {MAX_KEYS:,} characters", name)
        return found

    def _by_name(self, value: Value, place: str) -> dict[str, Value]:
        if not isinstance(value, Pairs):
            raise self._malformed("is no dict", place)
        found = dict(value.text_items())
        if len(found) != len(value.pairs):
            raise self._malformed("has a name twice, or one that is no text", place)
        return found

    def _places(self, value: Value) -> dict[tuple[str, Sizes | None], Value]:
        """What is stored, by name and offsets: torch.distributed.checkpoint.metadata.MetadataIndex."""
        if not isinstance(value, Pairs):
            raise self._malformed("is no dict: it names no file", "storage_data")
        found: dict[tuple[str, Sizes | None], Value] = {}
        for key, place in value.pairs:
            fields = self._fields(key, "MetadataIndex", "storage_data")
            name, offsets = fields.get("fqn"), fields.get("offset")
            if not isinstance(name, str):
                raise self._malformed("has an entry without a name", "storage_data")
            index = (name, None if offsets is None else self._sizes(offsets, name))
            if index in found:
                raise self._malformed("has two places for one chunk", name)
            found[index] = place
        return found

    # -------------------------------------------------------------------------------------------- a tensor

    def _sizes(self, value: Value, name: str) -> Sizes:
        """Numbers, one a dimension."""
        fine = isinstance(value, tuple) and len(value) <= MAX_DIMENSIONS
        if not fine or not all(type(number) is int and 0 <= number < MAX_LENGTH for number in value):  # type: ignore[attr-defined]
            raise self._malformed("has a shape or offsets that are none", name)
        return value  # type: ignore[return-value]

    def _dtype(self, value: Value, name: str) -> str:
        if not isinstance(value, Opaque) or not _is(value, "TensorProperties"):
            raise self._malformed("has no TensorProperties where torch writes them", name)
        match value.state:
            case (Global("torch", dtype), layout, *_):
                pass
            case _:
                raise self._malformed("does not say of which dtype it is", name)
        if isinstance(layout, Opaque) and layout.args != ("torch.strided",):
            raise self._unsupported(f"is of the layout {printable(layout.args[0] if layout.args else None, 40)}", name)
        if (known := TORCH_NAMES.get(dtype)) is None:
            raise self._unsupported(f"is of dtype {printable(dtype, 40)}, which safetensors does not have", name)
        return known

    def _boxes(self, value: Value, dimensions: int, name: str) -> Iterator[tuple[Sizes, Sizes]]:
        if not isinstance(value, list):
            raise self._malformed("has no list of chunks", name)
        self._chunks += len(value)
        if self._chunks > MAX_CHUNKS:
            raise self._malformed(f"is cut into too many chunks: {MAX_CHUNKS:,} of all tensors are read", name)
        for chunk in value:
            fields = self._fields(chunk, "ChunkStorageMetadata", name)
            offsets, sizes = self._sizes(fields.get("offsets"), name), self._sizes(fields.get("sizes"), name)
            if len(offsets) != dimensions or len(sizes) != dimensions:
                raise self._malformed(f"has {count(dimensions, 'dimension')}, and a chunk that has not", name)
            yield offsets, sizes

    def _chunk(self, name: str, offsets: Sizes, sizes: Sizes) -> Chunk:
        place = self._stored.get((name, offsets))
        if place is None:
            what = f"has a chunk at {list(offsets)} that lies in no file"
            raise self._malformed(what, name, why=_INCOMPLETE)
        fields = self._fields(place, "_StorageInfo", name)
        if fields.get("transform_descriptors"):
            raise self._unsupported(
                "is stored through an extension of torch's file system (compressed, encrypted)", name
            )
        file, begin, length = (fields.get(field) for field in ("relative_path", "offset", "length"))
        if not isinstance(file, str) or unsafe(file):
            what = f"lies in {printable(file, 120)!r}, which is no file inside the checkpoint"
            raise self._malformed(what, name, why="readers would open whatever it leads to")
        if not _is_length(begin) or not _is_length(length):
            raise self._malformed("lies at a place that is none", name)
        return Chunk(offsets, sizes, file, begin, length)  # type: ignore[arg-type]

    def _malformed(self, what: str, name: str, why: str | None = None) -> MalformedFile:
        return MalformedFile(what, why=why, path=self.path, place=printable(name, 120) or None)

    def _unsupported(self, what: str, name: str) -> UnsupportedSource:
        return UnsupportedSource(what, hint=_CONVERT, path=self.path, place=printable(name, 120) or None)


_INCOMPLETE: Final = "some of the tensor would be missing, or twice there"
_CONVERT: Final = "python -m torch.distributed.checkpoint.format_utils dcp_to_torch CHECKPOINT model.pt, build that"


def _is(value: Value, kind: str) -> bool:
    """Whether a value is an object of a class of torch's; torch before 2.1 had some elsewhere in the package."""
    if not isinstance(value, Opaque) or not isinstance(value.callee, Global) or value.args:
        return False
    return value.callee.name == kind and value.callee.module.startswith("torch.distributed.")


def _is_key(value: Value) -> bool:
    return isinstance(value, str) or (type(value) is int and abs(value) < MAX_LENGTH)


def _is_length(value: Value) -> bool:
    return type(value) is int and 0 <= value < MAX_LENGTH


def read_metadata(data: bytes, path: str) -> DcpMetadata:
    """Reads `.metadata`.

    Raises:
        MalformedFile: It is none, breaks off, contradicts itself, or names what runs code when it is loaded.
        UnsupportedSource: It is of a kind that is not read.
    """
    try:
        with _collector_paused():
            read = interpret(data, path=path, most=MOST)
    except UnreadablePickle as error:
        check_globals(error.globals, path)
        raise
    check_globals(read.globals, path)
    if read.end != len(data):
        raise MalformedFile(f"goes on for {len(data) - read.end:,} bytes behind its end", path=path)
    return DcpMetadata(path, read.value, read.globals)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Millions of objects are made and none is garbage: looking for some takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def unknown_globals(metadata: DcpMetadata) -> tuple[str, ...]:
    """What the pickle names and this version does not know; of a subclass of a path, for example."""
    return tuple(sorted({found.dotted for found in metadata.globals if found.grade is Grade.UNKNOWN}))


def by_file(entries: Mapping[str, Entry]) -> dict[str, list[tuple[Entry, Chunk]]]:
    """The chunks of tensors by the file that they lie in, in the order in which they lie there."""
    found: dict[str, list[tuple[Entry, Chunk]]] = {}
    for entry in entries.values():
        for chunk in entry.chunks:
            found.setdefault(chunk.file, []).append((entry, chunk))
    return {file: sorted(found[file], key=lambda pair: pair[1].begin) for file in sorted(found)}
