"""A build that is killed, interrupted, doubled or out of space: the target is the old one or the new one, whole."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from repokit.formats.safetensors import header_bytes, in_file_order
from repokit.formats.tensors import TensorInfo
from repokit.resources import folder
from repokit.schema.manifest import MANIFEST_NAME, Manifest

LAYERS = 24
ROWS = 64 * 1024  # of 12 bfloat16 elements each: 1.5 MB a layer

RECIPE = """
version: 1
source: ./checkpoint
output: ./out
license: {{id: apache-2.0}}
weights: {{max_shard_size: 4MB}}
card: {{summary: "{summary}"}}
lint: {{ignore: [{{code: WGT, reason: "ballast instead of layers"}}, {{code: CFG, reason: "the same"}}]}}
"""


@pytest.fixture
def workplace(tmp_path):
    """The demo's checkpoint with 37 MB of ballast, so that there is time to kill a build; a finished build of it."""
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(folder("data") / "demo" / "trainer-output" / "checkpoint-200", checkpoint)
    tensors = in_file_order(TensorInfo(f"model.ballast.{n}", "BF16", (ROWS, 12), 0, 0) for n in range(LAYERS))
    with (checkpoint / "model.safetensors").open("wb") as stream:
        stream.write(header_bytes(tensors, {"format": "pt"}))
        block = random.Random(0).randbytes(ROWS * 24)
        for _ in range(LAYERS):
            stream.write(block)
    write_recipe(tmp_path, "old")
    assert build(tmp_path).returncode == 0
    write_recipe(tmp_path, "new")
    return tmp_path


def write_recipe(root: Path, summary: str) -> None:
    (root / "repokit.yaml").write_text(RECIPE.format(summary=summary), encoding="utf-8")


def command(*flags: str) -> list[str]:
    return [sys.executable, "-m", "repokit", "build", *flags]


def build(root: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*flags), cwd=root, capture_output=True, text=True, check=False)


def start(root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(command(), cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def state(root: Path) -> str:
    """`old` or `new`, after every file has been compared with the manifest."""
    import hashlib

    output = root / "out"
    manifest = Manifest.model_validate(json.loads((output / MANIFEST_NAME).read_bytes()))
    present = {path.relative_to(output).as_posix() for path in output.rglob("*")} - {MANIFEST_NAME}
    assert present == {file.path for file in manifest.files}
    for file in manifest.files:
        assert hashlib.sha256((output / file.path).read_bytes()).hexdigest() == file.sha256, file.path
    card = (output / "README.md").read_text(encoding="utf-8")
    return next(word for word in ("old", "new") if f"\n{word}\n" in card)


def leftovers(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name.startswith(".out.repokit"))


def check_kill(root: Path, moment: float) -> None:
    """Kills a build, then builds again."""
    process = start(root)
    try:
        process.communicate(timeout=moment)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    assert state(root) in {"old", "new"}
    again = build(root)
    assert again.returncode == 0, again.stderr
    assert state(root) == "new"
    assert leftovers(root) == []


def moments(number: int, seed: int, longest: float) -> list[float]:
    generator = random.Random(seed)
    return [generator.uniform(0.05, longest) for _ in range(number)]


def duration(root: Path) -> float:
    """Seconds that a whole build takes here."""
    begun = time.monotonic()
    assert build(root).returncode == 0
    return time.monotonic() - begun


def check_kills(root: Path, number: int, seed: int) -> None:
    for moment in moments(number, seed, duration(root)):
        write_recipe(root, "old")
        assert build(root).returncode == 0
        write_recipe(root, "new")
        check_kill(root, moment)


def test_a_killed_build_leaves_the_old_or_the_new_target(workplace):
    check_kills(workplace, number=5, seed=1)


@pytest.mark.full
def test_fifty_killed_builds(workplace):
    check_kills(workplace, number=50, seed=2)


def wait_for_staging(root: Path, process: subprocess.Popen[str]) -> None:
    """Until the build writes its files."""
    while process.poll() is None:
        if any(root.glob(".out.repokit-*/model-*")):
            return
        os.sched_yield()
    pytest.fail("the build ended before it could be caught")


def test_ctrl_c_says_that_the_build_can_go_on(workplace):
    process = start(workplace)
    wait_for_staging(workplace, process)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate()
    assert process.returncode == 130
    assert "run the same command again" in messages
    assert state(workplace) == "old"


def test_an_interrupted_build_is_gone_on_with(workplace):
    process = start(workplace)
    wait_for_staging(workplace, process)
    process.kill()
    process.communicate()
    journal = next(workplace.glob(".out.repokit-*/.repokit-journal"), None)
    finished = len(journal.read_bytes().splitlines()) if journal else 0
    again = json.loads(build(workplace, "--json").stdout)
    assert again["reused"] == finished
    assert state(workplace) == "new"


def test_the_second_of_two_builds_says_who_holds_the_lock(workplace):
    process = start(workplace)
    wait_for_staging(workplace, process)
    process.send_signal(signal.SIGSTOP)
    try:
        second = build(workplace)
    finally:
        process.send_signal(signal.SIGCONT)
        process.communicate()
    assert second.returncode == 2
    assert f"process {process.pid}" in second.stderr
    assert state(workplace) == "new"


def test_a_lock_that_nobody_holds_is_no_lock(workplace):
    """The file of a killed build stays; the lock goes with the process."""
    (workplace / ".out.repokit.lock").write_text("1\n")
    assert build(workplace).returncode == 0
    assert leftovers(workplace) == []


def test_the_lock_is_a_real_one(workplace):
    with (workplace / ".out.repokit.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert build(workplace).returncode == 2
    assert state(workplace) == "old"


@pytest.fixture
def small_disk(workplace):
    """A file system of 48 MB with room for one build of the 37 MB, not for two."""
    place = workplace / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small file system here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_too_small_is_noticed_before_the_first_byte(workplace, small_disk):
    (small_disk / "taken").write_bytes(bytes(20_000_000))
    result = build(workplace, "--output", str(small_disk / "out"))
    assert result.returncode == 2
    assert "free" in result.stderr
    assert sorted(path.name for path in small_disk.iterdir()) == ["taken"]


def test_a_disk_that_fills_up_meanwhile_leaves_what_was_there(workplace, small_disk):
    """Another process takes the space after it was checked."""
    process = subprocess.Popen(
        command("--output", str(small_disk / "out")), cwd=workplace, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and not any(small_disk.glob(".out.repokit-*/model-*")):
        os.sched_yield()
    process.send_signal(signal.SIGSTOP)
    free = shutil.disk_usage(small_disk).free
    (small_disk / "taken").write_bytes(bytes(max(0, free - 8192)))
    process.send_signal(signal.SIGCONT)
    _, messages = process.communicate()
    assert process.returncode == 2, messages
    assert "did not fit on the disk" in messages
    assert sorted(path.name for path in small_disk.iterdir()) == ["taken"]
