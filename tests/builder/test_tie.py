from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from repokit.builder.checkpoints.stored import TensorAt
from repokit.builder.transforms import tie
from repokit.errors import PlanError, RecipeError

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
TIED = {"tie_word_embeddings": True}


class Streams:
    """Stored tensors whose bytes come in chunks of any size."""

    def __init__(self, one, other, sizes=(3, 5)):
        self.bytes = {"one": (one, sizes[0]), "other": (other, sizes[1])}

    def same_memory(self, one, other):
        return False

    def contents(self, tensor):
        content, size = self.bytes[tensor.file]
        return (memoryview(content[at : at + size]) for at in range(0, len(content), size))


def same(one, other, *, sizes=(3, 5), **changes):
    first = TensorAt("one", "U8", (len(one),), 0)
    second = TensorAt("other", changes.get("dtype", "U8"), changes.get("shape", (len(other),)), 0)
    return tie.same_bytes(Streams(one, other, sizes), first, second)


@given(st.binary(min_size=1, max_size=40), st.data(), st.integers(1, 9), st.integers(1, 9))
def test_one_byte_is_a_difference(content, data, first, second):
    other = bytearray(content)
    other[data.draw(st.integers(0, len(content) - 1))] ^= 1
    assert not same(content, bytes(other), sizes=(first, second))


@given(st.binary(max_size=40), st.integers(1, 9), st.integers(1, 9))
def test_equal_bytes_are_equal_however_they_are_cut(content, first, second):
    assert same(content, content, sizes=(first, second))


def test_another_dtype_is_a_difference():
    assert not same(b"0123", b"0123", dtype="I8")


def test_another_shape_is_a_difference():
    assert not same(b"0123", b"0123", shape=(2, 2))


# ------------------------------------------------------------------------------------------------ in a build


def tied(workshop, **more):
    tensors = workshop.model()
    return {**tensors, HEAD: tensors[EMBEDDING], **more}


def test_a_tied_head_is_stored_once(workshop):
    workshop.checkpoint(tied(workshop), config=TIED)
    workshop.build()
    assert set(workshop.tensors()) == set(workshop.model()) - {HEAD}


def test_a_plan_says_what_is_tied(workshop):
    workshop.checkpoint(tied(workshop), config=TIED)
    assert workshop.plan().summary.tied == (HEAD,)


def test_a_tie_across_shards_is_found(workshop):
    workshop.checkpoint(tied(workshop), config=TIED, shards=3)
    assert workshop.plan().summary.tied == (HEAD,)


def test_a_tie_under_wrapped_names_is_found(workshop):
    workshop.checkpoint({f"_orig_mod.{name}": value for name, value in tied(workshop).items()}, config=TIED)
    assert workshop.plan().summary.tied == (HEAD,)


def test_a_tie_is_found_before_a_cast(workshop):
    workshop.checkpoint(tied(workshop), config=TIED)
    workshop.build(weights={"dtype": "bfloat16", "keep": [HEAD]})
    assert HEAD not in workshop.tensors()


def test_a_tie_that_is_none_stops_the_build(workshop):
    workshop.checkpoint(config=TIED)
    with pytest.raises(PlanError, match=rf"{HEAD} and {EMBEDDING} differ, and config\.json ties them") as caught:
        workshop.plan()
    assert (caught.value.path, caught.value.place) == ("config.json", "/tie_word_embeddings")


def test_tie_off_stores_what_is_there(workshop):
    workshop.checkpoint(tied(workshop), config=TIED)
    workshop.build(weights={"tie": "off"})
    assert workshop.tensors() == tied(workshop)


@pytest.mark.parametrize("config", [{"tie_word_embeddings": False}, {"tie_word_embeddings": None}])
def test_equal_bytes_that_config_does_not_tie_are_stored_twice(workshop, config):
    workshop.checkpoint(tied(workshop), config=config)
    workshop.build()
    assert workshop.tensors() == tied(workshop)


def test_a_head_of_another_shape_stays(workshop):
    workshop.checkpoint({**workshop.model(), HEAD: workshop.tensor("F32", (4, 8))}, config=TIED)
    assert workshop.plan().summary.tied == ()


def test_a_head_whose_embedding_is_dropped_stays(workshop):
    workshop.checkpoint(tied(workshop), config=TIED)
    workshop.build(weights={"drop": [EMBEDDING]})
    assert HEAD in workshop.tensors()


def test_a_head_that_is_dropped_needs_no_tie(workshop):
    workshop.checkpoint(config=TIED)
    workshop.build(weights={"drop": [HEAD]})
    assert set(workshop.tensors()) == set(workshop.model()) - {HEAD}


def test_what_is_dropped_is_named(workshop):
    workshop.checkpoint()
    assert workshop.plan(weights={"drop": ["model.layers.1.*"]}).summary.dropped == tuple(
        sorted(name for name in workshop.model() if name.startswith("model.layers.1."))
    )


def test_a_pattern_that_drops_nothing_is_refused(workshop):
    workshop.checkpoint()
    with pytest.raises(RecipeError, match=r"weights\.drop: 'model\.layer\.\*' matches none of 10 names"):
        workshop.plan(weights={"drop": ["model.layer.*"]})


def test_dropping_everything_is_refused(workshop):
    workshop.checkpoint()
    with pytest.raises(PlanError, match="no tensor is left"):
        workshop.plan(weights={"drop": ["*"]})
