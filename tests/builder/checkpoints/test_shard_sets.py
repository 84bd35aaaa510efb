"""An index that is missing or wrong is rebuilt from headers where they leave nothing open, and refused where they do."""

from __future__ import annotations

import json

import pytest

from repokit.builder.checkpoints.sources import open_checkpoint
from repokit.errors import InputError, MalformedFile, MissingInput

INDEX = "model.safetensors.index.json"
HEAD = "lm_head.weight"


@pytest.fixture
def indexed(workshop):
    """A checkpoint of three shards whose weight_map was changed."""

    def write(change):
        path = workshop.checkpoint(shards=3) / INDEX
        index = json.loads(path.read_text())
        change(index["weight_map"])
        path.write_text(json.dumps(index))
        return path.parent

    return write


def shard(number, total=3):
    return f"model-{number:05d}-of-{total:05d}.safetensors"


# ------------------------------------------------------------------------------------------------ no index


def test_shards_without_an_index_are_built(workshop):
    (workshop.checkpoint(shards=3) / INDEX).unlink()
    workshop.build()
    assert workshop.tensors() == workshop.model()


def test_shards_without_an_index_stay_the_shards_that_they_were(workshop):
    root = workshop.checkpoint(shards=3)
    before = json.loads((root / INDEX).read_text())["weight_map"]
    (root / INDEX).unlink()
    workshop.build()
    assert json.loads(workshop.read(INDEX))["weight_map"] == before


def test_a_missing_index_is_a_warning(workshop):
    (workshop.checkpoint(shards=3) / INDEX).unlink()
    assert f"there is no {INDEX}: tensors lie where the headers of all 3 shards say" in workshop.plan().warnings


@pytest.mark.parametrize("numbers", [(1,), (2,), (3,), (1, 3)])
def test_a_shard_that_is_missing_is_named(workshop, numbers):
    root = workshop.checkpoint(shards=3)
    (root / INDEX).unlink()
    for number in numbers:
        (root / shard(number)).unlink()
    with pytest.raises(MissingInput, match=f"lacks {len(numbers)} shards? of 3: {shard(numbers[0])}"):
        workshop.plan()


def test_shards_of_two_sets_are_refused(workshop):
    root = workshop.checkpoint(shards=3)
    workshop.write_safetensors(root / shard(1, 2), {HEAD: workshop.tensor("F32", (16, 8))})
    (root / INDEX).unlink()
    with pytest.raises(InputError, match="has shards of 2 sets"):
        workshop.plan()


def test_a_tensor_with_two_values_is_refused(workshop):
    root = workshop.checkpoint(shards=2)
    for number, seed in ((1, 7), (2, 8)):
        workshop.write_safetensors(root / shard(number, 2), {HEAD: workshop.tensor("F32", (16, 8), seed)})
    (root / INDEX).unlink()
    with pytest.raises(MalformedFile, match=r"holds lm_head\.weight with other values than model-00001-of-00002"):
        workshop.plan()


def test_two_shards_of_one_number_are_refused(workshop):
    root = workshop.checkpoint(shards=2)
    (root / INDEX).unlink()
    (root / "model-1-of-2.safetensors").write_bytes((root / shard(1, 2)).read_bytes())
    with pytest.raises(InputError, match="is shard 1, and so is"):
        workshop.plan()


def test_a_shard_number_of_a_trillion_is_refused(workshop):
    root = workshop.checkpoint()
    (root / "model.safetensors").rename(root / "model-1-of-1000000000000.safetensors")
    with pytest.raises(MissingInput, match="lacks 999,999,999,999 shards of 1,000,000,000,000"):
        workshop.plan()


# ------------------------------------------------------------------------------------------------ a wrong one


def test_a_tensor_that_the_index_does_not_name_is_built(indexed, workshop):
    """Left out in silence, it would be missing from a repository that looks whole."""
    indexed(lambda weight_map: weight_map.pop(HEAD))
    workshop.build()
    assert HEAD in workshop.tensors()


def test_a_tensor_that_the_index_does_not_name_is_a_warning(indexed, workshop):
    indexed(lambda weight_map: weight_map.pop(HEAD))
    (warning, *_) = workshop.plan().warnings
    assert warning.startswith(f"{INDEX} does not name 1 tensor ({HEAD}): it is not followed")


def test_an_index_whose_size_leaves_no_room_for_more_is_right(workshop):
    """A stale tensor in a shard of another run would be built into the model."""
    path = workshop.checkpoint(shards=3) / INDEX
    index = json.loads(path.read_text())
    index["weight_map"].pop(HEAD)
    index["metadata"]["total_size"] -= 16 * 8 * 4
    path.write_text(json.dumps(index))
    with pytest.raises(MalformedFile, match="does not name 1 tensor that its shards hold"):
        workshop.plan()


def test_an_index_without_a_size_is_not_followed_either(workshop):
    path = workshop.checkpoint(shards=3) / INDEX
    index = json.loads(path.read_text())
    index["weight_map"].pop(HEAD)
    path.write_text(json.dumps({"weight_map": index["weight_map"]}))
    assert "it is not followed" in workshop.plan().warnings[0]


def test_tensors_in_other_shards_than_the_index_says_are_built(indexed, workshop):
    def turn(weight_map):
        names = list(weight_map)
        files = [weight_map[name] for name in names]
        weight_map.update(zip(names, [*files[1:], files[0]], strict=True))

    indexed(turn)
    workshop.build()
    assert workshop.tensors() == workshop.model()


def test_an_index_of_another_number_of_shards_is_not_followed(workshop):
    """save_pretrained wrote two shards where there had been three, and an old index was copied over."""
    index = (workshop.checkpoint(shards=3) / INDEX).read_text()
    for number in (1, 2, 3):
        (workshop.folder / "checkpoint" / shard(number)).unlink()
    (workshop.checkpoint(shards=2) / INDEX).write_text(index)
    workshop.build()
    assert workshop.tensors() == workshop.model()


def test_a_tensor_that_is_the_same_in_two_shards_is_built_once(workshop):
    root = workshop.checkpoint(shards=3)
    first, second = (workshop.read_safetensors(root / shard(number)) for number in (1, 2))
    name = next(iter(second))
    workshop.write_safetensors(root / shard(1), {**first, name: second[name]})
    workshop.build()
    assert workshop.tensors() == workshop.model()


def test_a_tensor_that_no_shard_holds_stays_an_error(indexed, workshop):
    indexed(lambda weight_map: weight_map.update(more=shard(1)))
    with pytest.raises(MalformedFile, match="names 1 tensor that its shards do not hold: more"):
        workshop.plan()


def test_a_missing_shard_of_a_wrong_index_is_named(indexed, workshop):
    (indexed(lambda weight_map: weight_map.pop(HEAD)) / shard(2)).unlink()
    with pytest.raises(MissingInput, match=shard(2)):
        workshop.plan()


def test_a_right_index_is_followed(workshop):
    root = workshop.checkpoint(shards=3)
    assert type(open_checkpoint(root).weights).__name__ == "Safetensors"


def test_shards_that_are_not_numbered_are_not_rebuilt(indexed, workshop):
    """Nothing says how many they should be."""
    root = indexed(lambda weight_map: weight_map.pop(HEAD))
    index = json.loads((root / INDEX).read_text())
    for number, name in ((1, "a"), (2, "b"), (3, "c")):
        (root / shard(number)).rename(root / f"{name}.safetensors")
        for tensor, file in index["weight_map"].items():
            if file == shard(number):
                index["weight_map"][tensor] = f"{name}.safetensors"
    (root / INDEX).write_text(json.dumps(index))
    with pytest.raises(MalformedFile, match=r"does not name 1 tensor that its shards hold: lm_head\.weight"):
        workshop.plan()


# ------------------------------------------------------------------------------------------------ torchtune


def test_an_epoch_of_torchtune_is_built(workshop):
    """Its recipe state lies beside it, the adapter that was merged into it inside."""
    beside = {"adapter_0.pt": b"x", "recipe_state/recipe_state.pt": b"x"}
    workshop.checkpoint(name="epoch_2", shards=2, files=beside)
    workshop.build(source="./epoch_2")
    assert workshop.tensors() == workshop.model()


def test_an_output_directory_of_torchtune_names_its_last_epoch(workshop):
    for number in (0, 2):
        workshop.checkpoint(name=f"run/epoch_{number}", shards=2)
    (workshop.folder / "run" / "recipe_state").mkdir()
    (workshop.folder / "run" / "recipe_state" / "recipe_state.pt").write_bytes(b"x")
    with pytest.raises(InputError, match="is an output directory with 2 checkpoints") as error:
        workshop.plan(source="./run")
    assert error.value.hint.endswith("run/epoch_2")


# ------------------------------------------------------------------------------------------------ accelerate save_state


def test_of_accelerate_only_the_model_is_taken(workshop):
    state = ("optimizer.bin", "scheduler.bin", "sampler.bin", "dl_state_dict.bin", "scaler.pt", "random_states_0.pkl")
    workshop.checkpoint(files=dict.fromkeys((*state, "custom_checkpoint_0.pkl"), b"x"))
    plan = workshop.plan()
    assert {left.path: left.reason for left in plan.left_out} == dict.fromkeys(
        (*state, "custom_checkpoint_0.pkl"), "training state"
    )


def test_a_second_model_of_accelerate_is_named(workshop):
    root = workshop.checkpoint()
    (root / "model_1.safetensors").write_bytes((root / "model.safetensors").read_bytes())
    assert [left.path for left in workshop.plan().left_out] == ["model_1.safetensors"]


def test_a_second_model_of_accelerate_is_built_where_it_is_named(workshop):
    root = workshop.checkpoint()
    workshop.write_safetensors(root / "model_1.safetensors", {HEAD: workshop.tensor("F32", (16, 8), 99)})
    workshop.build(source="./checkpoint/model_1.safetensors")
    assert workshop.tensors() == {HEAD: workshop.tensor("F32", (16, 8), 99)}
