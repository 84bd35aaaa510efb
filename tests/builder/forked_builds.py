"""A program that runs `repokit build` in processes that it forks: a build without the second in which Python starts.

It answers requests on a socket, which is its standard input. Each is a line of JSON:

folders     where to build, a build for each, all at once
hold        the build that took the lock goes on when another has ended
kill_after  seconds after the lock was taken; the first build is then killed
flags       of the command
threads     write with threads, as the command does; else in one thread, so that calls can be counted

The answer is a line of JSON: the exit code of each build, -9 where it was killed; its process; and, with kill_after,
how many seconds the first one lived with the lock.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from concurrent.futures import Executor, Future

from repokit.builder import build
from repokit.builder.execution import execute, task_builds
from repokit.cli import run
from repokit.threads import Threads


class Inline(Executor):
    """Carries tasks out where they are submitted."""

    def __init__(self, **_options):
        pass

    def submit(self, function, *arguments):
        future = Future()
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            if not isinstance(error, Exception):
                raise
            future.set_exception(error)
        return future

    def shutdown(self, *, wait=True, cancel_futures=False):
        pass


def forked(folder, wanted, *, threads, begin, locked, release):
    """Starts a build that waits until `begin` is closed, and tells `locked` that it has the lock."""
    pid = os.fork()
    if pid:
        return pid
    code = 3
    try:
        os.chdir(folder)
        for descriptor, name in ((1, "stdout.txt"), (2, "stderr.txt")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), descriptor)
        os.close(begin[1])
        os.close(release[1])
        os.read(begin[0], 1)
        execute.Threads = Threads if threads else Inline

        def telling(begun):
            def tell(*arguments, **keys):
                os.write(locked, b"x")
                if wanted.get("hold"):
                    os.read(release[0], 1)
                return begun(*arguments, **keys)

            return tell

        build._begun = telling(build._begun)
        task_builds.execute = telling(task_builds.execute)
        code = run(["build", *wanted.get("flags", [])])
        sys.stdout.flush()
    finally:
        os._exit(code)


def carry_out(wanted):
    begin, lock, release = os.pipe(), os.pipe(), os.pipe()
    options = {"threads": bool(wanted.get("threads")), "begin": begin, "locked": lock[1], "release": release}
    processes = [forked(folder, wanted, **options) for folder in wanted["folders"]]
    for descriptor in (*begin, lock[1]):
        os.close(descriptor)
    after = wanted.get("kill_after")
    locked = os.read(lock[0], 1) if after is not None else b""
    since = time.monotonic()
    if after is not None and locked:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(processes[0], signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, max(after, 1e-6))
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # its number is its own until it is waited for
    seconds = time.monotonic() - since
    signal.setitimer(signal.ITIMER_REAL, 0)
    ended = dict([os.waitpid(-1, 0)])
    os.close(release[1])
    ended |= dict(os.waitpid(process, 0) for process in processes if process not in ended)
    codes = [os.waitstatus_to_exitcode(ended[process]) for process in processes]
    os.close(lock[0])
    os.close(release[0])
    return {"codes": codes, "processes": processes, "seconds": seconds}


def main():
    connection = socket.socket(fileno=0)
    with connection.makefile("r") as requests:
        for line in requests:
            # sendall, not write: a write is what strace is told to let fail.
            connection.sendall(json.dumps(carry_out(json.loads(line))).encode() + b"\n")


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    with open(os.devnull, "w") as sys.stdout, open(os.devnull, "w") as sys.stderr:  # noqa: PTH123 - a device
        for _ in range(2):  # every module that a build loads is loaded, and its second build replaces the first
            assert run(["build"]) == 0
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    main()
