"""Operations carried out by other processes: those of any concurrent.futures.Executor, or of a dask cluster.

What is sent is the operation and the paths that it reads; the weights go from disk to disk. So every worker must see
the sources, and the folder of the output, under the same paths.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
import socket
import warnings
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from repokit.builder.execution.reservation import Reservation
from repokit.builder.execution.writing import Terms, write_file
from repokit.errors import BuildError, ExecutorLost, MissingInput, UsageError
from repokit.printable import count, printable, some
from repokit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from repokit.operations import Operation
    from repokit.schema.manifest import ManifestFile

SCHEME: Final = "dask://"
_TIMEOUT: Final = 10  # seconds until a scheduler must have answered
_ARRIVAL: Final = 60  # seconds until the result of a task that has ended must be here: a few hundred bytes
# In the staging directory while workers may write there. It shows them that they see the directory; once it is gone,
# they stop.
_RUNNING: Final = ".repokit-running"
_LOOK_EVERY: Final = 64  # chunks, of a megabyte at most
_LOUD: Final = frozenset({"distributed", "tornado", "asyncio"})
_UNSEEN: Final = "workers write the files themselves: sources and output must lie under one path on every machine"


class Running:
    """A build that other processes carry out, as long as it does not end."""

    def __init__(self, staging: Path) -> None:
        """`staging`: an existing directory."""
        self._token = secrets.token_hex(16)
        self._path = staging / _RUNNING

    def __enter__(self) -> str:
        self._path.write_text(self._token, encoding="ascii")
        return self._token

    def __exit__(self, *_error: object) -> None:
        self.end()

    def end(self) -> None:
        """Tells whoever writes to stop."""
        with contextlib.suppress(OSError):
            self._path.unlink()


def _sees(staging: str, token: str) -> bool:
    try:
        return (Path(staging) / _RUNNING).read_text(encoding="ascii") == token
    except (OSError, ValueError):
        return False


@functools.cache
def _reservation(limit: int) -> Reservation:
    """One for all threads of a worker."""
    return Reservation(limit)


def write_there(
    sources: Sequence[str], operation: Operation, staging: str, token: str, *, hashed: bool, room: int
) -> ManifestFile | None:
    """Runs in a worker: write_file under a path.

    Args:
        sources: As of write_file.
        operation: What to write.
        staging: The staging directory, absolute.
        token: What the build wrote there.
        hashed: Whether the SHA-256 is wanted.
        room: Bytes that tensors may take at once in this process.

    Raises:
        BuildError: The worker does not see the directory, or as of write_file.
        InputError, PlanError: As of write_file.
        StoppedError: The build has ended.
    """
    if not _sees(staging, token):
        what = f"is not seen by the worker {printable(socket.gethostname())}, process {os.getpid()}"
        raise BuildError(what, why=_UNSEEN, path=str(Path(staging).parent), hint="start workers that see it")
    terms = Terms(hashed=hashed, reservation=_reservation(room), stopped=_Watch(staging, token))
    try:
        return write_file(sources, operation, Path(staging), terms)
    except MissingInput as error:
        error.why = error.why or _UNSEEN
        raise


class _Watch:
    """Whether the build has ended; looked up now and then."""

    def __init__(self, staging: str, token: str) -> None:
        self._staging = staging
        self._token = token
        self._asked = 0

    def __call__(self) -> bool:
        self._asked += 1
        return self._asked % _LOOK_EVERY == 0 and not _sees(self._staging, self._token)


def lost(error: BaseException) -> ExecutorLost | None:
    """What it means that an executor gave no result; None where the error is the operation's own."""
    outside = type(error).__module__.partition(".")[0] == "distributed"
    if not outside and not isinstance(error, BrokenExecutor | CancelledError):
        return None
    return _gone(error)


def _gone(error: BaseException) -> ExecutorLost:
    detail = f": {printable(error)}" if str(error) else ""
    what = f"the workers are gone before every file is written{detail}"
    why = "the cluster has ended, or a worker was killed again and again, as one is that takes too much memory"
    return ExecutorLost(what, why=why, hint="run the same command again: what was finished is used again")


class Cluster(Executor):
    """A dask client as an Executor.

    Client.get_executor() gives one too, which loses what goes wrong between the end of a task and the arrival of its
    result (distributed 2026.8 cfexecutor.py _cascade_future): where a scheduler ended there, a build waited for ever,
    one time in twenty, or was told that the result could not be unpacked, one time in five.
    """

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - a distributed.Client, which has no types
        self._client = client

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ANN401 - as its base
        theirs = self._client.submit(call, *args, pure=False, **kwargs)
        ours: Future[Any] = Future()
        ours.add_done_callback(lambda done: _take_back(theirs) if done.cancelled() else None)
        theirs.add_done_callback(lambda _ended: _hand_over(theirs, ours))
        return ours


def _take_back(theirs: Any) -> None:  # noqa: ANN401 - see _hand_over
    with contextlib.suppress(Exception):  # whom to tell may be gone, and that is no second error
        theirs.cancel()


def _hand_over(theirs: Any, ours: Future[Any]) -> None:  # noqa: ANN401 - a distributed.Future, which has no types
    """Runs in a thread of dask's, once a task has ended in any way."""
    if not ours.set_running_or_notify_cancel():
        return
    try:
        ours.set_result(theirs.result(timeout=_ARRIVAL))
    except BaseException as error:  # noqa: BLE001 - whoever waits is told
        ours.set_exception(error if theirs.status == "error" else _gone(error))


@contextlib.contextmanager
def opened(wanted: Executor | str, staging: Path, token: str) -> Iterator[Executor]:
    """What is meant by `--executor`, where it is not an executor already.

    Args:
        wanted: `dask://HOST:PORT`, of a scheduler.
        staging: Which every worker must see.
        token: What lies there.

    Raises:
        UsageError: It is no such address, or the extra is not installed.
        ExecutorLost: Nobody answers there.
        BuildError: A worker does not see the directory.
    """
    if isinstance(wanted, Executor):
        yield wanted
        return
    address = check_address(wanted)
    try:
        import distributed  # noqa: F401 - whether it is there
    except ImportError:
        raise UsageError("dask is not installed", hint="pip install 'repokit[dask]'") from None
    with _quiet():
        client = _connected(address, wanted)
        try:
            _check_workers(client, wanted, str(staging), token)
            yield Cluster(client)
        finally:
            with contextlib.suppress(Exception):  # the scheduler may be gone
                client.close(timeout=_TIMEOUT)


def check_address(text: str) -> str:
    """The scheduler's address as dask spells it.

    Raises:
        UsageError: It is none.
    """
    host, colon, port = text.removeprefix(SCHEME).rpartition(":")
    if not text.startswith(SCHEME) or not colon or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        what = f"--executor {printable(text)} is not dask://HOST:PORT"
        raise UsageError(what, hint="the address of a dask scheduler, such as dask://127.0.0.1:8786")
    return f"tcp://{host}:{port}"


def _connected(address: str, wanted: str) -> Any:  # noqa: ANN401 - a distributed.Client, which has no types
    from distributed import Client

    try:
        return Client(address, timeout=_TIMEOUT, set_as_default=False)
    except (OSError, TimeoutError) as error:
        what = f"no dask scheduler answers at {printable(wanted)}: {printable(error) or 'it took too long'}"
        raise ExecutorLost(what, hint="start one (dask scheduler), and workers (dask worker HOST:PORT)") from None


def _probe(staging: str, token: str) -> tuple[str, bool]:
    """Runs in every worker before the first operation."""
    return __version__, _sees(staging, token)


def _check_workers(client: Any, wanted: str, staging: str, token: str) -> None:  # noqa: ANN401 - see _connected
    """Refuses a cluster that could not carry the plan out, before it begins."""
    host = wanted.removeprefix(SCHEME)
    try:
        found: dict[str, tuple[str, bool]] = client.run(_probe, staging, token)
    except ImportError as error:
        what = f"the workers at {printable(wanted)} do not have repokit {__version__}: {printable(error)}"
        raise BuildError(what, hint="install the same version where they run") from None
    except Exception as error:
        if (gone := lost(error)) is not None:
            raise gone from None
        raise
    if not found:
        raise BuildError(f"{printable(wanted)} has no workers", hint=f"dask worker {printable(host)}")
    if others := sorted(worker for worker, (version, _) in found.items() if version != __version__):
        what = f"{some(others)} {'has' if len(others) == 1 else 'have'} repokit {found[others[0]][0]}"
        raise BuildError(f"{what}, and this is {__version__}", hint="install the same version where they run")
    if blind := sorted(worker for worker, (_, sees) in found.items() if not sees):
        what = f"is not seen by {some(blind)}, of {count(len(found), 'worker')}"
        raise BuildError(what, why=_UNSEEN, path=str(Path(staging).parent), hint="start workers that see it")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Dask logs a traceback of whatever goes wrong; what an error means is said by us."""
    silenced: list[logging.Logger] = []
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="distributed")
            for name, logger in logging.root.manager.loggerDict.items():
                if name.partition(".")[0] in _LOUD and isinstance(logger, logging.Logger) and not logger.disabled:
                    logger.disabled = True
                    silenced.append(logger)
            yield
    finally:
        for logger in silenced:
            logger.disabled = False
