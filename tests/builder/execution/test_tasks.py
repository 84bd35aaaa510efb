"""A plan carried out in tasks: in any order, several times, interrupted, the result is that of one straight build."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given, strategies as st

from repokit.builder.execution import staging, writing
from repokit.builder.execution.locking import lock
from repokit.builder.execution.task_builds import finalize, write_task
from repokit.builder.execution.tasks import Task, assigned
from repokit.builder.plan import Plan
from repokit.errors import BuildError, LockHeld, MissingInput, NoSpace, PlanError, Stopped, UsageError
from repokit.operations import WriteText

RECIPE = {"weights": {"max_shard_size": "1KB", "dtype": "bfloat16"}}


def let(_source, _stage):
    """A gate that lets everything pass: a llama of this size would not please the linter."""


@pytest.fixture
def plan(workshop):
    workshop.checkpoint(files={"tokenizer.json": "{}"})
    return workshop.plan(**RECIPE)


@pytest.fixture
def expected(workshop):
    """What one straight build gives."""

    def build(**keys):
        workshop.build(output="./reference/out", **{**RECIPE, **keys})
        return workshop.contents(workshop.folder / "reference" / "out")

    return build


def place(workshop, plan):
    return staging.staging_path(workshop.output, plan.digest)


def folder(workshop, plan):
    return staging.tasks_path(workshop.output, plan.digest)


def interrupted(plan, task, share=0.5):
    """A task that ends as Ctrl-C ends it, after a share of its bytes."""

    def progress(stage, done, total):
        if stage == "write" and done >= share * total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_task(plan, task, progress=progress)


# ------------------------------------------------------------------------------------------------ which file is whose


@st.composite
def operations(draw):
    sizes = draw(st.lists(st.integers(0, 50), max_size=40))
    return [WriteText(path=f"f{number}", content=bytes(size), origin="x") for number, size in enumerate(sizes)]


@given(operations(), st.integers(1, 60))
def test_every_file_is_one_task_s(found, of):
    shares = assigned(found, of)
    assert shares.keys() == {operation.path for operation in found}
    assert all(task.of == of and 1 <= task.number <= of for task in shares.values())


@given(operations(), st.integers(1, 60), st.randoms(use_true_random=False))
def test_the_shares_do_not_depend_on_the_order(found, of, generator):
    shuffled = generator.sample(found, len(found))
    assert assigned(shuffled, of) == assigned(found, of)


@given(operations(), st.integers(1, 8))
def test_no_share_is_larger_than_another_by_more_than_a_file(found, of):
    loads = Counter(dict.fromkeys(range(1, of + 1), 0))
    for path, task in assigned(found, of).items():
        loads[task.number] += next(operation.size for operation in found if operation.path == path)
    assert max(loads.values()) - min(loads.values()) <= max((operation.size for operation in found), default=0)


def test_a_million_tasks_are_no_work():
    assert set(assigned([WriteText(path="a", content=b"x", origin="x")], 1_000_000).values()) == {Task(1, 1_000_000)}


@pytest.mark.parametrize(("text", "task"), [("1/1", Task(1, 1)), ("3/8", Task(3, 8)), (" 08/10 ", Task(8, 10))])
def test_a_task_is_read(text, task):
    assert Task.parsed(text) == task


@pytest.mark.parametrize("text", ["", "1", "1/", "/2", "a/b", "-1/4", "1/2/3", "1.0/2", "٣/٤", "1/99999999999"])
def test_what_is_no_task_is_refused(text):
    with pytest.raises(UsageError, match="is not K/N"):
        Task.parsed(text)


@pytest.mark.parametrize("text", ["0/4", "5/4", "0/0"])
def test_a_task_that_is_not_among_them_is_refused(text):
    with pytest.raises(UsageError, match=f"there is no task {text}") as caught:
        Task.parsed(text)
    assert "counted from 1" in caught.value.hint


# ------------------------------------------------------------------------------------------------ the same bytes


@pytest.mark.parametrize("order", random.Random(1).sample(list(permutations(range(1, 5))), 4))
def test_any_order_gives_the_bytes_of_one_build(workshop, plan, expected, order):
    for number in order:
        write_task(plan, Task(number, 4))
    finalize(plan, gate=let)
    assert workshop.contents() == expected()
    assert workshop.hidden() == []


@pytest.mark.full
@pytest.mark.parametrize("order", list(permutations(range(1, 5))))
def test_every_order_gives_the_bytes_of_one_build(workshop, plan, expected, order):
    test_any_order_gives_the_bytes_of_one_build(workshop, plan, expected, order)


@pytest.mark.parametrize("of", [1, 2, 3, 100])
@pytest.mark.parametrize("jobs", [1, 8])
def test_any_number_of_tasks_and_jobs_gives_them(workshop, plan, expected, of, jobs):
    for number in range(1, of + 1):
        write_task(plan, Task(number, of), jobs=jobs)
    finalize(plan, gate=let)
    assert workshop.contents() == expected()


@pytest.mark.parametrize("manifest", ["keep", "publish", "off"])
def test_a_manifest_is_as_one_build_writes_it(workshop, manifest, expected):
    workshop.checkpoint()
    plan = workshop.plan(**RECIPE, manifest=manifest)
    for number in (2, 1):
        write_task(plan, Task(number, 2))
    built = finalize(plan, gate=let)
    assert workshop.contents() == expected(manifest=manifest)
    assert bool(built.files) == (manifest != "off")


@pytest.mark.parametrize("share", [0.001, 0.3, 0.6, 0.9])
def test_an_interrupted_task_is_gone_on_with(workshop, monkeypatch, plan, expected, share):
    monkeypatch.setattr(writing, "CHUNK", 64)
    interrupted(plan, Task(2, 2), share)
    for again in (1, 2):
        write_task(plan, Task(again, 2))
    finalize(plan, gate=let)
    assert workshop.contents() == expected()


def test_a_task_that_is_run_again_writes_what_is_missing(workshop, plan):
    whole = write_task(plan, Task(1, 2))
    lost = place(workshop, plan) / max(whole.paths)
    before = {path: (place(workshop, plan) / path).stat().st_mtime_ns for path in whole.paths}
    lost.unlink()
    again = write_task(plan, Task(1, 2))
    after = {path: (place(workshop, plan) / path).stat().st_mtime_ns for path in whole.paths}
    assert (again.reused, again.paths) == (len(whole.paths) - 1, whole.paths)
    assert [path for path in before if before[path] != after[path]] == [lost.name]


def test_shares_may_be_cut_anew(workshop, plan, expected):
    """Four were too few: what they have finished counts, and seven write the rest."""
    write_task(plan, Task(1, 4))
    for number in range(1, 8):
        write_task(plan, Task(number, 7))
    finalize(plan, gate=let)
    assert workshop.contents() == expected()


def test_a_build_of_the_whole_plan_goes_on_with_what_tasks_wrote(workshop, plan, expected):
    written = write_task(plan, Task(1, 2))
    assert workshop.carry_out(plan).reused == len(written.paths)
    assert workshop.contents() == expected()
    assert workshop.hidden() == []


def test_tasks_go_on_with_what_a_build_of_the_whole_plan_wrote(workshop, monkeypatch, plan, expected):
    monkeypatch.setattr(writing, "CHUNK", 64)

    def progress(stage, done, total):
        if stage == "write" and done >= 0.9 * total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        workshop.carry_out(plan, progress=progress)
    reused = sum(write_task(plan, Task(number, 2)).reused for number in (1, 2))
    finalize(plan, gate=let)
    assert reused > 0
    assert workshop.contents() == expected()


def test_a_plan_out_of_a_file_is_the_same_plan(workshop, plan, expected):
    path = workshop.folder / "plan.json"
    path.write_text(plan.anywhere().model_dump_json())
    for number in (1, 2, 3):
        write_task(Plan.read(path), Task(number, 3))
    finalize(Plan.read(path), gate=let)
    assert workshop.contents() == expected()


def test_a_file_that_is_written_again_is_whole_all_the_time(workshop, monkeypatch, plan):
    """A second process of a task, where locks do not work, must not take away what the first has said is there."""
    monkeypatch.setattr(writing, "CHUNK", 64)
    write_task(plan, Task(1, 1))
    contents = workshop.contents(place(workshop, plan))
    (folder(workshop, plan) / "1-of-1.journal").unlink()
    seen = []

    def progress(_stage, _done, _total):
        seen.append(workshop.contents(place(workshop, plan)) == contents)

    write_task(plan, Task(1, 1), progress=progress)
    assert len(seen) > len(contents)
    assert all(seen)


def test_what_was_longer_is_cut(workshop, plan, expected):
    place(workshop, plan).mkdir()
    for operation in plan.operations:
        (place(workshop, plan) / operation.path).write_bytes(b"\xff" * 50_000)
    write_task(plan, Task(1, 1))
    finalize(plan, gate=let)
    assert workshop.contents() == expected()


def test_half_a_line_of_a_journal_does_not_swallow_the_next(workshop, plan):
    written = write_task(plan, Task(1, 2))
    journal = folder(workshop, plan) / "1-of-2.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    assert write_task(plan, Task(1, 2)).reused == len(written.paths) - 1
    assert write_task(plan, Task(1, 2)).reused == len(written.paths)


# ------------------------------------------------------------------------------------------------ finalize


def refused(plan, error=BuildError):
    with pytest.raises(error) as caught:
        finalize(plan, gate=let, command=lambda task: f"again {task}")
    return caught.value


def test_what_is_missing_is_named(workshop, plan):
    for number in (1, 3):
        write_task(plan, Task(number, 4))
    missing = [path for path, task in assigned(plan.operations, 4).items() if task.number in {2, 4}]
    error = refused(plan)
    assert f"{len(missing)} files of the plan are missing: {min(missing)}" in error.what
    assert error.why.startswith("tasks 2/4, 4/4 have not finished")
    assert error.hint == "again 2/4"
    assert not workshop.output.exists()


def test_one_that_is_missing_is_named(workshop, plan):
    written = [write_task(plan, Task(number, 3)) for number in (1, 2, 3)]
    (place(workshop, plan) / written[1].paths[0]).unlink()
    error = refused(plan)
    assert error.what == f"1 file of the plan is missing: {written[1].paths[0]}"
    assert (error.why.partition(",")[0], error.hint) == ("task 2/3 has not finished", "again 2/3")


def test_a_file_that_is_shorter_than_recorded_is_missing(workshop, plan):
    written = write_task(plan, Task(1, 1))
    path = place(workshop, plan) / written.paths[0]
    path.write_bytes(path.read_bytes()[:-1])
    assert refused(plan).what == f"1 file of the plan is missing: {written.paths[0]}"


def test_without_tasks_it_says_how_they_are_carried_out(workshop, plan):
    error = refused(plan)
    assert "no task of this plan has written" in error.why
    assert error.hint == "carry out each task: again 1/N to again N/N"
    assert workshop.hidden() == []


def test_tasks_of_another_plan_are_told_from_none(workshop, plan):
    write_task(plan, Task(1, 1))
    other = workshop.plan(weights={"max_shard_size": "2KB"})
    assert "had another plan" in refused(other).why
    finalize(plan, gate=let)


def test_a_task_says_who_is_waited_for(plan):
    assert [write_task(plan, Task(number, 3)).waiting for number in (2, 1, 3)] == [
        (Task(1, 3), Task(3, 3)),
        (Task(3, 3),),
        (),
    ]


def test_findings_leave_what_the_tasks_wrote(workshop, plan, expected):
    write_task(plan, Task(1, 1))

    def gate(_source, stage):
        if stage == "output":
            raise Stopped("findings")

    with pytest.raises(Stopped):
        finalize(plan, gate=gate)
    assert not workshop.output.exists()
    finalize(plan, gate=let)
    assert workshop.contents() == expected()
    assert workshop.hidden() == []


def test_one_that_was_killed_while_it_put_things_in_place_is_gone_on_with(workshop, plan, expected):
    write_task(plan, Task(1, 1))
    (place(workshop, plan) / ".mode").mkdir()  # made and removed in the last step
    finalize(plan, gate=let)
    assert workshop.contents() == expected()


def test_the_journals_are_not_linted(plan):
    write_task(plan, Task(1, 1))
    seen = []

    def gate(source, stage):
        if stage == "output":
            seen.extend(source.entries())

    finalize(plan, gate=gate)
    assert sorted(seen) == sorted(["repokit-manifest.json", *(operation.path for operation in plan.operations)])


def test_an_output_that_was_edited_is_not_replaced(workshop, plan):
    workshop.build()
    (workshop.output / "config.json").write_text("{}")
    with pytest.raises(BuildError, match="was edited"):
        write_task(plan, Task(1, 1))
    write_task(plan, Task(1, 1), force=True)
    with pytest.raises(BuildError, match="was edited"):
        finalize(plan, gate=let)
    finalize(plan, gate=let, force=True)
    assert workshop.hidden() == []


def test_another_build_removes_what_tasks_left(workshop, plan):
    write_task(plan, Task(1, 2))
    workshop.build()
    assert workshop.hidden() == []


def finalized(plan):
    for number in (1, 2):
        write_task(plan, Task(number, 2))
    return finalize(plan, gate=let)


def test_what_is_put_in_place_is_in_place_already(workshop, plan):
    built = finalized(plan)
    again = finalize(plan, gate=let)
    assert (built.in_place, again.in_place, again.files) == (False, True, built.files)


def test_a_task_that_is_queued_once_more_leaves_nothing(workshop, plan):
    finalized(plan)
    assert write_task(plan, Task(1, 2)).in_place
    assert workshop.hidden() == []


def test_another_checkpoint_of_the_same_shapes_is_not_in_place(workshop, plan):
    finalized(plan)
    tensors = workshop.model()
    dtype, shape, data = tensors["model.norm.weight"]
    workshop.checkpoint({**tensors, "model.norm.weight": (dtype, shape, data[::-1])}, files={"tokenizer.json": "{}"})
    other = workshop.plan(**RECIPE)
    assert not write_task(other, Task(1, 1)).in_place
    assert not finalize(other, gate=let).in_place


def test_an_output_that_was_edited_is_not_in_place(workshop, plan):
    finalized(plan)
    (workshop.output / "config.json").write_text("{}")
    with pytest.raises(BuildError, match="was edited"):
        write_task(plan, Task(1, 2))


# ------------------------------------------------------------------------------------------------ who may run


RUNNING = """
import sys
from pathlib import Path
from repokit.builder.plan import Plan
from repokit.builder.execution.task_builds import write_task
from repokit.builder.execution.tasks import Task

def progress(stage, done, total):
    if stage == "write" and not told:
        told.append(print("writing", flush=True))
        sys.stdin.read()

told = []
write_task(Plan.read(Path(sys.argv[1])), Task.parsed(sys.argv[2]), progress=progress)
"""


@pytest.fixture
def running(workshop, environment, plan):
    """Task 2 of 3 in another process, in the middle of its work."""
    path = workshop.folder / "plan.json"
    path.write_text(plan.anywhere().model_dump_json())
    command = [sys.executable, "-c", RUNNING, str(path), "2/3"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"writing\n"
        yield process
        process.kill()


def test_the_same_task_does_not_run_twice(running, plan):
    with pytest.raises(LockHeld, match=rf"out: task 2/3 is being carried out by process {running.pid}$"):
        write_task(plan, Task(2, 3))


def test_other_tasks_run_beside_it(workshop, running, plan, expected):
    for number in (1, 3):
        write_task(plan, Task(number, 3))
    running.communicate()
    finalize(plan, gate=let)
    assert workshop.contents() == expected()


@pytest.mark.parametrize("same", [True, False])
def test_no_build_of_the_output_runs_beside_a_task(workshop, running, plan, same):
    other = plan if same else workshop.plan()
    with pytest.raises(LockHeld, match=rf"out: task 2/3 is being carried out by process {running.pid}$"):
        workshop.carry_out(other)
    assert running.communicate() == (b"", None)
    assert running.returncode == 0


def test_nothing_is_put_in_place_beside_a_task(running, plan):
    with pytest.raises(LockHeld, match="task 2/3"):
        finalize(plan, gate=let)


def test_no_task_runs_beside_a_build_of_the_output(workshop, plan):
    with lock(workshop.output), pytest.raises(LockHeld, match="out: is being built by process"):
        write_task(plan, Task(1, 2))
    assert workshop.hidden() == []


def test_a_task_that_was_killed_holds_nothing(workshop, running, plan, expected):
    running.send_signal(signal.SIGKILL)
    running.wait()
    for number in (1, 2, 3):
        write_task(plan, Task(number, 3))
    finalize(plan, gate=let)
    assert workshop.contents() == expected()
    assert workshop.hidden() == []


def test_a_task_that_was_killed_is_what_is_waited_for(running, plan):
    running.send_signal(signal.SIGKILL)
    running.wait()
    for number in (1, 3):
        write_task(plan, Task(number, 3))
    error = refused(plan)
    assert (error.why, error.hint) == ("task 2/3 was interrupted", "again 2/3")


def test_one_that_was_killed_has_had_this_plan(running, plan):
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert refused(plan).why.startswith("tasks 1/3, 2/3, 3/3 have not finished")


def test_where_there_are_no_locks_a_file_stands_in_for_them(workshop, running, plan, monkeypatch):
    """That of a task which ended without removing it, on a machine that cannot be asked."""
    running.communicate()
    held = folder(workshop, plan) / "1-of-3.lock.held"
    held.write_text("12 another-boot elsewhere\n")
    with pytest.raises(LockHeld, match="task 1/3 is being carried out by process 12 on elsewhere") as caught:
        workshop.carry_out(plan)
    assert str(held) in caught.value.hint
    with pytest.raises(LockHeld, match="task 1/3"):
        write_task(plan, Task(1, 3))


# ------------------------------------------------------------------------------------------------ what goes wrong


def test_tasks_that_cannot_be_listed_may_be_running(workshop, plan):
    """A build that took them for none would remove what they are writing."""
    folder = staging.tasks_path(workshop.output, plan.digest)
    folder.symlink_to(folder.name)  # to itself: no system lists that
    with pytest.raises(OSError, match="symbolic links") as caught:
        workshop.carry_out(plan)
    assert caught.value.filename == str(folder)
    assert not workshop.output.exists()


@pytest.mark.parametrize("call", [lambda plan: write_task(plan, Task(1, 2)), lambda plan: finalize(plan, gate=let)])
def test_a_plan_with_relative_paths_is_refused(plan, call):
    with pytest.raises(PlanError, match="out: is relative in this plan") as caught:
        call(plan.model_copy(update={"output": "out"}))
    assert caught.value.hint == "make the plan with `repokit build --plan FILE`"


def test_an_address_is_refused(plan):
    with pytest.raises(PlanError, match="is an address"):
        write_task(plan.model_copy(update={"output": "s3://bucket/out"}), Task(1, 2))


def test_a_source_that_is_not_here_stops_the_task_that_reads_it(workshop, plan):
    (workshop.folder / "checkpoint" / "tokenizer.json").unlink()
    whose = assigned(plan.operations, 2)["tokenizer.json"]
    with pytest.raises(MissingInput, match=r"tokenizer\.json: cannot be read: No such file") as caught:
        write_task(plan, whose)
    assert "carry it out where they are" in caught.value.hint
    write_task(plan, Task(3 - whose.number, 2))


def test_a_source_that_changed_stops_the_task_that_reads_it(workshop, plan):
    (workshop.folder / "checkpoint" / "tokenizer.json").write_text("{} ")
    with pytest.raises(PlanError, match=r"tokenizer\.json: has changed since the plan was made"):
        write_task(plan, assigned(plan.operations, 2)["tokenizer.json"])


def test_a_task_that_fails_leaves_what_others_wrote(workshop, plan, expected):
    source = workshop.folder / "checkpoint" / "tokenizer.json"
    whose = assigned(plan.operations, 2)["tokenizer.json"]
    write_task(plan, Task(3 - whose.number, 2))
    status, content = source.stat(), source.read_bytes()
    source.unlink()
    with pytest.raises(MissingInput):
        write_task(plan, whose)
    source.write_bytes(content)
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    write_task(plan, whose)
    finalize(plan, gate=let)
    assert workshop.contents() == expected()


def test_a_disk_needs_room_for_the_share_alone(workshop, plan, monkeypatch):
    share = sum(
        operation.size for operation in plan.operations if assigned(plan.operations, 2)[operation.path].number == 1
    )
    usage = shutil.disk_usage(workshop.folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=int(share * 1.05)))
    with pytest.raises(NoSpace):
        workshop.carry_out(plan)
    write_task(plan, Task(1, 2))
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=0))
    write_task(plan, Task(1, 2))
    with pytest.raises(NoSpace, match="needs"):
        write_task(plan, Task(2, 2))


def test_a_task_without_files_has_nothing_to_do(plan):
    last = write_task(plan, Task(100, 100))
    assert (last.paths, last.size, last.reused) == ((), 0, 0)


# ------------------------------------------------------------------------------------------------ killed


FLAGS = ["--apply", "plan.json"]


@pytest.fixture
def split(forge):
    """A forge whose plan is carried out in three tasks."""

    def make():
        summary = forge.next()
        assert forge.build(flags=["--plan", "plan.json"]) == 0, forge.message()
        return summary

    return make


def ended(forge, summary):
    """Carries out all tasks, and looks at what comes of it."""
    for number in (3, 1, 2):
        assert forge.build(flags=[*FLAGS, "--task", f"{number}/3"]) == 0, forge.message()
    assert forge.build(flags=[*FLAGS, "--finalize"]) == 0, forge.message()
    assert (forge.state(), forge.left()) == (summary, [])


def random_kills(forge, split, number, seed):
    generator = random.Random(seed)
    split()
    usual = forge.ask(kill_after=3600, flags=[*FLAGS, "--task", "1/1"])["seconds"]
    codes = Counter()
    for _ in range(number):
        before, summary = forge.state(), split()
        for _ in range(2):
            flags = [*FLAGS, "--task", f"{generator.randint(1, 3)}/3"]
            codes[forge.ask(kill_after=generator.uniform(0, usual), threads=True, flags=flags)["codes"][0]] += 1
            assert forge.state() == before
        ended(forge, summary)
    assert codes.keys() <= {0, -signal.SIGKILL}
    return codes[-signal.SIGKILL]


def test_tasks_that_are_killed_at_any_moment_are_gone_on_with(forge, split):
    random_kills(forge, split, 3, seed=1)


@pytest.mark.full
def test_two_hundred_killed_tasks(forge, split):
    assert random_kills(forge, split, 100, seed=2) > 25


@pytest.mark.parametrize("flags", [["--task", "1/3"], ["--finalize"]], ids=["task", "finalize"])
def test_a_task_that_is_killed_at_a_system_call_is_gone_on_with(strace, split, flags):
    kills_at_calls(strace, split, flags, 3)


@pytest.mark.full
@pytest.mark.parametrize("flags", [["--task", "1/3"], ["--finalize"]], ids=["task", "finalize"])
def test_a_task_that_is_killed_at_each_of_its_system_calls(strace, split, flags):
    kills_at_calls(strace, split, flags, None)


def kills_at_calls(forge, split, flags, number):
    """Kills a task, or the end of a build in tasks, as it makes a system call for the nth time."""

    def prepared():
        summary = split()
        for task in (1, 2, 3) if flags == ["--finalize"] else ():
            assert forge.build(flags=[*FLAGS, "--task", f"{task}/3"]) == 0, forge.message()
        return summary

    prepared()
    code, calls = forge.traced("-e", f"trace={forge.calls_traced}", flags=[*FLAGS, *flags])
    assert code == 0, forge.message()
    names = Counter(line.partition("(")[0] for line in calls.splitlines())
    moments = [(call, time) for call in forge.calls_traced.split(",") for time in range(1, names[call] + 1)]
    for call, time in random.Random(3).sample(moments, number or len(moments)):
        before, summary = forge.state(), prepared()
        options = ["-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={time}"]
        code, _ = forge.traced(*options, flags=[*FLAGS, *flags])
        assert code == -signal.SIGKILL, (call, time)
        assert forge.state() in {before, summary}
        if forge.state() != summary:
            ended(forge, summary)
        else:  # put in place before it was killed
            assert forge.build() == 0
            assert forge.left() == []
