from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from repokit.builder.naming import check_one_to_one, renamed, repaired
from repokit.errors import PlanError

NAMES = [
    "model.embed_tokens.weight",
    "model.layers.0.mlp.up_proj.weight",
    "model.layers.10.norm.bias",
    "lm_head.weight",
]
PARTS = ["_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"]
WHOLE = ["module", "_forward_module"]


@st.composite
def wrapped(draw):
    """Names of a model behind wrappers: some around all of it, in any order, some around modules inside it."""
    outside = draw(st.lists(st.sampled_from(PARTS + WHOLE), max_size=5))
    names = {}
    for name in NAMES:
        inside = [
            part for piece in name.split(".") for part in (*draw(st.lists(st.sampled_from(PARTS), max_size=2)), piece)
        ]
        names[".".join([*outside, *inside])] = name
    return names


@settings(max_examples=300, deadline=None)
@given(wrapped())
def test_wrappers_come_off_in_any_nesting(names):
    assert repaired(names) == names


@settings(max_examples=300, deadline=None)
@given(wrapped())
def test_a_second_repair_changes_nothing(names):
    assert all(final == name for name, final in repaired(repaired(names).values()).items())


def test_names_without_wrappers_stay():
    assert repaired(NAMES) == {name: name for name in NAMES}


def test_no_names_are_no_names():
    assert repaired([]) == {}


def test_a_module_that_is_called_module_stays_where_others_stand_beside_it():
    names = ["module.weight", "head.weight"]
    assert repaired(names) == {name: name for name in names}


@pytest.mark.parametrize(
    "name", ["model._orig_module.weight", "my_orig_mod.weight", "model.x_orig_mod.weight", "_orig_mod"]
)
def test_a_part_that_only_resembles_a_wrapper_stays(name):
    assert repaired([name, "lm_head.weight"])[name] == name


FINALS = st.dictionaries(
    st.text("abc", min_size=1, max_size=3), st.sampled_from(["a", "b", "c.d", "", "__metadata__", "x\n"]), max_size=5
)


@settings(max_examples=300, deadline=None)
@given(FINALS)
def test_a_renaming_passes_exactly_where_it_is_one_to_one_and_every_name_can_be_written(names):
    finals = list(names.values())
    good = len(set(finals)) == len(finals) and not {"", "__metadata__", "x\n"} & set(finals)
    assert passes(names) == good


def passes(names):
    try:
        check_one_to_one(names)
    except PlanError:
        return False
    return True


def test_a_loss_names_both_tensors():
    with pytest.raises(PlanError, match=r"b\.w would be called 'w', and so would a\.w"):
        check_one_to_one({"a.w": "w", "b.w": "w"})


def test_rules_apply_in_order():
    rules = [(r"^transformer\.h\.(\d+)", r"model.layers.\1"), ("layers", "blocks")]
    assert renamed({"transformer.h.3.w": "transformer.h.3.w"}, rules) == {"transformer.h.3.w": "model.blocks.3.w"}


def test_a_rule_that_matches_nothing_is_refused():
    with pytest.raises(PlanError, match="matches none of 1 name"):
        renamed({"a": "a"}, [("b", "c")])


@pytest.mark.parametrize(("pattern", "replacement"), [("(", ""), ("a", r"\1"), ("a", r"\q"), ("(a)", r"\g<name>")])
def test_what_is_no_rename_is_refused(pattern, replacement):
    with pytest.raises(PlanError, match="is not a rename"):
        renamed({"a": "a"}, [(pattern, replacement)])


def test_a_build_repairs_names(workshop):
    tensors = workshop.model()
    workshop.checkpoint({f"module._orig_mod.{name}": value for name, value in tensors.items()})
    workshop.build()
    assert workshop.tensors() == tensors


def test_a_build_counts_what_it_repairs(workshop):
    workshop.checkpoint({f"_orig_mod.{name}": value for name, value in workshop.model().items()})
    assert workshop.plan().summary.renamed == len(workshop.model())


def test_a_build_with_rename_off_keeps_names(workshop):
    tensors = {f"_orig_mod.{name}": value for name, value in workshop.model().items()}
    workshop.checkpoint(tensors)
    workshop.build(weights={"rename": "off"})
    assert workshop.tensors() == tensors


def test_a_build_with_rules_renames(workshop):
    tensors = workshop.model()
    workshop.checkpoint({name.replace("model.", "backbone."): value for name, value in tensors.items()})
    workshop.build(weights={"rename": [{"from": r"^backbone\.", "to": "model."}]})
    assert workshop.tensors() == tensors


def test_a_rename_that_loses_a_tensor_stops_the_build(workshop):
    workshop.checkpoint()
    with pytest.raises(PlanError, match="and so would"):
        workshop.plan(weights={"rename": [{"from": r"layers\.\d", "to": "layers.0"}]})


@pytest.mark.parametrize(
    ("stored", "final"),
    [
        (["model.model.layers.0.w", "model.lm_head.weight"], ["model.layers.0.w", "lm_head.weight"]),
        (["net.transformer.h.0.w", "net.lm_head.weight"], ["transformer.h.0.w", "lm_head.weight"]),
        (["model.module.model.norm.w"], ["model.norm.w"]),
        (["model.layers.0.w", "model.norm.w"], ["model.layers.0.w", "model.norm.w"]),
        (["model.layers.0.w", "lm_head.weight"], ["model.layers.0.w", "lm_head.weight"]),
        (["bert.encoder.w", "classifier.weight"], ["bert.encoder.w", "classifier.weight"]),
    ],
)
def test_the_attribute_of_a_lightning_module_is_taken_off(stored, final):
    assert list(repaired(stored, in_module=True).values()) == final


def test_an_attribute_is_left_where_no_framework_stored_the_names():
    assert repaired(["model.model.w"]) == {"model.model.w": "model.model.w"}
