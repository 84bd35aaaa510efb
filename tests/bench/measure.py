"""Whole processes, measured: wall time and peak memory, and ratios of them beside their budgets.

Only the standard library, and little of it: on Linux a child's peak memory begins with what its parent had in use.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

CHECKOUT: Final = Path(__file__).resolve().parent.parent.parent
REPOKIT: Final = (sys.executable, "-m", "repokit")
MEGABYTE: Final = 1_000_000


class Run(NamedTuple):
    """One process: wall time in seconds, peak resident memory in bytes (ru_maxrss of it and of its children)."""

    seconds: float
    peak: int


class Line(NamedTuple):
    """One row of a table: a measured value beside its budget.

    Attributes:
        what: What was measured.
        value: A ratio, a time or a size.
        budget: The limit, or the floor where `floor`.
        unit: `x`, `s`, `MB` or `requests`.
        floor: Whether larger is better.
        detail: The figures behind a ratio.
    """

    what: str
    value: float
    budget: float
    unit: str = "x"
    floor: bool = False
    detail: str = ""

    @property
    def kept(self) -> bool:
        return self.value >= self.budget if self.floor else self.value <= self.budget


def environment() -> dict[str, str]:
    """Python finds this checkout; no setting of the user changes what is done."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REPOKIT_", "HF_", "PYTHON"))}
    return {**kept, "PYTHONPATH": str(CHECKOUT), "HF_HUB_OFFLINE": "1"}


def run(command: Sequence[str | Path], *, expected: int = 0, variables: Mapping[str, str] | None = None) -> Run:
    """Runs a command to its end.

    Raises:
        SystemExit: It ended with another exit code.
    """
    started = time.perf_counter()
    settings = {**environment(), **(variables or {})}
    process = subprocess.Popen(list(map(str, command)), env=settings, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != expected:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {process.returncode}")
    scale = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, kilobytes elsewhere (getrusage(2))
    return Run(seconds, usage.ru_maxrss * scale)


def best(*measured: Callable[[], Run], rounds: int) -> list[Run]:
    """The shortest time and the largest peak of each.

    Measured in turn, so that a busy moment hits all of them, and each round begins with another one: a disk that has
    rested is faster, and it is always the same one that comes after a rest otherwise.
    """
    runs: list[list[Run]] = [[] for _ in measured]
    for number in range(rounds):
        for step in range(len(measured)):
            place = (number + step) % len(measured)
            runs[place].append(measured[place]())
    return [Run(min(run.seconds for run in of), max(run.peak for run in of)) for of in runs]


def seconds(subject: Run, reference: Run) -> str:
    """The two times behind a ratio."""
    return f"{subject.seconds:.3f} s beside {reference.seconds:.3f} s"


def beside(what: str, subject: Run, reference: Run, budget: float) -> Line:
    """A throughput: as many times as fast as the reference."""
    return Line(what, reference.seconds / subject.seconds, budget, floor=True, detail=seconds(subject, reference))


def show(lines: Sequence[Line]) -> None:
    """Prints the table, or with `--json` a document for test_budgets.py."""
    if "--json" in sys.argv:
        print(json.dumps([{**line._asdict(), "kept": line.kept} for line in lines]))
        return
    width = max(len(line.what) for line in lines)
    for line in lines:
        sign, verdict = (">=" if line.floor else "<="), ("ok" if line.kept else "OVER")
        figures = f"{line.value:8.2f} {line.unit:<2}  {sign} {line.budget:6.2f} {line.unit:<2}  {verdict:<4}"
        print(f"{line.what:<{width}}  {figures}  {line.detail}")
