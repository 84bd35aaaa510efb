"""A build that was interrupted: what is finished is used again, and the result is the same to the byte."""

from __future__ import annotations

import pytest

from repokit.builder.execution import staging, writing
from repokit.builder.execution.journal import NAME, Journal
from repokit.schema.manifest import ManifestFile

RECIPE = {"weights": {"max_shard_size": "1KB", "dtype": "bfloat16"}}


@pytest.fixture
def interrupted(workshop, monkeypatch):
    """Interrupts a build as Ctrl-C does, after a share of its bytes; gives its plan and its staging directory."""
    workshop.checkpoint(files={"tokenizer.json": "{}"})
    monkeypatch.setattr(writing, "CHUNK", 64)
    plan = workshop.plan(**RECIPE)

    def interrupt(share=0.9, *, jobs=1):
        def progress(stage, done, total):
            if stage == "write" and done >= share * total:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            workshop.carry_out(plan, progress=progress, jobs=jobs)
        return plan, staging.staging_path(workshop.output, plan.digest)

    return interrupt


@pytest.fixture
def expected(workshop):
    """What a build that nothing interrupts gives."""

    def build():
        workshop.build(output="./reference/out", **RECIPE)
        return workshop.contents(workshop.folder / "reference" / "out")

    return build


@pytest.mark.parametrize("jobs", [1, 4])
@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.8, 0.85, 0.9, 0.95, 0.99])
def test_an_interrupted_build_ends_with_the_same_bytes(workshop, interrupted, expected, share, jobs):
    plan, _ = interrupted(share, jobs=jobs)
    workshop.carry_out(plan, jobs=jobs)
    assert workshop.contents() == expected()
    assert workshop.hidden() == []


def test_an_interrupted_build_leaves_the_target_alone(workshop, interrupted):
    interrupted()
    assert not workshop.output.exists()


def test_finished_files_are_not_written_again(workshop, interrupted):
    plan, place = interrupted()
    before = {path.name: path.stat().st_ino for path in place.iterdir() if path.name in Journal(place).finished()}
    workshop.carry_out(plan)
    after = {path.name: path.stat().st_ino for path in workshop.output.iterdir()}
    assert before
    assert before.items() <= after.items()


def test_a_build_says_how_much_it_used_again(workshop, interrupted):
    plan, place = interrupted()
    finished = len(Journal(place).finished())
    assert workshop.carry_out(plan).reused == finished > 0


def test_what_is_used_again_counts_as_progress(workshop, interrupted):
    plan, place = interrupted()
    finished = sum(record.size for record in Journal(place).finished().values())
    seen = []
    workshop.carry_out(plan, progress=lambda stage, done, total: seen.append((stage, done, total)))
    written = [done for stage, done, _ in seen if stage == "write"]
    assert (written[0], written[-1]) == (finished, plan.size)


def test_another_plan_uses_nothing_of_it(workshop, interrupted):
    interrupted()
    assert workshop.build().reused == 0
    assert workshop.hidden() == []


def test_a_source_that_was_written_since_makes_another_plan(workshop, interrupted, expected):
    interrupted()
    workshop.checkpoint({**workshop.model(), "lm_head.weight": workshop.tensor("F32", (16, 8), seed=99)})
    assert workshop.build(**RECIPE).reused == 0
    assert workshop.contents() == expected()


def test_a_file_that_is_shorter_than_recorded_is_written_again(workshop, interrupted, expected):
    plan, place = interrupted()
    path = place / next(iter(Journal(place).finished()))
    path.write_bytes(path.read_bytes()[:-1])
    workshop.carry_out(plan)
    assert workshop.contents() == expected()


def test_a_file_that_vanished_is_written_again(workshop, interrupted, expected):
    plan, place = interrupted()
    (place / next(iter(Journal(place).finished()))).unlink()
    workshop.carry_out(plan)
    assert workshop.contents() == expected()


def test_a_file_that_the_journal_does_not_have_is_written_again(workshop, interrupted, expected):
    plan, place = interrupted()
    for path in place.iterdir():
        if path.name not in {NAME, *Journal(place).finished()}:
            path.write_bytes(b"\xff" * 20_000)
    workshop.carry_out(plan)
    assert workshop.contents() == expected()


def test_what_does_not_belong_there_is_removed(workshop, interrupted, expected):
    plan, place = interrupted()
    (place / "stray.txt").write_text("x")
    workshop.carry_out(plan)
    assert workshop.contents() == expected()


@pytest.mark.parametrize(
    "tail",
    [b'{"path": "model', b"\xff\xfe", b"{}\n", b"null\n", b'{"path": "../x", "size": 1}\n', b"\n\n", b"[" * 5000],
)
def test_a_torn_line_of_the_journal_is_no_record(workshop, interrupted, expected, tail):
    plan, place = interrupted()
    with (place / NAME).open("ab") as stream:
        stream.write(tail)
    workshop.carry_out(plan)
    assert workshop.contents() == expected()


@pytest.mark.parametrize("content", [b"", b"\0" * 100])
def test_a_journal_without_a_record_starts_anew(workshop, interrupted, expected, content):
    plan, place = interrupted()
    (place / NAME).write_bytes(content)
    assert workshop.carry_out(plan).reused == 0
    assert workshop.contents() == expected()


# ------------------------------------------------------------------------------------------------ the journal itself


def record(path, size):
    return ManifestFile(path=path, size=size, sha256="0" * 64, origin="x")


def test_a_journal_gives_back_what_is_whole(tmp_path):
    journal = Journal(tmp_path)
    for name, size in (("a", 1), ("b", 2), ("c", 3)):
        (tmp_path / name).write_bytes(b"xx")
        journal.append(record(name, size))
    assert journal.finished() == {"b": record("b", 2)}


def test_the_last_record_of_a_file_counts(tmp_path):
    (tmp_path / "a").write_bytes(b"xx")
    journal = Journal(tmp_path)
    journal.append(record("a", 1))
    journal.append(record("a", 2))
    assert journal.finished() == {"a": record("a", 2)}


def test_no_journal_has_nothing(tmp_path):
    assert Journal(tmp_path).finished() == {}
