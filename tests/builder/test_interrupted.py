"""A build that is killed, interrupted, doubled or out of space: the target is the old one or the new one, whole."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
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

from repokit import api
from repokit.errors import NoSpace
from repokit.formats.safetensors import header_bytes, in_file_order
from repokit.formats.tensors import TensorInfo
from repokit.resources import folder
from repokit.schema.manifest import MANIFEST_NAME, Manifest

LAYERS = 24
ROWS = 64 * 1024  # of 12 bfloat16 elements each: 1.5 MB a layer

MOUNT, UMOUNT = shutil.which("mount"), shutil.which("umount")

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
    """The summary of the card, after every file has been compared with the manifest."""
    output = root / "out"
    manifest = Manifest.model_validate(json.loads((output / MANIFEST_NAME).read_bytes()))
    present = {path.relative_to(output).as_posix() for path in output.rglob("*")} - {MANIFEST_NAME}
    assert present == {file.path for file in manifest.files}
    for file in manifest.files:
        assert hashlib.sha256((output / file.path).read_bytes()).hexdigest() == file.sha256, file.path
    return (output / "README.md").read_text(encoding="utf-8").split("---\n")[2].split("\n\n")[1].strip()


def leftovers(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name.startswith(".out.repokit"))


def locked(root: Path) -> subprocess.Popen[str]:
    """A build that has begun to change things, or has ended."""
    process = start(root)
    while process.poll() is None and not (root / ".out.repokit.lock").exists():
        os.sched_yield()
    return process


def duration(root: Path) -> float:
    """Seconds from the lock to the end of a whole build here."""
    process = locked(root)
    begun = time.monotonic()
    process.communicate()
    return time.monotonic() - begun


def kill_after(root: Path, moment: float) -> None:
    process = locked(root)
    try:
        process.communicate(timeout=moment)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def check_kills(root: Path, number: int, seed: int) -> None:
    """Kills builds at random moments; after each, the target is that of the build before or the new one, whole."""
    generator = random.Random(seed)
    longest = duration(root)
    before = "new"
    for kill in range(number):
        write_recipe(root, f"build {kill}")
        kill_after(root, generator.uniform(0, longest))
        assert state(root) in {before, f"build {kill}"}
        again = build(root)
        assert again.returncode == 0, again.stderr
        assert (state(root), leftovers(root)) == (f"build {kill}", [])
        before = f"build {kill}"


def test_a_killed_build_leaves_the_old_or_the_new_target(workplace):
    check_kills(workplace, number=3, seed=1)


@pytest.mark.full
def test_fifty_killed_builds(workplace):
    check_kills(workplace, number=50, seed=2)


def caught(root: Path) -> subprocess.Popen[str]:
    """A build that was stopped while it writes its files. One that was too fast is tried again, on any machine."""
    for _ in range(20):
        process = start(root)
        while process.poll() is None and not any(root.glob(".out.repokit-*/model-*")):
            os.sched_yield()
        if process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if process.poll() is None and state(root) == "old":
            return process
        process.send_signal(signal.SIGCONT)
        process.communicate()
        write_recipe(root, "old")
        assert build(root).returncode == 0
        write_recipe(root, "new")
    pytest.fail("no build could be caught")


ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# All of them arrive at one handler: one in every run, the others under `-m full`.
ONE_OF_THEM = [pytest.param(end, id=end.name, marks=[pytest.mark.full] * (end is not signal.SIGTERM)) for end in ENDS]


@pytest.fixture
def ctrl_c():
    """A shell starts what runs in its background deaf to Ctrl-C, and children inherit that: builds here are not."""
    before = [signal.signal(number, signal.default_int_handler) for number in ENDS]
    yield
    for number, handler in zip(ENDS, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("end", ONE_OF_THEM)
def test_a_build_that_is_ended_says_that_it_can_go_on(workplace, ctrl_c, end):
    process = caught(workplace)
    process.send_signal(end)
    process.send_signal(signal.SIGCONT)
    _, messages = process.communicate()
    assert process.returncode == 130
    assert messages.endswith("interrupted; run the same command again to go on\n")
    assert state(workplace) == "old"


@pytest.mark.parametrize("end", ONE_OF_THEM)
def test_a_build_that_is_ended_leaves_no_lock(workplace, ctrl_c, end):
    process = caught(workplace)
    process.send_signal(end)
    process.send_signal(signal.SIGCONT)
    process.communicate()
    assert ".out.repokit.lock" not in leftovers(workplace)


def test_a_build_that_was_told_to_ignore_a_hangup_goes_on(workplace):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = caught(workplace)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGCONT)
        process.communicate()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (process.returncode, state(workplace)) == (0, "new")


def test_a_build_whose_terminal_is_gone_ends_as_others_do(workplace, ctrl_c):
    process = caught(workplace)
    process.stderr.close()
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGCONT)
    assert process.wait() == 130


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=lambda end: end.name)
def test_an_interrupted_build_is_gone_on_with(workplace, ctrl_c, end):
    process = caught(workplace)
    process.send_signal(end)
    process.send_signal(signal.SIGCONT)
    process.communicate()
    journal = next(workplace.glob(".out.repokit-*/.repokit-journal"), None)
    finished = len(journal.read_bytes().splitlines()) if journal else 0
    again = json.loads(build(workplace, "--json").stdout)
    assert again["reused"] == finished
    assert state(workplace) == "new"
    assert leftovers(workplace) == []


def test_the_second_of_two_builds_says_who_holds_the_lock(workplace):
    process = caught(workplace)
    second = build(workplace)
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


# ------------------------------------------------------------------------------------------------ many of them


def kill(forge, before, **wanted):
    """Kills one build; whatever it left, the target is whole, and the next build leaves nothing else."""
    summary = forge.next()
    answer = forge.ask(**wanted)
    assert answer["codes"][0] in {0, -signal.SIGKILL}, forge.message()
    assert forge.state() in {before, summary}
    assert forge.build() == 0, forge.message()
    assert (forge.state(), forge.left()) == (summary, [])
    return answer["codes"][0]


def random_kills(forge, number, seed):
    generator = random.Random(seed)
    usual = min(forge.ask(kill_after=3600)["seconds"] for _ in range(5))
    return [kill(forge, forge.state(), kill_after=generator.uniform(0, usual), threads=True) for _ in range(number)]


def test_a_build_that_is_killed_at_any_moment_leaves_the_target_whole(forge):
    assert -signal.SIGKILL in random_kills(forge, 10, seed=3)


@pytest.mark.full
def test_a_thousand_killed_builds(forge):
    killed = random_kills(forge, 1000, seed=4).count(-signal.SIGKILL)
    print(f"{killed} of 1,000 were killed before they were done")
    assert killed > 500


def kill_at(forge, call, number):
    """Kills a build as it makes a system call for the nth time."""
    before, summary = forge.state(), forge.next()
    code, _ = forge.traced("-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}")
    assert code == -signal.SIGKILL
    assert forge.state() in {before, summary}
    assert forge.build() == 0, forge.message()
    assert (forge.state(), forge.left()) == (summary, [])


def moments(forge):
    return [(call, number) for call, times in forge.calls().items() for number in range(1, times + 1)]


def test_a_build_that_is_killed_at_a_system_call_leaves_the_target_whole(strace):
    for moment in random.Random(5).sample(moments(strace), 10):
        kill_at(strace, *moment)


@pytest.mark.full
def test_a_build_that_is_killed_at_each_of_its_system_calls(strace):
    found = moments(strace)
    for moment in found:
        kill_at(strace, *moment)
    print(f"killed at {len(found)} system calls")


@pytest.mark.parametrize("rename", [1, 2])
def test_a_build_that_is_killed_at_one_of_two_renames(strace, rename):
    """On a file system without RENAME_EXCHANGE; between the two the target is not there, and the next build has it back."""
    summary = strace.next()
    options = ["inject=renameat2:error=EINVAL", f"inject=rename:signal=KILL:when={rename}"]
    code, _ = strace.traced("-e", "trace=rename,renameat2", *(word for option in options for word in ("-e", option)))
    assert code == -signal.SIGKILL
    assert strace.build() == 0, strace.message()
    assert (strace.state(), strace.left()) == (summary, [])


def race(forge, *, hold):
    """Two builds of one output that begin at once. True where one of them was told of the other.

    With `hold` the one that has the lock goes on when the other has ended.
    """
    other = forge.root / "other"
    other.mkdir(exist_ok=True)
    summaries = [forge.next(), forge.next()]
    forge.recipe(summaries[0])
    forge.recipe(summaries[1], other, up="..")
    answer = forge.ask(folders=[str(forge.root), str(other)], threads=True, hold=hold)
    assert forge.left() == []
    if answer["codes"] == [0, 0] and not hold:
        assert forge.state() in summaries
        return False
    assert sorted(answer["codes"]) == [0, 2]
    winner = answer["codes"].index(0)
    loser = ((other, forge.root)[winner] / "stderr.txt").read_text(encoding="utf-8")
    assert f"out: is being built by process {answer['processes'][winner]}\n" in loser
    assert forge.state() == summaries[winner]
    return True


def test_of_two_builds_one_wins(forge):
    for _ in range(3):
        race(forge, hold=True)


@pytest.mark.full
def test_of_fifty_pairs_of_builds_one_wins(forge):
    for _ in range(50):
        race(forge, hold=True)


@pytest.mark.full
def test_of_fifty_pairs_of_builds_none_is_mixed(forge):
    met = sum(race(forge, hold=False) for _ in range(50))
    print(f"{met} of 50 met")
    assert met


@pytest.fixture
def small_disk(workplace):
    """A file system of 48 MB with room for one build of the 37 MB, not for two."""
    if not MOUNT or not UMOUNT:
        pytest.skip("there is no mount here")
    place = workplace / "disk"
    place.mkdir()
    mounted = subprocess.run(
        [MOUNT, "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small file system here")
    yield place
    subprocess.run([UMOUNT, str(place)], check=True)


def test_a_disk_that_is_too_small_is_noticed_before_the_first_byte(workplace, small_disk):
    (small_disk / "taken").write_bytes(bytes(20_000_000))
    result = build(workplace, "--output", str(small_disk / "out"))
    assert result.returncode == 2
    assert "free" in result.stderr
    assert sorted(path.name for path in small_disk.iterdir()) == ["taken"]


def fill(path: Path) -> None:
    """Takes what is left of a disk."""
    with path.open("ab", buffering=0) as stream:
        for size in (65_536, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    stream.write(bytes(size))


def test_a_disk_that_fills_up_meanwhile_leaves_what_was_there(workplace, small_disk):
    """Another process takes the space after it was checked."""
    recipe = api.read_recipe(workplace / "repokit.yaml")
    plan = api.plan(recipe, folder=workplace, output=str(small_disk / "out"))
    gate = api.Gate(api.selection_of(recipe.lint))

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "write":
            fill(small_disk / "taken")

    with pytest.raises(NoSpace, match="did not fit on the disk"):
        api.build(plan, gate=gate, progress=progress)
    assert sorted(path.name for path in small_disk.iterdir()) == ["taken"]
