"""`repokit build` of two gigabytes, beside `cp -r` of its input to the same disk and an fsync of the copies.

    python tests/bench/build.py [--folder DIR] [--gigabytes N] [--peer]

It takes six times as much disk in DIR, which is emptied again. Starting, planning and linting take about half a second
whatever the size, so that the ratios of a small N say more about these. With `--peer` it also measures what does the
same work with torch: huggingface_hub's save_torch_state_dict.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from measure import MEGABYTE, REPOKIT, Line, Run, beside, best, run, show
from models import write_llama, write_recipe

_ROUNDS = 5
_GIGABYTE = 1_000 * MEGABYTE
_LAYER = 101 * MEGABYTE  # of write_llama, in bfloat16

_COPY = """
import os, subprocess, sys
from pathlib import Path
subprocess.run(["cp", "-r", *sys.argv[1:]], check=True)
for path in Path(sys.argv[2]).iterdir():
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
"""

# Loads every file whole, as a script does that converts a checkpoint with the libraries alone.
_PEER = """
import sys
from pathlib import Path
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file
state = {}
for path in sorted(Path(sys.argv[1]).glob("*.safetensors")):
    state |= load_file(path)
save_torch_state_dict(state, sys.argv[2], max_shard_size="300MB")
"""


def copied(source: Path, target: Path) -> Run:
    """`cp -r`, then fsync of every copy: what is measured is on the disk, as a build's output is."""
    shutil.rmtree(target, ignore_errors=True)
    return run([sys.executable, "-c", _COPY, source, target])


def built(recipe: Path) -> Run:
    """A build into a place that is free."""
    shutil.rmtree(recipe.parent / "built", ignore_errors=True)
    return run([*REPOKIT, "build", recipe, "--jobs", "2", "-q"])


def peer(source: Path, target: Path) -> Run:
    """The same work with torch."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    return run([sys.executable, "-c", _PEER, source, target])


def same_dtype(work: Path, size: int, *, with_peer: bool) -> list[Line]:
    """bfloat16 in one file becomes bfloat16 in shards of 300 MB."""
    write_llama(work / "source", layers=size // _LAYER, dtype="BF16")
    hashed = write_recipe(work / "hashed", work / "source")
    plain = write_recipe(work / "plain", work / "source", manifest="off")
    subjects = [partial(copied, work / "source", work / "copy"), partial(built, hashed), partial(built, plain)]
    if with_peer:
        subjects.append(partial(peer, work / "source", work / "peer"))
    copy, full, bare, *others = best(*subjects, rounds=_ROUNDS)
    lines = [
        beside("same dtype, re-sharded, hashed", full, copy, 0.6),
        beside("the same without hashes (manifest: off)", bare, copy, 0.85),
        Line("peak memory of these", max(full.peak, bare.peak) / MEGABYTE, 200, "MB"),
    ]
    for other in others:
        lines.append(beside("against load_file + save_torch_state_dict", full, other, 2))
        lines.append(
            Line("their peak memory, beside ours", other.peak / full.peak, 1, floor=True, detail=_peaks(other))
        )
    return lines


def cast(work: Path, size: int) -> list[Line]:
    """float32 becomes bfloat16."""
    write_llama(work / "source", layers=size // (2 * _LAYER), dtype="F32")
    recipe = write_recipe(work / "cast", work / "source", dtype="bfloat16")
    copy, halved = best(partial(copied, work / "source", work / "copy"), partial(built, recipe), rounds=_ROUNDS)
    return [
        beside("float32 to bfloat16, against cp of the input", halved, copy, 0.6),
        Line("its peak memory", halved.peak / MEGABYTE, 200, "MB"),
    ]


# As people convert a checkpoint by hand; `mmap` is the faster of torch's two ways.
_UNPICKLE = """
import sys, torch
from safetensors.torch import save_file
save_file(torch.load(sys.argv[1], mmap=True, weights_only=True), sys.argv[2], {"format": "pt"})
"""
_PICKLE = """
import sys, torch
from pathlib import Path
from safetensors.torch import load_file
place = Path(sys.argv[1])
torch.save(load_file(place / "model.safetensors"), place / "pytorch_model.bin")
(place / "model.safetensors").unlink()
"""


def unpickled(source: Path, target: Path) -> Run:
    """torch.load, then save_file."""
    target.unlink(missing_ok=True)
    return run([sys.executable, "-c", _UNPICKLE, source, target])


def from_pickle(work: Path, size: int) -> list[Line]:
    """pytorch_model.bin becomes model.safetensors; only with torch, which writes the one and is what we compare with."""
    write_llama(work / "source", layers=size // _LAYER, dtype="BF16")
    run([sys.executable, "-c", _PICKLE, work / "source"])
    recipe = write_recipe(work / "pickled", work / "source", shards="50GB")
    subjects = (
        partial(built, recipe),
        partial(unpickled, work / "source" / "pytorch_model.bin", work / "theirs.safetensors"),
    )
    ours, theirs = best(*subjects, rounds=_ROUNDS)
    return [
        beside("pytorch_model.bin, against torch.load + save_file", ours, theirs, 1),
        Line("its peak memory", ours.peak / MEGABYTE, 200, "MB", detail=f"theirs {_peaks(theirs)}"),
    ]


def with_tokenizer(work: Path, _size: int) -> list[Line]:
    """A small model with a tokenizer of 150,000 tokens."""
    write_llama(work / "source", layers=1, dtype="BF16", rows=150_000)
    measured = built(write_recipe(work / "vocabulary", work / "source"))
    return [Line("peak memory with 150,000 tokens", measured.peak / MEGABYTE, 300, "MB")]


def _peaks(other: Run) -> str:
    return f"{other.peak / MEGABYTE:,.0f} MB"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", type=Path, help="where the files are made; the temporary folder by default")
    arguments.add_argument("--gigabytes", type=int, default=2, help="of weights; 2 by default")
    arguments.add_argument("--peer", action="store_true", help="measure save_torch_state_dict too; needs torch")
    arguments.add_argument("--json", action="store_true", help="for test_budgets.py")
    chosen = arguments.parse_args()
    size = chosen.gigabytes * _GIGABYTE
    lines = []
    parts = [partial(same_dtype, with_peer=chosen.peer), cast, with_tokenizer, *([from_pickle] if chosen.peer else [])]
    for part in parts:
        with tempfile.TemporaryDirectory(dir=chosen.folder) as work:
            if shutil.disk_usage(work).free < 6 * size:
                raise SystemExit(f"{work}: {6 * chosen.gigabytes} GB of free disk are needed")
            lines += part(Path(work), size)
    show(lines)


if __name__ == "__main__":
    main()
