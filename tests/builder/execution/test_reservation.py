"""Memory that is reserved: jobs together stay within it, and a tensor that cannot is named before anything is written."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, strategies as st

from repokit.builder import reading
from repokit.builder.execution import writing
from repokit.builder.execution.reservation import OWN, Reservation, for_tensors
from repokit.builder.plan import Plan, Sources, Summary
from repokit.errors import PlanError, UsageError
from repokit.formats.safetensors import header_bytes
from repokit.formats.tensors import TensorInfo
from repokit.operations import Piece, View, WriteShard
from repokit.schema.recipe import Lint

ROWS = 300


class Meter:
    """How many bytes are reserved at once."""

    def __init__(self):
        self._lock = threading.Lock()
        self.now = self.most = 0

    def take(self, amount):
        with self._lock:
            self.now += amount
            self.most = max(self.most, self.now)

    def give(self, amount):
        with self._lock:
            self.now -= amount


@given(st.lists(st.integers(0, 20), min_size=1, max_size=30), st.integers(1, 20), st.integers(1, 6))
def test_no_more_is_reserved_than_there_is(amounts, limit, threads):
    reservation, meter = Reservation(limit), Meter()

    def use(amount):
        with reservation.of(amount):
            meter.take(amount)
            meter.give(amount)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(use, amounts))
    assert meter.most <= max(limit, *amounts)
    assert meter.now == 0


def test_what_fits_does_not_wait():
    reservation = Reservation(10)
    with reservation.of(6), ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: reservation.of(4).__enter__()).result() is None


def test_nothing_is_never_waited_for():
    reservation = Reservation(1)
    with reservation.of(1), reservation.of(0):
        pass


def test_what_is_larger_than_everything_is_alone():
    reservation, order = Reservation(10), []
    begun = threading.Event()

    def large():
        begun.set()
        with reservation.of(50):
            order.append("large")

    with reservation.of(1):
        thread = threading.Thread(target=large)
        thread.start()
        begun.wait()
        order.append("small")
    thread.join()
    assert order == ["small", "large"]


def test_a_failure_gives_back_what_it_took():
    reservation = Reservation(1)
    with pytest.raises(ZeroDivisionError), reservation.of(1):
        raise ZeroDivisionError
    with reservation.of(1):
        pass


# ------------------------------------------------------------------------------------------------ of a plan


def transposed(folder, sources, number, columns):
    """A file of one tensor, which lies transposed in its source."""
    source = folder / f"{number}.bin"
    source.write_bytes(bytes(ROWS * columns * 4))
    size = ROWS * columns * 4
    header = header_bytes([TensorInfo(f"matrix.{number}", "F32", (columns, ROWS), 0, size)], {})
    view = View(shape=(columns, ROWS), strides=(1, columns), itemsize=4)
    piece = Piece(source=sources.index(source), offset=0, length=size, view=view)
    path = f"model-{number}.safetensors"
    return WriteShard(path=path, header=header, pieces=(piece,), size=len(header) + size)


@pytest.fixture
def plan(tmp_path):
    """Eight files of a matrix each, of 120 kB to 960 kB, which must stand in memory."""
    sources = Sources()
    operations = [transposed(tmp_path, sources, number, 100 * number) for number in range(1, 9)]
    return Plan(
        repokit="0",
        output=str(tmp_path / "out"),
        manifest="keep",
        sources=tuple(sources),
        operations=tuple(operations),
        left_out=(),
        lint=Lint(),
        summary=Summary(tensors=8, parameters=0, weight_bytes=0, source_bytes=0, shards=8),
    )


@pytest.fixture
def meter(monkeypatch):
    """What stands in memory while tensors are brought side by side."""
    meter, original = Meter(), reading.Reader.contents

    def contents(self, content):
        meter.take(content.memory)
        yield from original(self, content)
        meter.give(content.memory)

    monkeypatch.setattr(writing.Reader, "contents", contents)
    return meter


LARGEST = 8 * 100 * ROWS * 4


@pytest.mark.parametrize("memory", [None, OWN + LARGEST])
def test_jobs_together_take_no_more_than_the_largest_tensor(workshop, plan, meter, memory):
    workshop.carry_out(plan, jobs=8, memory=memory)
    assert meter.most == LARGEST


@pytest.mark.parametrize("times", [1.5, 3])
def test_jobs_together_stay_within_the_memory(workshop, plan, meter, times):
    workshop.carry_out(plan, jobs=8, memory=OWN + int(times * LARGEST))
    assert LARGEST <= meter.most <= times * LARGEST


def test_memory_changes_no_byte(workshop, plan):
    workshop.carry_out(plan)
    before = workshop.contents()
    workshop.carry_out(plan, jobs=8, memory=OWN + 2 * LARGEST)
    assert workshop.contents() == before


def test_a_tensor_that_is_too_large_is_named_before_anything_is_written(workshop, plan):
    with pytest.raises(PlanError) as caught:
        workshop.carry_out(plan, memory=OWN + LARGEST - 1)
    error = caught.value
    assert (error.path, error.place) == ("model-8.safetensors", "matrix.8")
    assert error.what == "needs 960.0 kB of memory at once, and 960.0 kB are left for tensors"
    assert error.hint == "--memory 301MB, or more"
    assert workshop.hidden() == []


def test_what_the_hint_says_is_enough(plan):
    assert for_tensors(plan.operations, 301_000_000) == 1_000_000


def test_the_tensor_is_named_wherever_it_lies_in_its_file(plan):
    one, two = plan.operations[0], plan.operations[1]
    infos = [
        TensorInfo("small", "F32", (100, ROWS), 0, 120_000),
        TensorInfo("large", "F32", (200, ROWS), 120_000, 360_000),
    ]
    header = header_bytes(infos, {})
    both = WriteShard(path="m", header=header, pieces=(*one.pieces, *two.pieces), size=len(header) + 360_000)
    with pytest.raises(PlanError) as caught:
        for_tensors([both], OWN + 120_000)
    assert caught.value.place == "large"


def test_less_than_a_build_takes_itself_is_refused(plan):
    with pytest.raises(UsageError, match=r"--memory 100.0 MB is less than the 300.0 MB that a build takes") as caught:
        for_tensors(plan.operations, 100_000_000)
    assert caught.value.hint == "--memory 300MB is the least"


def test_what_is_copied_needs_no_room(workshop):
    workshop.checkpoint()
    assert for_tensors(workshop.plan().operations, OWN) == 0
