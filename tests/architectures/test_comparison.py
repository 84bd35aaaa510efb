"""The tensors of a file against a skeleton: what counts as there, missing, too many, of another shape."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from repokit.architectures import Skeleton
from repokit.architectures.comparison import Comparison, Form, Misshapen, compare

Toy = Callable[..., Skeleton]
DOWN = "model.layers.3.experts.2.down.weight"
QUERY = "model.layers.0.attn.q_proj.weight"


def held_by(skeleton: Skeleton) -> dict[str, tuple[int, ...]]:
    return {name: tuple(size or 1 for size in shape) for name, shape in skeleton.shapes.items()}


def fused(skeleton: Skeleton, *layers: int) -> dict[str, tuple[int, ...]]:
    """A file in which the experts of these layers are in one tensor."""
    assert skeleton.memory is not None
    apart = tuple(f"model.layers.{layer}.experts." for layer in layers)
    kept = {name: shape for name, shape in held_by(skeleton).items() if not name.startswith(apart)}
    memory = held_by(skeleton.memory)
    return kept | {name: shape for name, shape in memory.items() if name.startswith(apart)}


def told(comparison: Comparison) -> tuple[list[str], list[str], list[str]]:
    return comparison.missing, comparison.unexpected, [wrong.name for wrong in comparison.misshapen]


def test_the_same_tensors_are_exact(toy: Toy) -> None:
    assert compare(toy(), held_by(toy())).exact


def test_a_tensor_that_is_not_there_is_missing(toy: Toy) -> None:
    held = held_by(toy())
    del held[DOWN]
    assert told(compare(toy(), held)) == ([DOWN], [], [])


def test_a_tensor_that_nothing_asks_for_is_unexpected(toy: Toy) -> None:
    assert told(compare(toy(), {**held_by(toy()), "extra.weight": (2,)})) == ([], ["extra.weight"], [])


def test_one_tensor_for_another_is_both(toy: Toy) -> None:
    held = held_by(toy())
    held["extra.weight"] = held.pop(DOWN)
    assert told(compare(toy(), held)) == ([DOWN], ["extra.weight"], [])


def test_another_shape_is_told_with_both_shapes(toy: Toy) -> None:
    held = {**held_by(toy()), QUERY: (8, 9)}
    assert compare(toy(), held).misshapen == [Misshapen(QUERY, (8, 9), (8, 8))]


def test_another_number_of_dimensions_is_another_shape(toy: Toy) -> None:
    assert told(compare(toy(), {**held_by(toy()), QUERY: (64,)})) == ([], [], [QUERY])


# ---------------------------------------------------------------- spellings


def test_a_body_without_the_prefix_of_the_base_model_is_exact(toy: Toy) -> None:
    held = {name.removeprefix("model."): shape for name, shape in held_by(toy()).items()}
    assert compare(toy(), held).exact


def test_the_prefix_of_the_base_model_may_stand_there_twice(toy: Toy) -> None:
    held = {f"model.{name}": shape for name, shape in held_by(toy()).items()}
    assert compare(toy(), held).exact


def test_it_may_not_stand_there_three_times(toy: Toy) -> None:
    held = {f"model.model.{name}": shape for name, shape in held_by(toy()).items()}
    assert len(compare(toy(), held).missing) > len(held) // 2


def test_a_legacy_spelling_is_renamed(toy: Toy) -> None:
    held = held_by(toy())
    held["model.layers.0.norm.gamma"] = held.pop("model.layers.0.norm.weight")
    comparison = compare(toy(), held)
    assert comparison.exact
    assert comparison.renamed == {"model.layers.0.norm.gamma": "model.layers.0.norm.weight"}


def test_a_renamed_tensor_of_another_shape_is_told_under_its_own_name(toy: Toy) -> None:
    held = held_by(toy())
    del held["model.layers.0.norm.weight"]
    held["model.layers.0.norm.gamma"] = (9,)
    assert compare(toy(), held).misshapen == [Misshapen("model.layers.0.norm.gamma", (9,), (8,))]


def test_two_spellings_of_one_tensor_are_a_copy(toy: Toy) -> None:
    held = {**held_by(toy()), "model.layers.0.norm.gamma": (8,)}
    comparison = compare(toy(), held)
    assert comparison.exact
    assert comparison.respelled == {"model.layers.0.norm.gamma": "model.layers.0.norm.weight"}


# ---------------------------------------------------------------- two forms


def test_every_layer_in_the_second_form_is_exact(toy: Toy) -> None:
    comparison = compare(toy(), fused(toy(), 0, 1, 2, 3))
    assert comparison.exact
    assert comparison.form is Form.MEMORY


def test_layers_in_different_forms_are_exact(toy: Toy) -> None:
    comparison = compare(toy(), fused(toy(), 1, 2))
    assert comparison.exact
    assert comparison.form is Form.BOTH


def test_the_second_form_without_the_prefix_is_exact(toy: Toy) -> None:
    held = {name.removeprefix("model."): shape for name, shape in fused(toy(), 0, 1, 2, 3).items()}
    assert compare(toy(), held).exact


def test_a_layer_in_the_second_form_lacks_what_that_form_lacks(toy: Toy) -> None:
    held = fused(toy(), 0, 1, 2, 3)
    del held["model.layers.1.experts.up"]
    assert told(compare(toy(), held)) == (["model.layers.1.experts.up"], [], [])


def test_the_second_form_has_shapes_too(toy: Toy) -> None:
    held = {**fused(toy(), 0, 1, 2, 3), "model.layers.1.experts.up": (2, 12, 8)}
    assert told(compare(toy(), held)) == ([], [], ["model.layers.1.experts.up"])


def test_a_layer_with_parts_of_both_forms_is_torn(toy: Toy) -> None:
    held = fused(toy(), 1)
    held["model.layers.1.experts.0.up.weight"] = (12, 8)
    comparison = compare(toy(), held)
    assert told(comparison) == ([], [], [])
    assert set(comparison.torn) == {
        "model.layers.1.experts.0.up.weight",
        "model.layers.1.experts.up",
        "model.layers.1.experts.down",
    }


# ---------------------------------------------------------------- ties


def test_a_tied_copy_of_the_same_shape_is_a_duplicate(toy: Toy) -> None:
    tied = toy(tie_word_embeddings=True)
    comparison = compare(tied, {**held_by(tied), "lm_head.weight": (20, 8)})
    assert comparison.exact
    assert comparison.duplicates == {"lm_head.weight": "model.embed_tokens.weight"}


def test_a_tied_copy_of_another_shape_is_unexpected(toy: Toy) -> None:
    tied = toy(tie_word_embeddings=True)
    assert told(compare(tied, {**held_by(tied), "lm_head.weight": (21, 8)})) == ([], ["lm_head.weight"], [])


def test_a_tied_source_may_be_stored_under_the_name_of_its_copy(toy: Toy) -> None:
    tied = toy(tie_word_embeddings=True)
    held = held_by(tied)
    held["lm_head.weight"] = held.pop("model.embed_tokens.weight")
    assert compare(tied, held).exact


def test_an_untied_head_does_not_stand_for_the_embedding(toy: Toy) -> None:
    held = held_by(toy())
    del held["model.embed_tokens.weight"]
    assert told(compare(toy(), held)) == (["model.embed_tokens.weight"], [], [])


# ---------------------------------------------------------------- what may be there, or not


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.layers.0.attn.rotary.inv_freq", (4,)),
        ("model.embeddings.position_ids", (1, 64)),
        ("model.layers.1.attn.bias", (1, 1, 64, 64)),
        ("model.layers.1.attn.masked_bias", ()),
    ],
)
def test_a_buffer_of_older_versions_is_legacy(toy: Toy, name: str, shape: tuple[int, ...]) -> None:
    comparison = compare(toy(), {**held_by(toy()), name: shape})
    assert comparison.exact
    assert comparison.legacy == [name]


def test_a_bias_is_no_mask(toy: Toy) -> None:
    assert told(compare(toy(), {**held_by(toy()), "model.layers.1.attn.bias": (8,)}))[1] == ["model.layers.1.attn.bias"]


def test_what_the_class_passes_over_is_ignored(toy: Toy) -> None:
    comparison = compare(toy(), {**held_by(toy()), "mtp.fc.weight": (8, 16)})
    assert comparison.exact
    assert comparison.ignored == ["mtp.fc.weight"]


def test_what_the_class_does_without_is_not_missing(toy: Toy) -> None:
    held = held_by(toy())
    del held["model.layers.0.norm.weight"]
    assert compare(toy(), held).exact


def test_a_tensor_of_which_nothing_certain_is_known_may_be_there(toy: Toy) -> None:
    doubtful = toy("ToyDoubtful")
    assert compare(doubtful, {**held_by(doubtful), "model.layers.1.gate.weight": (8, 77)}).exact


def test_and_may_be_left_out(toy: Toy) -> None:
    doubtful = toy("ToyDoubtful")
    assert compare(doubtful, held_by(doubtful)).exact


def test_and_has_the_sizes_that_are_known(toy: Toy) -> None:
    doubtful = toy("ToyDoubtful")
    wrong = compare(doubtful, {**held_by(doubtful), "model.layers.1.gate.weight": (9, 77)}).misshapen
    assert wrong == [Misshapen("model.layers.1.gate.weight", (9, 77), (8, None))]


# ---------------------------------------------------------------- any set of tensors

SPELT = st.sampled_from(["", "model.", "module.", "model.model."])
PATHS = st.sampled_from(
    ["lm_head.weight", "layers.0.experts.up", "layers.1.experts.0.up.weight", "layers.9.norm.gamma"]
)
SHAPES = st.lists(st.integers(0, 20), max_size=4).map(tuple)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(added=st.dictionaries(st.builds(str.__add__, SPELT, PATHS), SHAPES), dropped=st.sets(st.integers(0, 36)))
def test_every_tensor_is_accounted_for_once(toy: Toy, added: dict[str, tuple[int, ...]], dropped: set[int]) -> None:
    wanted = toy()
    held = {name: shape for place, (name, shape) in enumerate(held_by(wanted).items()) if place not in dropped} | added
    comparison = compare(wanted, held)
    outside = [*comparison.unexpected, *comparison.duplicates, *comparison.respelled, *comparison.legacy]
    outside += [*comparison.ignored, *comparison.torn]
    inside = {comparison.renamed.get(name, name) for name in held if name not in outside}
    assert len(set(outside)) == len(outside)
    assert inside.isdisjoint(comparison.missing)
    known = set(wanted.shapes) | set(wanted.memory.shapes if wanted.memory else ())
    assert inside <= known
    assert all(re.match("model|lm_head", name) for name in comparison.missing)
