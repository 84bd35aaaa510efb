"""Pools of threads whose submissions signals do not interrupt."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from repokit.threads import Threads


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """A shell starts what runs in its background deaf to Ctrl-C, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Ctrl-C while a submission asks whether a thread is idle; whether it went on nevertheless."""
    went_on = []
    acquire = pool._idle_semaphore.acquire

    def asked(*, timeout: float) -> bool:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        went_on.append(True)
        return acquire(timeout=timeout)

    monkeypatch.setattr(pool._idle_semaphore, "acquire", asked)
    with pytest.raises(KeyboardInterrupt):
        pool.submit(os.getpid)
    return bool(went_on)


def test_a_submission_is_ended_before_ctrl_c_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    with Threads(1) as pool:
        assert interrupted(pool, monkeypatch)


def test_one_of_the_standard_library_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the class is there for; where this fails, CPython does it itself."""
    with ThreadPoolExecutor(1) as pool:
        assert not interrupted(pool, monkeypatch)


def test_signals_are_answered_again_afterwards() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with Threads(1) as pool:
        pool.submit(os.getpid)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_threads_leave_signals_to_the_main_thread() -> None:
    with Threads(1) as pool:
        blocked = pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, []).result()
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} <= blocked


def test_another_thread_may_submit() -> None:
    with Threads(1) as pool, ThreadPoolExecutor(1) as outside:
        assert outside.submit(lambda: pool.submit(os.getpid).result()).result() == os.getpid()
