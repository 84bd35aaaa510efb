"""Folders of torch.distributed.checkpoint written by hand, so that any part of them can be wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from math import prod

from torch_writer import call, dict_of, list_of, name, number, program, storage, tensor, text, torch_zip, tuple_of

METADATA = "torch.distributed.checkpoint.metadata"
WIDTHS = {"F32": 4, "BF16": 2, "I64": 8}
TORCH = {"F32": "float32", "BF16": "bfloat16", "I64": "int64"}
STORAGES = {"F32": "FloatStorage", "BF16": "BFloat16Storage", "I64": "LongStorage"}

Sizes = tuple[int, ...]


def made(module: str, kind: str, **fields: bytes) -> bytes:
    """An object of a dataclass."""
    return name(module, kind) + b")\x81" + dict_of(*fields.items()) + b"b"


def sizes(values: Sizes) -> bytes:
    return call(name("torch", "Size"), tuple_of(*map(number, values)))


def properties(dtype: str, layout: str = "torch.strided") -> bytes:
    state = (name("torch", dtype), call(name("torch.serialization", "_get_layout"), text(layout)), b"\x89")
    return name(METADATA, "TensorProperties") + b")\x81" + tuple_of(*state, number(0), b"\x89") + b"b"


def box(offsets: Sizes, lengths: Sizes) -> bytes:
    return made(METADATA, "ChunkStorageMetadata", offsets=sizes(offsets), sizes=sizes(lengths))


def index(fqn: str, offsets: Sizes | None) -> bytes:
    place = {} if offsets is None else {"offset": sizes(offsets)}
    return made(METADATA, "MetadataIndex", fqn=text(fqn), index=number(0), **place)


def info(file: str, begin: int, length: int, **more: bytes) -> bytes:
    place = {"relative_path": text(file), "offset": number(begin), "length": number(length)}
    return made("torch.distributed.checkpoint.filesystem", "_StorageInfo", **place, **more)


def keys(*parts: str) -> bytes:
    return tuple_of(*map(text, parts))


@dataclass
class Whole:
    """A tensor, and how it is cut: the file, offsets and lengths of each part."""

    dtype: str
    shape: Sizes
    parts: list[tuple[str, Sizes, Sizes]] = field(default_factory=list)
    data: bytes = b""

    def __post_init__(self) -> None:
        self.data = self.data or bytes(place % 251 for place in range(prod(self.shape) * WIDTHS[self.dtype]))
        self.parts = self.parts or [("__0_0.distcp", (0,) * len(self.shape), self.shape)]

    def part(self, offsets: Sizes, lengths: Sizes) -> bytes:
        """The bytes of a part, by plain counting."""
        width = WIDTHS[self.dtype]
        found = []
        for place in product(*map(range, lengths)):
            position = 0
            for step, offset, length in zip(place, offsets, self.shape, strict=True):
                position = position * length + step + offset
            found.append(self.data[position * width : (position + 1) * width])
        return b"".join(found)


def archive(dtype: str, shape: Sizes, data: bytes) -> bytes:
    """A tensor as torch.save writes it."""
    stored = storage(STORAGES[dtype], "0", prod(shape))
    return torch_zip(tensor(shape, stored=stored), {"0": data})


Model = dict[tuple[str, ...], Whole]


def files(tensors: Model, pickled: tuple[tuple[str, ...], ...] = (), *, planned: bool = True) -> dict[str, bytes]:
    """All files of a folder.

    Args:
        tensors: By their keys in the state dict.
        pickled: Keys of values that are no tensors.
        planned: Whether `.metadata` says the keys.
    """
    found: dict[str, bytes] = {}
    entries, places = [], []
    for path, whole in tensors.items():
        fqn = ".".join(path)
        boxes = []
        for file, offsets, lengths in whole.parts:
            content = archive(whole.dtype, lengths, whole.part(offsets, lengths))
            boxes.append(box(offsets, lengths))
            places.append((index(fqn, offsets), info(file, len(found.get(file, b"")), len(content))))
            found[file] = found.get(file, b"") + content
        entries.append((fqn, described(whole.dtype, whole.shape, boxes)))
    entries += [(".".join(path), made(METADATA, "BytesStorageMetadata")) for path in pickled]
    planner = [(".".join(path), keys(*path)) for path in (*tensors, *pickled)]
    return {**found, ".metadata": metadata(entries, places, planner if planned else None)}


def described(dtype: str, shape: Sizes, boxes: list[bytes]) -> bytes:
    fields = {"properties": properties(TORCH.get(dtype, dtype)), "size": sizes(shape), "chunks": list_of(*boxes)}
    return made(METADATA, "TensorStorageMetadata", **fields)


def metadata(
    entries: list[tuple[str, bytes]],
    places: list[tuple[bytes, bytes]],
    planner: list[tuple[str, bytes]] | None = None,
    **more: bytes,
) -> bytes:
    planned = b"N" if planner is None else dict_of(*planner)
    fields = {"state_dict_metadata": dict_of(*entries), "planner_data": planned, "storage_data": dict_of(*places)}
    return program(made(METADATA, "Metadata", **fields, **more), 4)
