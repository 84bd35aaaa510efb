from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from stat import S_ISDIR

import pytest

from repokit.builder.execution import staging
from repokit.errors import BuildError, MissingInput, NoSpace, PlanError, TargetRefused

OLD = {"card": {"summary": "old"}}
NEW = {"card": {"summary": "new"}}

# ------------------------------------------------------------------------------------------------ the target


def refusal(workshop, **arguments):
    before = workshop.contents()
    with pytest.raises(TargetRefused) as caught:
        workshop.build(**NEW, **arguments)
    assert workshop.contents() == before
    return caught.value


@pytest.fixture
def built(workshop):
    """A finished build, to be built again."""
    workshop.checkpoint(files={"tokenizer.json": "{}"})
    workshop.build(**OLD)
    return workshop


def summary(workshop):
    return next(word for word in ("old", "new") if f"\n{word}\n" in workshop.read("README.md").decode())


def test_a_rebuild_replaces_what_repokit_built(built):
    built.build(**NEW)
    assert summary(built) == "new"


def test_an_equal_rebuild_gives_equal_bytes(built):
    before = built.contents()
    built.build(**OLD)
    assert built.contents() == before


@pytest.mark.parametrize(
    "content", [None, b"", b"{", b'{"version": 2}', b'{"version": 1, "created_by": "x", "files": [{}]}']
)
def test_a_directory_that_repokit_did_not_build_is_refused(workshop, content):
    workshop.checkpoint()
    workshop.output.mkdir()
    (workshop.output / "thesis.tex").write_text("x")
    if content is not None:
        (workshop.output / "repokit-manifest.json").write_bytes(content)
    assert "was not built by repokit" in str(refusal(workshop))


def test_a_manifest_that_names_files_outside_is_none(workshop):
    workshop.checkpoint()
    workshop.output.mkdir()
    files = [{"path": "../checkpoint/config.json", "size": 1, "sha256": "0" * 64, "origin": "x"}]
    manifest = {"version": 1, "created_by": "x", "files": files}
    (workshop.output / "repokit-manifest.json").write_text(json.dumps(manifest))
    assert "was not built by repokit" in str(refusal(workshop))


def test_an_empty_directory_is_taken(workshop):
    workshop.checkpoint()
    (workshop.output / "empty").mkdir(parents=True)
    workshop.build()
    assert workshop.tensors() == workshop.model()


EDITS = {
    "a longer file": lambda output: (output / "README.md").write_text("x" * 10_000),
    "a file of the same length": lambda output: (output / "tokenizer.json").write_text("[]"),
    "an added file": lambda output: (output / "thesis.tex").write_text("x"),
    "an added hidden file": lambda output: (output / ".env").write_text("x"),
    "an added file in a folder": lambda output: (
        (output / "a" / "b").mkdir(parents=True),
        (output / "a/b/c").write_text("x"),
    ),
    "an added link": lambda output: (output / "link").symlink_to("config.json"),
    "an added link to a folder": lambda output: (output / "link").symlink_to("/tmp"),  # noqa: S108 - any folder
    "an added broken link": lambda output: (output / "link").symlink_to("nowhere"),
    "a file that became a link": lambda output: (
        (output / "LICENSE").rename(output.parent / "moved"),
        (output / "LICENSE").symlink_to(output.parent / "moved"),
    ),
    "a git repository": lambda output: ((output / ".git").mkdir(), (output / ".git" / "HEAD").write_text("x")),
}
NAMED = {
    "a longer file": "README.md",
    "a file of the same length": "tokenizer.json",
    "an added file": "thesis.tex",
    "an added hidden file": ".env",
    "an added file in a folder": "a/b/c",
    "a file that became a link": "LICENSE",
    "a git repository": ".git/HEAD",
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_a_person_changed_stops_a_rebuild_and_is_named(built, edit):
    EDITS[edit](built.output)
    assert f"{NAMED.get(edit, 'link')} was edited or added since repokit built it" in str(refusal(built))


@pytest.mark.parametrize("edit", EDITS)
def test_force_discards_what_a_person_changed(built, edit):
    EDITS[edit](built.output)
    built.build(force=True, **NEW)
    reference = built.contents()
    built.build(output="./reference/out", **NEW)
    assert built.contents(built.folder / "reference" / "out") == reference


def test_an_edit_of_a_large_file_is_seen_by_its_time(built, monkeypatch):
    monkeypatch.setattr(staging, "_SMALL", 0)
    path = built.output / "tokenizer.json"
    path.write_text("[]")
    later = (built.output / "repokit-manifest.json").stat().st_mtime_ns + 1
    os.utime(path, ns=(later, later))
    assert "tokenizer.json was edited" in str(refusal(built))


def test_a_large_file_that_was_only_touched_is_not_edited(built, monkeypatch):
    monkeypatch.setattr(staging, "_SMALL", 0)
    os.utime(built.output / "tokenizer.json")
    built.build(**NEW)
    assert summary(built) == "new"


@pytest.mark.skipif(os.geteuid() == 0, reason="no mode stops root")
def test_a_target_that_may_not_be_read_is_named(built):
    (built.output / "tokenizer.json").chmod(0)
    with pytest.raises(BuildError, match=r"tokenizer\.json: cannot be read: Permission denied"):
        built.build(**NEW)


def test_several_changes_are_counted(built):
    for name in ("a", "b", "c", "d"):
        (built.output / name).write_text("x")
    assert "a, b, c and 1 more were edited or added" in str(refusal(built))


def test_a_file_that_a_person_deleted_comes_back(built):
    (built.output / "tokenizer.json").unlink()
    built.build(**NEW)
    assert built.read("tokenizer.json") == b"{}"


def test_without_a_manifest_only_force_replaces(workshop):
    workshop.checkpoint()
    workshop.build(manifest="off", **OLD)
    refusal(workshop)
    workshop.build(force=True, **NEW)
    assert summary(workshop) == "new"


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("kind", ["file", "link", "broken link"])
def test_what_is_no_directory_is_never_replaced(workshop, force, kind):
    workshop.checkpoint()
    target = workshop.folder / "elsewhere"
    if kind == "file":
        workshop.output.write_text("x")
    else:
        workshop.output.symlink_to(target)
    if kind == "link":
        target.mkdir()
    with pytest.raises(TargetRefused, match=r"is a link|is there and is not a directory"):
        workshop.build(force=force)
    assert os.path.lexists(workshop.output)


# ------------------------------------------------------------------------------------------------ --keep


def test_a_kept_edit_is_carried_over(built):
    (built.output / "README.md").write_text("mine")
    built.build(kept=("README.md",), weights={"dtype": "bfloat16"})
    assert built.read("README.md") == b"mine"
    assert built.tensors()["lm_head.weight"][0] == "BF16"


def test_a_kept_addition_is_carried_over(built):
    (built.output / "assets").mkdir()
    (built.output / "assets" / "a.png").write_bytes(b"x")
    built.build(kept=("assets/a.png",), **NEW)
    assert built.read("assets/a.png") == b"x"


def test_what_is_kept_is_in_the_manifest(built):
    (built.output / "notes.txt").write_text("x")
    files = built.build(kept=("notes.txt",), **NEW).files
    assert [file.origin for file in files if file.path == "notes.txt"] == ["kept"]


def test_what_was_kept_once_must_be_kept_again(built):
    """It stays a person's: the next build, which is not told to keep it, stops as the first one did."""
    (built.output / "notes.txt").write_text("x")
    built.build(kept=("notes.txt",), **NEW)
    assert "notes.txt was edited or added" in str(refusal(built))
    built.build(kept=("notes.txt",), **NEW)
    assert built.read("notes.txt") == b"x"


def test_another_edit_still_stops(built):
    (built.output / "README.md").write_text("mine")
    (built.output / "tokenizer.json").write_text("[]")
    assert "tokenizer.json was edited" in str(refusal(built, kept=("README.md",)))


@pytest.mark.parametrize("path", ["nothing.txt", ".", "assets"])
def test_what_is_not_there_cannot_be_kept(built, path):
    (built.output / "assets").mkdir()
    with pytest.raises(MissingInput, match="is to be kept and is not in the output"):
        built.plan(kept=(path,))


@pytest.mark.parametrize("path", ["../checkpoint/config.json", "repokit-manifest.json"])
def test_what_is_no_file_of_the_repository_cannot_be_kept(built, path):
    with pytest.raises(PlanError, match=r"leaves the repository|repokit's own"):
        built.plan(kept=(path,))


# ------------------------------------------------------------------------------------------------ publishing


@pytest.fixture
def no_exchange(monkeypatch):
    """A file system or system without RENAME_EXCHANGE."""
    monkeypatch.setattr(staging, "_exchanged", lambda *_: False)


def test_two_directories_change_places_in_one_step(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if not staging._exchanged(tmp_path / "one", tmp_path / "other"):
        pytest.skip("this file system has no RENAME_EXCHANGE")
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["other"]


def test_without_an_exchange_a_rebuild_replaces_too(built, no_exchange):
    built.build(**NEW)
    assert summary(built) == "new"
    assert built.hidden() == []


def test_without_an_exchange_a_failure_puts_the_old_one_back(built, no_exchange, monkeypatch):
    before = built.contents()
    original = Path.rename

    def rename(self, target):
        if Path(target) == built.output and "repokit-" in self.name:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return original(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(BuildError, match="cannot be put into place: Input/output error"):
        built.build(**NEW)
    assert built.contents() == before
    assert built.hidden() == []


def test_a_build_that_was_killed_between_the_two_renames_is_undone(built):
    """By the next build, even where that one fails."""
    before = built.contents()
    plan = built.plan(**NEW)
    built.output.rename(staging._aside(built.output))
    (built.folder / "checkpoint" / "model.safetensors").unlink()
    with pytest.raises(MissingInput):
        built.carry_out(plan)
    assert built.contents() == before


def test_an_edit_is_seen_after_a_kill_between_the_two_renames(built):
    (built.output / "thesis.tex").write_text("x")
    built.output.rename(staging._aside(built.output))
    with pytest.raises(TargetRefused, match=r"thesis\.tex"):
        built.build(**NEW)
    assert built.read("thesis.tex") == b"x"


def test_a_build_that_was_killed_after_the_publish_is_cleaned_up(built):
    (built.folder / ".out.repokit.old").mkdir()
    (built.folder / ".out.repokit.old" / "x").touch()
    (built.folder / f".out.repokit-{'0' * 16}").mkdir()
    built.build(**NEW)
    assert built.hidden() == []


@pytest.mark.parametrize(
    "code",
    [errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM, errno.EXDEV],
    ids=errno.errorcode.get,
)
def test_a_system_that_does_not_know_the_call_gets_the_two_renames(built, monkeypatch, code):
    class Library:
        @staticmethod
        def renameat2(*_):
            return -1

    monkeypatch.setattr(staging.ctypes, "CDLL", lambda *_, **__: Library)
    monkeypatch.setattr(staging.ctypes, "get_errno", lambda: code)
    built.build(**NEW)
    assert summary(built) == "new"


def failing(monkeypatch, owner, name, code, *, when=lambda *_: True, times=1_000_000):
    """Lets a call fail, as a file system would, where `when` says so of its arguments."""
    original = getattr(owner, name)
    failed = []

    def call(*arguments, **keys):
        if len(failed) < times and when(*arguments):
            failed.append(arguments)
            raise OSError(code, os.strerror(code))
        return original(*arguments, **keys)

    monkeypatch.setattr(owner, name, call)
    return failed


@pytest.mark.parametrize("code", [errno.EBUSY, errno.EXDEV], ids=errno.errorcode.get)
def test_a_target_that_cannot_be_renamed_is_left_and_explained(built, no_exchange, monkeypatch, code):
    before = built.contents()
    failing(monkeypatch, Path, "rename", code, when=lambda path, _: path == built.output)
    with pytest.raises(BuildError, match="cannot be put into place") as caught:
        built.build(**NEW)
    assert "choose another output" in caught.value.hint
    assert (built.contents(), built.hidden()) == (before, [])


def test_an_interrupted_rename_is_tried_again(built, no_exchange, monkeypatch):
    failed = failing(monkeypatch, Path, "rename", errno.EINTR, times=3)
    built.build(**NEW)
    assert (len(failed), summary(built), built.hidden()) == (3, "new", [])


def test_ctrl_c_between_the_two_renames_puts_the_old_one_back(built, no_exchange, monkeypatch):
    before = built.contents()
    original = Path.rename

    def rename(self, target):
        if Path(target) == built.output and "repokit-" in self.name:
            raise KeyboardInterrupt
        return original(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        built.build(**NEW)
    assert built.contents() == before


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.EBADF], ids=errno.errorcode.get)
def test_a_file_system_that_syncs_no_directories_is_taken(built, monkeypatch, code):
    failed = failing(monkeypatch, os, "fsync", code, when=lambda descriptor: S_ISDIR(os.fstat(descriptor).st_mode))
    built.build(**NEW)
    assert failed
    assert summary(built) == "new"


def test_a_directory_that_cannot_be_synced_is_not_published(built, monkeypatch):
    before = built.contents()
    failing(monkeypatch, os, "fsync", errno.EIO, when=lambda descriptor: S_ISDIR(os.fstat(descriptor).st_mode))
    with pytest.raises(BuildError, match="out: cannot be put into place: Input/output error"):
        built.build(**NEW)
    assert (built.contents(), built.hidden()) == (before, [])


@pytest.fixture(params=[errno.EBUSY, errno.ENOTEMPTY, errno.EACCES], ids=errno.errorcode.get)
def held_open(request, monkeypatch):
    """A network file system on which another process has a file of the old tree open: `.nfs...` cannot be removed."""

    def hold():
        return failing(monkeypatch, os, "unlink", request.param, when=lambda path, **_: str(path).startswith(".nfs"))

    return hold


def test_what_cannot_be_deleted_yet_does_not_fail_a_build(built, held_open):
    (built.output / ".nfs000000000123").write_text("held")
    failed = held_open()
    built.build(force=True, **NEW)
    assert failed
    assert summary(built) == "new"
    assert not (built.output / ".nfs000000000123").exists()


def test_what_could_not_be_deleted_is_no_target_of_a_later_build(built, held_open, monkeypatch):
    """Twice the same plan: what is left of the first old tree is not where the second build is put together."""
    plan = built.plan(**NEW)
    (built.output / ".nfs000000000123").write_text("held")
    held_open()
    built.carry_out(plan, force=True)
    first = built.contents()
    built.carry_out(plan)
    assert built.contents() == first
    (left,) = built.hidden()
    assert built.contents(built.folder / left) == {".nfs000000000123": b"held"}
    monkeypatch.undo()
    built.carry_out(plan)
    assert built.hidden() == []


def test_without_an_exchange_what_could_not_be_deleted_is_in_nobody_s_way(built, no_exchange, held_open):
    (built.output / ".nfs000000000123").write_text("held")
    held_open()
    for recipe in (NEW, OLD, NEW):
        built.build(force=True, **recipe)
    assert summary(built) == "new"


def test_a_mount_point_is_refused_before_anything_is_written(workshop, mounted):
    workshop.checkpoint()
    workshop.output.mkdir()
    mounted(workshop.output)
    with pytest.raises(TargetRefused, match="out: is a mount point"):
        workshop.build(force=True)
    assert workshop.hidden() == []


def test_a_folder_in_a_mount_point_is_taken(workshop, mounted):
    workshop.checkpoint()
    (workshop.folder / "mnt").mkdir()
    mounted(workshop.folder / "mnt")
    for recipe in (OLD, NEW):
        workshop.build(output="./mnt/out", **recipe)
    assert [path.name for path in (workshop.folder / "mnt").iterdir()] == ["out"]


@pytest.mark.skipif(os.geteuid() == 0, reason="no mode stops root")
def test_a_folder_of_the_target_that_cannot_be_listed_stops_a_rebuild(built):
    (built.output / "mine").mkdir(mode=0)
    with pytest.raises(BuildError, match="mine: cannot be read: Permission denied"):
        built.build(**NEW)


# ------------------------------------------------------------------------------------------------ names and leftovers


@pytest.mark.parametrize("name", ["model[v1]", "a*b", "?", "größe", "with blank", "-rf", "x" * 200, "a'b\"c", "a\nb"])
def test_an_output_may_be_called_anything(workshop, name):
    workshop.checkpoint()
    target = workshop.folder / "dist" / name
    stale = target.parent / f".{name}.repokit-{'f' * 16}"
    stale.mkdir(parents=True)
    for recipe in (OLD, NEW):
        workshop.build(output=f"./dist/{name}", **recipe)
    assert [path.name for path in target.parent.iterdir()] == [name]


def test_what_belongs_to_another_output_stays(workshop):
    workshop.checkpoint()
    others = [
        f".out.repokit-2.repokit-{'0' * 16}",
        ".out.repokit-mine",
        f".out2.repokit-{'0' * 16}",
        ".out.repokit-2.repokit.lock",
    ]
    for name in others:
        (workshop.folder / name).mkdir()
    workshop.build()
    assert [name for name in others if not (workshop.folder / name).is_dir()] == []


def test_a_link_in_the_place_of_the_staging_directory_is_not_followed(workshop):
    workshop.checkpoint()
    elsewhere = workshop.folder / "elsewhere"
    elsewhere.mkdir()
    plan = workshop.plan()
    staging.staging_path(workshop.output, plan.digest).symlink_to(elsewhere)
    workshop.carry_out(plan)
    assert list(elsewhere.iterdir()) == []
    assert workshop.tensors() == workshop.model()


def test_a_stale_link_is_removed_and_not_what_it_leads_to(workshop):
    workshop.checkpoint()
    elsewhere = workshop.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x").touch()
    (workshop.folder / f".out.repokit-{'0' * 16}").symlink_to(elsewhere)
    workshop.build()
    assert workshop.hidden() == []
    assert (elsewhere / "x").exists()


# ------------------------------------------------------------------------------------------------ space


def test_a_disk_that_is_too_small_is_refused_with_what_is_missing(tmp_path):
    with pytest.raises(NoSpace, match=r"needs 1050\.0 PB and the disk has .* free") as caught:
        staging.check_space(tmp_path / "out", 10**18)
    assert caught.value.hint.startswith("free ")


def test_a_disk_that_is_large_enough_is_taken(tmp_path):
    staging.check_space(tmp_path / "out", 1)
