"""Carries operations out in the directory that they are about: all of them, or none, but for a deletion that fails.

Every new file is written beside the one that it replaces, and synced; then all are renamed, then what is to go is
deleted. Until the first rename the directory is what it was, and where a rename fails it is put back: a second name of
the old file is kept until the last one is done.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from repokit.errors import BuildError, InternalError, LockHeld, NoSpace, PlanError, TargetRefused
from repokit.operations import CopyFile, DeleteFile, Piece, WriteShard, WriteText
from repokit.printable import printable, size
from repokit.repo.overlay import Assembled
from repokit.repo.source import NOT_CONTENT

if TYPE_CHECKING:
    from repokit.operations import Operation
    from repokit.repo.overlay import Overlay

_CHUNK: Final = 1024 * 1024  # as of a build (builder/reading.py), where larger ones were measured to be slower
_MARGIN: Final = 1.05  # of free space: directories need some too
# Of files that are being written, and of second names: whatever of them is there under the lock was left behind.
_OWN: Final = re.compile(r"\..+\.repokit-fix-[0-9a-f]{8}")
_WITHOUT_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})  # as in builder/execution/locking.py


@dataclass(frozen=True, slots=True)
class Stamp:
    """By what a changed file is known.

    Attributes:
        path: In the directory.
        size: Bytes.
        mtime_ns: When it was written.
    """

    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Changes:
    """What is to be done in a directory.

    Attributes:
        operations: Sorted by path.
        sources: The files that they read, replace or delete, as they were when they were looked at. Pieces of shards
            name them by number.
    """

    operations: tuple[Operation, ...]
    sources: tuple[Stamp, ...]

    @property
    def size(self) -> int:
        """Bytes that will be written."""
        return sum(operation.size for operation in self.operations if not isinstance(operation, DeleteFile))


def stamps(root: Path, paths: Sequence[str]) -> dict[str, Stamp]:
    """What files are known by; those that cannot be looked at are left out."""
    found: dict[str, Stamp] = {}
    for path in paths:
        with contextlib.suppress(OSError):
            status = (root / path).lstat()
            found[path] = Stamp(path, status.st_size, status.st_mtime_ns)
    return found


def changes(overlay: Overlay, known: Mapping[str, Stamp]) -> Changes:
    """What turns the source below an overlay into it.

    Args:
        overlay: What is to be.
        known: Stamps of the files below, taken before the first of them was read.
    """
    touched = set(overlay.changed)
    for content in overlay.changed.values():
        if isinstance(content, Assembled):
            touched |= {part.path for part in content.ranges}
    sources = tuple(known[path] for path in sorted(touched) if path in known)
    numbers = {source.path: number for number, source in enumerate(sources)}
    return Changes(tuple(_operations(overlay, numbers)), sources)


def _operations(overlay: Overlay, numbers: dict[str, int]) -> Iterator[Operation]:
    for path, content in overlay.changed.items():
        match content:
            case None:
                yield DeleteFile(path=path)
            case bytes():
                yield WriteText(path=path, content=content, origin="fix")
            case Assembled(header, ranges):
                pieces = (Piece(source=numbers[part.path], offset=part.offset, length=part.length) for part in ranges)
                yield WriteShard(path=path, header=header, pieces=tuple(pieces), size=content.size)


# ---------------------------------------------------------------- before


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Keeps other fixes away from a directory, and takes away what one that was killed left in it.

    Raises:
        LockHeld: Another one is at work.
        BuildError: The directory cannot be opened.
    """
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise BuildError(f"cannot be opened: {error.strerror}", path=str(root)) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
                hint = "wait for it to end"
                raise LockHeld("is being fixed by another process", path=str(root), hint=hint) from None
            if error.errno not in _WITHOUT_LOCKS:
                raise BuildError(f"cannot be locked: {error.strerror}", path=str(root)) from None
        yield
    finally:
        os.close(descriptor)


def clean(root: Path) -> None:
    """Removes what a fix that was killed left. Only under the lock."""
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in NOT_CONTENT]
        for name in names:
            if _OWN.fullmatch(name):
                with contextlib.suppress(OSError):
                    (Path(folder) / name).unlink()


def check(root: Path, planned: Changes) -> None:
    """Refuses before the first byte what must not, or cannot, be done in this directory.

    Raises:
        TargetRefused: A file is reached through a link: what it leads to may be others' too.
        PlanError: A file has changed since it was looked at.
        NoSpace: The disk is too small.
        InternalError: A path leads out of the directory.
    """
    for operation in planned.operations:
        if isinstance(operation, CopyFile):
            raise InternalError("a fix copies no files", path=operation.path)
        _refuse_links(root, operation)
    _check_stamps(root, planned)
    free = shutil.disk_usage(root).free
    needed = int(planned.size * _MARGIN)
    if planned.size and free < needed:
        hint = f"free {size(needed - free)}; the old files stay until the new ones are written"
        raise NoSpace(f"needs {size(needed)} and the disk has {size(free)} free", path=str(root), hint=hint)


def _refuse_links(root: Path, operation: Operation) -> None:
    parts = Path(operation.path).parts
    if not parts or Path(operation.path).is_absolute() or ".." in parts:
        raise InternalError("a fix leads out of the directory", path=operation.path)
    places = [root.joinpath(*parts[:length]) for length in range(1, len(parts) + 1)]
    # To delete a link touches nothing of what it leads to; in a cache it still takes a file from every other user.
    looked_at = places[:-1] if isinstance(operation, DeleteFile) and not _in_a_cache(root) else places
    for place in looked_at:
        if place.is_symlink():
            leads_to = printable(str(place.readlink()))
            why = "what it leads to may be used by others: the cache of the Hub, or another directory"
            hint = f"fix a copy: cp -rL {printable(str(root))} COPY && repokit lint COPY --fix"
            path = place.relative_to(root).as_posix()
            raise TargetRefused(f"is a link to {leads_to}; nothing was changed", why=why, path=path, hint=hint)


def _in_a_cache(root: Path) -> bool:
    """Whether the directory is a snapshot in the cache of huggingface_hub."""
    real = Path(os.path.realpath(root))
    return real.parent.name == "snapshots" and (real.parent.parent / "blobs").is_dir()


def _check_stamps(root: Path, planned: Changes) -> None:
    """Whether every file is what was looked at, and no new one is in the way."""
    seen = {source.path for source in planned.sources}
    for source in planned.sources:
        if stamps(root, [source.path]).get(source.path) != source:
            raise _moved("has changed since it was checked", source.path)
    for operation in planned.operations:
        if operation.path not in seen and os.path.lexists(root / operation.path):
            raise _moved("has appeared since the directory was listed", operation.path)


def _moved(what: str, path: str) -> PlanError:
    hint = "let whatever writes there finish, then run it again"
    return PlanError(f"{what}; nothing was changed", path=path, hint=hint)


# ---------------------------------------------------------------- the work


def execute(root: Path, planned: Changes) -> None:
    """Carries everything out, or nothing. Under the lock, after `check`.

    Raises:
        BuildError: The disk is full, or the file system refused; the directory is as it was, and where a
            deletion alone failed, the message says so.
        PlanError: A file changed meanwhile.
    """
    written: list[tuple[Path, Path]] = []  # where the new content is, and where it belongs
    made: list[Path] = []
    try:
        for operation in planned.operations:
            if isinstance(operation, WriteText | WriteShard):
                made += _made_folders(root, operation.path)
                written.append((_temporary(root / operation.path), root / operation.path))
                _write(root, operation, planned, written[-1][0])
        _check_stamps(root, planned)
        with _undone_on_failure([place for _, place in written]):
            for temporary, place in written:
                temporary.replace(place)
        made.clear()
    except OSError as error:
        raise _explained(error, root, planned) from None
    finally:
        for temporary, _ in written:
            temporary.unlink(missing_ok=True)
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()
    _delete(root, planned)


def _delete(root: Path, planned: Changes) -> None:
    folders = {(root / operation.path).parent for operation in planned.operations}
    for operation in planned.operations:
        if isinstance(operation, DeleteFile):
            try:
                (root / operation.path).unlink()
            except OSError as error:
                hint = "the other changes are made: delete it by hand"
                raise BuildError(f"cannot be deleted: {error.strerror}", path=operation.path, hint=hint) from None
    for folder in folders:
        _sync(folder)
    for operation in planned.operations:
        if isinstance(operation, DeleteFile):
            _remove_empty(root, Path(operation.path).parent)


def _remove_empty(root: Path, folder: Path) -> None:
    """Folders that have lost their last file; Git and the Hub know of no empty ones."""
    for path in (folder, *folder.parents):
        if path == Path():
            return
        try:
            (root / path).rmdir()
        except OSError:  # something is in it
            return


def _made_folders(root: Path, path: str) -> list[Path]:
    """Makes the folders of a new file; the outermost first."""
    missing = [folder for folder in (root / path).parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir()
    return missing[::-1]


def _temporary(place: Path) -> Path:
    """A name beside a file: a rename within a folder stays on one file system."""
    return place.with_name(f".{place.name[:50]}.repokit-fix-{secrets.token_hex(4)}")


def _write(root: Path, operation: WriteText | WriteShard, planned: Changes, temporary: Path) -> None:
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        for content in _contents(root, operation, planned):
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
        _take_over(root / operation.path, descriptor)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _take_over(replaced: Path, descriptor: int) -> None:
    """Owner and mode of the file that is replaced; a new file has those that the system gives it."""
    with contextlib.suppress(FileNotFoundError):
        status = replaced.stat()
        with contextlib.suppress(OSError):  # only root gives files away
            os.fchown(descriptor, status.st_uid, status.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))


def _contents(root: Path, operation: WriteText | WriteShard, planned: Changes) -> Iterator[bytes]:
    if isinstance(operation, WriteText):
        yield operation.content
        return
    yield operation.header
    for piece in operation.pieces:
        assert isinstance(piece, Piece)  # noqa: S101 - a fix puts nothing together
        yield from _streamed(root, planned.sources[piece.source].path, piece)


def _streamed(root: Path, path: str, piece: Piece) -> Iterator[bytes]:
    """Reads with pread: mapped pages would count as our memory."""
    descriptor = os.open(root / path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        position, end = piece.offset, piece.offset + piece.length
        while position < end:
            chunk = os.pread(descriptor, min(_CHUNK, end - position), position)
            if not chunk:
                raise _moved("has become shorter since it was checked", path)
            yield chunk
            position += len(chunk)
    finally:
        os.close(descriptor)


@contextmanager
def _undone_on_failure(places: Sequence[Path]) -> Iterator[None]:
    """Puts the old files back where one of several renames fails: they keep a second name until all are done."""
    new = [place for place in places if not os.path.lexists(place)]
    kept = {place: name for place in places if (name := _second_name(place)) is not None}
    try:
        yield
    except BaseException:
        for place in new:
            place.unlink(missing_ok=True)
        for place, old in kept.items():
            old.replace(place)
        raise
    finally:
        for old in kept.values():  # a rename onto another name of the same file does nothing, and leaves both
            old.unlink(missing_ok=True)


def _second_name(place: Path) -> Path | None:
    """A hard link to a file; None where there is no such file, or the file system has no links."""
    name = _temporary(place)
    try:
        os.link(place, name, follow_symlinks=False)
    except OSError:
        return None
    return name


def _sync(folder: Path) -> None:
    """The new names are on the disk when this returns; some network file systems have no such call."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _explained(error: OSError, root: Path, planned: Changes) -> BuildError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        what = f"did not fit on the disk: it needs {size(planned.size)}; nothing was changed"
        return NoSpace(what, path=str(root), hint="free some, or fix a copy elsewhere")
    where = printable(error.filename or root)
    return BuildError(f"cannot be written: {printable(error.strerror)}; nothing was changed", path=where)
