"""Builds behind an address: in fsspec's store in memory, and on the disk through fsspec."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from repokit import api
from repokit.builder.execution import remote_journal, remote_target, writing
from repokit.builder.execution.journal import NAME
from repokit.builder.execution.remote_journal import HEAD, Head
from repokit.errors import BuildError, LockHeld, PlanError, Stopped, TargetRefused, UsageError
from repokit.formats.urls import Url
from repokit.schema.manifest import MANIFEST_NAME, Manifest

OUT = "memory://bucket/models/out"
SHARDED = {"weights": {"max_shard_size": "1KB", "dtype": "bfloat16"}}
SINGLE = {"weights": {"max_shard_size": "5GB"}}
CANARY = "CANARYq8Zp"


class Store:
    """A store in memory, and what a build leaves in it."""

    def __init__(self):
        self.system = fsspec.filesystem("memory")

    def contents(self, root="/bucket/models/out"):
        found = self.system.find(root)
        return {path.removeprefix(f"{root}/"): self.system.cat_file(path) for path in found}

    def put(self, path, content, root="/bucket/models/out"):
        self.system.pipe_file(f"{root}/{path}", content)

    def remove(self, path, root="/bucket/models/out"):
        self.system.rm_file(f"{root}/{path}")


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    return Store()


@pytest.fixture
def model(workshop):
    workshop.checkpoint(files={"tokenizer.json": "{}", "LICENSE": "text"})
    return workshop


@pytest.fixture
def expected(model):
    """What a build into a directory of the same name gives."""

    def build(**keys):
        model.build(output="./reference/out", force=True, **keys)
        return model.contents(model.folder / "reference" / "out")

    return build


# ------------------------------------------------------------------------------------------------ the same bytes


@pytest.mark.parametrize("keys", [SHARDED, SINGLE, {"manifest": "off", **SHARDED}, {"manifest": "publish"}])
@pytest.mark.parametrize("jobs", [1, 4])
def test_a_build_behind_an_address_is_that_in_a_directory(model, store, expected, keys, jobs):
    built = model.build(output=OUT, jobs=jobs, **keys)
    assert store.contents() == expected(**keys)
    assert (str(built.output), built.reused) == (OUT, 0)


def test_the_same_on_a_disk(model, expected):
    model.build(output=f"file://{model.output}", jobs=2, **SHARDED)
    assert model.contents() == expected(**SHARDED)
    assert model.hidden() == []


def test_its_manifest_is_of_what_is_there(model, store):
    import hashlib

    built = model.build(output=OUT, **SHARDED)
    contents = store.contents()
    manifest = Manifest.model_validate_json(contents.pop(MANIFEST_NAME))
    assert manifest.files == built.files
    assert {file.path: (file.size, file.sha256) for file in manifest.files} == {
        path: (len(content), hashlib.sha256(content).hexdigest()) for path, content in contents.items()
    }


def test_from_one_address_to_another(model, store, expected):
    for path, content in model.contents(model.folder / "checkpoint").items():
        store.put(path, content, "/bucket/run")
    model.build(source="memory://bucket/run", output=OUT, **SHARDED)
    assert store.contents() == expected(**SHARDED)


def test_tensors_of_a_program(model, store, expected):
    tensors = {
        name: memoryview(data).cast("B") for name, (dtype, _, data) in model.model("U8").items() if dtype == "U8"
    }
    recipe = {"source": str(model.folder / "checkpoint"), "license": {"id": "apache-2.0"}}
    gate = lambda _source, _stage: None  # noqa: E731 - no llama has such tensors
    api.build(model.recipe(output=OUT, **recipe), tensors=tensors, gate=_Quiet(gate))
    there = store.contents()
    api.build(model.recipe(output=str(model.folder / "here/out"), **recipe), tensors=tensors, gate=_Quiet(gate))
    assert there == model.contents(model.folder / "here/out")


class _Quiet:
    """A gate that lets everything through, with what the api gives a gate."""

    base = None

    def __init__(self, look):
        self.look = look

    def __call__(self, source, stage):
        self.look(source, stage)


def test_a_plan_from_a_file_can_be_carried_out(model, store, expected, tmp_path):
    (tmp_path / "plan.json").write_text(model.plan(output=OUT, **SHARDED).anywhere().model_dump_json())
    model.carry_out(api.read_plan(tmp_path / "plan.json"))
    assert store.contents() == expected(**SHARDED)


# ------------------------------------------------------------------------------------------------ what a reader sees


def loaded(contents, read):
    """What transformers would load; None where it would stop: one file goes before an index, and config.json first."""
    if "config.json" not in contents:
        return None
    if "model.safetensors" in contents:
        return read(contents["model.safetensors"])
    if "model.safetensors.index.json" not in contents:
        return None
    found = {}
    try:
        weight_map = json.loads(contents["model.safetensors.index.json"])["weight_map"]
    except ValueError:  # as in a store in memory while it is written
        return None
    for name, shard in weight_map.items():
        if shard not in contents:
            return None
        tensors = read(contents[shard])
        if tensors is None or name not in tensors:
            return None
        found[name] = tensors[name]
    return found


@pytest.fixture
def watched(store, monkeypatch, workshop, tmp_path):
    """Tells after every change of the store what a reader would load from it, until it is asked for all of that."""
    import safetensors

    def read(content):
        try:
            return {name: bytes(found["data"]) for name, found in safetensors.deserialize(bytes(content))}
        except safetensors.SafetensorError:
            return None

    seen = []

    def look():
        seen.append(loaded(store.contents(), read))

    for owner, name in ((MemoryFile, "commit"), (MemoryFile, "write"), (MemoryFileSystem, "rm_file")):
        real = getattr(owner, name)

        def changed(self, *arguments, _real=real, **options):
            found = _real(self, *arguments, **options)
            look()
            return found

        monkeypatch.setattr(owner, name, changed)

    def take():
        look()
        found = [one for one, before in zip(seen, [object(), *seen], strict=False) if one != before]
        seen.clear()
        return found

    return take


@pytest.mark.parametrize(
    "after", [SHARDED, SINGLE, {"weights": {"max_shard_size": "2KB"}}], ids=["sharded", "single", "other"]
)
@pytest.mark.parametrize("before", [SHARDED, SINGLE], ids=["sharded", "single"])
def test_a_reader_sees_a_whole_model_or_none(model, store, watched, before, after):
    model.build(output=OUT, **before)
    nothing, old = watched()
    model.checkpoint({name: model.tensor(dtype, shape, 77) for name, (dtype, shape, _) in model.model().items()})
    model.build(output=OUT, **after)
    assert ["new" if one not in (old, None) else one for one in watched()] == [old, nothing, "new"]


def test_what_is_not_part_of_it_any_more_is_gone(model, store, expected):
    model.build(output=OUT, **SHARDED)
    model.build(output=OUT, **SINGLE)
    assert store.contents() == expected(**SINGLE)


@pytest.mark.parametrize(("keys", "last"), [(SHARDED, "model.safetensors.index.json"), (SINGLE, "config.json")])
def test_the_mark_of_a_whole_set_is_written_last(model, store, keys, last):
    model.build(output=OUT, **keys)
    times = {path: MemoryFileSystem.store[f"/bucket/models/out/{path}"].created for path in store.contents()}
    assert max(times, key=times.get) == last


# ------------------------------------------------------------------------------------------------ whose the target is


@pytest.mark.parametrize("path", ["notes.txt", "config.json", "deep/in/it.bin"])
def test_files_that_repokit_did_not_write_are_not_replaced(model, store, path):
    store.put(path, b"theirs")
    with pytest.raises(TargetRefused, match="was not built by repokit"):
        model.build(output=OUT)
    assert store.contents() == {path: b"theirs"}


def test_force_replaces_them(model, store, expected):
    store.put("someone.txt", b"theirs")
    model.build(output=OUT, force=True)
    assert store.contents() == expected()


def test_a_neighbour_with_a_longer_name_is_left_alone(model, store):
    store.put("file.txt", b"theirs", "/bucket/models/out-2")
    model.build(output=OUT, force=True)
    model.build(output=OUT)
    assert store.contents("/bucket/models/out-2") == {"file.txt": b"theirs"}


@pytest.mark.parametrize(
    ("path", "content"), [("README.md", b"edited"), ("added.txt", b"new"), ("model.safetensors", b"x")]
)
def test_what_was_edited_or_added_since_is_named(model, store, path, content):
    model.build(output=OUT)
    store.put(path, content)
    before = store.contents()
    with pytest.raises(TargetRefused, match=rf"{path} was edited or added"):
        model.build(output=OUT)
    assert store.contents() == before


def test_an_edit_of_equal_length_is_noticed(model, store):
    model.build(output=OUT)
    store.put("LICENSE", b"tExt")
    with pytest.raises(TargetRefused, match="LICENSE was edited"):
        model.build(output=OUT)


def test_a_large_file_is_read_where_it_is_newer_than_the_manifest(model, store, monkeypatch):
    monkeypatch.setattr(remote_target, "_SMALL", 10)
    model.build(output=OUT)
    content = store.contents()["model.safetensors"]
    store.put("model.safetensors", content[:-1] + b"\x01")
    with pytest.raises(TargetRefused, match=r"model\.safetensors was edited"):
        model.build(output=OUT)


def test_a_large_file_that_is_older_is_not_read(model, store, monkeypatch):
    model.build(output=OUT)
    monkeypatch.setattr(remote_target, "_SMALL", 10)
    store.put(MANIFEST_NAME, store.contents()[MANIFEST_NAME])  # newer than all others
    read = []
    real = MemoryFileSystem.cat_file
    monkeypatch.setattr(
        MemoryFileSystem, "cat_file", lambda self, path, *rest, **o: read.append(path) or real(self, path, *rest, **o)
    )
    api.check_plan(model.plan(output=OUT), _Quiet(lambda _source, _stage: None))
    assert not [path for path in read if path.endswith("model.safetensors")]


def test_force_discards_what_changed(model, store, expected):
    model.build(output=OUT)
    store.put("README.md", b"edited")
    store.put("added.txt", b"new")
    model.build(output=OUT, force=True)
    assert store.contents() == expected()


@pytest.mark.parametrize("path", ["README.md", "added.txt", "config.json"])
def test_keep_carries_a_file_over(model, store, path):
    model.build(output=OUT)
    store.put(path, b'{"model_type": "llama"}')
    built = model.build(output=OUT, kept=(path,), **SHARDED)
    assert store.contents()[path] == b'{"model_type": "llama"}'
    assert {file.path: file.origin for file in built.files}[path] == "kept"
    with pytest.raises(TargetRefused, match=path):
        model.build(output=OUT)


def test_a_dry_run_says_what_a_build_would_say(model, store):
    store.put("someone.txt", b"theirs")
    with pytest.raises(TargetRefused, match="was not built by repokit"):
        api.check_plan(model.plan(output=OUT), _Quiet(lambda _source, _stage: None))


# ------------------------------------------------------------------------------------------------ what interrupts it


@pytest.fixture
def interrupted(model, store, monkeypatch):
    """Interrupts a build as Ctrl-C does, after a share of its bytes."""
    monkeypatch.setattr(writing, "CHUNK", 64)

    def interrupt(share=0.6, *, jobs=1, output=OUT, **keys):
        plan = model.plan(output=output, **(keys or SHARDED))

        def progress(stage, done, total):
            if stage == "write" and done >= share * total:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            model.carry_out(plan, progress=progress, jobs=jobs)
        return plan

    return interrupt


@pytest.mark.parametrize(("share", "jobs"), [(0.01, 1), (0.2, 1), (0.2, 4), (0.4, 1), (0.6, 4), (0.6, 1)])
def test_an_interrupted_build_ends_with_the_same_bytes(model, store, interrupted, expected, share, jobs):  # noqa: PLR0917 - fixtures
    plan = interrupted(share, jobs=jobs)
    assert "model.safetensors.index.json" not in store.contents()
    model.carry_out(plan, jobs=jobs)
    assert store.contents() == expected(**SHARDED)


def test_finished_files_are_not_written_again(model, store, interrupted):
    plan = interrupted()
    records = [path for path in store.contents() if path.startswith(f"{NAME}/") and path != HEAD]
    finished = [json.loads(store.contents()[path])["file"]["path"] for path in records]
    before = {path: MemoryFileSystem.store[f"/bucket/models/out/{path}"] for path in finished}
    assert model.carry_out(plan).reused == len(finished) > 0
    assert {path: MemoryFileSystem.store[f"/bucket/models/out/{path}"] for path in finished} == before


@pytest.mark.parametrize("what", ["longer", "another", "gone"])
def test_a_finished_file_that_changed_is_written_again(model, store, interrupted, expected, what):
    plan = interrupted()
    path = next(path for path in store.contents() if path.endswith(".safetensors"))
    content = store.contents()[path]
    store.remove(path)
    if what != "gone":
        store.put(path, content + b"x" if what == "longer" else content[:-1] + b"\x07")
    model.carry_out(plan)
    assert store.contents() == expected(**SHARDED)


@pytest.mark.parametrize("content", [b"", b"{", b'{"file": 3}', b"\xff"])
def test_half_a_record_is_no_record(model, store, interrupted, expected, content):
    plan = interrupted()
    for path in store.contents():
        if path.startswith(f"{NAME}/") and path != HEAD:
            store.put(path, content)
    assert model.carry_out(plan).reused == 0
    assert store.contents() == expected(**SHARDED)


def test_another_plan_begins_anew_after_a_build_that_ended(model, store, interrupted, expected):
    interrupted()
    assert model.build(output=OUT, **SINGLE).reused == 0
    assert store.contents() == expected(**SINGLE)


def test_but_not_while_it_may_be_running(model, store, interrupted, expected):
    interrupted()
    head = Head.model_validate_json(store.contents()[HEAD])
    store.put(HEAD, head.model_copy(update={"ended": False}).model_dump_json().encode())
    before = store.contents()
    with pytest.raises(LockHeld, match="unfinished build of another plan"):
        model.build(output=OUT, **SINGLE)
    assert store.contents() == before
    model.build(output=OUT, force=True, **SINGLE)
    assert store.contents() == expected(**SINGLE)


def test_a_file_that_a_person_added_meanwhile_is_not_lost(model, store, interrupted):
    plan = interrupted()
    store.put("notes.txt", b"mine")
    with pytest.raises(TargetRefused, match=r"notes\.txt was edited or added"):
        model.carry_out(plan)


def test_nor_one_that_was_added_while_it_wrote(model, store):
    plan = model.plan(output=OUT, **SHARDED)
    with pytest.raises(TargetRefused, match=r"notes\.txt was edited or added"):
        model.carry_out(plan, progress=lambda stage, *_: stage == "verify" and store.put("notes.txt", b"mine"))
    assert store.contents()["notes.txt"] == b"mine"
    assert "model.safetensors.index.json" not in store.contents()


def test_a_build_that_was_taken_over_does_not_finish(model, store):
    other = Head(digest="another", own=()).model_dump_json().encode()
    with pytest.raises(LockHeld, match="taken over by another build"):
        model.carry_out(
            model.plan(output=OUT, **SHARDED), progress=lambda stage, *_: stage == "verify" and store.put(HEAD, other)
        )
    assert store.contents()[HEAD] == other
    assert "config.json" not in store.contents()


def test_findings_of_what_was_written_leave_nothing_that_loads(model, store):
    def gate(_source, stage):
        if stage == "output":
            raise Stopped("findings")

    with pytest.raises(Stopped):
        remote_target.carry_out(model.plan(output=OUT, **SHARDED), gate=gate, progress=lambda *_: None)
    assert {"config.json", "model.safetensors.index.json", MANIFEST_NAME}.isdisjoint(store.contents())


def test_the_gate_sees_what_the_target_will_be(model, store, expected):
    seen = {}
    store.put("old.txt", b"old")

    def gate(source, stage):
        seen[stage] = {path: source.read(path) for path in source.entries()} if stage == "output" else None

    remote_target.carry_out(model.plan(output=OUT, **SHARDED), gate=gate, progress=lambda *_: None, force=True)
    assert list(seen) == ["plan", "output"]
    assert seen["output"] == store.contents() == expected(**SHARDED)


@pytest.mark.parametrize("failing", range(1, 16))
def test_whichever_write_fails_the_next_build_ends_it(model, store, expected, monkeypatch, failing):
    model.build(output=OUT, **SINGLE)
    count = iter(range(1, 1000))
    real = MemoryFileSystem._open

    def opened(self, path, mode="rb", **options):
        if mode == "wb" and next(count) == failing:
            raise PermissionError("Access Denied")
        return real(self, path, mode, **options)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "_open", opened)
        with pytest.raises(BuildError, match="may not be written: Access Denied"):
            model.build(output=OUT, **SHARDED)
    model.build(output=OUT, **SHARDED)
    assert store.contents() == expected(**SHARDED)


def test_a_store_that_lost_bytes_is_noticed(model, store, monkeypatch):
    def close(self):
        if self.path.endswith("/model.safetensors"):
            self.truncate(10)

    monkeypatch.setattr(MemoryFile, "close", close)
    with pytest.raises(BuildError, match=r"out/model\.safetensors: has 10 bytes in its store"):
        model.build(output=OUT)
    assert "config.json" not in store.contents()


def test_a_value_that_does_not_fit_is_said_and_nothing_loads(model, store):
    import struct

    tensors = {**model.model(), "lm_head.weight": ("F32", (16, 8), struct.pack("<128f", *[1e30] * 128))}
    model.checkpoint(tensors)
    with pytest.raises(PlanError, match="which F16 cannot hold"):
        model.build(output=OUT, weights={"dtype": "float16"})
    assert "config.json" not in store.contents()


def test_an_executor_is_refused_before_anything_is_written(model, store):
    with pytest.raises(UsageError, match="the output is an address"):
        model.carry_out(model.plan(output=OUT), executor="dask://127.0.0.1:9")
    assert store.contents() == {}


def test_a_tensor_that_needs_too_much_memory_is_refused_before_anything_is_written(model, store):
    with pytest.raises(UsageError, match="is less than"):
        model.carry_out(model.plan(output=OUT), memory=1000)
    assert store.contents() == {}


def test_an_earlier_build_that_is_taken_apart_is_mentioned(model, store, monkeypatch):
    model.build(output=OUT, **SINGLE)
    monkeypatch.setattr(remote_journal.RemoteJournal, "append", lambda *_: (_ for _ in ()).throw(BuildError("lost")))
    with pytest.raises(BuildError, match="lost") as caught:
        model.build(output=OUT, **SHARDED)
    assert caught.value.why == "the earlier build there cannot be loaded until a build succeeds"


# ------------------------------------------------------------------------------------------------ a process that is killed

PROGRAM = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from repokit.builder.execution import remote_journal
from repokit.builder.build import carry_out
from repokit.builder.plan import Plan

left = [int(sys.argv[2])]
append = remote_journal.RemoteJournal.append

def counted(self, record):
    append(self, record)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)

remote_journal.RemoteJournal.append = counted
carry_out(Plan.read(Path(sys.argv[1])), gate=lambda *_: None)
"""


@pytest.mark.parametrize("killed_after", range(1, 8))
def test_a_killed_process_is_gone_on_with(model, expected, environment, tmp_path, killed_after):
    plan = model.plan(output=f"file://{model.output}", **SHARDED)
    (tmp_path / "plan.json").write_text(plan.anywhere().model_dump_json())
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "plan.json"), str(killed_after), environment["PYTHONPATH"]]
    done = subprocess.run(command, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (model.output / "model.safetensors.index.json").exists() == (killed_after == 7)
    before = {path: path.stat().st_mtime_ns for path in model.output.rglob("*") if path.is_file()}
    assert model.carry_out(plan).reused == killed_after
    unwritten = [path for path, time in before.items() if path.is_file() and path.stat().st_mtime_ns == time]
    assert len(unwritten) >= killed_after
    assert model.contents() == expected(**SHARDED)


# ------------------------------------------------------------------------------------------------ what is secret


def test_a_password_in_the_output_is_written_nowhere(model, store, capsys):
    secret = f"memory://me:{CANARY}@bucket/out"
    plan = model.plan(output=secret, **SHARDED)
    built = model.carry_out(plan)
    contents = store.contents(f"/me:{CANARY}@bucket/out")
    assert MANIFEST_NAME in contents
    texts = [plan.anywhere().model_dump_json(), str(built.output), repr(built), *map(repr, contents.values())]
    assert CANARY not in "".join(texts)
    store.put("added.txt", b"x", f"/me:{CANARY}@bucket/out")
    with pytest.raises(TargetRefused) as caught:
        model.build(output=secret)
    assert CANARY not in f"{caught.value} {caught.value.why} {caught.value.hint}"
    assert Url.parse(plan.output).address == secret


def test_nothing_of_a_source_s_address_is_in_the_output(model, store):
    for path, content in model.contents(model.folder / "checkpoint").items():
        store.put(path, content, f"/bucket/{CANARY}")
    model.build(source=f"memory://bucket/{CANARY}", output=OUT, **SHARDED)
    assert CANARY.encode() not in b"".join(store.contents().values())
