from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from repokit.builder.build import carry_out
from repokit.builder.execution import writing
from repokit.builder.reading import Reader
from repokit.builder.transforms.cast import cast
from repokit.errors import BuildError, MissingInput, NoSpace, PlanError
from repokit.operations import Piece
from repokit.schema.manifest import Manifest

SHARDED = {"max_shard_size": "1KB"}


def straightforward(tensors, dtype="F32"):
    """The bytes of a file with these tensors, put together in the plainest way."""
    table = {
        name: (
            dtype if stored == "F32" else stored,
            shape,
            bytes(cast(data, f"F32>{dtype}")) if stored == "F32" != dtype else data,
        )
        for name, (stored, shape, data) in tensors.items()
    }
    width = {"I64": 8, "F32": 4, "BF16": 2}
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name in sorted(table, key=lambda name: (-width[table[name][0]], name)):
        stored, shape, data = table[name]
        header[name] = {"dtype": stored, "shape": list(shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + body


@pytest.mark.parametrize("chunk", [8, 24, 1024 * 1024])
@pytest.mark.parametrize("dtypes", [("auto", "F32"), ("bfloat16", "BF16")])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_file_has_the_bytes_of_the_straightforward_construction(workshop, monkeypatch, chunk, dtypes, shards):
    asked, dtype = dtypes
    monkeypatch.setattr(writing, "CHUNK", chunk)
    workshop.checkpoint(shards=shards)
    workshop.build(weights={"dtype": asked, "max_shard_size": "1GB"})
    assert workshop.read("model.safetensors") == straightforward(workshop.model(), dtype)


@pytest.mark.parametrize("manifest", ["keep", "off"])
def test_any_number_of_jobs_gives_the_same_bytes(workshop, manifest):
    workshop.checkpoint(shards=3, files={"tokenizer.json": "{}"})
    for jobs in (1, 4):
        workshop.build(weights=SHARDED, jobs=jobs, output=f"./{jobs}/name", manifest=manifest)
    assert workshop.contents(workshop.folder / "1") == workshop.contents(workshop.folder / "4")


@pytest.mark.parametrize("behind", [1, 100, 3000])
def test_telling_the_disk_to_begin_changes_no_byte(workshop, monkeypatch, behind):
    workshop.checkpoint()
    monkeypatch.setattr(writing, "WRITE_BEHIND", behind)
    workshop.build()
    assert workshop.read("model.safetensors") == straightforward(workshop.model())


def test_empty_tensors_are_written(workshop):
    tensors = {**workshop.model(), "empty": ("F32", (0, 4), b""), "also.empty": ("BF16", (0,), b"")}
    workshop.checkpoint(tensors)
    workshop.build(weights={"dtype": "bfloat16"})
    assert {name: shape for name, (_, shape, data) in workshop.tensors().items() if not data} == {
        "empty": (0, 4),
        "also.empty": (0,),
    }


def test_empty_files_are_copied(workshop):
    workshop.checkpoint(files={"merges.txt": b""})
    workshop.build()
    assert workshop.read("merges.txt") == b""


def test_the_manifest_lists_every_file_with_its_hash(workshop):
    workshop.checkpoint(files={"tokenizer.json": "{}"})
    built = workshop.build(weights=SHARDED)
    contents = workshop.contents()
    manifest = Manifest.model_validate_json(contents.pop("repokit-manifest.json"))
    assert manifest.files == built.files
    assert {file.path: (file.size, file.sha256) for file in manifest.files} == {
        path: (len(content), hashlib.sha256(content).hexdigest()) for path, content in contents.items()
    }


def test_the_manifest_says_what_each_file_follows_from(workshop):
    workshop.checkpoint(files={"tokenizer.json": "{}"})
    origins = {file.path: file.origin for file in workshop.build(weights={"dtype": "bfloat16"}).files}
    assert origins == {
        "LICENSE": "huggingface_hub",
        "README.md": "recipe",
        "config.json": "source, recipe",
        "model.safetensors": "weights",
        "tokenizer.json": "source",
    }


def test_without_a_manifest_nothing_is_hashed(workshop):
    workshop.checkpoint()
    assert workshop.build(manifest="off").files == ()
    assert not (workshop.output / "repokit-manifest.json").exists()


def test_the_source_is_only_read(workshop):
    root = workshop.checkpoint(shards=3, files={"tokenizer.json": "{}"})
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in root.iterdir()}
    workshop.build(weights={"dtype": "bfloat16"})
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in root.iterdir()} == before


def test_nothing_is_left_beside_the_output(workshop):
    workshop.checkpoint()
    workshop.build()
    assert sorted(path.name for path in workshop.folder.iterdir()) == ["checkpoint", "out"]


def test_progress_counts_to_the_end(workshop):
    workshop.checkpoint()
    seen = []
    plan = workshop.plan(weights=SHARDED)
    workshop.carry_out(plan, progress=lambda *step: seen.append(step))
    assert seen[-1] == ("verify", plan.size, plan.size)
    assert [done for stage, done, _ in seen if stage == "write"][-1] == plan.size


# ------------------------------------------------------------------------------------------------ modes


@pytest.fixture(params=[0o022, 0o027, 0o077])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_modes_follow_the_umask(workshop, umask):
    workshop.checkpoint(files={"additional_chat_templates/x.jinja": "x"})
    workshop.build()
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in [workshop.output, *workshop.output.rglob("*")]}
    assert found == {path: (0o777 if path.is_dir() else 0o666) & ~umask for path in found}


def test_modes_of_the_source_are_not_inherited(workshop):
    root = workshop.checkpoint(files={"tokenizer.json": "{}"})
    (root / "tokenizer.json").chmod(0o600)
    workshop.build()
    probe = workshop.folder / "probe"
    probe.touch()
    assert (workshop.output / "tokenizer.json").stat().st_mode == probe.stat().st_mode


# ------------------------------------------------------------------------------------------------ sources that change


def test_a_source_that_changed_since_the_plan_is_refused(workshop):
    root = workshop.checkpoint(files={"tokenizer.json": "{}"})
    plan = workshop.plan()
    (root / "tokenizer.json").write_text("[]")
    os.utime(root / "tokenizer.json", ns=(1, 1))
    with pytest.raises(PlanError, match=r"tokenizer\.json: has changed since the plan was made"):
        workshop.carry_out(plan)


def test_a_source_that_became_shorter_is_refused(workshop):
    weights = workshop.checkpoint() / "model.safetensors"
    plan = workshop.plan()
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(PlanError, match=r"model\.safetensors: has changed since the plan was made"):
        workshop.carry_out(plan)


def test_a_source_that_vanished_is_refused(workshop):
    root = workshop.checkpoint()
    plan = workshop.plan()
    (root / "model.safetensors").unlink()
    with pytest.raises(MissingInput, match=r"model\.safetensors: cannot be read: No such file"):
        workshop.carry_out(plan)


def during(workshop, monkeypatch, change):
    """Carries a plan out; `change` runs once, after the first chunk was written."""
    pending = [change]
    original = writing._Output.write

    def write(self, content):
        original(self, content)
        while pending:
            pending.pop()()

    monkeypatch.setattr(writing._Output, "write", write)
    monkeypatch.setattr(writing, "CHUNK", 64)
    workshop.carry_out(workshop.plan())


def test_a_source_that_changes_during_the_build_is_refused(workshop, monkeypatch):
    weights = workshop.checkpoint() / "model.safetensors"
    with pytest.raises(PlanError, match=r"model\.safetensors: has changed since the plan was made"):
        during(workshop, monkeypatch, lambda: os.utime(weights, ns=(1, 1)))


def test_a_source_that_shrinks_during_the_build_is_refused(workshop, monkeypatch):
    weights = workshop.checkpoint() / "model.safetensors"
    with pytest.raises(PlanError, match=r"model\.safetensors: has (changed|become shorter) since the plan was made"):
        during(workshop, monkeypatch, lambda: os.truncate(weights, 500))


@pytest.mark.parametrize("error", [PlanError, MissingInput])
def test_a_refused_build_leaves_the_target_as_it_was(workshop, error):
    root = workshop.checkpoint()
    workshop.build()
    before = workshop.contents()
    plan = workshop.plan(weights={"dtype": "bfloat16"})
    (root / "model.safetensors").unlink()
    if error is PlanError:
        workshop.checkpoint()
    with pytest.raises(error):
        workshop.carry_out(plan)
    assert workshop.contents() == before
    assert workshop.hidden() == []


# ------------------------------------------------------------------------------------------------ file systems


def failing(monkeypatch, call, code, *, after=0):
    """Makes a system call fail, from the given call on. What the kernel would answer cannot be had otherwise."""
    calls = []
    original = getattr(os, call)

    def fail(*arguments, **more):
        calls.append(arguments)
        if len(calls) > after:
            raise OSError(code, os.strerror(code))
        return original(*arguments, **more)

    monkeypatch.setattr(os, call, fail)


@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_full_disk_is_called_one(workshop, monkeypatch, after):
    workshop.checkpoint()
    failing(monkeypatch, "write", errno.ENOSPC, after=after)
    with pytest.raises(NoSpace, match="did not fit on the disk"):
        workshop.build()


@pytest.mark.parametrize("code", ["EIO", "EROFS", "EFBIG"])
def test_another_error_of_the_disk_is_named(workshop, monkeypatch, code):
    workshop.checkpoint()
    failing(monkeypatch, "write", getattr(errno, code))
    with pytest.raises(BuildError, match="cannot be written: "):
        workshop.build()


@pytest.mark.parametrize("after", range(9))
def test_an_error_while_syncing_stops_the_build(workshop, monkeypatch, after):
    """Files, the journal, the manifest, folders: the last one, that of the parent, comes after the publish."""
    workshop.checkpoint()
    failing(monkeypatch, "fsync", errno.EIO, after=after)
    with pytest.raises(BuildError):
        workshop.build()
    assert not workshop.output.exists()


def test_a_source_that_cannot_be_read_is_not_called_one_that_cannot_be_written(workshop, monkeypatch):
    workshop.checkpoint()
    failing(monkeypatch, "preadv", errno.EIO)
    with pytest.raises(MissingInput, match=r"cannot be read: Input/output error"):
        workshop.build()


def test_the_first_failure_of_several_jobs_is_the_one_that_is_told(workshop, monkeypatch):
    workshop.checkpoint(shards=3)
    failing(monkeypatch, "write", errno.ENOSPC)
    with pytest.raises(NoSpace):
        workshop.build(weights=SHARDED, jobs=4)
    assert workshop.hidden() == []


def test_paths_of_a_plan_may_be_relative(workshop, monkeypatch):
    workshop.checkpoint()
    monkeypatch.chdir(workshop.folder)
    workshop.folder = Path()
    workshop.build()
    assert workshop.tensors() == workshop.model()


def test_a_pipe_in_the_place_of_a_source_is_refused(workshop):
    root = workshop.checkpoint(files={"merges.txt": b""})
    plan = workshop.plan()
    (root / "merges.txt").unlink()
    os.mkfifo(root / "merges.txt")
    times = next(source.mtime_ns for source in plan.sources if source.path.endswith("merges.txt"))
    os.utime(root / "merges.txt", ns=(times, times))
    with pytest.raises(MissingInput, match=r"merges\.txt: is not a file"):
        workshop.carry_out(plan)


def test_a_pipe_that_came_later_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MissingInput, match="pipe: cannot be read: Illegal seek"):
        list(Reader([str(tmp_path / "pipe")]).contents(Piece(source=0, offset=0, length=4)))


def test_a_source_that_is_gone_is_named_before_the_lint(workshop):
    root = workshop.checkpoint(files={"tokenizer.json": "{}"})
    plan = workshop.plan()
    (root / "tokenizer.json").unlink()
    looked = []
    with pytest.raises(MissingInput, match=r"tokenizer\.json: cannot be read"):
        carry_out(plan, gate=lambda _source, stage: looked.append(stage))
    assert looked == []


def test_a_source_that_changed_says_that_a_plan_in_a_file_is_made_anew(workshop):
    root = workshop.checkpoint(files={"tokenizer.json": "{}"})
    plan = workshop.plan()
    (root / "tokenizer.json").write_text("{} ")
    with pytest.raises(PlanError, match="has changed") as caught:
        workshop.carry_out(plan)
    assert "a plan in a file is made anew with --plan" in caught.value.hint


def test_too_little_memory_is_said_to_people(workshop, monkeypatch):
    def contents(_reader, _content):
        raise MemoryError

    workshop.checkpoint()
    monkeypatch.setattr(Reader, "contents", contents)
    with pytest.raises(BuildError, match="needs more memory than there is"):
        workshop.build()
