"""The child process that loads: its environment, its answers, its end.

It has no token, no network library that would use one, an empty HF_HOME, and a working directory of its own. Python
finds there what it finds for repokit: the installed torch and transformers are what is asked.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

PROGRAM: Final = Path(__file__).with_name("load_child.py")

_LARGEST: Final = 64 * 1024 * 1024  # of an answer: the names of a mixture of experts, twice
_KEPT_OF_STDERR: Final = 8192

# What Python, torch and a driver need to find themselves. Nothing else is handed on: the environment of a CI job is
# full of secrets, and none is needed to load files.
_KEPT: Final = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TEMP", "TMP", "LANG", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "SYSTEMROOT"}
    | {"PYTHONPATH", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE", "CONDA_PREFIX"}
)
_KEPT_PREFIXES: Final = (
    "LC_",
    "CUDA_",
    "NVIDIA_",
    "HIP_",
    "ROCR_",
    "ROCM_",
    "HSA_",
    "PYTORCH_",
    "TORCH_",
    "OMP_",
    "MKL_",
)

# Offline three times over: by the two switches, and by an address where nothing listens (the discard port).
_FIXED: Final[Mapping[str, str]] = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_ENDPOINT": "http://127.0.0.1:9",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "USE_HUB_KERNELS": "NO",  # transformers integrations/hub_kernels.py: compiled code out of other repositories
    "TOKENIZERS_PARALLELISM": "false",
}


class Lost(Exception):
    """The child gave no answer; `kind` and the message say why."""

    def __init__(self, kind: Literal["limit", "crash"], message: str) -> None:
        super().__init__(message)
        self.kind = kind


class ChildProcess:
    """A running load_child.py, or another program that answers as it does. It ends with the `with` block."""

    def __init__(self, request: Mapping[str, Any], *, threads: int, program: Path = PROGRAM) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="repokit-load-", ignore_cleanup_errors=True)
        asked = Path(self._home.name, "request.json")  # not a pipe: a child that does not read would hold us up
        asked.write_text(json.dumps(request), encoding="ascii")
        self._process = _start(program, asked, threads)
        self._said = _Tail(self._process.stderr)
        self._buffer = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> int:
        """Kills the child and what it has started; its exit status."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        self._said.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._home.cleanup()
        return status

    def answer(self, seconds: float) -> bytes:
        """The next line of what it answers.

        Args:
            seconds: Until it is given up.

        Raises:
            Lost: It ended, took longer, or answers without an end.
        """
        deadline = time.monotonic() + seconds
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > _LARGEST:
                raise Lost("crash", "the child process answered what is no report")
            if not self._more(deadline):
                raise Lost("limit", f"no answer within {seconds:g} s")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _more(self, deadline: float) -> bool:
        """Reads what has come, or waits for it; False when the time is over."""
        stream = self._process.stdout
        left = deadline - time.monotonic()
        if stream is None or left <= 0 or not select.select([stream], [], [], left)[0]:
            return False
        piece = os.read(stream.fileno(), 1 << 16)
        if not piece:
            raise self._loss()
        self._buffer += piece
        return True

    def _loss(self) -> Lost:
        """What the child died of, by its exit status and the last line that it said."""
        try:
            status = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:  # it closed its answers and goes on
            status = self.end()
        if status == -signal.SIGKILL:
            return Lost("limit", "killed, as the system does when memory runs out")
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"exit status {status}"
        last = self._said.last_line()
        return Lost("crash", f"the child process ended with {name}{f': {last}' if last else ''}")


class _Tail:
    """Reads a stream to its end in a thread, so that the writer never waits, and keeps the last of it."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        self._stream = stream
        self._kept = b""
        self._thread = threading.Thread(target=self._read, daemon=True, name="repokit-load-stderr")
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # closed while it was read
            while self._stream is not None and (piece := os.read(self._stream.fileno(), 1 << 16)):
                self._kept = (self._kept + piece)[-_KEPT_OF_STDERR:]

    def last_line(self) -> str:
        """Of what was said until now."""
        self._thread.join(timeout=1)
        lines = [line.strip() for line in self._kept.decode(errors="replace").splitlines() if line.strip()]
        # faulthandler and C++ say what happened first, and where afterwards.
        fatal = [line for line in lines if line.startswith(("Fatal Python error", "terminate called"))]
        return (fatal or lines or [""])[-1]

    def close(self) -> None:
        self._thread.join(timeout=1)
        if self._stream is not None and not self._thread.is_alive():
            self._stream.close()


def _start(program: Path, asked: Path, threads: int) -> subprocess.Popen[bytes]:
    home = str(asked.parent)
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)}
    if "PYTHONPATH" in kept:  # what is relative to our working directory is not relative to the child's
        kept["PYTHONPATH"] = os.pathsep.join(
            str(Path(part).absolute()) for part in kept["PYTHONPATH"].split(os.pathsep) if part
        )
    bounded = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    try:
        with asked.open("rb") as request:
            return subprocess.Popen(
                # -P: neither the folder of the program nor the working directory are searched for modules.
                [sys.executable, "-P", "-X", "utf8", "-X", "faulthandler", str(program)],
                stdin=request,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=home,
                env={**kept, **bounded, **_FIXED, "HF_HOME": home},
                start_new_session=True,  # a group of its own, which is killed as one
            )
    except OSError as error:
        raise Lost("crash", f"the child process could not be started: {error.strerror}") from None
