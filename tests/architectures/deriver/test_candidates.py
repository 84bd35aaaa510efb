"""What is tried for a key."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("transformers")

from repokit.architectures.deriver.candidates import Change, Op, applied, candidates, layer_count, member_types, smaller
from repokit.architectures.deriver.fields import ABSENT, Inventory, Key

pytestmark = pytest.mark.oracle


def _candidates(name, key, *, seen=None, source="", base=None):
    inventory = Inventory(keys={name: key}, sources={"": source})
    return candidates(name, inventory, base or {}, seen or {name: key.default})


@pytest.mark.parametrize(
    ("annotation", "members"),
    [
        ("<class 'int'>", {"int"}),
        ("int | str", {"int", "str"}),
        ("list[int] | tuple[int, ...] | None", {"list", "None"}),
        ("typing.Optional[typing.Literal['all', 'vision']]", {"Literal", "None"}),
        ("typing.Union[int, float]", {"int", "float"}),
        ("dict[str, int | None] | None", {"dict", "None"}),
    ],
)
def test_member_types(annotation, members):
    assert member_types(annotation) == members


def test_every_type_of_a_union_is_tried():
    found = _candidates("time_step_rank", Key("auto", "int | str"))
    assert Change(Op.SET, 16) in found


def test_a_value_that_may_be_null_is_tried_as_null():
    assert Change(Op.SET, None) in _candidates("num_key_value_heads", Key(8, "int | None"))


def test_strings_come_from_lines_that_name_the_key():
    source = 'if config.norm_kind == "rms":\n    other = "nothing"'
    assert _candidates("norm_kind", Key("layer", "str"), source=source) == [Change(Op.SET, "rms")]


def test_a_pattern_draws_from_the_letters_of_the_source():
    found = _candidates("hybrid_override_pattern", Key(ABSENT, "", hidden=True), source='{"M": 1, "*": 2}', seen={})
    assert Change(Op.PATTERN, "*M") in found


def test_a_list_that_is_none_is_tried_as_indices_of_layers():
    found = _candidates("mlp_only_layers", Key(None, "list[int] | None"), seen={"num_hidden_layers": 4})
    assert Change(Op.INDICES, None, "num_hidden_layers") in found


def test_the_count_of_layers_stands_beside_the_key():
    seen = {"num_hidden_layers": 2, "text_config.num_hidden_layers": 4}
    assert layer_count("text_config.layer_types", 4, seen) == "text_config.num_hidden_layers"


@pytest.mark.parametrize(
    ("change", "current", "value"),
    [
        (Change(Op.MULTIPLY, 3), 8, 24),
        (Change(Op.DIVIDE, 2), 1, 1),
        (Change(Op.ADD, -1), 8, 7),
        (Change(Op.SCALE, 2), (1, 2), (2, 4)),
        (Change(Op.SET, "rms"), "layer", "rms"),
    ],
)
def test_applied(change, current, value):
    assert applied(change, current, None, random.Random(0)) == value


def test_a_list_of_kinds_has_one_entry_a_layer():
    value = applied(Change(Op.KINDS, ("a", "b"), "layers"), (), 5, random.Random(0))
    assert len(value) == 5
    assert set(value) <= {"a", "b"}


def test_fresh_factors_replace_the_operand():
    assert applied(Change(Op.MULTIPLY, 2), 8, None, random.Random(0), factors=(7,)) == 56


def test_a_small_config_has_four_layers_and_eight_experts():
    keys = {"num_hidden_layers": Key(80, "int"), "num_experts": Key(60, "int"), "num_experts_per_tok": Key(4, "int")}
    assert smaller(Inventory(keys=keys)) == {"num_hidden_layers": 4, "num_experts": 8}
