"""`repokit lint --deep` with two threads, beside `sha256sum` of the same files, with and without a manifest.

    python tests/bench/deep.py [--folder DIR] [--gigabytes N]

The files are in the page cache. All weights are in one file, whose hash is one thread's work: several files do better.
`sha256sum` is measured where there is one, hashlib beside it: built without the processor's instructions for SHA, the
program is several times slower than the library, and the second figure says more. Starting and the other rules take
about a second whatever the size.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from measure import MEGABYTE, REPOKIT, Line, Run, best, run, seconds, show
from models import write_llama

_ROUNDS = 3
_GIGABYTE = 1_000 * MEGABYTE
_LAYER = 101 * MEGABYTE  # of write_llama, in bfloat16
_FLOOR = 0.7

_HASHLIB = """
import hashlib, sys
with open(sys.argv[1], "rb") as file:
    print(hashlib.file_digest(file, "sha256").hexdigest())
"""


def linted(folder: Path) -> Run:
    """Every rule, those over values with two threads."""
    return run([*REPOKIT, "lint", folder, "--deep", "--jobs", "2", "--fail-on", "never", "-q"])


def write_manifest(folder: Path) -> None:
    """What a build would have written beside the weights."""
    path = folder / "model.safetensors"
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    files = [{"path": path.name, "size": path.stat().st_size, "sha256": digest, "origin": "weights"}]
    manifest = {"version": 1, "created_by": "bench", "files": files}
    (folder / "repokit-manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def measured(work: Path, size: int, dtype: str) -> list[Line]:
    """A model of this size, without a manifest and with one."""
    layers = size // (_LAYER * (2 if dtype == "F32" else 1))
    write_llama(work / "plain", layers=layers, dtype=dtype)
    (work / "built").mkdir()
    for path in (work / "plain").iterdir():
        (work / "built" / path.name).hardlink_to(path)
    write_manifest(work / "built")
    weights = work / "plain" / "model.safetensors"
    references = [partial(run, [sys.executable, "-c", _HASHLIB, weights])]
    if shutil.which("sha256sum"):
        references.append(partial(run, ["sha256sum", weights]))
    plain, built, *others = best(
        partial(linted, work / "plain"), partial(linted, work / "built"), *references, rounds=_ROUNDS
    )
    reference = others[-1]
    shown = f"hashlib {others[0].seconds:.3f} s"
    return [
        _beside(f"--deep, {dtype}", plain, reference, shown),
        _beside(f"--deep, {dtype}, against its manifest", built, reference, shown),
        Line(f"peak memory of these, {dtype}", max(plain.peak, built.peak) / MEGABYTE, 200, "MB"),
    ]


def _beside(what: str, subject: Run, reference: Run, shown: str) -> Line:
    """A throughput: as many times as fast as the reference."""
    ratio = reference.seconds / subject.seconds
    return Line(what, ratio, _FLOOR, floor=True, detail=f"{seconds(subject, reference)}; {shown}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", type=Path, help="where the files are made; the temporary folder by default")
    arguments.add_argument("--gigabytes", type=int, default=2, help="of weights; 2 by default")
    arguments.add_argument("--json", action="store_true", help="for test_budgets.py")
    chosen = arguments.parse_args()
    lines = []
    for dtype in ("BF16", "F32"):
        with tempfile.TemporaryDirectory(dir=chosen.folder) as work:
            lines += measured(Path(work), chosen.gigabytes * _GIGABYTE, dtype)
    show(lines)


if __name__ == "__main__":
    main()
