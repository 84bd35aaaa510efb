"""The staging directory and the atomic publish.

Until the last step the target is what it was; after it, the target is whole. A build that was killed leaves a staging
directory beside the target, which the next build of the same plan goes on with and any other build removes.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from repokit.errors import BuildError, NoSpace, TargetRefused
from repokit.operations import KEPT
from repokit.printable import printable, size, some
from repokit.schema.manifest import MANIFEST_NAME, Manifest, ManifestFile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_SMALL: Final = 16 * 1024 * 1024  # files up to this are hashed to see whether a person edited them
_RENAME_EXCHANGE: Final = 2  # linux/fs.h
_AT_FDCWD: Final = -100  # fcntl.h
# Errors with which a file system or system says that it has no such rename. NFS, SMB and 9p say EINVAL, FUSE ENOSYS,
# overlayfs EXDEV; EPERM: a sandbox that knows not the call.
_NO_EXCHANGE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV, errno.EPERM})
# And with which some refuse to sync a directory (SMB, FUSE): they need no sync, or have none.
_NO_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF})
_NOT_RENAMED: Final = "it is a mount point, part of a container image, or in use: choose another output"
_MARGIN: Final = 1.05  # of free space: directories and the journal need some too


def staging_path(target: Path, digest: str) -> Path:
    """Where a plan is executed: beside the target, so that publishing is a rename on one file system."""
    return target.parent / f".{target.name}.repokit-{digest[:16]}"


def tasks_path(target: Path, digest: str) -> Path:
    """Where the tasks of a plan keep their journals and locks: beside the staging directory, which is linted."""
    return target.parent / f".{target.name}.repokit-{digest[:16]}.tasks"


def left_by(target: Path, ending: str = "") -> list[Path]:
    """What builds of this target left beside it: staging directories, and with `.tasks` those of their tasks."""
    # Not a glob: the name may hold its special characters. Not `startswith`: another target may be called
    # `NAME.repokit-2`, and have a staging directory of its own.
    left = re.compile(re.escape(f".{target.name}.repokit-") + r"[0-9a-f]{16}" + re.escape(ending))
    return sorted(path for path in target.parent.iterdir() if left.fullmatch(path.name))


def clean(target: Path, keep: Collection[Path] = ()) -> None:
    """Removes what interrupted builds of this target left. Only under the lock, and while no task of it runs."""
    for path in (*left_by(target), *left_by(target, ".tasks")):
        if path not in keep:
            _removed(path)
    restore(target)
    remove(_aside(target), target)


def is_aside(target: Path) -> bool:
    """Whether a build was killed between the two renames of a publish, and the target is not where it belongs."""
    return os.path.lexists(_aside(target)) and not os.path.lexists(target)


def restore(target: Path) -> None:
    """Puts it back. Only under the lock."""
    if is_aside(target):
        _rename(_aside(target), target)


def remove(path: Path, target: Path) -> None:
    """Takes a directory away that a build of this target left or replaced; of a link, the link.

    A network file system keeps files that another process has open (NFS as `.nfsXXXX`), and their folder with them:
    what cannot be removed gets the name of a stale staging directory, and waits for the next build to try again.
    """
    if not _removed(path):
        with contextlib.suppress(OSError):
            _rename(path, target.parent / f".{target.name}.repokit-{secrets.token_hex(8)}")


def _removed(path: Path) -> bool:
    """Whether a directory or link is gone. Tried twice: what fails once on a network often does not fail again."""
    for _ in range(2):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
        if not os.path.lexists(path):
            return True
    return False


def _rename(path: Path, wanted: Path) -> None:
    """Renames; interrupted, as it can be on a network, it is tried again."""
    while True:
        try:
            path.rename(wanted)
        except InterruptedError:
            continue
        return


def check_target(target: Path, *, force: bool, kept: Collection[str] = ()) -> None:
    """Refuses to replace what repokit did not build, or what a person changed since.

    Args:
        target: The output.
        force: Replace a directory whatever is in it.
        kept: Paths in it that the plan carries over.

    Raises:
        TargetRefused: With the files in question.
        BuildError: It cannot be read.
    """
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_dir():
        what = "is a link" if target.is_symlink() else "is there and is not a directory"
        raise TargetRefused(what, path=str(target), hint="choose another output, or name what the link leads to")
    if target.is_mount():
        why = "a build replaces its output in one step, and a mount point cannot be renamed"
        raise TargetRefused("is a mount point", why=why, path=str(target), hint=f"name a folder in it: {target}/NAME")
    if not force:
        try:
            _check_unchanged(target, kept)
        except OSError as error:
            what = f"cannot be read: {error.strerror}"
            raise BuildError(what, path=printable(error.filename or target)) from None


def _check_unchanged(target: Path, kept: Collection[str]) -> None:
    present = sorted(files_in(target))
    if not present:
        return
    manifest = manifest_of(target)
    if manifest is None:
        why = f"it has no {MANIFEST_NAME}; replacing it would delete files that may not be repokit's"
        hint = "choose another output, or pass --force to replace it"
        raise TargetRefused("was not built by repokit", why=why, path=str(target), hint=hint)
    listed = {file.path: file for file in manifest.files}
    added = [path for path in present if path not in listed and path != MANIFEST_NAME]
    edited = [path for path in present if path in listed and _edited(target, listed[path])]
    if changed := [path for path in [*edited, *added] if path not in kept]:
        verb = "was" if len(changed) == 1 else "were"
        what = f"{some(changed)} {verb} edited or added since repokit built it"
        hint = f"--keep {printable(changed[0])} carries a file over, --force discards what changed"
        raise TargetRefused(what, why="a rebuild would lose the change", path=str(target), hint=hint)


def files_in(directory: Path) -> Iterator[str]:
    """Every file and link, at any depth.

    Raises:
        OSError: A folder cannot be listed: it may hold a person's files.
    """
    for folder, folders, files in os.walk(directory, onerror=_raise):
        links = (name for name in folders if (Path(folder) / name).is_symlink())
        for name in (*files, *links):
            yield (Path(folder) / name).relative_to(directory).as_posix()


def _raise(error: OSError) -> NoReturn:
    raise error


def manifest_of(target: Path) -> Manifest | None:
    """The manifest of what repokit built there; None where there is none."""
    try:
        return Manifest.model_validate_json((target / MANIFEST_NAME).read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def _edited(target: Path, recorded: ManifestFile) -> bool:
    if recorded.origin == KEPT:  # a person's, carried over by the build before: it stays theirs
        return True
    if (target / recorded.path).is_symlink():
        return True
    status = (target / recorded.path).stat()
    if status.st_size != recorded.size:
        return True
    untouched = status.st_mtime_ns <= (target / MANIFEST_NAME).stat().st_mtime_ns
    if recorded.size > _SMALL and untouched:
        return False
    with (target / recorded.path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() != recorded.sha256


def check_space(target: Path, needed: int) -> None:
    """Refuses before the first byte what the disk cannot hold.

    Args:
        target: The output; its folder exists.
        needed: Bytes that will be written.

    Raises:
        NoSpace: With how much is missing.
    """
    free = shutil.disk_usage(target.parent).free
    wanted = int(needed * _MARGIN)
    if free < wanted:
        what = f"needs {size(wanted)} and the disk has {size(free)} free"
        raise NoSpace(what, path=str(target.parent), hint=f"free {size(wanted - free)}, or choose another output")


def publish(staging: Path, target: Path) -> None:
    """Puts a finished staging directory in the place of the target, atomically where the system can.

    Raises:
        BuildError: The file system refused; the target is as it was.
    """
    try:
        _give_usual_mode(staging)
        for folder, _, _ in os.walk(staging, onerror=_raise):
            _sync_directory(Path(folder))
        _replace(target, staging)
    except OSError as error:
        hint = _NOT_RENAMED if error.errno in {errno.EBUSY, errno.EXDEV} else None
        raise BuildError(f"cannot be put into place: {error.strerror}", path=str(target), hint=hint) from None
    with contextlib.suppress(OSError):  # the target is whole; a power cut may still bring the old one back
        _sync_directory(target.parent)
    for old in (staging, _aside(target)):
        remove(old, target)


def _replace(target: Path, staging: Path) -> None:
    """Puts the staging directory in the place of the target; where that fails, the target is back in its place."""
    if not os.path.lexists(target):
        _rename(staging, target)
    elif not _exchanged(staging, target):
        aside = _aside(target)
        _rename(target, aside)
        try:
            _rename(staging, target)
        except BaseException:
            if not os.path.lexists(target):
                _rename(aside, target)
            raise


def _aside(target: Path) -> Path:
    return target.parent / f".{target.name}.repokit.old"


def _give_usual_mode(staging: Path) -> None:
    """Directories of the staging tree get what the umask gives; the staging directory itself was private."""
    probe = staging / ".mode"
    with contextlib.suppress(FileNotFoundError):
        probe.rmdir()  # left by one that was killed here
    probe.mkdir()
    mode = probe.stat().st_mode
    probe.rmdir()
    staging.chmod(mode)


def _exchanged(one: Path, other: Path) -> bool:
    """Whether the two directories changed places in one step (renameat2, Linux 3.15; not on every file system)."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    while call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        code = ctypes.get_errno()
        if code in _NO_EXCHANGE:
            return False
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))
    return True


def write_synced(path: Path, content: bytes) -> None:
    """Writes a small file that is on the disk when this returns."""
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)
