"""A disk that is full, gone, read-only or not ours: the target stays, nothing is left, and a line says which file."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from repokit.errors import BuildError

CODES = ("ENOSPC", "EIO", "EROFS", "EACCES", "EMFILE")
CALLS = ("write", "fsync", "openat", "renameat2", "rename")

# Calls that may fail and the build be done all the same, by what they are made on.
HARMLESS = (
    r"\.repokit\.lock>",  # the lock is held; only the name of its holder is not in it
    r"boot_id|ns/pid",  # the same
    r"trainer_state\.json",  # tells people of the run, and decides nothing
    r"\.repokit-journal\", O_RDONLY",  # nothing that could be gone on with
    r"\"checkpoint/[\w.-]+\", O_RDONLY\|O_NONBLOCK\|O_CLOEXEC\)",  # what cannot be cloned is copied
    r"stderr\.txt>",  # said again
    r"\"\.out\.repokit-[0-9a-f]{16}\", O_RDONLY\|O_CLOEXEC\)",  # the old tree, removed at the second try
    r"fsync\(\d+</[^>]*/forge\d+>\)|\"\.\", O_RDONLY\|O_CLOEXEC\|O_DIRECTORY",  # the folder, after the publish
)


def failing(forge, call, code, number):
    """A build whose nth call fails once: its exit code, and the call."""
    without_exchange = ("-e", "inject=renameat2:error=EINVAL") if call == "rename" else ()
    inject = f"inject={call}:error={code}:when={number}"
    exit_code, calls = forge.traced("-e", f"trace={call},renameat2", *without_exchange, "-e", inject)
    return exit_code, [line for line in calls.splitlines() if line.endswith("(INJECTED)")][-1]


def named(line):
    """The file of a call, as a message may name it."""
    path = re.findall(r'"([^"]*)"|\d<([^>]*)>', line.partition(" = ")[0])[0 if "(AT_FDCWD" not in line else -1]
    name = Path("".join(path)).name
    if name == ".repokit-journal":  # whose lines are of the file that was written
        return r"error: [\w.-]+: "
    return r"\bout\b" if name.startswith(".out.repokit") or not name else re.escape(name)


def check(forge, call, code, number):
    """Whatever fails: the old target or the new one, whole, nothing beside it, and a line that says what failed."""
    before, summary = forge.state(), forge.next()
    exit_code, line = failing(forge, call, code, number)
    assert 'stdout.txt"' not in line
    message = forge.message()
    assert (forge.state() in {before, summary}, forge.left()) == (True, []), line
    assert "internal error" not in message, line
    if exit_code == 0:
        assert any(re.search(pattern, line) for pattern in HARMLESS), line
        assert forge.state() == summary, line
    elif "stdout.txt" not in line:
        assert re.search(rf"{named(line)}|\bout\b|checkpoint|{forge.root}", message), f"{line}\n{message}"


def opened_by_us(calls, call):
    """Numbers of the calls that the build makes: its first two open the files that take its messages."""
    return range(3 if call == "openat" else 1, 1 + (2 if call == "rename" else calls[call]))


def matrix(forge):
    calls = forge.calls()
    return [(call, code, number) for call in CALLS for code in CODES for number in opened_by_us(calls, call)]


def test_a_system_call_that_fails_leaves_the_target_whole(strace):
    for case in random.Random(6).sample(matrix(strace), 15):
        check(strace, *case)


@pytest.mark.full
def test_every_system_call_that_fails(strace):
    cases = matrix(strace)
    for case in cases:
        check(strace, *case)
    print(f"{len(cases)} calls failed")


# Python makes every call again that a signal interrupts (PEP 475), but for the one that opens a folder to list it.
OPENS_FOLDER = "O_RDONLY|O_NONBLOCK|O_CLOEXEC|O_DIRECTORY"


def check_interrupted(forge, call, number):
    before, summary = forge.state(), forge.next()
    exit_code, line = failing(forge, call, "EINTR", number)
    if OPENS_FOLDER in line and exit_code:
        assert (exit_code, forge.state(), forge.left()) == (2, before, []), line
        assert "Interrupted system call" in forge.message()
    else:
        assert (exit_code, forge.state(), forge.left()) == (0, summary, []), f"{line}\n{forge.message()}"


def interruptions(forge):
    calls = forge.calls()
    return [(call, number) for call in CALLS for number in opened_by_us(calls, call)]


def test_a_system_call_that_is_interrupted_is_made_again(strace):
    for case in random.Random(7).sample(interruptions(strace), 5):
        check_interrupted(strace, *case)


@pytest.mark.full
def test_every_system_call_that_is_interrupted(strace):
    for case in interruptions(strace):
        check_interrupted(strace, *case)


# ------------------------------------------------------------------------------------------------ what may only be read


@pytest.mark.skipif(os.geteuid() == 0, reason="no mode stops root")
def test_a_source_of_mode_0500_builds(workshop):
    root = workshop.checkpoint(files={"tokenizer.json": "{}"})
    for path in root.iterdir():
        path.chmod(0o400)
    root.chmod(0o500)
    workshop.build()
    assert workshop.tensors() == workshop.model()
    assert (workshop.output / "tokenizer.json").stat().st_mode & 0o200


@pytest.mark.skipif(os.geteuid() == 0, reason="no mode stops root")
def test_an_output_folder_that_may_not_be_written_to_is_one_line(workshop):
    workshop.checkpoint()
    place = workshop.folder / "dist"
    place.mkdir(mode=0o500)
    with pytest.raises(BuildError, match="dist: cannot be written to: Permission denied"):
        workshop.build(output="./dist/out")
    assert list(place.iterdir()) == []


@pytest.fixture
def read_only(workshop, mounted):
    """Makes a folder read-only, with what is in it."""

    def make(folder):
        copy = folder.with_name("copy")
        folder.rename(copy)
        folder.mkdir()
        mounted(folder)
        for path in copy.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        mounted(folder, "remount,ro")

    return make


def test_a_source_on_a_read_only_disk_builds(workshop, read_only):
    read_only(workshop.checkpoint(files={"tokenizer.json": "{}"}))
    workshop.build()
    assert workshop.tensors() == workshop.model()
    assert (workshop.output / "tokenizer.json").stat().st_mode & 0o200


def test_an_output_on_a_read_only_disk_is_one_line(workshop, read_only):
    workshop.checkpoint()
    (workshop.folder / "dist").mkdir()
    read_only(workshop.folder / "dist")
    with pytest.raises(BuildError, match="dist: cannot be written to: Read-only file system") as caught:
        workshop.build(output="./dist/out")
    assert caught.value.exit_code == 2
    assert list((workshop.folder / "dist").iterdir()) == []


def test_an_output_below_a_folder_that_cannot_be_made_is_one_line(workshop, read_only):
    workshop.checkpoint()
    (workshop.folder / "dist").mkdir()
    read_only(workshop.folder / "dist")
    with pytest.raises(BuildError, match="cannot be written to: Read-only file system"):
        workshop.build(output="./dist/a/b/out")


# ------------------------------------------------------------------------------------------------ messages


@pytest.fixture
def full():
    path = Path("/dev/full")
    if not path.exists():
        pytest.skip("there is no /dev/full here")
    with path.open("w") as stream:
        yield stream


def run(environment, *arguments, **streams):
    command = [sys.executable, "-m", "repokit", *arguments]
    return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, text=True, check=False, **streams)


def test_messages_that_cannot_be_written_change_nothing(environment, full):
    done = run(environment, "lint", "/nowhere", stderr=full)
    assert done.returncode == 2


def test_data_that_cannot_be_written_is_an_error(environment, full):
    done = run(environment, "rules", stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "error: the system refused: No space left on device",
    )
