"""Where the elements of a chunk begin: each is a complete archive of torch.save that holds one tensor.

Opening an archive takes a millisecond, and a checkpoint may have 100,000 of them. But torch writes the same bytes
before the elements of two tensors of one dtype and shape: once one archive has been read in full, the others of its
length whose first bytes are the same, and whose last ones too, have their elements at the same place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from repokit.errors import MalformedFile, UnsupportedSource
from repokit.formats.dcp import Chunk, Entry
from repokit.formats.pickle_values import Opaque
from repokit.formats.torch_file import Opened, open_torch_file
from repokit.formats.torch_tensors import StoredTensor, is_tensor, stored_tensor
from repokit.printable import printable

Read = Callable[[int, int], bytes]

HEAD: Final = 1024  # bytes before the elements of one tensor: 704 of torch 2.13, at most 8 dimensions
MAX_FORMS: Final = 16  # of archives of one length: dtypes and shapes that take the same bytes
TAIL: Final = 98  # the two end records and the locator between them, which torch always writes


class _Form(NamedTuple):
    """What archives of one length have in common whose tensors have one dtype and shape."""

    head: bytes
    tail: bytes
    tensor: StoredTensor


class At(NamedTuple):
    """Where the elements of a chunk are.

    Attributes:
        offset: Of the first one, in bytes from the start of the file.
        strides: Elements from one to the next in each dimension; None where they lie side by side.
    """

    offset: int
    strides: tuple[int, ...] | None


class Chunks:
    """Opens archives in the files of one checkpoint, and remembers their forms."""

    def __init__(self) -> None:
        self._forms: dict[int, list[_Form]] = {}

    def place(self, read: Read, file_size: int, path: str, entry: Entry, chunk: Chunk) -> At:
        """Looks into a chunk.

        Args:
            read: `read(offset, length)` of the file, fewer bytes at its end.
            file_size: Bytes of the file.
            path: Of the file, for messages.
            entry: The tensor that the chunk is a part of.
            chunk: It.

        Raises:
            MalformedFile: The file ends before it, or there is something else in its place.
            UnsupportedSource: It is stored as nothing here reads it.
        """
        if chunk.begin + chunk.length > file_size:
            what = f"is cut off: its part at {list(chunk.offsets)} ends at byte {chunk.begin + chunk.length:,}"
            raise MalformedFile(
                f"{what} of {file_size:,}", why=_LOST, path=path, place=printable(entry.name, 120), hint=_AGAIN
            )
        tensor = self._known(read, chunk) or self._opened(read, path, entry, chunk)
        wanted = (entry.dtype, counted(entry.dtype, chunk.sizes))
        if (tensor.dtype, tensor.shape) != wanted:
            what = f"holds {tensor.dtype} {list(tensor.shape)}, and {wanted[0]} {list(wanted[1])} is to be there"
            raise MalformedFile(what, why=_CONTRADICTS, path=path, place=printable(entry.name, 120))
        return At(chunk.begin + tensor.offset, None if tensor.contiguous else tensor.strides)

    def _known(self, read: Read, chunk: Chunk) -> StoredTensor | None:
        forms = self._forms.get(chunk.length)
        if forms is None:
            return None
        head, tail = read(chunk.begin, min(HEAD, chunk.length)), _tail(read, chunk)
        return next((form.tensor for form in forms if tail == form.tail and head.startswith(form.head)), None)

    def _opened(self, read: Read, path: str, entry: Entry, chunk: Chunk) -> StoredTensor:
        tensor = _open(read, path, entry, chunk)
        forms = self._forms.setdefault(chunk.length, [])
        if tensor.storage_offset <= HEAD and len(forms) < MAX_FORMS:
            forms.append(_Form(read(chunk.begin, tensor.storage_offset), _tail(read, chunk), tensor))
        return tensor


def counted(dtype: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Elements per dimension as a header of safetensors counts them: torch counts F4 in pairs, the bytes."""
    return (*sizes[:-1], sizes[-1] * 2) if dtype == "F4" and sizes else sizes


def _open(read: Read, path: str, entry: Entry, chunk: Chunk) -> StoredTensor:
    """The tensor in an archive, its offsets counted from where the archive begins.

    Raises:
        MalformedFile, UnsupportedSource: Naming the tensor: the path alone says nothing of a file of thousands.
    """
    place = f"{printable(entry.name, 120)}, byte {chunk.begin:,}"

    def within(offset: int, length: int) -> bytes:
        return read(chunk.begin + offset, max(0, min(length, chunk.length - offset)))

    try:
        return _tensor_in(open_torch_file(within, chunk.length, path), entry.name, path)
    except (MalformedFile, UnsupportedSource) as error:
        inner = f": {error.place}" if error.place else ""
        error.place = f"{place}{inner}"
        raise


def _tensor_in(opened: Opened, name: str, path: str) -> StoredTensor:
    value = opened.value
    if not isinstance(value, Opaque) or not is_tensor(value):
        raise MalformedFile("is no tensor", why=_CONTRADICTS, path=path)
    return stored_tensor(name, value, opened.locate, path)


def _tail(read: Read, chunk: Chunk) -> bytes:
    length = min(TAIL, chunk.length)
    return read(chunk.begin + chunk.length - length, length)


_LOST: Final = "a part of the tensor would be missing"
_AGAIN: Final = "copy the checkpoint again"
_CONTRADICTS: Final = ".metadata and this file contradict each other; they are of two checkpoints, or damaged"
