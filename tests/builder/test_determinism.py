"""Equal inputs give equal bytes, whatever the machine looks like."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from repokit.resources import folder

RECIPE = """
version: 1
repo: example/demo
source: ./checkpoint
output: ./out
license: {id: apache-2.0}
weights: {dtype: bfloat16, max_shard_size: 8KB}
card: {summary: "A tiny decoder with umlauts: äöü.", tags: [b, a]}
"""
# (name of the folder, environment, seconds that the files are older)
MACHINES = (
    ("one", {"LC_ALL": "C", "PYTHONHASHSEED": "0", "TZ": "UTC"}, 0),
    ("another place", {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo"}, 86_400),
)


def on_machine(root: Path, environment: dict[str, str], age: int) -> tuple[dict[str, bytes], bytes]:
    """Every file of a build on this "machine", and the report of `lint` over it."""
    checkpoint = root / "checkpoint"
    shutil.copytree(folder("data") / "demo" / "trainer-output" / "checkpoint-200", checkpoint)
    for path in checkpoint.iterdir():
        moment = path.stat().st_mtime - age
        os.utime(path, (moment, moment))
    (root / "repokit.yaml").write_text(RECIPE, encoding="utf-8")
    jobs = str(1 + len(environment["TZ"]) % 2)
    answers = []
    for arguments in (["build", "--jobs", jobs, "-q"], ["lint", "out", "--json"]):
        command = [sys.executable, "-m", "repokit", *arguments]
        run = subprocess.run(command, cwd=root, env={**os.environ, **environment}, capture_output=True, check=True)
        answers.append(run.stdout)
    report = answers[-1]
    output = root / "out"
    return {str(path.relative_to(output)): path.read_bytes() for path in sorted(output.rglob("*"))}, report


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    results = []
    for name, environment, age in MACHINES:
        root = tmp_path_factory.mktemp("machine") / name
        root.mkdir()
        results.append(on_machine(root, environment, age))
    return results


def test_two_machines_build_the_same_bytes(builds):
    (one, _), (other, _) = builds
    assert one == other
    assert len(one) == 12


def test_two_machines_report_the_same(builds):
    (_, one), (_, other) = builds
    assert one == other
