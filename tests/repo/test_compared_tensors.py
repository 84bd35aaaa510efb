"""Tensors of two models side by side, for any names."""

from __future__ import annotations

from hypothesis import given, strategies as st

from repokit.linter.examples import safetensors, single
from repokit.repo.compared_tensors import ComparedTensors, compare_tensors
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository
from repokit.repo.weights import SINGLE

WORDS = st.sampled_from(
    ["model", "layers", "visual", "mlp", "experts", "0", "1", "12", "gate", "weight", "bias", "mtp"]
)
NAMES = st.lists(WORDS, min_size=1, max_size=6).map(".".join)
SETS = st.sets(NAMES, min_size=1, max_size=12)


def compared(ours: set[str], theirs: set[str], dropped: tuple[str, ...] = ()) -> ComparedTensors:
    files = [
        {"config.json": single()["config.json"], SINGLE: safetensors(dict.fromkeys(sorted(names), ("F32", (2, 2))))}
        for names in (ours, theirs)
    ]
    with Repository(Memory(files[0])) as mine, Repository(Memory(files[1])) as other:
        return compare_tensors(mine, other, dropped=dropped)


@given(SETS)
def test_a_model_has_all_that_it_has(names):
    assert compared(names, names) == ComparedTensors()


@given(SETS, SETS)
def test_what_was_lost_is_counted_once(ours, theirs):
    names = {name for name in theirs if "model" not in name.split(".")}  # no containers: names are compared as they are
    mine = {name for name in ours if "model" not in name.split(".")} | {"same"}
    found = compared(mine, names | {"same"})
    assert sum(part.count for part in (*found.lost, *found.renamed)) == len(names - mine)


@given(SETS)
def test_what_is_dropped_on_purpose_is_not_lost(names):
    assert compared({"same"}, names | {"same"}, tuple(names)).lost == ()


def test_containers_are_not_part_of_a_name():
    older = {"language_model.model.layers.0.up.weight", "language_model.lm_head.weight", "visual.blocks.0.up.weight"}
    newer = {"model.language_model.layers.0.up.weight", "lm_head.weight", "model.visual.blocks.0.up.weight"}
    assert compared(newer, older) == ComparedTensors()


def test_the_largest_module_that_is_gone_is_named():
    theirs = {"model.visual.blocks.0.up.weight", "model.visual.merger.weight", "model.norm.weight"}
    assert [part.name for part in compared({"model.norm.weight"}, theirs).lost] == ["model.visual"]


def test_layers_with_a_gap_are_not_a_range():
    theirs = {f"model.layers.{layer}.up.weight" for layer in (1, 2, 4)} | {"model.norm.weight"}
    found = compared({"model.norm.weight", "model.layers.0.up.weight"}, theirs | {"model.layers.0.up.weight"}).lost
    assert [(part.name, part.count) for part in found] == [("model.layers.*", 3)]
