"""The lock of a target: one build at a time, also on file systems that have no locks.

flock goes with its process, however that ends, and is what nearly every file system has. Where it is refused (NFS
without a lock daemon, Lustre mounted without `flock`), a file that only one process can create stands in for it. It
says who created it, because it stays behind where that process is killed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, NoReturn, Self

from repokit.errors import BuildError, LockHeld
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

# What flock(2) answers where the file system has no locks: NFS ENOLCK, Lustre ENOSYS, FUSE and others EOPNOTSUPP.
_WITHOUT_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
# A process that has just taken the lock has not yet written its name, or that of the process before it stands there.
_PATIENCE: Final = 50  # times
_PAUSE: Final = 0.01  # seconds
_LONGEST: Final = 1000  # bytes of a lock file that are read
BUILT: Final = "is being built"


class Holder(NamedTuple):
    """Who holds a lock.

    Attributes:
        pid: A process.
        machine: The running system in which that number means this process.
        host: Its name, for people.
    """

    pid: int
    machine: str
    host: str

    @classmethod
    def here(cls) -> Self:
        """This process."""
        return cls(os.getpid(), _machine(), socket.gethostname() or "localhost")

    @classmethod
    def parsed(cls, content: bytes) -> Self | None:
        """What a lock file says; None where it says nothing that a build writes."""
        fields = content.decode(errors="replace").split()
        if len(fields) != 3 or not fields[0].isdecimal() or not 0 < int(fields[0]) < 2**31:
            return None
        return cls(int(fields[0]), fields[1], fields[2])

    def written(self) -> bytes:
        return f"{self.pid} {self.machine} {self.host}\n".encode()

    @property
    def gone(self) -> bool:
        """Whether the process has certainly ended: only on its own machine can that be told."""
        if self.machine != _machine() or self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:  # it runs, as another user
            return False
        return False

    def __str__(self) -> str:
        elsewhere = "" if self.host == socket.gethostname() else f" on {self.host}"
        return printable(f"process {self.pid}{elsewhere}")


def _machine() -> str:
    """The boot of the system, and the numbering of processes in it: containers have one each."""
    parts = []
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return ":".join(parts) or "-"


class _Claim(NamedTuple):
    """What a lock is of, and what its holder does: `is being built`."""

    target: Path
    doing: str


def path_of(target: Path) -> Path:
    """Where the lock of a target lies."""
    return target.parent / f".{target.name}.repokit.lock"


@contextlib.contextmanager
def lock(target: Path, part: Path | None = None, doing: str = BUILT) -> Iterator[None]:
    """Holds the lock of a target; its file vanishes with it.

    Args:
        target: What is built; named where the lock is refused.
        part: The lock of a part of its build, held instead of that of the whole.
        doing: What its holder does, for whom it is refused.

    Raises:
        LockHeld: Another process holds it, which the message names.
        BuildError: The folder of the lock cannot be written to.
    """
    path = part or path_of(target)
    claim = _Claim(target, doing)
    descriptor = _locked(path, claim)
    if descriptor is None:
        with _created(path, claim):
            yield
        return
    try:
        place = _stand_in(path)
        while os.path.lexists(place):  # created while the file system had no locks
            _take_over(place, claim)
        with contextlib.suppress(OSError):  # on a full disk the lock holds all the same, it only has no name in it
            os.ftruncate(descriptor, 0)
            os.write(descriptor, Holder.here().written())
        yield
    finally:
        _unlink(path)
        os.close(descriptor)


def refuse_held(path: Path, target: Path, doing: str = BUILT) -> None:
    """Looks whether a lock is held, and does not take it. For the arguments see `lock`.

    Two that exclude each other by two locks each take their own first, then look at the other's: then at least one of
    them sees the other.

    Raises:
        LockHeld: By another process, which the message names.
    """
    claim = _Claim(target, doing)
    patience = _PATIENCE
    while (holder := _flocked(path)) is not False:
        if not patience or (holder is not None and not holder.gone):
            _refuse(claim, holder, hint="wait for it, or stop it")
        patience -= 1
        time.sleep(_PAUSE)
    _is_stale(_stand_in(path), claim)


def _flocked(path: Path) -> Holder | Literal[False] | None:
    """Who has locked a file; None where that is not written there, False where nobody has."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _written_in(descriptor)
    except OSError:  # no locks here
        return False
    finally:
        os.close(descriptor)
    return False


def _locked(path: Path, claim: _Claim) -> int | None:
    """A descriptor with the lock; None on a file system without locks."""
    patience = _PATIENCE
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise _unwritable(path, error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, descriptor):
                return descriptor
        except BlockingIOError:
            holder = _written_in(descriptor)
            os.close(descriptor)
            if patience and (holder is None or holder.gone):
                patience -= 1
                time.sleep(_PAUSE)
                continue
            _refuse(claim, holder, hint="wait for it, or stop it")
        except OSError as error:
            os.close(descriptor)
            if error.errno in _WITHOUT_LOCKS:
                return None
            raise BuildError(f"cannot be locked: {error.strerror}", path=str(path)) from None
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether a file is still there: the holder before us unlinks it, and a lock on such a file protects nothing."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _written_in(descriptor: int) -> Holder | None:
    try:
        return Holder.parsed(os.pread(descriptor, _LONGEST, 0))
    except OSError:
        return None


def _unwritable(path: Path, error: OSError) -> BuildError:
    hint = "choose another output: repokit build --output DIR"
    folder = path.parent if path.parent.name else path.parent.absolute()  # `.` names nothing to whoever reads a log
    return BuildError(f"cannot be written to: {error.strerror}", path=str(folder), hint=hint)


def _refuse(claim: _Claim, holder: Holder | None, *, hint: str) -> NoReturn:
    raise LockHeld(f"{claim.doing} by {holder or 'another process'}", path=str(claim.target), hint=hint)


# ---------------------------------------------------------------- without flock


@contextlib.contextmanager
def _created(path: Path, claim: _Claim) -> Iterator[None]:
    """Holds a file that only one process can create."""
    place = _stand_in(path)
    with contextlib.suppress(OSError):
        if path.stat().st_size:  # locked while the file system had locks
            _is_stale(path, claim)
        path.unlink()  # left by the attempt to lock it
    while not _create(place):
        _take_over(place, claim)
    try:
        yield
    finally:
        _unlink(place)


def _stand_in(path: Path) -> Path:
    return path.with_name(f"{path.name}.held")


def _create(place: Path) -> bool:
    """Whether this process created the file. Killed before the write, it leaves one that a person must delete."""
    content = Holder.here().written()
    try:
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        return False
    except OSError as error:
        raise _unwritable(place, error) from None
    try:
        os.write(descriptor, content)
    except OSError as error:
        _unlink(place)
        raise _unwritable(place, error) from None
    finally:
        os.close(descriptor)
    return True


def _take_over(place: Path, claim: _Claim) -> None:
    """Removes the lock of a process that was killed, or says whose it is.

    Only whoever created a second file may remove the first: of two builds that see a dead process at once, the slower
    one would otherwise remove the lock of the faster one.
    """
    guard = place.with_name(f"{place.name}.stale")
    if not _is_stale(place, claim):
        return
    if not _create(guard):
        if _is_stale(guard, claim):  # killed in the few calls below
            _refuse(claim, None, hint=_delete(guard))
        return
    try:
        if _is_stale(place, claim):
            place.unlink()
    except OSError as error:
        raise _unwritable(place, error) from None
    finally:
        _unlink(guard)


def _is_stale(place: Path, claim: _Claim) -> bool:
    """Whether a dead process left this lock file; False where it is no longer there.

    Raises:
        LockHeld: The process that created it may still run.
    """
    try:
        holder = Holder.parsed(place.read_bytes()[:_LONGEST])
    except FileNotFoundError:  # it ended meanwhile
        return False
    except OSError as error:
        raise BuildError(f"cannot be read: {error.strerror}", path=str(place)) from None
    if holder is None or not holder.gone:
        _refuse(claim, holder, hint=f"wait for it, or stop it. {_delete(place)}")
    return True


def _delete(place: Path) -> str:
    return f"If no build of it runs on any machine, delete {printable(place)}"


def _unlink(path: Path) -> None:
    """Removes a file. That it cannot be removed is no reason to call a build failed that is done."""
    with contextlib.suppress(OSError):
        path.unlink()
