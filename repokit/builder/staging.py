"""The lock, the staging directory and the atomic publish.

Until the last step the target is what it was; after it, the target is whole. A build that was killed leaves a staging
directory beside the target, which the next build of the same plan goes on with and any other build removes.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from repokit.errors import BuildError, LockHeld, NoSpace, TargetRefused
from repokit.operations import KEPT
from repokit.printable import printable, size, some
from repokit.schema.manifest import MANIFEST_NAME, Manifest, ManifestFile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_SMALL: Final = 16 * 1024 * 1024  # files up to this are hashed to see whether a person edited them
_RENAME_EXCHANGE: Final = 2  # linux/fs.h
_AT_FDCWD: Final = -100  # fcntl.h
_MARGIN: Final = 1.05  # of free space: directories and the journal need some too


@contextlib.contextmanager
def lock(target: Path) -> Iterator[None]:
    """Holds the lock of a target; the file vanishes with it.

    Raises:
        LockHeld: Another process holds it, which the message names.
        BuildError: The folder of the target cannot be written to.
    """
    path = target.parent / f".{target.name}.repokit.lock"
    descriptor = _locked(path, target)
    try:
        with contextlib.suppress(OSError):  # on a full disk the lock holds all the same, it only has no name in it
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(path: Path, target: Path) -> int:
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise BuildError(f"cannot be written to: {error.strerror}", path=str(path.parent)) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            what = f"is being built by process {printable(holder) or '(unknown)'}"
            raise LockHeld(what, path=str(target), hint="wait for it, or stop it") from None
        except OSError as error:  # a network file system without locks
            os.close(descriptor)
            raise BuildError(f"cannot be locked: {error.strerror}", path=str(path)) from None
        # The holder before us unlinks the file: a lock on a file that is no longer there protects nothing.
        with contextlib.suppress(OSError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)


def staging_path(target: Path, digest: str) -> Path:
    """Where a plan is executed: beside the target, so that publishing is a rename on one file system."""
    return target.parent / f".{target.name}.repokit-{digest[:16]}"


def clean(target: Path, keep: Path | None = None) -> None:
    """Removes what interrupted builds of this target left. Only under the lock."""
    # Not a glob: the name may hold its special characters. Not `startswith`: another target may be called
    # `NAME.repokit-2`, and have a staging directory of its own.
    left = re.compile(re.escape(f".{target.name}.repokit-") + r"[0-9a-f]{16}")
    for path in sorted(target.parent.iterdir()):
        if left.fullmatch(path.name) and path != keep:
            _remove(path)
    aside = _aside(target)
    if os.path.lexists(aside) and not os.path.lexists(target):  # killed between the two renames of a publish
        aside.rename(target)
    _remove(aside)


def _remove(path: Path) -> None:
    """Removes a directory; of a link, the link."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


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
    if not force:
        try:
            _check_unchanged(target, kept)
        except OSError as error:
            what = f"cannot be read: {error.strerror}"
            raise BuildError(what, path=printable(error.filename or target)) from None


def _check_unchanged(target: Path, kept: Collection[str]) -> None:
    files = (path for path in target.rglob("*") if path.is_symlink() or not path.is_dir())
    present = sorted(path.relative_to(target).as_posix() for path in files)
    if not present:
        return
    manifest = _manifest(target)
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


def _manifest(target: Path) -> Manifest | None:
    try:
        return Manifest.model_validate_json((target / MANIFEST_NAME).read_bytes())
    except (OSError, ValueError):
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
        for folder, _, _ in os.walk(staging):
            _sync_directory(Path(folder))
        _replace(target, staging)
    except OSError as error:
        raise BuildError(f"cannot be put into place: {error.strerror}", path=str(target)) from None
    with contextlib.suppress(OSError):  # the target is whole; a power cut may still bring the old one back
        _sync_directory(target.parent)
    for old in (staging, _aside(target)):
        _remove(old)


def _replace(target: Path, staging: Path) -> None:
    """Puts the staging directory in the place of the target; where that fails, the target is back in its place."""
    if not os.path.lexists(target):
        staging.rename(target)
    elif not _exchanged(staging, target):
        target.rename(_aside(target))
        try:
            staging.rename(target)
        except OSError:
            _aside(target).rename(target)
            raise


def _aside(target: Path) -> Path:
    return target.parent / f".{target.name}.repokit.old"


def _give_usual_mode(staging: Path) -> None:
    """Directories of the staging tree get what the umask gives; the staging directory itself was private."""
    probe = staging / ".mode"
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
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM}:  # EPERM: a sandbox that knows not the call
        return False
    raise OSError(code, os.strerror(code))


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
    finally:
        os.close(descriptor)
