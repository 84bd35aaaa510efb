"""Weight files and indexes -> their mutants: every tensor, every entry."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

import ml_dtypes
import numpy as np
from edit import Edit
from json_mutants import of_value, written

Files: TypeAlias = Mapping[str, bytes]


class Stored(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    data: bytes


Tensors = Mapping[str, Stored]
LATER_LAYER = re.compile(r"\.(?:[1-9]|[1-9][0-9]+)\.")  # of the second layer, or expert, and those after it

NUMPY = {
    "BF16": ml_dtypes.bfloat16,
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "I32": np.int32,
    "I64": np.int64,
    "I8": np.int8,
    "U32": np.uint32,
    "U8": np.uint8,
}
OTHER = {
    "BF16": "F32",
    "F16": "F32",
    "F32": "BF16",
    "F64": "F32",
    "F8_E4M3": "BF16",
    "I32": "I64",
    "I64": "I32",
    "I8": "I32",
    "U32": "I64",
    "U8": "I32",
}


def of_weights(path: str, files: Files) -> Iterator[Edit]:
    """Every tensor of one file, and what is done to all of them at once."""
    tensors, metadata = read(files[path])
    for number, name in enumerate(tensors):
        made = list(of_tensor(name, tensors))
        if LATER_LAYER.search(name):  # deleted and renamed, and one of the others in turn
            made = [*made[:2], made[2 + number % (len(made) - 2)]]
        for operation, changed in made:
            yield Edit(operation, name, serialized(changed, metadata))
    for operation, changed in of_all(tensors):
        yield Edit(operation, "", serialized(changed, metadata))
    yield from _duplicates(path, files, tensors)


def of_tensor(name: str, tensors: Tensors) -> Iterator[tuple[str, Tensors]]:
    """What can be done to one tensor."""
    stored = tensors[name]
    yield "delete tensor", {key: value for key, value in tensors.items() if key != name}
    yield "rename tensor", {slipped(name) if key == name else key: value for key, value in tensors.items()}
    for operation, new in _altered(stored):
        yield operation, {**tensors, name: new}


def _altered(stored: Stored) -> Iterator[tuple[str, Stored]]:
    array = _array(stored)
    if array.ndim:
        yield "one more row", _stored(np.concatenate([array, array[-1:]]), stored.dtype)
        yield "one row less", _stored(array[:-1], stored.dtype)
    if array.ndim >= 2 and array.shape[0] != array.shape[1]:
        yield "transpose", _stored(np.ascontiguousarray(array.swapaxes(0, 1)), stored.dtype)
    yield "add dimension", stored._replace(shape=(1, *stored.shape))
    yield "cast tensor", cast(stored, OTHER[stored.dtype])


def of_all(tensors: Tensors) -> Iterator[tuple[str, Tensors]]:
    """What is done to every tensor of a file."""
    yield "prefix all", {f"module.{name}": stored for name, stored in tensors.items()}
    yield "strip first part of all", {name.partition(".")[2] or name: stored for name, stored in tensors.items()}
    for dtype in ("BF16", "F16", "F32"):
        yield f"cast all to {dtype}", {name: cast(stored, dtype) for name, stored in tensors.items()}


def _duplicates(path: str, files: Files, tensors: Tensors) -> Iterator[Edit]:
    """Each tensor stored once more in the next shard."""
    shards = sorted(name for name in files if name.endswith(".safetensors"))
    if len(shards) < 2:
        return
    other = shards[(shards.index(path) + 1) % len(shards)]
    held, metadata = read(files[other])
    for name, stored in tensors.items():
        more = ((other, serialized({**held, name: stored}, metadata)),)
        yield Edit("duplicate in another shard", name, files[path], more)


def of_index(path: str, files: Files) -> Iterator[Edit]:
    """Every entry of the weight map, and every other key."""
    index = json.loads(files[path])
    weight_map = index["weight_map"]
    shards = sorted(set(weight_map.values()))
    yield from of_value(index, skip=lambda pointer: pointer[0] == "weight_map" and len(pointer) > 1)
    for name, shard in weight_map.items():
        others = {key: value for key, value in weight_map.items() if key != name}
        for operation, entries in (
            ("delete entry", others),
            ("rename entry", {**others, slipped(name): shard}),
            ("another shard", {**weight_map, name: shards[(shards.index(shard) + 1) % len(shards)]}),
            ("shard that is not there", {**weight_map, name: shard.replace("-of-", "-of-1")}),
        ):
            yield Edit(operation, name, written({**index, "weight_map": entries}))


def of_gguf(content: bytes) -> Iterator[Edit]:
    """Every metadata entry and tensor of a GGUF file, through the writer of the examples."""
    from json_mutants import other_values

    from repokit.linter.examples_gguf import Typed, contents, gguf_bytes

    metadata, tensors = contents(content)
    for key, entry in metadata.items():
        others = {name: value for name, value in metadata.items() if name != key}
        yield Edit("delete key", key, gguf_bytes(others, tensors))
        yield Edit("rename key", key, gguf_bytes({**others, slipped(key): entry}, tensors))
        for operation, value in other_values(entry.value):
            same = type(value) is type(entry.value) and not (isinstance(value, list) and not value)
            if same and not (isinstance(value, list) and type(value[0]) is not type(entry.value[0])):
                try:
                    yield Edit(operation, key, gguf_bytes({**metadata, key: entry._replace(value=value)}, tensors))
                except struct.error:  # a negative number in an unsigned field
                    continue
        if not isinstance(entry.value, str):
            yield Edit("text for value", key, gguf_bytes({**metadata, key: Typed("string", "x")}, tensors))
    for name, (dims, kind) in tensors.items():
        others = {key: value for key, value in tensors.items() if key != name}
        yield Edit("delete tensor", name, gguf_bytes(metadata, others))
        yield Edit("rename tensor", name, gguf_bytes(metadata, {**others, slipped(name): (dims, kind)}))
        yield Edit("one more row", name, gguf_bytes(metadata, {**tensors, name: ((*dims[:-1], dims[-1] + 1), kind)}))


def slipped(name: str) -> str:
    """The name without the letter in its middle."""
    return name[: len(name) // 2] + name[len(name) // 2 + 1 :]


def cast(stored: Stored, dtype: str) -> Stored:
    """The same numbers in another dtype; integers stay integers when all tensors are cast to a float."""
    if stored.dtype.startswith(("I", "U")) and dtype.startswith(("BF", "F")):
        return stored
    return _stored(_array(stored).astype(np.float32).astype(NUMPY[dtype]), dtype)


def _array(stored: Stored) -> np.ndarray:
    return np.frombuffer(stored.data, dtype=NUMPY[stored.dtype]).reshape(stored.shape)


def _stored(array: np.ndarray, dtype: str) -> Stored:
    return Stored(dtype, array.shape, array.tobytes())


def read(content: bytes) -> tuple[dict[str, Stored], dict[str, str] | None]:
    """A .safetensors file: its tensors in the order of the header, and its metadata."""
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    metadata = header.pop("__metadata__", None)
    tensors = {}
    for name, info in header.items():
        begin, end = info["data_offsets"]
        tensors[name] = Stored(info["dtype"], tuple(info["shape"]), data[begin:end])
    return tensors, metadata


def serialized(tensors: Tensors, metadata: Mapping[str, str] | None) -> bytes:
    """A .safetensors file."""
    header: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    offset = 0
    for name, stored in tensors.items():
        end = offset + len(stored.data)
        header[name] = {"dtype": stored.dtype, "shape": list(stored.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(stored.data for stored in tensors.values())
