"""One child process of the worker: started, asked, and ended when it exceeds its time.

What goes wrong with it is raised as `Lost`, which worker.py makes the result of the request.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PROGRAM = Path(__file__).with_name("worker_child.py")
_HEADER = struct.Struct(">II")  # lengths of the JSON and of the payload behind it, as in worker_child.py
_KEPT_VARIABLES = ("SYSTEMROOT", "LD_LIBRARY_PATH")  # without which some interpreters do not start
_LIBRARIES = ("jinja2", "markupsafe", "tokenizers")


class Lost(Exception):
    """The child gave no answer; `kind` and the message say why."""

    def __init__(self, kind: Literal["limit", "crash"], message: str) -> None:
        super().__init__(message)
        self.kind = kind


class ChildProcess:
    """A running worker_child.py.

    Attributes:
        imported: The modules that it has loaded; see `prepare`.
    """

    def __init__(self) -> None:
        self.imported: set[str] = set()
        self._process = _start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def prepare(self, module: str, seconds: float) -> None:
        """Imports a module there, once; disks may be slow, so this has a time limit of its own."""
        if module not in self.imported:
            self.ask({"operation": "import", "module": module}, b"", seconds=seconds, largest=1 << 10)
            self.imported.add(module)

    def ask(self, request: Mapping[str, Any], payload: bytes, *, seconds: float, largest: int) -> bytes:
        """The JSON that the child answers.

        Args:
            request: Any JSON object that worker_child.py understands.
            payload: Bytes that follow it.
            seconds: Wall time until the child is killed.
            largest: Bytes of the longest answer that is read.

        Raises:
            Lost: It ended, or was killed, or answers more than that.
        """
        message = json.dumps(request).encode("ascii")
        with self._killed_after(seconds) as expired:
            reply = self._reply(_HEADER.pack(len(message), len(payload)) + message, payload, largest)
        if expired.is_set():
            raise Lost("limit", f"no answer within {seconds:g} s")
        if reply is None:
            raise self._loss(request)
        return reply

    def end(self) -> int:
        """Kills the child if it still runs; its exit status."""
        self._process.kill()
        self._process.communicate()
        return self._process.returncode

    @contextmanager
    def _killed_after(self, seconds: float) -> Iterator[threading.Event]:
        """Kills the child if the block takes longer; the event says that it did."""
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            self._process.kill()

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        timer.start()
        try:
            yield expired
        finally:
            timer.cancel()
            timer.join()  # from here on, it has expired or never will

    def _reply(self, message: bytes, payload: bytes, largest: int) -> bytes | None:
        """None if the child ended before it had answered."""
        requests, answers = self._process.stdin, self._process.stdout
        if requests is None or answers is None:  # not with PIPE; for the type checker
            return None
        try:
            requests.write(message)
            requests.write(payload)
            requests.flush()
            header = answers.read(_HEADER.size)
            length = _HEADER.unpack(header)[0] if len(header) == _HEADER.size else 1
            if length > largest:
                raise Lost("limit", f"the answer has {length:,} bytes")
            reply = answers.read(length)
        except OSError:  # it ended while it was written to
            return None
        return reply if len(reply) == length else None

    def _loss(self, request: Mapping[str, Any]) -> Lost:
        """What the child died of, by its exit status."""
        status = self.end()
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"exit status {status}"
        match name:
            case "SIGPROF" | "SIGXCPU":
                return Lost("limit", f"more than {request.get('cpu', 0):g} s of processor time")
            case "SIGABRT":
                return Lost("limit", "aborted, as Rust does when it is refused memory")
            case "SIGKILL":
                return Lost("limit", "killed, as the system does when memory runs out")
        return Lost("crash", f"the child process ended with {name}")


def _start() -> subprocess.Popen[bytes]:
    """Starts the program without `site`, so that neither user directories nor .pth files run in it.

    Where the libraries lie is found without importing them, and handed over.
    """
    specs = [importlib.util.find_spec(name) for name in _LIBRARIES]
    folders = [str(Path(spec.origin).parent.parent) for spec in specs if spec and spec.origin]
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", "utf8", str(_PROGRAM), *dict.fromkeys(folders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=os.sep,
            env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            start_new_session=True,  # Ctrl-C on the terminal is for repokit, which then ends the child
        )
    except OSError as error:
        raise Lost("crash", f"the child process could not be started: {error}") from error
