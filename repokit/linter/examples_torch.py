"""Files as torch.save writes them, a few hundred bytes each, for examples. Written by hand: torch is not at hand."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, Final

from repokit.formats.tensors import byte_size
from repokit.linter.examples import filled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.linter.examples import Tensors

_STORAGES: Final = {
    "F32": "FloatStorage",
    "F16": "HalfStorage",
    "BF16": "BFloat16Storage",
    "F64": "DoubleStorage",
    "I64": "LongStorage",
    "U8": "ByteStorage",
}
_ORDERED_DICT: Final = b"ccollections\nOrderedDict\n)R"


def torch_file(tensors: Tensors, extra: bytes = b"", names: Mapping[str, str] | None = None) -> bytes:
    """A zip archive with the state dict, and the bytes that a .safetensors file of the same tensors has.

    Args:
        tensors: Name to dtype and shape.
        extra: Opcodes that are run before the state dict is put together.
        names: Tensors that have the bytes of another one, by name.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        members = [("data.pkl", _state_dict(tensors, extra)), ("byteorder", b"little"), ("version", b"3\n")]
        for key, (name, (dtype, shape)) in enumerate(tensors.items()):
            members.append((f"data/{key}", filled((names or {}).get(name, name), byte_size(dtype, shape) or 0)))
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(f"archive/{name}"), content)  # ZipInfo: a date that does not change
    return buffer.getvalue()


def _state_dict(tensors: Tensors, extra: bytes) -> bytes:
    """Protocol 2, as torch.serialization has it."""
    items = b"".join(_text(name) + _tensor(key, *tensor) for key, (name, tensor) in enumerate(tensors.items()))
    return b"\x80\x02" + extra + _ORDERED_DICT + b"(" + items + b"u."


def _tensor(key: int, dtype: str, shape: tuple[int, ...]) -> bytes:
    elements = 1
    strides: list[int] = []
    for length in reversed(shape):
        strides.insert(0, elements)
        elements *= length
    storage = f"ctorch\n{_STORAGES[dtype]}\n".encode()
    persistent = b"(" + _text("storage") + storage + _text(str(key)) + _text("cpu") + _int(elements) + b"tQ"
    arguments = persistent + _int(0) + _ints(shape) + _ints(strides) + b"\x89" + _ORDERED_DICT
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR"


def _text(text: str) -> bytes:
    encoded = text.encode()
    return b"X" + len(encoded).to_bytes(4, "little") + encoded


def _int(number: int) -> bytes:
    return b"J" + number.to_bytes(4, "little")


def _ints(numbers: tuple[int, ...] | list[int]) -> bytes:
    return b"(" + b"".join(map(_int, numbers)) + b"t"


def called(module: str, name: str, argument: str) -> bytes:
    """Opcodes that call a function with one string, and throw the result away."""
    return f"c{module}\n{name}\n".encode() + _text(argument) + b"\x85R0"
