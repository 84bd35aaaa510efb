"""Checkpoints that are made of links: a snapshot of the Hub's cache, weights on another disk, and links that mislead."""

from __future__ import annotations

import os

import pytest

from repokit import api
from repokit.builder.draft import draft
from repokit.errors import MissingInput, UnsupportedSource
from repokit.linter.examples_torch import torch_file
from repokit.repo import directory

SHARDED = {"weights": {"max_shard_size": "1KB"}}


@pytest.fixture
def expected(workshop):
    """What a build of the same files gives that are no links."""

    def build(**keys):
        workshop.build(output="./reference/out", **keys)
        return workshop.contents(workshop.folder / "reference" / "out")

    return build


def moved(root, elsewhere, *, which=lambda name: True):
    """Moves files of a checkpoint away and leaves links to them."""
    elsewhere.mkdir(parents=True, exist_ok=True)
    for path in sorted(root.iterdir()):
        if which(path.name):
            path.rename(elsewhere / path.name)
            path.symlink_to(os.path.relpath(elsewhere / path.name, root))


def is_weights(name):
    return name.endswith((".safetensors", ".bin", ".pt", ".pth", ".ckpt"))


def links(root):
    return [path for path in root.rglob("*") if path.is_symlink()]


@pytest.fixture
def snapshot(workshop):
    """A checkpoint in the layout of the Hub's cache."""
    plain = workshop.checkpoint(files={"tokenizer.json": "{}", "README.md": "# model\n"}, shards=2)
    cache = workshop.folder / "hub" / "models--org--name"
    root = cache / "snapshots" / ("a" * 40)
    root.parent.mkdir(parents=True)
    plain.rename(root)
    moved(root, cache / "blobs")
    return root


# ------------------------------------------------------------------------------------------------ what is followed


def test_a_snapshot_of_the_hub_s_cache_builds(workshop, snapshot):
    workshop.build(source=str(snapshot))
    assert workshop.tensors() == workshop.model()
    assert workshop.read("tokenizer.json") == b"{}"


def test_the_output_of_links_holds_none(workshop, snapshot):
    workshop.build(source=str(snapshot))
    assert links(snapshot)
    assert links(workshop.output) == []


def test_a_snapshot_is_linted_like_its_files(workshop, snapshot):
    copy = workshop.folder / "copy"
    copy.mkdir()
    for path in snapshot.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    found = [[(one.code, one.path) for one in api.lint(root).report.findings] for root in (snapshot, copy)]
    assert found[0] == found[1]


@pytest.mark.parametrize("shards", [1, 3])
def test_weights_on_another_disk_build(workshop, expected, shards):
    root = workshop.checkpoint(shards=shards)
    wanted = expected(**SHARDED)
    moved(root, workshop.folder / "data-disk", which=is_weights)
    workshop.build(**SHARDED)
    assert workshop.contents() == wanted
    assert links(workshop.output) == []


def test_a_link_to_a_link_is_followed_to_its_end(workshop):
    root = workshop.checkpoint()
    moved(root, workshop.folder / "disk", which=is_weights)
    moved(workshop.folder / "disk", workshop.folder / "archive")
    workshop.build()
    assert workshop.tensors() == workshop.model()


def test_links_inside_the_checkpoint_are_files(workshop):
    root = workshop.checkpoint(files={"vocab.txt": "a\n"})
    (root / "tokenizer.json").symlink_to("vocab.txt")
    workshop.build()
    assert (workshop.read("tokenizer.json"), links(workshop.output)) == (b"a\n", [])


def test_a_checkpoint_may_itself_be_a_link(workshop, snapshot):
    (workshop.folder / "latest").symlink_to(snapshot)
    workshop.build(source="./latest")
    assert workshop.tensors() == workshop.model()


def test_a_recipe_is_drafted_of_links(workshop):
    root = workshop.checkpoint()
    wanted = draft(root, recipe_folder=workshop.folder).found
    moved(root, workshop.folder / "disk", which=is_weights)
    assert draft(root, recipe_folder=workshop.folder).found == wanted


# ------------------------------------------------------------------------------------------------ pickles and files


@pytest.fixture
def run(workshop):
    """A run of Lightning: `last.ckpt` is a link to the checkpoint of an epoch."""
    root = workshop.checkpoint(files={"epoch=3.ckpt": torch_file({"lm_head.weight": ("F32", (16, 8))})})
    (root / "model.safetensors").unlink()
    (root / "last.ckpt").symlink_to("epoch=3.ckpt")
    return root


def test_a_source_that_is_a_file_may_be_a_link(workshop, run):
    workshop.build(source="./checkpoint/last.ckpt")
    assert list(workshop.tensors()) == ["lm_head.weight"]


def test_a_source_that_is_a_file_may_be_a_link_to_another_disk(workshop, run):
    moved(run, workshop.folder / "disk", which=lambda name: name == "epoch=3.ckpt")
    workshop.build(source="./checkpoint/last.ckpt")
    assert list(workshop.tensors()) == ["lm_head.weight"]


def test_a_pickle_on_another_disk_builds(workshop, run):
    (run / "last.ckpt").unlink()
    moved(run, workshop.folder / "disk", which=is_weights)
    workshop.build()
    assert list(workshop.tensors()) == ["lm_head.weight"]


# ------------------------------------------------------------------------------------------------ what is refused


def refusal(workshop, **keys):
    with pytest.raises(MissingInput) as caught:
        workshop.build(**keys)
    assert (workshop.output.exists(), workshop.hidden()) == (False, [])
    return str(caught.value)


@pytest.fixture
def secret(workshop):
    path = workshop.folder / "secret"
    path.write_text('{"private": true}')
    return path


@pytest.mark.parametrize(
    "name",
    ["config.json", "generation_config.json", "README.md", "tokenizer.json", "chat_template.jinja", "vocab.txt"],
)
def test_a_document_that_leads_outside_is_refused(workshop, secret, name):
    root = workshop.checkpoint()
    (root / name).unlink(missing_ok=True)
    (root / name).symlink_to(secret)
    assert refusal(workshop).endswith(f"/{name}: is a link to outside of the repository (to {secret})")


def test_an_index_that_leads_outside_is_refused(workshop):
    moved(workshop.checkpoint(shards=2), workshop.folder / "disk", which=lambda name: name.endswith("index.json"))
    assert "model.safetensors.index.json: is a link to outside" in refusal(workshop)


@pytest.mark.parametrize("name", ["secret.bin", "secret.pt", "extra.safetensors"])
def test_a_file_with_the_name_of_weights_is_not_copied_from_outside(workshop, secret, name):
    root = workshop.checkpoint()
    (root / name).symlink_to(secret)
    keys = {"files": {"include": [name]}}
    if name.endswith(".safetensors"):
        workshop.build()  # never copied, and named as left out
        assert not (workshop.output / name).exists()
    else:
        assert f"{name}: is a link to outside of the repository" in refusal(workshop, **keys)


def test_what_the_model_does_not_need_may_lead_anywhere(workshop, secret):
    root = workshop.checkpoint()
    (root / "notes.txt").symlink_to(secret)
    (root / "logs").symlink_to("/")
    workshop.build()
    assert workshop.tensors() == workshop.model()


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "model.ckpt"])
@pytest.mark.parametrize(
    ("target", "what"),
    [("/data/gone", "is a broken link (to /data/gone)"), ("", "is a broken link (to {name})")],
    ids=["dangling", "loop"],
)
def test_weights_that_lead_nowhere_are_one_line(workshop, name, target, what):
    root = workshop.checkpoint()
    (root / "model.safetensors").unlink()
    (root / name).symlink_to(target or name)
    assert refusal(workshop).endswith(f"/{name}: {what.format(name=name)}")


def test_weights_that_are_a_folder_are_one_line(workshop):
    root = workshop.checkpoint()
    (root / "model.safetensors").unlink()
    (workshop.folder / "disk").mkdir()
    (root / "model.safetensors").symlink_to("../disk")
    assert refusal(workshop).endswith("/model.safetensors: is a link to a folder (to ../disk)")


def test_a_shard_that_leads_nowhere_is_one_line(workshop):
    root = workshop.checkpoint(shards=2)
    (root / "model-00002-of-00002.safetensors").unlink()
    (root / "model-00002-of-00002.safetensors").symlink_to("/data/gone")
    assert refusal(workshop).endswith("/model-00002-of-00002.safetensors: is a broken link (to /data/gone)")


def test_a_pickle_that_leads_nowhere_beside_the_weights_is_left_out(workshop):
    (workshop.checkpoint() / "pytorch_model.bin").symlink_to("/data/gone")
    assert "pytorch_model.bin" in [left.path for left in workshop.plan().left_out]


@pytest.mark.parametrize("target", ["/data/gone", "loop"])
def test_a_source_that_leads_nowhere_is_one_line(workshop, target):
    (workshop.folder / "loop").symlink_to(target)
    with pytest.raises(MissingInput, match=r"loop: (?:does not exist|cannot be read)"):
        workshop.plan(source="./loop")


def test_a_source_that_is_a_link_to_a_device_is_not_read(workshop):
    (workshop.folder / "zero.safetensors").symlink_to("/dev/zero")
    with pytest.raises(UnsupportedSource, match="neither a directory nor a file of weights"):
        workshop.plan(source="./zero.safetensors")


def test_weights_that_are_a_device_are_not_read(workshop):
    root = workshop.checkpoint()
    (root / "model.safetensors").unlink()
    (root / "model.safetensors").symlink_to("/dev/zero")
    assert "is a device, socket or pipe (to /dev/zero)" in refusal(workshop)


# ------------------------------------------------------------------------------------------------ huge folders


@pytest.fixture
def small_limit(monkeypatch):
    monkeypatch.setattr(directory, "MAX_BELOW", 3)


@pytest.mark.parametrize("folder", ["wandb", "runs", "images"])
def test_a_folder_with_too_many_files_is_left_out_whole(workshop, small_limit, folder):
    workshop.checkpoint(files={f"{folder}/{number // 2}/{number}": "x" for number in range(9)})
    left = {left.path: left.reason for left in workshop.plan().left_out}
    assert left == {f"{folder}/": "has more than 3 files"}
    workshop.build()
    assert workshop.tensors() == workshop.model()


def test_a_folder_with_few_files_can_be_included(workshop, small_limit):
    workshop.checkpoint(files={f"assets/{number}.png": "x" for number in range(3)})
    workshop.build(files={"include": ["assets/*"]})
    assert workshop.read("assets/2.png") == b"x"


def test_a_checkpoint_of_nothing_but_logs_has_no_weights(workshop, small_limit):
    for number in range(9):
        (workshop.folder / "run" / "wandb").mkdir(parents=True, exist_ok=True)
        (workshop.folder / "run" / "wandb" / str(number)).touch()
    with pytest.raises(MissingInput, match="has no weights"):
        workshop.plan(source="./run")
