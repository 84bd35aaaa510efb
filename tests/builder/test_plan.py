from __future__ import annotations

import json
import os

import pytest

from repokit.builder.plan import Plan, matching
from repokit.errors import InputError, MissingInput, PlanError, RecipeError

# ------------------------------------------------------------------------------------------------ as a document


@pytest.fixture
def plan(workshop):
    workshop.checkpoint(files={"tokenizer.json": "{}", "optimizer.pt": b"x"})
    return workshop.plan(weights={"dtype": "bfloat16", "max_shard_size": "1KB"})


@pytest.fixture
def read_changed(plan, tmp_path):
    """Reads the plan with a change to its JSON."""

    def read(change):
        document = json.loads(plan.model_dump_json())
        change(document)
        (tmp_path / "plan.json").write_text(json.dumps(document))
        return Plan.read(tmp_path / "plan.json")

    return read


def test_a_plan_survives_json(plan, read_changed):
    assert read_changed(lambda _: None) == plan


def test_a_plan_that_went_through_json_builds_the_same(workshop, plan, read_changed):
    workshop.carry_out(plan)
    first = workshop.contents()
    workshop.carry_out(read_changed(lambda _: None), force=True)
    assert workshop.contents() == first


def test_a_plan_is_frozen(plan):
    with pytest.raises(ValueError, match="frozen"):
        plan.output = "elsewhere"


def test_two_plans_of_one_recipe_are_equal(workshop, plan):
    assert workshop.plan(weights={"dtype": "bfloat16", "max_shard_size": "1KB"}).digest == plan.digest


def test_a_plan_knows_the_exact_headers(workshop, plan):
    headers = {op.path: op.header for op in plan.operations if op.op == "write-shard"}
    workshop.carry_out(plan)
    assert {path: workshop.read(path)[: len(header)] for path, header in headers.items()} == headers


def test_a_plan_knows_the_exact_sizes(workshop, plan):
    workshop.carry_out(plan)
    sizes = {path: len(content) for path, content in workshop.contents().items()}
    del sizes["repokit-manifest.json"]
    assert {operation.path: operation.size for operation in plan.operations} == sizes


def test_operations_are_sorted(plan):
    paths = [operation.path for operation in plan.operations]
    assert paths == sorted(paths)


@pytest.mark.parametrize("version", [0, 1, 3, "2", None])
def test_another_version_is_refused(read_changed, version):
    with pytest.raises(PlanError, match="is not a plan of version 2"):
        read_changed(lambda document: document.update(plan_version=version))


def test_what_a_plan_does_not_know_is_refused(read_changed):
    with pytest.raises(PlanError, match="is not a plan"):
        read_changed(lambda document: document.update(more=1))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"null"])
def test_what_is_no_plan_is_refused(tmp_path, content):
    (tmp_path / "plan.json").write_bytes(content)
    with pytest.raises(PlanError, match="is not a plan"):
        Plan.read(tmp_path / "plan.json")


def test_a_plan_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(PlanError, match="cannot be read: No such file"):
        Plan.read(tmp_path / "plan.json")


@pytest.mark.parametrize(
    "path", ["../x", "/etc/x", "a/../../x", "a\\x", "", "a//b", "a\nb", "repokit-manifest.json", ".repokit-journal"]
)
def test_a_path_that_leads_out_of_the_output_is_refused(read_changed, path):
    with pytest.raises(PlanError, match="is not a plan"):
        read_changed(lambda document: document["operations"][0].update(path=path))


def shard_of(document):
    return next(operation for operation in document["operations"] if operation["op"] == "write-shard")


def copy_of(document):
    return next(operation for operation in document["operations"] if operation["op"] == "copy-file")


@pytest.mark.parametrize(
    "change",
    [
        lambda document: shard_of(document)["pieces"][0].update(source=99),
        lambda document: shard_of(document)["pieces"][0].update(cast="F32>EVIL"),
        lambda document: shard_of(document)["pieces"][0].update(cast="F32"),
        lambda document: shard_of(document)["pieces"][0].update(length=4),
        lambda document: shard_of(document)["pieces"][0].update(offset=-1),
        lambda document: shard_of(document)["pieces"][0].update(length=3, cast="F32>BF16"),
        lambda document: shard_of(document)["pieces"][0].update(offset=10**9),
        lambda document: shard_of(document).update(size=1),
        lambda document: copy_of(document).update(size=-1),
        lambda document: copy_of(document).update(size=1),
        lambda document: copy_of(document).update(source=99),
        lambda document: document["operations"].reverse(),
        lambda document: document["operations"].append(document["operations"][-1]),
        lambda document: document.update(sources=[]),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(read_changed, change):
    with pytest.raises(PlanError, match="is not a plan"):
        read_changed(change)


# ------------------------------------------------------------------------------------------------ what is planned


def paths(plan):
    return {operation.path for operation in plan.operations}


def left_out(plan):
    return {file.path: file.reason for file in plan.left_out}


LEFTOVERS = {
    "optimizer.pt": "training state",
    "scheduler.pt": "training state",
    "scaler.pt": "training state",
    "rng_state.pth": "training state",
    "rng_state_3.pth": "training state",
    "trainer_state.json": "training state",
    "training_args.bin": "training state",
    "all_results.json": "training state",
    "global_step40/x.pt": "training state",
    "runs/Jan01/events.out.tfevents.1": "log",
    "train.log": "log",
    "checkpoint-2/config.json": "another checkpoint",
    "checkpoint-2/optimizer.pt": "another checkpoint",
    "pytorch_model.bin": "pickled weights",
    "adapter_model.safetensors": "weights that the model does not use",
    "notes.txt": "not recognised",
    "my_code.py": "code",
    "repokit-manifest.json": "not recognised",
}


def test_what_the_training_left_is_listed_and_left_out(workshop):
    workshop.checkpoint(files=dict.fromkeys(LEFTOVERS, b"x"))
    plan = workshop.plan()
    assert left_out(plan) == LEFTOVERS
    assert not paths(plan) & LEFTOVERS.keys()


def test_every_file_of_the_source_is_published_or_listed(workshop):
    source = workshop.checkpoint(files={**dict.fromkeys(LEFTOVERS, b"x"), "tokenizer.json": "{}", "README.md": "Text."})
    plan = workshop.plan()
    found = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    assert found <= paths(plan) | left_out(plan).keys()


CARRIED = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json"),
    *("merges.txt", "tokenizer.model", "spiece.model", "chat_template.jinja", "additional_chat_templates/x.jinja"),
    *("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json", "NOTICE"),
)


@pytest.mark.parametrize("name", CARRIED)
def test_what_belongs_to_the_model_is_carried_byte_for_byte(workshop, name):
    content = b'{ "odd"  :\t1.50,\r\n "x": "\xc3\xa9" }'
    workshop.checkpoint(files={name: content})
    workshop.build()
    assert workshop.read(name) == content


def test_files_are_included_by_name(workshop):
    workshop.checkpoint(files={"notes.txt": "x", "assets/a.png": "y", "assets/b.png": "z"})
    assert {"notes.txt", "assets/a.png", "assets/b.png"} <= paths(
        workshop.plan(files={"include": ["notes.*", "assets/*"]})
    )


def test_an_exclusion_wins(workshop):
    workshop.checkpoint(files={"notes.txt": "x", "tokenizer.json": "{}", "NOTICE": "x", "LICENSE": "x"})
    excluded = {"notes.txt", "tokenizer.json", "NOTICE", "LICENSE"}
    plan = workshop.plan(files={"include": ["notes.txt"], "exclude": sorted(excluded)})
    assert not paths(plan) & excluded
    assert {path for path, reason in left_out(plan).items() if reason == "excluded by the recipe"} == excluded


@pytest.mark.parametrize("key", ["include", "exclude"])
def test_a_pattern_that_matches_nothing_is_refused(workshop, key):
    workshop.checkpoint()
    with pytest.raises(RecipeError, match=rf"files\.{key}: 'nots\.txt' matches none of"):
        workshop.plan(files={key: ["nots.txt"]})


def test_the_manifest_of_a_source_that_repokit_built_is_not_taken_over(workshop):
    workshop.checkpoint(files={"repokit-manifest.json": "{}"})
    assert "repokit-manifest.json" not in paths(workshop.plan(files={"include": ["repokit*"]}))


def test_code_is_carried_with_what_it_imports(workshop):
    workshop.checkpoint(
        config={"auto_map": {"AutoModel": "modeling.X"}},
        files={"modeling.py": "from .parts import y", "parts.py": "z = 1", "unused.py": "z = 1"},
    )
    plan = workshop.plan()
    assert {path for path in paths(plan) if path.endswith(".py")} == {"modeling.py", "parts.py"}
    assert left_out(plan) == {"unused.py": "code"}


def test_code_that_is_missing_stops_the_build(workshop):
    workshop.checkpoint(config={"auto_map": {"AutoModel": "modeling.X"}})
    with pytest.raises(MissingInput, match=r"config\.json: asks for modeling\.py \(auto_map\)"):
        workshop.plan()


@pytest.mark.parametrize("role", ["tokenizer", "processor", "chat_template"])
def test_a_part_comes_from_where_the_recipe_says(workshop, role):
    name = {
        "tokenizer": "tokenizer.json",
        "processor": "preprocessor_config.json",
        "chat_template": "chat_template.jinja",
    }
    workshop.checkpoint(files={name[role]: '{"of": "source"}'})
    workshop.checkpoint(name="other", files={name[role]: '{"of": "other"}'})
    workshop.build(**{role: {"from": "./other"}})
    assert workshop.read(name[role]) == b'{"of": "other"}'


def test_a_part_that_its_origin_does_not_have_is_missed(workshop):
    workshop.checkpoint()
    workshop.checkpoint(name="other")
    with pytest.raises(MissingInput, match="has no tokenizer files"):
        workshop.plan(tokenizer={"from": "./other"})


def test_from_base_needs_a_base(workshop):
    workshop.checkpoint()
    with pytest.raises(RecipeError, match="needs a local copy of the base"):
        workshop.plan(tokenizer={"from": "base"})


@pytest.mark.parametrize("kind", ["adapter", "quantized", "gguf"])
def test_a_full_model_is_not_built_as_another_kind(workshop, kind):
    workshop.checkpoint()
    with pytest.raises(InputError):
        workshop.plan(kind=kind)


# ------------------------------------------------------------------------------------------------ links and places


@pytest.mark.parametrize("name", ["tokenizer.json", "NOTICE", "generation_config.json"])
def test_a_link_to_outside_is_not_published(workshop, name):
    secret = workshop.folder / "secret"
    secret.write_text("{}")
    (workshop.checkpoint() / name).symlink_to(secret)
    with pytest.raises((MissingInput), match="link to outside"):
        workshop.plan(generation_config={})


def test_a_link_inside_is_followed(workshop):
    root = workshop.checkpoint(files={"tokens": "{}"})
    (root / "tokenizer.json").symlink_to("tokens")
    workshop.build()
    assert workshop.read("tokenizer.json") == b"{}"
    assert not (workshop.output / "tokenizer.json").is_symlink()


def test_a_broken_link_is_named(workshop):
    (workshop.checkpoint() / "tokenizer.json").symlink_to("nowhere")
    with pytest.raises(MissingInput, match=r"tokenizer\.json: is a broken link"):
        workshop.plan()


def test_a_pipe_does_not_hang_the_build(workshop):
    os.mkfifo(workshop.checkpoint() / "tokenizer.json")
    with pytest.raises(MissingInput, match=r"tokenizer\.json: is a device, socket or pipe"):
        workshop.plan()


@pytest.mark.parametrize("output", [".", "..", "./checkpoint", "./checkpoint/", "./x/..", "./checkpoint/../checkpoint"])
def test_an_output_that_holds_its_input_is_refused(workshop, output):
    workshop.checkpoint()
    with pytest.raises(RecipeError, match="a build replaces its output"):
        workshop.plan(output=output)


def test_an_output_inside_the_source_is_refused(workshop):
    workshop.checkpoint()
    with pytest.raises(RecipeError, match="lies inside the source, which is only read"):
        workshop.plan(output="./checkpoint/dist")


def test_an_output_that_is_the_base_is_refused(workshop):
    workshop.checkpoint()
    workshop.checkpoint(name="base")
    with pytest.raises(RecipeError, match="holds the base"):
        workshop.plan(output="./base", base={"path": "./base"})


def test_an_output_that_leads_to_the_source_by_a_link_is_refused(workshop):
    (workshop.folder / "link").symlink_to(workshop.checkpoint())
    with pytest.raises(RecipeError, match="a build replaces its output"):
        workshop.plan(output="./link")


def test_matching_takes_whole_names():
    assert matching(["a.b", "a.bc", "x"], ["a.b", "x*"], "key") == {"a.b", "x"}
