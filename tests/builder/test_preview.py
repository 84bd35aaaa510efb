"""The planned repository looks like the written one: same files, same bytes, same findings."""

from __future__ import annotations

import contextlib
import json

import pytest

from repokit import api
from repokit.builder.preview import Preview
from repokit.errors import InternalError, MissingInput
from repokit.linter.finding import Severity
from repokit.repo.directory import Directory
from repokit.repo.repository import Repository


@pytest.fixture
def planned(workshop):
    files = {"tokenizer.json": '{"a": 1}', "README.md": "Text of a person.\n"}
    workshop.checkpoint(files=files)
    return workshop.plan(weights={"max_shard_size": "1KB", "dtype": "bfloat16"})


def test_it_lists_what_is_written(workshop, planned):
    workshop.carry_out(planned)
    written = {
        path: entry for path, entry in Directory(workshop.output).entries().items() if path != "repokit-manifest.json"
    }
    assert dict(Preview(planned).entries()) == written


def test_small_files_have_the_bytes_that_are_written(workshop, planned):
    workshop.carry_out(planned)
    small = {path: content for path, content in workshop.contents().items() if not path.endswith(".safetensors")}
    del small["repokit-manifest.json"]
    assert {path: Preview(planned).read(path) for path in small} == small


@pytest.mark.parametrize(("offset", "length"), [(0, 4), (3, 4), (3, None), (0, 0), (100, 4), (0, 10**9)])
@pytest.mark.parametrize("path", ["tokenizer.json", "LICENSE"])
def test_ranges_are_those_of_the_file(workshop, planned, path, offset, length):
    workshop.carry_out(planned)
    assert Preview(planned).read(path, offset, length) == Directory(workshop.output).read(path, offset, length)


def test_headers_are_those_that_are_written(workshop, planned):
    workshop.carry_out(planned)
    one, other = Repository(Preview(planned)), Repository(Directory(workshop.output))
    assert {path: one.header(path) for path in one.weights.files} == {
        path: other.header(path) for path in other.weights.files
    }


def test_values_are_not_there_yet(planned):
    shard = next(operation for operation in planned.operations if operation.op == "write-shard")
    with pytest.raises(InternalError, match="not written yet"):
        Preview(planned).read(shard.path, len(shard.header), 4)


def test_a_source_that_vanished_is_named(workshop, planned):
    (workshop.folder / "checkpoint" / "tokenizer.json").unlink()
    with pytest.raises(MissingInput, match=r"tokenizer\.json: cannot be read"):
        Preview(planned).read("tokenizer.json")


def test_a_file_that_is_not_planned_is_not_there(planned):
    with pytest.raises(MissingInput, match="is not in the repository"):
        Preview(planned).read("nothing.json")


# ------------------------------------------------------------------------------------------------ findings


def linted(source):
    gate = api.Gate(api.Selection(), fail_on=Severity.ERROR)
    with contextlib.suppress(api.Stopped):
        gate(source, "plan")
    return gate.last.report


def reports(plan, output):
    return linted(Preview(plan)), linted(Directory(output, label=plan.output))


def faults(root):
    """Faults of a checkpoint that a build carries over into the repository."""
    config = json.loads((root / "config.json").read_text())
    (root / "config.json").write_text(json.dumps({**config, "vocab_size": 7, "eos_token_id": 99999}))
    (root / "generation_config.json").write_text('{"eos_token_id": 99999, "temperature": "hot"}')
    (root / "README.md").write_text(
        "---\nbase_model: /home/x/y\n---\nText of a person with [More Information Needed].\n"
    )
    (root / "chat_template.jinja").write_text("{% for x in %}")


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("limit", ["auto", "10KB"])
def test_the_plan_and_the_output_have_equal_reports(workshop, checkpoint, broken, limit):
    if broken:
        faults(checkpoint)
    plan = workshop.plan(source=str(checkpoint), weights={"max_shard_size": limit})
    workshop.carry_out(plan)
    before, after = reports(plan, workshop.output)
    assert (before.findings, before.coverage) == (after.findings, after.coverage)


def test_the_faults_of_the_comparison_are_found(workshop, checkpoint):
    faults(checkpoint)
    assert len(linted(Preview(workshop.plan(source=str(checkpoint)))).at_least(Severity.ERROR)) >= 3


def test_errors_stop_a_build_before_a_byte_is_written(workshop, checkpoint, gate):
    faults(checkpoint)
    plan = workshop.plan(source=str(checkpoint))
    with pytest.raises(api.Stopped, match="nothing was written"):
        api.build(plan, gate=gate)
    assert not workshop.output.exists()
    assert workshop.hidden() == []
