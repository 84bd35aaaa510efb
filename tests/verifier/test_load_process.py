"""The child process, with programs of our own in the place of load_child.py: they answer, die, hang, babble."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from repokit.verifier.load_process import ChildProcess, Lost

LONG = 60  # seconds that no child here needs

Child = Callable[..., ChildProcess]


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    """Starts a program that says `[1]` when it runs, then does what the test says."""
    running: list[ChildProcess] = []

    def start(body: str, request: object = None) -> ChildProcess:
        program = tmp_path / "program.py"
        program.write_text(f"import json, os, signal, sys\nprint('[1]', flush=True)\n{body}\n")
        running.append(ChildProcess({"asked": request}, threads=3, program=program))
        assert running[-1].answer(LONG) == b"[1]"
        return running[-1]

    yield start
    for process in running:
        process.end()


def told(child: ChildProcess, seconds: float = LONG) -> Lost:
    with pytest.raises(Lost) as caught:
        child.answer(seconds)
    return caught.value


def test_it_reads_the_request_and_answers_lines(child):
    process = child("print(ascii(json.load(sys.stdin)['asked'])); print('end')", request="a name\ud800")
    assert (process.answer(LONG), process.answer(LONG)) == (rb"'a name\ud800'", b"end")


def test_a_crash_is_told_with_its_signal(child):
    lost = told(child("os.kill(os.getpid(), signal.SIGSEGV)"))
    assert (lost.kind, "SIGSEGV" in str(lost)) == ("crash", True)


def test_an_exit_is_told_with_what_it_said_last(child):
    lost = told(child("sys.exit('libcuda.so.1: cannot open shared object file')"))
    assert "exit status 1: libcuda.so.1: cannot open" in str(lost)


def test_a_kill_is_told_as_the_memory_that_ran_out(child):
    lost = told(child("os.kill(os.getpid(), signal.SIGKILL)"))
    assert (lost.kind, "memory" in str(lost)) == ("limit", True)


def test_a_child_that_hangs_is_given_up(child):
    lost = told(child("signal.pause()"), seconds=0.01)
    assert (lost.kind, str(lost)) == ("limit", "no answer within 0.01 s")


def test_a_child_that_babbles_without_an_end_is_given_up(child, monkeypatch):
    monkeypatch.setattr("repokit.verifier.load_process._LARGEST", 100_000)
    lost = told(child("while True: os.write(1, b'x' * 65536)"))
    assert (lost.kind, "no report" in str(lost)) == ("crash", True)


def test_what_a_library_says_does_not_fill_a_pipe(child):
    process = child("sys.stderr.write('x' * 10_000_000); print('done')")
    assert process.answer(LONG) == b"done"


def test_its_own_children_end_with_it(child, tmp_path):
    """A pipe that only they hold open hangs up."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    body = f"w = os.open({str(tmp_path / 'pipe')!r}, os.O_WRONLY)\nif os.fork() == 0: signal.pause()\nprint('forked')"
    process = child(body)
    assert process.answer(LONG) == b"forked"
    process.end()
    poll = select.poll()
    poll.register(reader, select.POLLHUP)
    hung_up = poll.poll(LONG * 1000)
    os.close(reader)
    assert hung_up


def environment(process: ChildProcess) -> dict[str, str]:
    found: dict[str, str] = json.loads(process.answer(LONG))
    return found


DUMP = "print(json.dumps(dict(os.environ)))"


@pytest.mark.parametrize("name", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY"])
def test_it_has_no_secret_and_no_way_out(child, monkeypatch, name):
    monkeypatch.setenv(name, "hf_secret")
    assert "hf_secret" not in environment(child(DUMP)).values()


def test_it_is_offline_and_bounded(child):
    found = environment(child(DUMP))
    assert (found["HF_HUB_OFFLINE"], found["TRANSFORMERS_OFFLINE"], found["OMP_NUM_THREADS"]) == ("1", "1", "3")


def test_its_home_is_its_own_and_goes_with_it(child, tmp_path):
    process = child(DUMP)
    home = Path(environment(process)["HF_HOME"])
    assert [path.name for path in home.iterdir()] == ["request.json"]
    process.end()
    assert not home.exists()


def test_modules_beside_us_are_not_its_modules(child, tmp_path, monkeypatch):
    """A repository may hold a torch.py: neither where we stand nor where the program lies are searched."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PYTHONPATH", "")
    for folder in (tmp_path, tmp_path / "here"):
        (folder / "only_here.py").touch()
    process = child("import importlib.util; print(importlib.util.find_spec('only_here'))")
    assert process.answer(LONG) == b"None"


def test_a_relative_path_to_modules_is_still_ours(child, tmp_path, monkeypatch):
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "only_here.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "modules")
    assert child("import only_here; print('found')").answer(LONG) == b"found"
