"""Fixes written into a directory: all of them or none, and never through a link."""

from __future__ import annotations

import hashlib
import os
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from repokit.errors import BuildError, InternalError, LockHeld, NoSpace, PlanError, TargetRefused
from repokit.linter.examples import sharded, single
from repokit.linter.in_place import Changes, _undone_on_failure, changes, check, clean, execute, locked, stamps
from repokit.linter.recorded import Recorder
from repokit.operations import KEPT, DeleteFile, WriteShard, WriteText
from repokit.repo.directory import Directory
from repokit.repo.overlay import Overlay
from repokit.schema.manifest import Manifest, ManifestFile

WEIGHTS = "model.safetensors"
MANIFEST = "repokit-manifest.json"

Plan = Callable[[Overlay], Changes]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository in a folder, with a file in a folder of it."""
    folder = tmp_path / "model"
    (folder / "extra").mkdir(parents=True)
    for path, content in {**single(), "extra/notes.txt": b"notes"}.items():
        (folder / path).write_bytes(content)
    return folder


@pytest.fixture
def overlay(root: Path) -> Overlay:
    return Overlay(Directory(root))


@pytest.fixture
def plan(root: Path) -> Plan:
    """Stamps are taken now, before a test edits anything."""
    known = stamps(root, list(Directory(root).entries()))
    return lambda overlay: changes(overlay, known)


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def carried_out(root: Path, planned: Changes) -> None:
    check(root, planned)
    execute(root, planned)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A file system on which a file cannot grow further: a write fails in its middle, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# ---------------------------------------------------------------- the plan


def test_a_plan_is_operations_by_path(overlay: Overlay, plan: Plan) -> None:
    edited = overlay.with_file("config.json", b"{}").without("LICENSE").with_tensors(WEIGHTS, drop={"lm_head.weight"})
    assert [(type(one), one.path) for one in plan(edited).operations] == [
        (DeleteFile, "LICENSE"),
        (WriteText, "config.json"),
        (WriteShard, WEIGHTS),
    ]


def test_a_plan_names_the_files_that_it_rests_on(overlay: Overlay, plan: Plan) -> None:
    planned = plan(overlay.with_tensors(WEIGHTS, drop={"lm_head.weight"}))
    assert [source.path for source in planned.sources] == [WEIGHTS]


# ---------------------------------------------------------------- what is written


def test_the_directory_becomes_the_overlay(root: Path, overlay: Overlay, plan: Plan) -> None:
    edited = (
        overlay.with_tensors(WEIGHTS, rename={"lm_head.weight": "head"}, metadata={"format": "x"})
        .with_file("config.json", b"{}")
        .with_file("a/b/new.txt", b"new")
        .without("extra/notes.txt")
    )
    expected = {path: edited.read(path) for path in edited.entries()}
    carried_out(root, plan(edited))
    assert contents(root) == expected


def test_a_folder_that_has_lost_its_last_file_goes(root: Path, overlay: Overlay, plan: Plan) -> None:
    carried_out(root, plan(overlay.without("extra/notes.txt")))
    assert not (root / "extra").exists()


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664])
def test_a_replaced_file_keeps_its_mode(root: Path, overlay: Overlay, plan: Plan, mode: int) -> None:
    (root / "config.json").chmod(mode)
    carried_out(root, plan(overlay.with_file("config.json", b"{}")))
    assert stat.S_IMODE((root / "config.json").stat().st_mode) == mode


def test_a_new_file_has_the_mode_of_the_umask(root: Path, overlay: Overlay, plan: Plan) -> None:
    (root / "probe").touch()
    usual = (root / "probe").stat().st_mode
    (root / "probe").unlink()
    carried_out(root, plan(overlay.with_file("new.json", b"{}")))
    assert (root / "new.json").stat().st_mode == usual


def test_another_name_of_the_old_file_keeps_the_old_bytes(root: Path, overlay: Overlay, plan: Plan) -> None:
    old = (root / "config.json").read_bytes()
    os.link(root / "config.json", root.parent / "other-name")
    carried_out(root, plan(overlay.with_file("config.json", b"{}")))
    assert (root.parent / "other-name").read_bytes() == old


# ---------------------------------------------------------------- what is refused


def test_a_link_is_not_written_through(root: Path, overlay: Overlay, plan: Plan) -> None:
    real = root.parent / "elsewhere.json"
    (root / "config.json").replace(real)
    (root / "config.json").symlink_to(real)
    with pytest.raises(TargetRefused, match="is a link to") as caught:
        check(root, plan(overlay.with_file("config.json", b"{}")))
    assert "cp -rL" in (caught.value.hint or "")


def test_a_folder_that_is_a_link_is_not_written_through(root: Path, overlay: Overlay, plan: Plan) -> None:
    (root / "extra").rename(root.parent / "elsewhere")
    (root / "extra").symlink_to(root.parent / "elsewhere")
    with pytest.raises(TargetRefused):
        check(root, plan(overlay.with_file("extra/notes.txt", b"new")))


def test_a_link_that_leads_nowhere_can_be_deleted(root: Path) -> None:
    (root / "gone.bin").symlink_to(root.parent / "nothing")
    overlay = Overlay(Directory(root))
    planned = changes(overlay.without("gone.bin"), stamps(root, list(overlay.entries())))
    carried_out(root, planned)
    assert not (root / "gone.bin").is_symlink()


def test_a_snapshot_of_the_cache_is_left_alone(root: Path) -> None:
    snapshot = root.parent / "models--org--x" / "snapshots" / "abc"
    snapshot.parent.mkdir(parents=True)
    blobs = snapshot.parent.parent / "blobs"
    root.rename(blobs)
    snapshot.mkdir()
    for path in sorted(blobs.glob("*.json")):
        (snapshot / path.name).symlink_to(path)
    overlay = Overlay(Directory(snapshot))
    planned = changes(overlay.without("config.json"), stamps(snapshot, list(overlay.entries())))
    with pytest.raises(TargetRefused):
        check(snapshot, planned)


def test_a_file_that_was_edited_meanwhile_stops_it(root: Path, overlay: Overlay, plan: Plan) -> None:
    planned = plan(overlay.with_file("config.json", b"{}"))
    (root / "config.json").write_bytes(b"mine")
    with pytest.raises(PlanError, match="has changed"):
        check(root, planned)


def test_a_file_that_vanished_meanwhile_stops_it(root: Path, overlay: Overlay, plan: Plan) -> None:
    planned = plan(overlay.with_file("config.json", b"{}"))
    (root / "config.json").unlink()
    with pytest.raises(PlanError, match="has changed"):
        check(root, planned)


def test_a_file_that_appeared_meanwhile_stops_it(root: Path, overlay: Overlay, plan: Plan) -> None:
    planned = plan(overlay.with_file("new.json", b"{}"))
    (root / "new.json").write_bytes(b"mine")
    with pytest.raises(PlanError, match="has appeared"):
        check(root, planned)


def test_a_change_after_the_check_stops_it_too(root: Path, overlay: Overlay, plan: Plan) -> None:
    planned = plan(overlay.with_file("config.json", b"{}"))
    check(root, planned)
    (root / "config.json").write_bytes(b"mine")
    before = contents(root)
    with pytest.raises(PlanError):
        execute(root, planned)
    assert contents(root) == before


def test_a_path_that_leaves_the_directory_is_a_bug(root: Path) -> None:
    with pytest.raises(InternalError):
        check(root, Changes((DeleteFile(path="../x"),), ()))


def test_too_small_a_disk_is_noticed_before_the_first_byte(root: Path) -> None:
    vast = WriteShard(path="vast.safetensors", header=b"", pieces=(), size=2**60)
    with pytest.raises(NoSpace):
        check(root, Changes((vast,), ()))


def test_two_fixes_of_one_directory_exclude_each_other(root: Path) -> None:
    with locked(root), pytest.raises(LockHeld), locked(root):
        pytest.fail("both are at work")


# ---------------------------------------------------------------- what goes wrong


def test_a_full_disk_leaves_the_old_state_and_nothing_else(root: Path, overlay: Overlay, plan: Plan) -> None:
    planned = plan(overlay.with_file("a/new.txt", b"small").with_tensors(WEIGHTS, drop={"lm_head.weight"}))
    before, names = contents(root), sorted(root.rglob("*"))
    check(root, planned)
    with files_of_at_most(1000), pytest.raises(BuildError, match="nothing was changed"):
        execute(root, planned)
    assert (contents(root), sorted(root.rglob("*"))) == (before, names)


def test_a_rename_that_fails_puts_the_others_back(root: Path) -> None:
    """The third name is a folder, onto which no file can be renamed."""
    before = contents(root)
    places = [root / "config.json", root / "new.txt", root / "extra"]
    new = [root.parent / f"written-{number}" for number in range(3)]
    for path in new:
        path.write_bytes(b"new")
    with pytest.raises(IsADirectoryError), _undone_on_failure(places):
        list(map(Path.replace, new, places))
    assert contents(root) == before


def test_what_a_killed_fix_left_is_removed(root: Path) -> None:
    left = root / "extra" / ".model.safetensors.repokit-fix-0123abcd"
    left.write_bytes(b"half")
    clean(root)
    assert not left.exists()


def test_other_hidden_files_are_left(root: Path) -> None:
    (root / ".model.safetensors.repokit-fix").write_bytes(b"mine")
    clean(root)
    assert (root / ".model.safetensors.repokit-fix").exists()


# ---------------------------------------------------------------- a directory that repokit built


def recorded_file(path: str, content: bytes, origin: str = "source") -> ManifestFile:
    return ManifestFile(path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest(), origin=origin)


@pytest.fixture
def built(root: Path) -> Overlay:
    files = tuple(recorded_file(path, content) for path, content in sorted(contents(root).items()))
    (root / MANIFEST).write_bytes(Manifest(created_by="repokit 0", files=files).render())
    return Overlay(Directory(root))


def entries(overlay: Overlay) -> dict[str, ManifestFile]:
    return {file.path: file for file in Manifest.model_validate_json(overlay.read(MANIFEST)).files}


def test_a_manifest_says_what_the_fixed_files_are(built: Overlay) -> None:
    fixed = Recorder().recorded(built.with_tensors(WEIGHTS, drop={"lm_head.weight"}).with_file("new.json", b"{}"))
    content = fixed.read(WEIGHTS)
    assert entries(fixed)[WEIGHTS] == recorded_file(WEIGHTS, content, KEPT)
    assert entries(fixed)["new.json"] == recorded_file("new.json", b"{}", KEPT)


def test_a_manifest_forgets_deleted_files(built: Overlay) -> None:
    assert "LICENSE" not in entries(Recorder().recorded(built.without("LICENSE")))


def test_a_manifest_keeps_the_records_of_the_others(built: Overlay) -> None:
    before, after = entries(built), entries(Recorder().recorded(built.without("LICENSE")))
    assert {**after, "LICENSE": before["LICENSE"]} == before


def test_a_manifest_does_not_vouch_for_what_was_edited_before(root: Path, built: Overlay) -> None:
    (root / "LICENSE").write_bytes(b"edited by hand")
    fixed = Recorder().recorded(Overlay(Directory(root)).with_file("LICENSE", b"edited, and fixed"))
    assert fixed.changed.keys() == {"LICENSE"}


def test_without_a_fix_a_manifest_stays(built: Overlay) -> None:
    assert Recorder().recorded(built).changed == {}


def test_without_a_manifest_none_is_made(overlay: Overlay) -> None:
    assert MANIFEST not in Recorder().recorded(overlay.without("LICENSE")).entries()


def test_what_is_no_manifest_is_left_alone(root: Path) -> None:
    (root / MANIFEST).write_bytes(b"[]")
    assert MANIFEST not in Recorder().recorded(Overlay(Directory(root)).without("LICENSE")).changed


def test_shards_are_cut_and_joined_on_disk(tmp_path: Path) -> None:
    for path, content in sharded().items():
        (tmp_path / path).write_bytes(content)
    overlay = Overlay(Directory(tmp_path))
    known = stamps(tmp_path, list(overlay.entries()))
    path = "model-00002-of-00003.safetensors"
    names = ["model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight"]
    edited = overlay.with_tensors(path, rename={names[0]: "a"}).with_tensors(path, drop={names[1]})
    expected = edited.read(path)
    carried_out(tmp_path, changes(edited, known))
    assert (tmp_path / path).read_bytes() == expected
