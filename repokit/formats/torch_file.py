"""Checkpoints that torch.save wrote, as tables of tensors: no torch, and nothing in them is run.

Two formats: a zip archive with `data.pkl` and one stored member per storage (torch since 1.6), and five pickles with
the storages behind them (before). Only headers and pickles are read; where a tensor's bytes lie is told by offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

from repokit.errors import MalformedFile, UnsupportedSource
from repokit.formats.inert_pickle import UnreadablePickle, named, unreadable
from repokit.formats.pickle_globals import FoundGlobal, Grade
from repokit.formats.signature import identify, is_tar
from repokit.formats.torch_archive import ends_as_zip, is_zip
from repokit.formats.torch_containers import LeftOut, choose
from repokit.formats.torch_legacy import open_legacy, scan_streams
from repokit.formats.torch_tensors import MAX_EXPANDED, Storage, StoredTensor, is_tensor, stored_tensor
from repokit.formats.torch_zip import Opened, is_pickled, open_zip, pickle_in_array, scan_zip
from repokit.printable import size

__all__ = [
    "FoundGlobal",
    "Grade",
    "LeftOut",
    "Opened",
    "StoredTensor",
    "TorchFile",
    "check_trusted",
    "open_torch_file",
    "read_torch_file",
    "scan",
]

Read = Callable[[int, int], bytes]


class TorchFile(NamedTuple):
    """What a checkpoint holds.

    Attributes:
        path: For messages.
        format: How torch.save wrote it.
        container: Where the tensors were found: keys from the top joined by dots, "" for the top.
        tensors: By name, in the order of the state dict.
        left_out: Every entry of the checkpoint that is none of them.
        globals: Everything that its pickles name.
    """

    path: str
    format: Literal["zip", "legacy"]
    container: str
    tensors: Mapping[str, StoredTensor]
    left_out: tuple[LeftOut, ...]
    globals: tuple[FoundGlobal, ...]

    @property
    def refused(self) -> tuple[FoundGlobal, ...]:
        """Globals for which the file must not be converted, though its tensors can be read."""
        return _executing(self.globals)


def read_torch_file(
    read: Read, file_size: int, path: str, *, container: str | None = None, placed: bool = True
) -> TorchFile:
    """Reads a checkpoint, but none of its tensors' bytes. Call `check_trusted` before anything is made of it.

    Args:
        read: `read(offset, length)` gives the bytes at that place, fewer at the end of the file.
        file_size: Bytes in the whole file.
        path: For messages.
        container: Where the tensors are, if a person has said it.
        placed: Whether the offsets are wanted. They take one small read a storage, which over a network is a request;
            without them every `offset` counts from the beginning of the tensor's storage.

    Raises:
        MalformedFile: It is no checkpoint, cut off, contradicts itself, or runs code and has no tensors besides.
        UnsupportedSource: It is one that this version does not read, or its tensors cannot be published.
    """
    found: tuple[FoundGlobal, ...] = ()
    try:
        opened = _opened(read, file_size, path)
        found = opened.globals
        return _table(opened if placed else opened._replace(locate=_nowhere), path, container)
    except (MalformedFile, UnsupportedSource) as error:
        # An attack is what there is to say, not the shape that it came in.
        check_globals(error.globals if isinstance(error, UnreadablePickle) else found, path)
        raise


def open_torch_file(read: Read, file_size: int, path: str) -> Opened:
    """What torch.load would return, inert: of formats that keep more than a state dict in a file.

    Args:
        read: As of `read_torch_file`.
        file_size: Bytes in the whole file.
        path: For messages.

    Raises:
        MalformedFile: As of `read_torch_file`; or it names what runs code when it is loaded.
        UnsupportedSource: It is one that this version does not read.
    """
    found: tuple[FoundGlobal, ...] = ()
    try:
        opened = _opened(read, file_size, path)
        found = opened.globals
        _check_unchanged(opened, path)
    except (MalformedFile, UnsupportedSource) as error:
        check_globals(error.globals if isinstance(error, UnreadablePickle) else found, path)
        raise
    check_globals(found, path)
    return opened


def _nowhere(_storage: Storage) -> int:
    return 0


def _opened(read: Read, file_size: int, path: str) -> Opened:
    head = _head(read, file_size, path)
    _refuse_tar(head, path)
    if is_zip(head) or (not is_pickled(head) and ends_as_zip(read, file_size)):
        return open_zip(read, file_size, path)
    _refuse_others(head, path)
    return open_legacy(read, file_size, path)


def _refuse_tar(head: bytes, path: str) -> None:
    """A file that is a tar archive, whatever else it is: torch.load tries to read it as one first.

    Raises:
        UnsupportedSource: It is one.
        MalformedFile: It begins as something else as well, which is all that other readers then see.
    """
    if not is_tar(head):
        return
    if is_pickled(head):
        raise MalformedFile("is a pickle and a tar archive", why=_TWO_WAYS, path=path)
    raise UnsupportedSource("is a tar archive, as torch before 0.1.10 wrote it", hint=_HINT_TORCH, path=path)


_TWO_WAYS: Final = "torch.load then runs the pickle inside the archive; what can be seen here says nothing about it"


def _head(read: Read, file_size: int, path: str) -> bytes:
    if head := read(0, min(512, file_size)):
        return head
    raise MalformedFile("is empty", why="there is nothing to load", path=path)


def _check_unchanged(opened: Opened, path: str) -> None:
    if any(map(is_tensor, opened.changed)):
        what = "changes a tensor after it was made, which torch.save never does"
        raise MalformedFile(what, why="its values are not those of its storage", path=path)


def _table(opened: Opened, path: str, container: str | None) -> TorchFile:
    _check_unchanged(opened, path)
    chosen = choose(opened.value, path, container)
    tensors: dict[str, StoredTensor] = {}
    expanded = 0
    for name, value in chosen.tensors:
        tensors[name] = tensor = stored_tensor(name, value, opened.locate, path)
        if not tensor.contiguous and tensor.size > tensor.span:
            expanded += tensor.size
    if expanded > MAX_EXPANDED:
        what = f"holds views that repeat their elements and take {size(expanded)} written out"
        raise MalformedFile(what, why="no model is made of repetitions", path=path)
    return TorchFile(path, opened.format, chosen.container, tensors, chosen.left_out, opened.globals)


_HINT_TORCH: Final = "load it with the software that wrote it and save the weights as safetensors"
_FORMATS: Final = (
    (0, b"\x89PNG", "is a PNG image"),
    (0, b"\x89HDF\r\n\x1a\n", "is an HDF5 file, as Keras writes it"),
    (0, b"GGUF", "is a GGUF file, not a checkpoint of torch"),
    (0, b"7z\xbc\xaf\x27\x1c", "is a 7z archive: unpack it first"),
    (0, b"\x1f\x8b", "is gzip-compressed: unpack it first"),
    (0, b"\x93NUMPY", "is a NumPy array"),
)


def _refuse_others(head: bytes, path: str, error: type[MalformedFile | UnsupportedSource] = UnsupportedSource) -> None:
    """Names what is no pickle at all, by its first bytes.

    Raises:
        MalformedFile: It is no checkpoint of any kind.
        UnsupportedSource: It is one of another kind; or `error` in its place.
    """
    if head[8:9] == b"{" and head[5:8] == b"\x00\x00\x00":
        raise MalformedFile("is a safetensors file under another name", hint="rename it to .safetensors", path=path)
    for position, signature, what in _FORMATS:
        if head.startswith(signature, position):
            raise error(what, hint=_HINT_TORCH, path=path)
    guess = identify(head)
    if guess and "pickle" not in guess:
        raise MalformedFile(f"is {guess}", why="there is nothing to load", path=path)


def check_trusted(file: TorchFile) -> None:
    """Stops before a file is converted that carries an attack, also where its tensors can be read without it.

    Raises:
        MalformedFile: It names what runs code when it is loaded.
    """
    check_globals(file.globals, file.path)


def check_globals(found: tuple[FoundGlobal, ...], path: str) -> None:
    """Refuses what a pickle names if it can run code.

    Raises:
        MalformedFile: It can.
    """
    if not (bad := _executing(found)):
        return
    what = f"names {named(bad)}, which can run code when the file is loaded"
    place = f"{bad[0].member}: byte {bad[0].position:,}" if bad[0].member else f"byte {bad[0].position:,}"
    raise unreadable(what, found, why=_ATTACK, hint=_ASK, path=path, place=place)


_ATTACK: Final = "a state dict needs no such thing; whoever loads the file runs what its author wanted"
_ASK: Final = "get the weights as safetensors from their author, or find out what put it there"


def _executing(found: tuple[FoundGlobal, ...]) -> tuple[FoundGlobal, ...]:
    return tuple(one for one in found if one.grade is Grade.EXECUTES)


def scan(read: Read, file_size: int, path: str) -> tuple[FoundGlobal, ...]:
    """Everything that the pickles of a file name: of a zip archive, a legacy checkpoint or a plain pickle.

    Raises:
        UnreadablePickle: It cannot be read to its end; its `globals` are what was found until there.
        MalformedFile: It holds no pickle, or is an archive that readers read differently.
    """
    head = _head(read, file_size, path)
    if is_tar(head):
        what = "is a pickle and a tar archive" if is_pickled(head) else "is a tar archive"
        raise MalformedFile(what, why=_TWO_WAYS, path=path)
    if is_zip(head):
        return scan_zip(read, file_size, path)
    try:
        return scan_streams(read, file_size, path, start=pickle_in_array(head) or 0)
    except UnreadablePickle as error:
        if not error.globals:
            _refuse_others(head, path, MalformedFile)
            if ends_as_zip(read, file_size):
                return scan_zip(read, file_size, path)
        raise
