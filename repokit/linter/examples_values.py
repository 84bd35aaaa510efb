"""Changes to the values of tensors in a .safetensors file, for examples; the header stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from repokit.formats.safetensors import read_header
from repokit.formats.tensors import DTYPE_BITS

if TYPE_CHECKING:
    from repokit.formats.tensors import TensorInfo

Values = Callable[["TensorInfo", bytes], bytes]  # new bytes of a tensor, as many as it had

NAN: Final = {"F32": b"\x00\x00\xc0\x7f", "F16": b"\x00\x7e", "BF16": b"\xc0\x7f", "F8_E4M3": b"\x7f"}
INFINITY: Final = {"F32": b"\x00\x00\x80\x7f", "F16": b"\x00\x7c", "BF16": b"\x80\x7f"}


def valued(values: Values, *names: str) -> Callable[[bytes], bytes]:
    """A change to the values of some tensors; names may be ends of names: `.lora_B.weight`."""

    def change(content: bytes) -> bytes:
        header = read_header(lambda offset, length: content[offset : offset + length], len(content), "example")
        edited = bytearray(content)
        for tensor in header.tensors:
            if tensor.name.endswith(names):
                place = slice(header.data_start + tensor.begin, header.data_start + tensor.end)
                edited[place] = values(tensor, bytes(edited[place]))
        return bytes(edited)

    return change


def zeroed(*names: str) -> Callable[[bytes], bytes]:
    """A change after which tensors hold only zeros."""
    return valued(lambda tensor, _: bytes(tensor.size), *names)


def zero_rows(start: int, stop: int, *names: str) -> Callable[[bytes], bytes]:
    """A change after which rows of matrices are zero, in eighths of all of their rows."""

    def values(tensor: TensorInfo, content: bytes) -> bytes:
        row = tensor.size // tensor.shape[0]
        begin, end = (eighths * tensor.shape[0] // 8 * row for eighths in (start, stop))
        return content[:begin] + bytes(end - begin) + content[end:]

    return valued(values, *names)


def zero_row(row: int, *names: str) -> Callable[[bytes], bytes]:
    """A change after which one row of matrices is zero."""

    def values(tensor: TensorInfo, content: bytes) -> bytes:
        length = tensor.size // tensor.shape[0]
        return content[: row * length] + bytes(length) + content[(row + 1) * length :]

    return valued(values, *names)


def planted(bits: dict[str, bytes], element: int, *names: str) -> Callable[[bytes], bytes]:
    """A change after which one element has these bits, by dtype."""

    def values(tensor: TensorInfo, content: bytes) -> bytes:
        width = DTYPE_BITS[tensor.dtype] // 8
        return content[: element * width] + bits[tensor.dtype] + content[(element + 1) * width :]

    return valued(values, *names)


def copied(source: str, target: str) -> Callable[[bytes], bytes]:
    """A change after which one tensor has the values of another one of the same size."""

    def change(content: bytes) -> bytes:
        header = read_header(lambda offset, length: content[offset : offset + length], len(content), "example")
        taken = next(tensor for tensor in header.tensors if tensor.name == source)
        data = content[header.data_start + taken.begin : header.data_start + taken.end]
        return valued(lambda *_: data, target)(content)

    return change


def one_after_another(*changes: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Several changes of one file, as one."""

    def change(content: bytes) -> bytes:
        for each in changes:
            content = each(content)
        return content

    return change
