"""A plan carried out by other processes, and on a real cluster of two workers: the same bytes as here."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import CancelledError, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import pytest

from repokit.builder.execution import executors, staging
from repokit.builder.execution.execute import read_by
from repokit.builder.execution.executors import Running, check_address, opened, write_there
from repokit.builder.execution.journal import Journal
from repokit.builder.execution.task_builds import finalize, write_task
from repokit.builder.execution.tasks import Task
from repokit.errors import BuildError, ExecutorLost, MissingInput, PlanError, UsageError

RECIPE = {"weights": {"max_shard_size": "1KB", "dtype": "bfloat16"}}


@pytest.fixture
def plan(workshop):
    workshop.checkpoint(shards=3, files={"tokenizer.json": "{}", "code/a.py": "", "config.json": "{}"})
    workshop.checkpoint(shards=3)
    return workshop.plan(**RECIPE, files={"include": ["code/a.py"]})


@pytest.fixture
def expected(workshop, plan):
    """What threads of this process write."""
    workshop.carry_out(plan)
    contents = workshop.contents()
    workshop.output.rename(workshop.folder / "reference")
    return contents


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


# ------------------------------------------------------------------------------------------------ any executor


def test_processes_give_the_same_bytes(workshop, plan, expected, processes):
    workshop.carry_out(plan, executor=processes)
    assert workshop.contents() == expected
    assert workshop.hidden() == []


def test_a_task_may_have_an_executor(workshop, plan, expected, processes):
    for number in (2, 1):
        write_task(plan, Task(number, 2), executor=processes)
    finalize(plan, gate=lambda *_: None)
    assert workshop.contents() == expected


def test_progress_counts_to_the_end(workshop, plan, processes):
    seen = []
    workshop.carry_out(plan, executor=processes, progress=lambda *step: seen.append(step))
    assert [done for stage, done, _ in seen if stage == "write"][-1] == plan.size


def test_what_was_finished_is_used_again(workshop, plan, expected, processes):
    def progress(stage, done, total):
        if stage == "write" and done >= 0.5 * total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        workshop.carry_out(plan, executor=processes, progress=progress)
    finished = Journal(staging.staging_path(workshop.output, plan.digest)).finished()
    assert workshop.carry_out(plan, executor=processes).reused == len(finished) > 0
    assert workshop.contents() == expected


def test_an_error_of_a_worker_is_told_as_ours(workshop, processes):
    tensors = {**workshop.model(), "model.norm.weight": ("F32", (8,), b"\xff\xff\x7f\x7f" * 8)}
    workshop.checkpoint(tensors)
    plan = workshop.plan(weights={"dtype": "float16"})
    with pytest.raises(PlanError, match="cannot hold") as caught:
        workshop.carry_out(plan, executor=processes)
    assert caught.value.place == "model.norm.weight"
    assert workshop.hidden() == []


def test_an_executor_that_ended_leaves_what_is_finished(workshop, plan):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(os.getpid).result()
        for process in pool._processes.values():
            process.kill()
            process.join()
        with pytest.raises(ExecutorLost, match="the workers are gone before every file is written") as caught:
            workshop.carry_out(plan, executor=pool)
    assert caught.value.exit_code == 2
    assert "run the same command again" in caught.value.hint
    workshop.carry_out(plan)
    assert workshop.hidden() == []


def test_tensors_of_this_process_stay_in_it(workshop, processes):
    from repokit.builder.checkpoints.memory_weights import MemoryWeights
    from repokit.builder.planner import make_plan

    workshop.checkpoint()
    given = MemoryWeights({"model.norm.weight": memoryview(bytes(32)).cast("f")})
    plan = make_plan(workshop.recipe(), folder=workshop.folder, given=given)
    with pytest.raises(UsageError, match="the tensors are in this one"):
        workshop.carry_out(plan, executor=processes, given=given)


# ------------------------------------------------------------------------------------------------ what a worker does


@pytest.fixture
def sent(workshop, plan):
    """The arguments of the first shard, in a directory that is being written to."""
    place = workshop.folder / "staging"
    place.mkdir()
    operation = next(one for one in plan.operations if one.op == "write-shard")
    sources = [source.path for source in plan.sources]
    with Running(place) as token:
        yield {"sources": sources, "operation": operation, "staging": str(place), "token": token}


def test_a_worker_writes_its_file(sent, plan, workshop):
    record = write_there(**sent, hashed=True, room=0)
    assert (workshop.folder / "staging" / record.path).stat().st_size == record.size


def test_a_worker_that_does_not_see_the_directory_says_so(sent, tmp_path):
    with pytest.raises(BuildError, match="is not seen by the worker") as caught:
        write_there(**{**sent, "staging": str(tmp_path / "elsewhere")}, hashed=True, room=0)
    assert "under one path on every machine" in caught.value.why


def test_a_worker_that_sees_another_one_there_says_so(sent):
    with pytest.raises(BuildError, match="is not seen by the worker"):
        write_there(**{**sent, "token": "0" * 32}, hashed=True, room=0)


def test_a_worker_that_does_not_see_a_source_says_so(sent):
    with pytest.raises(MissingInput, match="cannot be read") as caught:
        write_there(**{**sent, "sources": ["/nowhere"] * len(sent["sources"])}, hashed=True, room=0)
    assert "under one path on every machine" in caught.value.why


def test_a_worker_stops_once_the_build_has_ended(sent, workshop, monkeypatch):
    watch = executors._Watch(sent["staging"], sent["token"])
    monkeypatch.setattr(executors, "_LOOK_EVERY", 1)
    assert not watch()
    (workshop.folder / "staging" / ".repokit-running").unlink()
    assert watch()


def test_what_is_sent_is_small(plan):
    """The paths that an operation does not read are not sent with it."""
    for operation in plan.operations:
        wanted = read_by(operation)
        own = [source.path if number in wanted else "" for number, source in enumerate(plan.sources)]
        call = partial(write_there, own, operation, "/staging", "0" * 32, hashed=True, room=0)
        assert len(pickle.dumps(call)) < 20_000 + 2 * len(pickle.dumps(operation))


# ------------------------------------------------------------------------------------------------ addresses


@pytest.mark.parametrize(("text", "address"), [("dask://h:8786", "tcp://h:8786"), ("dask://[::1]:1", "tcp://[::1]:1")])
def test_an_address_of_a_scheduler(text, address):
    assert check_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "dask", "dask://", "dask://h", "dask://:1", "dask://h:0", "dask://h:99999", "tcp://h:1", "threads"]
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(UsageError, match=r"is not dask://HOST:PORT"):
        check_address(text)


# ------------------------------------------------------------------------------------------------ a cluster


class Cluster:
    """A scheduler here, and two workers, which are processes of their own."""

    def __init__(self, workers=2):
        from distributed import LocalCluster

        quiet = {"dashboard_address": "127.0.0.1:0", "silence_logs": 50}
        self._cluster = LocalCluster(n_workers=workers, threads_per_worker=1, host="127.0.0.1", **quiet)
        self.address = self._cluster.scheduler_address.replace("tcp://", "dask://")

    @property
    def workers(self):
        """Their process ids."""
        return [worker.pid for worker in self._cluster.workers.values()]

    def close(self):
        self._cluster.close()


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("distributed")
    running = Cluster()
    yield running
    running.close()


@pytest.mark.dask
@pytest.mark.parametrize("manifest", ["keep", "off"])
def test_a_cluster_gives_the_same_bytes(workshop, cluster, manifest):
    workshop.checkpoint(shards=3, files={"tokenizer.json": "{}"})
    plan = workshop.plan(**RECIPE, manifest=manifest)
    workshop.carry_out(plan)
    expected = workshop.contents()
    workshop.output.rename(workshop.folder / "reference")
    workshop.carry_out(plan, executor=cluster.address)
    assert workshop.contents() == expected
    assert workshop.hidden() == []


@pytest.mark.dask
def test_two_workers_write(workshop, cluster, plan, monkeypatch):
    """Each says which it is."""
    from distributed import Client

    with Client(cluster.address.replace("dask://", "tcp://"), set_as_default=False) as client:
        client.wait_for_workers(2)
        workshop.carry_out(plan, executor=cluster.address)
        stories = client.run(
            lambda dask_worker: len([one for one in dask_worker.state.log if "write_there" in str(one)])
        )
    assert len(stories) == 2
    assert min(stories.values()) > 0


@pytest.mark.dask
def test_an_error_on_a_cluster_is_told_as_ours(workshop, cluster):
    tensors = {**workshop.model(), "model.norm.weight": ("F32", (8,), b"\xff\xff\x7f\x7f" * 8)}
    workshop.checkpoint(tensors)
    with pytest.raises(PlanError, match="cannot hold"):
        workshop.carry_out(workshop.plan(weights={"dtype": "float16"}), executor=cluster.address)


@pytest.mark.dask
def test_a_source_that_changes_on_a_cluster_is_refused(workshop, cluster, plan):
    def progress(stage, done, total):
        if stage == "write" and done == total:
            os.utime(workshop.folder / "checkpoint" / "config.json", ns=(1, 1))

    with pytest.raises(PlanError, match="has changed"):
        workshop.carry_out(workshop.plan(), executor=cluster.address, progress=progress)


@pytest.mark.dask
def test_nobody_at_the_address(workshop, plan, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(executors, "_TIMEOUT", 1)
    with pytest.raises(ExecutorLost, match=r"no dask scheduler answers at dask://127\.0\.0\.1:9") as caught:
        workshop.carry_out(plan, executor="dask://127.0.0.1:9")
    assert caught.value.exit_code == 2


@pytest.mark.dask
def test_a_scheduler_without_workers(workshop, plan):
    pytest.importorskip("distributed")
    with contextlib.closing(Cluster(workers=0)) as empty, pytest.raises(BuildError, match="has no workers"):
        workshop.carry_out(plan, executor=empty.address)


@pytest.mark.dask
def test_workers_that_do_not_see_the_directory(cluster, tmp_path):
    with (
        pytest.raises(BuildError, match=r"is not seen by tcp://.*, of 2 workers") as caught,
        opened(cluster.address, tmp_path / "elsewhere", "0" * 32),
    ):
        pass
    assert "under one path on every machine" in caught.value.why


@pytest.mark.dask
def test_workers_of_another_version(cluster, workshop, plan, monkeypatch):
    monkeypatch.setattr(executors, "__version__", "99.0")
    with pytest.raises(BuildError, match=r"have repokit .*, and this is 99\.0"):
        workshop.carry_out(plan, executor=cluster.address)


# ------------------------------------------------------------------------------------------------ ended in the middle


# In a shell's background SIGINT is ignored, and so is it in what is started there.
BUILD = """
import signal, sys
from pathlib import Path
from repokit.builder import build
from repokit.builder.execution import executors
from repokit.builder.plan import Plan

signal.signal(signal.SIGINT, signal.default_int_handler)

def progress(stage, done, total):
    if stage == "write" and done:
        print("writing", flush=True)
        sys.stdin.readline()

plan = Plan.read(Path(sys.argv[1]))
try:
    build.carry_out(plan, gate=lambda *_: None, executor=sys.argv[2], progress=progress)
except KeyboardInterrupt:
    sys.exit(130)
except Exception as error:
    print(type(error).__name__, flush=True)
    sys.exit(2)
"""


@pytest.fixture
def own_cluster():
    """One that a test may end."""
    pytest.importorskip("distributed")
    running = Cluster()
    yield running
    running.close()


@pytest.fixture
def building(workshop, environment, plan):
    """Starts a build on a cluster, which waits in the middle for a line."""
    started = []

    def start(address):
        path = workshop.folder / "plan.json"
        path.write_text(plan.anywhere().model_dump_json())
        command = [sys.executable, "-c", BUILD, str(path), address]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, env=environment, text=True, **pipes)
        started.append(process)
        assert process.stdout.readline() == "writing\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.dask
def test_a_worker_that_is_killed_is_replaced(workshop, plan, expected, own_cluster, building):
    process = building(own_cluster.address)
    os.kill(own_cluster.workers[0], signal.SIGKILL)
    process.communicate("\n" * 100)
    assert process.returncode == 0
    assert workshop.contents() == expected


@pytest.mark.dask
def test_a_scheduler_that_is_gone_is_one_line(workshop, plan, expected, own_cluster, building):
    process = building(own_cluster.address)
    journal = Journal(staging.staging_path(workshop.output, plan.digest))
    own_cluster.close()
    output, messages = process.communicate("\n" * 100)
    finished = journal.finished()
    if process.returncode:  # it had not written everything yet
        assert (process.returncode, output.splitlines()[-1], messages) == (2, "ExecutorLost", "")
        assert workshop.carry_out(plan).reused == len(finished) > 0
    assert workshop.contents() == expected


class Client:
    """Stands for a client of dask's, and for the future of its one task."""

    def __init__(self, status, outcome):
        self.status = status
        self._outcome = outcome
        self.cancelled = False
        self._callbacks = []

    def submit(self, call, *, pure):
        assert not pure
        return self

    def add_done_callback(self, call):
        self._callbacks.append(call)

    def result(self, timeout):
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome

    def cancel(self):
        self.cancelled = True

    def end(self):
        for call in self._callbacks:
            call(self)


def outcome(client):
    future = executors.Cluster(client).submit(os.getpid)
    client.end()
    return future.exception() or future.result()


def test_what_a_task_gives_arrives():
    assert outcome(Client("finished", ("shard", 1))) == ("shard", 1)


@pytest.mark.parametrize("error", [TimeoutError(), OSError("connection refused"), ValueError("too many values")])
def test_a_result_that_does_not_arrive_is_a_lost_one(error):
    """The scheduler ended between the end of the task and our question."""
    assert isinstance(outcome(Client("lost", error)), ExecutorLost)


@pytest.mark.parametrize("error", [TimeoutError(), PlanError("cannot hold it")])
def test_an_error_of_a_task_stays_its_own(error):
    assert outcome(Client("error", error)) is error


def test_a_task_that_nobody_waits_for_is_taken_back():
    client = Client("cancelled", CancelledError())
    future = executors.Cluster(client).submit(os.getpid)
    future.cancel()
    client.end()
    assert (client.cancelled, future.cancelled()) == (True, True)


@pytest.mark.dask
def test_ctrl_c_ends_a_build_on_a_cluster(workshop, plan, expected, cluster, building):
    process = building(cluster.address)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate()
    assert (process.returncode, messages) == (130, "")
    assert not workshop.output.exists()
    workshop.carry_out(plan, executor=cluster.address)
    assert workshop.contents() == expected
