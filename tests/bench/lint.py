"""`repokit lint` over a terabyte of headers, beside a bare loop of safetensors.safe_open over the same files.

    python tests/bench/lint.py [--folder DIR]

The files are holes: they take a few megabytes of disk, on a file system that has sparse files.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

from measure import MEGABYTE, REPOKIT, Line, best, run, seconds, show
from models import write_terabyte

_SHARDS = 200
_ROUNDS = 5

_LOOP = """
import sys
from pathlib import Path
from safetensors import safe_open
total = 0
for path in sorted(Path(sys.argv[1]).glob("*.safetensors")):
    with safe_open(path, framework="np") as file:
        total += len(file.keys())
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", type=Path, help="where the files are made; the temporary folder by default")
    arguments.add_argument("--json", action="store_true", help="for test_budgets.py")
    with tempfile.TemporaryDirectory(dir=arguments.parse_args().folder) as work:
        tensors = write_terabyte(Path(work) / "terabyte", shards=_SHARDS)
        loop, linted = best(
            partial(run, [sys.executable, "-c", _LOOP, Path(work) / "terabyte"]),
            partial(run, [*REPOKIT, "lint", Path(work) / "terabyte", "--fail-on", "never"]),
            rounds=_ROUNDS,
        )
    show(
        [
            Line(
                f"lint of 1 TB, {tensors:,} tensors, beside a loop of safe_open",
                linted.seconds / loop.seconds,
                4,
                detail=seconds(linted, loop),
            ),
            Line("its peak memory", linted.peak / MEGABYTE, 200, "MB"),
        ]
    )


if __name__ == "__main__":
    main()
