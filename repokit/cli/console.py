"""Everything that repokit prints: data on stdout; progress, messages and errors on stderr."""

from __future__ import annotations

import json
import os
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from repokit.printable import printable, size

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import TextIO

    from repokit.errors import RepokitError


class Format(StrEnum):
    """What stdout carries."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    QUIET = "quiet"


# Colours of SGR, by what a piece of text is.
_CODES: Final[Mapping[str, str]] = {
    "error": "31;1",
    "warning": "33;1",
    "note": "36",
    "good": "32",
    "path": "1",
    "dim": "2",
    "stage": "36;1",
}


def chosen(format_: Format, *, json_: bool, quiet: bool) -> Format:
    """The format that `--format`, `--json`, `-q` and REPOKIT_FORMAT ask for; the short flags win."""
    if json_:
        return Format.JSON
    if quiet:
        return Format.QUIET
    if format_ is Format.AUTO:
        wanted = os.environ.get("REPOKIT_FORMAT", "")
        return Format(wanted) if wanted in set(Format) - {Format.AUTO} else Format.TEXT
    return format_


class Console:
    """Prints for one command."""

    latest: ClassVar[Console | None] = None

    def __init__(self, format_: Format = Format.TEXT) -> None:
        self.format = format_
        self._progress: Progress | None = None
        Console.latest = self

    @classmethod
    def of_command(cls) -> Console:
        """The console of the command that runs: an error that ends it is told in its format."""
        return cls.latest or cls()

    def data(self, text: str) -> None:
        """A line, or lines, of what was asked for."""
        try:
            sys.stdout.write(text if text.endswith("\n") else text + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader is gone (`repokit rules | head`): nothing more can be said to it, and nothing is wrong.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError:  # a full disk: the error says so; what could not be written is not tried again at the exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise

    def result(self, text: str, document: Mapping[str, Any], *, quiet: str) -> None:
        """What was done, in the chosen format: as text, as a JSON object, or as the one value that a script needs."""
        match self.format:
            case Format.JSON:
                self.data(json.dumps(document, ensure_ascii=False))
            case Format.QUIET:
                self.data(quiet)
            case _:
                self.data(text)

    def say(self, text: str) -> None:
        """A message beside the data; silent with `-q` and `--json`."""
        if self.format not in {Format.QUIET, Format.JSON}:
            self._tell(text)

    def stage(self, name: str, text: str) -> None:
        """One step of a longer command: `plan     27 tensors ...`."""
        self.say(f"{self.style_message(f'{name:<9}', 'stage')}{text}")

    def warn(self, text: str) -> None:
        """A warning; said in every format."""
        self._tell(f"{self.style_message('warning', 'warning')}: {printable(text, 500)}")

    def _tell(self, text: str) -> None:
        """A line on stderr; the line that shows progress makes room for it."""
        if self._progress is not None:
            self._progress.erase()
        _on_stderr(text + "\n")

    def error(self, error: RepokitError) -> None:
        """What happened, why it bites, what to do next; a program that asked for JSON gets it as a document too."""
        if self.format is Format.JSON:
            self.data(json.dumps(error_document(error), ensure_ascii=False))
        self.tell_error(error)

    def tell_error(self, error: RepokitError) -> None:
        """The same for people alone, where more follows."""
        lines = [f"{styled('error', 'error', sys.stderr)}: {printable(error, 1000)}"]
        for word, text in (("why", error.why), ("next", error.hint)):
            if text:
                lines.append(f"  {styled(f'{word:<5}', 'dim', sys.stderr)}{printable(text, 500)}")
        _on_stderr("\n".join(lines) + "\n")

    def confirm(self, question: str) -> bool:
        """Asks on the terminal; without one the answer is no."""
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        if self._progress is not None:
            self._progress.erase()
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in {"y", "yes"}

    def style(self, text: str, kind: str) -> str:
        """Coloured for stdout where it is a terminal."""
        return styled(text, kind, sys.stdout)

    def style_message(self, text: str, kind: str) -> str:
        """Coloured for stderr where it is a terminal."""
        return styled(text, kind, sys.stderr)

    def progress(self, verb: str) -> Progress:
        """A display of stages and bytes; a context manager that is called with (stage, done, total)."""
        self._progress = Progress(verb, silent=self.format in {Format.QUIET, Format.JSON})
        return self._progress


def error_document(error: RepokitError) -> dict[str, Any]:
    """An error, for a program."""
    parts = {key: getattr(error, key) for key in ("what", "why", "hint", "path", "place")}
    return {"error": {"kind": type(error).__name__, **parts}}


def _on_stderr(text: str) -> None:
    """Writes a message. A log that is full, or a terminal that is gone, is no reason to stop what is being done."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        try:
            sys.stderr.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def styled(text: str, kind: str, stream: TextIO) -> str:
    """The text in its colour, where the stream is a terminal that shows colours (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or kind not in _CODES or not stream.isatty():
        return text
    return f"\x1b[{_CODES[kind]}m{text}\x1b[0m"


_LINE_EVERY: Final = 30.0  # seconds between lines where there is no terminal
_FRAME_EVERY: Final = 0.1
_COUNTED: Final = frozenset({"commit", "verify", "tag", "list", "files"})  # stages that count things, not bytes


class Progress:
    """On a terminal one line that is rewritten; elsewhere one line every 30 seconds, so that logs stay short."""

    def __init__(self, verb: str, *, silent: bool) -> None:
        self._verb = verb
        self._silent = silent
        self._live = not silent and sys.stderr.isatty()
        self._started = time.monotonic()
        self._last = self._started - (_FRAME_EVERY if self._live else 0.0)  # who waits sees at once for what
        self._drawn = False
        self._stage = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.erase()

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._started = stage, now  # a rate is of one stage: hashing says nothing of uploading
        if self._silent or now - self._last < (_FRAME_EVERY if self._live else _LINE_EVERY):
            return
        self._last = now
        line = self._line(stage, done, total, now - self._started)
        if self._live:
            self.erase()
            _on_stderr(line)
            self._drawn = True
        else:
            _on_stderr(line + "\n")

    def _line(self, stage: str, done: int, total: int, seconds: float) -> str:
        if stage in _COUNTED:
            return f"{self._verb} {stage:<9}{done:,} of {total:,}"
        filled = 20 * done // total if total else 0
        rate = done / seconds if seconds else 0.0
        left = f", {(total - done) / rate:.0f} s left" if rate and done < total else ""
        bar = "█" * filled + "░" * (20 - filled)
        return f"{self._verb} {stage:<9}{bar} {size(done)} of {size(total)}, {size(int(rate))}/s{left}, {_peak()} peak"

    def erase(self) -> None:
        """Takes the line off the terminal, so that another can stand there."""
        if self._drawn:
            _on_stderr("\r\x1b[K")
            self._drawn = False


def _peak() -> str:
    import resource

    # Linux counts kilobytes, macOS bytes (getrusage(2)).
    scale = 1 if sys.platform == "darwin" else 1024
    return size(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale)
