"""The lock of a target, on file systems with locks and without."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys

import pytest

from repokit.builder.execution import locking
from repokit.builder.execution.locking import Holder, lock
from repokit.errors import BuildError, LockHeld

HOLDER = """
import sys
from pathlib import Path
from repokit.builder.execution.locking import lock
with lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(workshop, environment):
    """Another process that holds the lock of the output."""
    command = [sys.executable, "-c", HOLDER, str(workshop.output)]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_second_build_says_who_holds_the_lock(workshop, holder):
    workshop.checkpoint()
    with pytest.raises(LockHeld, match=rf"out: is being built by process {holder.pid}$"):
        workshop.build()


def test_a_build_that_waits_for_nobody_changes_nothing(workshop, holder):
    workshop.checkpoint()
    with pytest.raises(LockHeld):
        workshop.build()
    assert not workshop.output.exists()
    assert workshop.hidden() == [".out.repokit.lock"]


def test_a_lock_goes_with_its_holder(workshop, holder):
    workshop.checkpoint()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    workshop.build()
    assert workshop.hidden() == []


def test_another_output_is_not_locked(workshop, holder):
    workshop.checkpoint()
    workshop.build(output="./other")
    assert (workshop.folder / "other" / "model.safetensors").is_file()


def test_a_lock_leaves_no_file(workshop):
    with lock(workshop.output):
        assert workshop.hidden() == [".out.repokit.lock"]
    assert workshop.hidden() == []


def test_a_lock_can_be_taken_again(workshop):
    for _ in range(3):
        with lock(workshop.output):
            pass


def test_a_lock_makes_the_folder_of_the_output(workshop):
    with lock(workshop.folder / "a" / "b" / "out"):
        assert (workshop.folder / "a" / "b").is_dir()


def test_a_second_build_waits_until_the_first_has_written_its_name(workshop, holder, monkeypatch):
    path = workshop.folder / ".out.repokit.lock"
    written = path.read_bytes()
    path.write_bytes(b"")
    monkeypatch.setattr(locking.time, "sleep", lambda _seconds: path.write_bytes(written))
    with pytest.raises(LockHeld, match=rf"process {holder.pid}$"), lock(workshop.output):
        pass


def test_a_second_build_does_not_wait_for_ever_for_a_name(workshop, holder, monkeypatch):
    waited = []
    (workshop.folder / ".out.repokit.lock").write_bytes(b"")
    monkeypatch.setattr(locking.time, "sleep", waited.append)
    with pytest.raises(LockHeld, match="is being built by another process"), lock(workshop.output):
        pass
    assert sum(waited) < 1


def test_a_folder_that_cannot_be_written_to_is_named(workshop):
    (workshop.folder / "file").write_text("x")
    with pytest.raises(BuildError, match="cannot be written to"), lock(workshop.folder / "file" / "out"):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="no mode stops root")
def test_a_folder_of_another_user_is_named(workshop):
    workshop.folder.chmod(0o500)
    with pytest.raises(BuildError, match="cannot be written to: Permission denied"), lock(workshop.output):
        pass


def test_a_link_in_the_place_of_the_lock_is_not_followed(workshop):
    (workshop.folder / "precious").write_text("x")
    (workshop.folder / ".out.repokit.lock").symlink_to("precious")
    with pytest.raises(BuildError, match="cannot be written to"), lock(workshop.output):
        pass
    assert (workshop.folder / "precious").read_text() == "x"


# ------------------------------------------------------------------------------------------------ without flock

HELD = ".out.repokit.lock.held"


@pytest.fixture(params=[errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP], ids=errno.errorcode.get)
def no_locks(request, monkeypatch):
    """A file system on which flock fails."""

    def refuse(descriptor, flags):
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.fixture
def ended():
    """The number of a process that has ended, and that no other has yet: its parent has not asked for its end."""
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.DEVNULL) as process:
        process.wait()
    return process.pid


def left_by(workshop, name=HELD, **changes):
    """A lock file of another process."""
    holder = Holder.here()._replace(**changes)
    (workshop.folder / name).write_bytes(holder.written())
    return holder


def test_without_locks_a_build_is_a_build(workshop, no_locks):
    workshop.checkpoint()
    workshop.build()
    assert (workshop.tensors(), workshop.hidden()) == (workshop.model(), [])


def test_without_locks_the_holder_is_written_down(workshop, no_locks):
    with lock(workshop.output):
        assert workshop.hidden() == [HELD]
        assert Holder.parsed((workshop.folder / HELD).read_bytes()) == Holder.here()
    assert workshop.hidden() == []


def test_without_locks_an_error_releases_too(workshop, no_locks):
    with pytest.raises(KeyboardInterrupt), lock(workshop.output):
        raise KeyboardInterrupt
    assert workshop.hidden() == []


def test_without_locks_the_second_build_is_told_of_the_first(workshop, no_locks):
    with lock(workshop.output):
        with pytest.raises(LockHeld, match=rf"out: is being built by process {os.getpid()}$"), lock(workshop.output):
            pass
        assert workshop.hidden() == [HELD]


def test_without_locks_the_lock_of_a_dead_process_is_taken(workshop, no_locks, ended):
    left_by(workshop, pid=ended)
    with lock(workshop.output):
        assert Holder.parsed((workshop.folder / HELD).read_bytes()) == Holder.here()
    assert workshop.hidden() == []


def test_a_dead_process_of_another_host_may_live(workshop, no_locks, ended):
    left_by(workshop, pid=ended, host="node17")
    with pytest.raises(LockHeld, match=rf"process {ended} on node17") as caught, lock(workshop.output):
        pass
    assert f"delete {workshop.folder / HELD}" in caught.value.hint


def test_a_dead_process_of_another_boot_or_container_may_live(workshop, no_locks, ended):
    left_by(workshop, pid=ended, machine="another")
    with pytest.raises(LockHeld), lock(workshop.output):
        pass
    assert workshop.hidden() == [HELD]


@pytest.mark.parametrize(
    "content", [b"", b"x", b"1 2", b"-1 a b", b"0 a b", b"99999999999 a b", b"\xff" * 9, b"1 2 3 4"]
)
def test_a_lock_file_that_says_nothing_is_not_removed(workshop, no_locks, content):
    (workshop.folder / HELD).write_bytes(content)
    with pytest.raises(LockHeld, match="another process") as caught, lock(workshop.output):
        pass
    assert "delete " in caught.value.hint
    assert (workshop.folder / HELD).read_bytes() == content


def test_a_dead_lock_is_taken_by_one_of_two(workshop, no_locks, ended):
    """Another build is about to remove it: this one leaves it alone."""
    left_by(workshop, pid=ended)
    left_by(workshop, name=f"{HELD}.stale")
    with pytest.raises(LockHeld, match=rf"process {os.getpid()}"), lock(workshop.output):
        pass
    assert workshop.hidden() == [HELD, f"{HELD}.stale"]


def test_a_build_that_was_killed_while_it_took_a_dead_lock_names_what_to_delete(workshop, no_locks, ended):
    left_by(workshop, pid=ended)
    left_by(workshop, name=f"{HELD}.stale", pid=ended)
    with pytest.raises(LockHeld) as caught, lock(workshop.output):
        pass
    assert caught.value.hint.endswith(f"delete {workshop.folder / HELD}.stale")


def test_a_lock_from_before_the_locks_failed_holds(workshop, monkeypatch):
    with lock(workshop.output):
        monkeypatch.setattr(fcntl, "flock", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOLCK, "no locks")))
        with pytest.raises(LockHeld, match=rf"process {os.getpid()}"), lock(workshop.output):
            pass


def test_a_lock_from_while_there_were_none_holds(workshop):
    left_by(workshop)
    with pytest.raises(LockHeld, match=rf"process {os.getpid()}"), lock(workshop.output):
        pass


def test_a_dead_lock_from_while_there_were_none_is_removed(workshop, ended):
    left_by(workshop, pid=ended)
    with lock(workshop.output):
        assert workshop.hidden() == [".out.repokit.lock"]
    assert workshop.hidden() == []


def test_another_error_of_the_lock_is_one_line(workshop, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    with (
        pytest.raises(BuildError, match=r"\.out\.repokit\.lock: cannot be locked: Input/output error"),
        lock(workshop.output),
    ):
        pass


def test_a_process_of_this_machine_runs():
    assert not Holder.here().gone


def test_a_holder_elsewhere_is_named_with_its_host():
    assert str(Holder(7, "x", "node17")) == "process 7 on node17"
    assert str(Holder(7, "x", socket.gethostname())) == "process 7"


def test_a_host_cannot_write_to_the_terminal():
    assert str(Holder(7, "x", "a\x1b[2J")) == "process 7 on a\\x1b[2J"


def test_a_system_without_proc_has_a_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(locking, "Path", lambda name: tmp_path / name.strip("/"))
    assert Holder.here().machine == "-"
