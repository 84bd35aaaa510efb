"""Weights in pickles, written by hand; what torch itself writes is in tests/oracles/test_torch_builds.py."""

from __future__ import annotations

import json

import pytest

from repokit import api
from repokit.builder.checkpoints.sources import open_checkpoint
from repokit.errors import InputError, MalformedFile, MissingInput, UnsupportedSource
from repokit.linter.examples import filled
from repokit.linter.examples_torch import called, torch_file

BIN, INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
TENSORS = {EMBEDDING: ("F32", (16, 8)), HEAD: ("F32", (16, 8)), "model.norm.weight": ("BF16", (8,))}
BYTES = {name: filled(name, 16 * 8 * 4 if dtype == "F32" else 16) for name, (dtype, _) in TENSORS.items()}


@pytest.fixture
def pickled(workshop):
    """A checkpoint of these files, with a config."""

    def write(files, **config):
        root = workshop.checkpoint(files=files, config=config)
        (root / "model.safetensors").unlink()
        return root

    return write


def sharded(**changes):
    """Two pickled shards and their index."""
    shards = {
        "pytorch_model-00001-of-00002.bin": (EMBEDDING,),
        "pytorch_model-00002-of-00002.bin": (HEAD, "model.norm.weight"),
    }
    files = {shard: torch_file({name: TENSORS[name] for name in names}) for shard, names in shards.items()}
    weight_map = {name: shard for shard, names in shards.items() for name in names}
    return {**files, INDEX: json.dumps({"metadata": {}, "weight_map": {**weight_map, **changes}})}


def test_the_bytes_are_those_of_the_pickle(pickled, workshop):
    pickled({BIN: torch_file(TENSORS)})
    workshop.build()
    assert {name: data for name, (_, _, data) in workshop.tensors().items()} == BYTES


def test_a_plan_copies_stored_members_by_their_place(pickled, workshop):
    """No member is unpacked: each piece is a range of the archive."""
    content = torch_file(TENSORS)
    pickled({BIN: content})
    (shard,) = (operation for operation in workshop.plan().operations if operation.op == "write-shard")
    found = {content[piece.offset : piece.offset + piece.length] for piece in shard.pieces}
    assert found == set(BYTES.values())


def test_shards_stay_the_shards_that_they_were(pickled, workshop):
    pickled(sharded())
    workshop.build()
    written = json.loads(workshop.read("model.safetensors.index.json"))["weight_map"]
    assert written == {
        EMBEDDING: "model-00001-of-00002.safetensors",
        HEAD: "model-00002-of-00002.safetensors",
        "model.norm.weight": "model-00002-of-00002.safetensors",
    }


def test_a_missing_shard_is_named(pickled, workshop):
    files = sharded()
    del files["pytorch_model-00002-of-00002.bin"]
    pickled(files)
    with pytest.raises(MissingInput, match=r"names 1 shard that is not there: pytorch_model-00002-of-00002\.bin"):
        workshop.plan()


@pytest.mark.parametrize("shard", ["../other.bin", "/etc/x.bin", "config.json", 3, "C:\\x.bin"])
def test_an_index_that_leads_elsewhere_is_refused(pickled, workshop, shard):
    pickled(sharded(**{HEAD: shard}))
    with pytest.raises(MalformedFile, match="which is no file of weights inside the checkpoint"):
        workshop.plan()


def test_a_tensor_that_its_shard_does_not_hold_is_named(pickled, workshop):
    pickled(sharded(**{"model.layers.7.weight": "pytorch_model-00001-of-00002.bin"}))
    with pytest.raises(MalformedFile, match=r"names 1 tensor that its shards do not hold: model\.layers\.7\.weight"):
        workshop.plan()


def test_a_tensor_that_the_index_does_not_name_is_named(pickled, workshop):
    files = sharded()
    index = json.loads(files[INDEX])
    del index["weight_map"][HEAD]
    pickled({**files, INDEX: json.dumps(index)})
    with pytest.raises(MalformedFile, match=r"does not name 1 tensor that its shards hold: lm_head\.weight"):
        workshop.plan()


def test_safetensors_win_over_a_pickle(workshop):
    workshop.checkpoint(files={BIN: torch_file(TENSORS)})
    assert open_checkpoint(workshop.folder / "checkpoint").weights.files == ("model.safetensors",)


def test_a_file_is_taken_whatever_lies_beside_it(workshop):
    root = workshop.checkpoint(files={"epoch=3.ckpt": torch_file(TENSORS)})
    assert set(open_checkpoint(root / "epoch=3.ckpt").tensors) == set(TENSORS)


def test_one_of_several_pickles_must_be_named(pickled, workshop):
    pickled({"epoch=3.ckpt": torch_file(TENSORS), "last.ckpt": torch_file(TENSORS)})
    with pytest.raises(InputError, match=r"has 2 pickles that may hold the model: epoch=3\.ckpt, last\.ckpt") as error:
        workshop.plan()
    assert error.value.hint.endswith("checkpoint/last.ckpt")


def test_the_usual_name_is_the_model(pickled, workshop):
    pickled({BIN: torch_file(TENSORS), "classifier.pt": torch_file({"head": ("F32", (2,))})})
    assert open_checkpoint(workshop.folder / "checkpoint").weights.files == (BIN,)


@pytest.mark.parametrize("state", ["optimizer.pt", "training_args.bin", "rng_state.pth", "scheduler.pt"])
def test_state_of_the_run_is_not_the_model(pickled, workshop, state):
    pickled({"weights.pt": torch_file(TENSORS), state: torch_file(TENSORS)})
    assert open_checkpoint(workshop.folder / "checkpoint").weights.files == ("weights.pt",)


def test_a_pickle_that_runs_code_is_not_built(pickled, workshop, tmp_path):
    canary = tmp_path / "canary"
    pickled({BIN: torch_file(TENSORS, called("os", "system", f"touch {canary}"))})
    with pytest.raises(MalformedFile, match=r"names os\.system, which can run code"):
        workshop.plan()
    assert not canary.exists()


def test_what_is_not_known_is_named_and_left_out(pickled, workshop):
    pickled({BIN: torch_file(TENSORS, b"cmylib.config\nSettings\n)R0")})
    assert any(
        "names mylib.config.Settings: not known here, not run" in warning for warning in workshop.plan().warnings
    )


def test_a_checkpoint_in_the_layout_of_meta_is_refused_by_its_name(workshop):
    root = workshop.folder / "checkpoint"
    root.mkdir()
    (root / "consolidated.00.pth").write_bytes(torch_file(TENSORS))
    with pytest.raises(UnsupportedSource, match="Meta's own layout"):
        workshop.plan()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"<!DOCTYPE html>", "an HTML page"),
        (b"x", "no checkpoint of torch"),
    ],
)
def test_what_only_has_the_name_of_a_pickle_is_named(pickled, workshop, content, what):
    pickled({BIN: content})
    with pytest.raises(MalformedFile, match=f"is {what}"):
        workshop.plan()


def test_a_tied_head_is_stored_once(pickled, workshop):
    same = torch_file({EMBEDDING: ("F32", (16, 8)), HEAD: ("F32", (16, 8))}, names={HEAD: EMBEDDING})
    pickled({BIN: same}, tie_word_embeddings=True)
    assert workshop.plan().summary.tied == (HEAD,)


def test_the_embeddings_of_both_sides_are_stored_once(pickled, workshop):
    sides = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    tensors = dict.fromkeys(("shared.weight", *sides), ("F32", (16, 8)))
    pickled({BIN: torch_file(tensors, names=dict.fromkeys(sides, "shared.weight"))}, tie_word_embeddings=True)
    assert set(workshop.plan().summary.tied) == set(sides)


def test_a_draft_is_made_of_a_pickle(pickled, workshop):
    pickled({BIN: torch_file(TENSORS)})
    found = api.init(workshop.folder / "checkpoint", recipe_folder=workshop.folder).found
    assert any(line.startswith("weights       3 tensors, 1.0 kB") for line in found), found


def test_a_draft_names_the_file_that_was_asked_for(pickled, workshop):
    pickled({"a.ckpt": torch_file(TENSORS), "b.ckpt": torch_file(TENSORS)})
    draft = api.init(workshop.folder / "checkpoint" / "b.ckpt", recipe_folder=workshop.folder)
    assert "source: ./checkpoint/b.ckpt" in draft.text


def test_shards_without_an_index_are_read_together(pickled, workshop):
    files = sharded()
    del files[INDEX]
    pickled(files)
    workshop.build()
    assert set(workshop.tensors()) == set(TENSORS)


def test_a_shard_that_is_missing_without_an_index_is_named(pickled, workshop):
    files = sharded()
    del files[INDEX], files["pytorch_model-00001-of-00002.bin"]
    pickled(files)
    with pytest.raises(MissingInput, match="lacks 1 shard of 2: pytorch_model-00001-of-00002"):
        workshop.plan()


def test_shards_of_two_sets_are_refused(pickled, workshop):
    files = sharded()
    del files[INDEX]
    pickled({**files, "pytorch_model-00001-of-00001.bin": torch_file(TENSORS)})
    with pytest.raises(InputError, match="has shards of 2 sets"):
        workshop.plan()


def test_a_tensor_in_two_shards_without_an_index_is_refused(pickled, workshop):
    pickled({f"pytorch_model-0000{number}-of-00002.bin": torch_file(TENSORS) for number in (1, 2)})
    with pytest.raises(MalformedFile, match="holds too"):
        workshop.plan()
