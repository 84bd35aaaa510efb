"""One file at a time, written opcode by opcode; what ranks make together is in tests/builder/checkpoints/test_zero_weights.py."""

from __future__ import annotations

import pytest
from torch_writer import call, dict_of, legacy, list_of, name, number, tensor, text, torch_zip, tuple_of

from repokit.errors import MalformedFile, UnsupportedSource
from repokit.formats.zero import read_model_states, read_optimizer_states

NONE, TRUE = b"N", b"\x88"
SHAPE = tuple_of(number(2), number(2))
MODULE = dict_of(("a", tensor()))


def model(*pairs, module=MODULE, written=torch_zip):
    content = written(dict_of(("module", module), *pairs))
    return read_model_states(lambda offset, length: content[offset : offset + length], len(content), "model.pt")


def optimizer(*pairs, inside="optimizer_state_dict"):
    content = torch_zip(dict_of((inside, dict_of(*pairs))))
    return read_optimizer_states(lambda offset, length: content[offset : offset + length], len(content), "optim.pt")


FLATS = ("fp32_flat_groups", list_of(tensor((4,))))


def test_shapes_are_those_of_each_group_in_order():
    groups = list_of(dict_of(("b", SHAPE), ("a", tuple_of())), dict_of(("c", SHAPE)))
    assert model(("param_shapes", groups)).groups == ({"b": (2, 2), "a": ()}, {"c": (2, 2)})


def test_one_dict_of_shapes_is_one_group():
    assert model(("param_shapes", dict_of(("a", SHAPE)))).groups == ({"a": (2, 2)},)


def test_without_zero_there_are_no_groups():
    assert model(("param_shapes", NONE)).groups == ()


@pytest.mark.parametrize("written", [torch_zip, legacy])
def test_the_module_is_a_state_dict(written):
    assert list(model(written=written).module) == ["a"]


def test_modules_in_the_module_are_joined_by_dots():
    assert list(model(module=dict_of(("inner", MODULE))).module) == ["inner.a"]


@pytest.mark.parametrize(
    "pairs", [dict_of(("b", text("a"))), list_of(list_of(text("b"), text("a")))], ids=["dict", "list of pairs"]
)
def test_shared_parameters_are_names(pairs):
    assert model(("shared_params", pairs)).shared == {"b": "a"}


@pytest.mark.parametrize(
    ("section", "dtype"), [("bf16", "bfloat16"), ("bfloat16", "bfloat16"), ("fp16", "float16"), ("amp", None)]
)
def test_the_configuration_says_what_was_trained_in(section, dtype):
    config = dict_of((section, dict_of(("enabled", TRUE))))
    assert model(("ds_config", config)).trained_in == dtype


def test_what_is_not_used_is_left_behind():
    found = model(("optimizer", NONE), ("param_shapes", NONE), ("lr_scheduler", number(3)))
    assert [left.path for left in found.left_out] == ["optimizer", "lr_scheduler"]


def test_a_pipeline_is_refused():
    with pytest.raises(UnsupportedSource, match="holds no module"):
        model(module=NONE)


@pytest.mark.parametrize(
    "stage", [number(3), call(name("deepspeed.runtime.zero.config", "ZeroStageEnum"), number(3))], ids=["int", "enum"]
)
def test_a_stage_is_a_number(stage):
    assert optimizer(FLATS, ("zero_stage", stage)).stage == 3


def test_a_stage_of_another_class_is_refused():
    stage = call(name("deepspeed.runtime.zero.config", "Other"), number(3))
    with pytest.raises(MalformedFile, match="where a number is expected"):
        optimizer(FLATS, ("zero_stage", stage))


def test_ranks_may_be_told_for_each_group():
    ranks = ("partition_count", list_of(number(2), number(2)))
    assert optimizer(FLATS, ("zero_stage", number(3)), ranks).partitions == (2, 2)


def test_flat_tensors_of_either_stage_are_found():
    assert [flat.shape for flat in optimizer(("single_partition_of_fp32_groups", FLATS[1])).flats] == [(4,)]


def test_optimizer_states_of_something_else_are_refused():
    with pytest.raises(MalformedFile, match="optimizer_state_dict"):
        optimizer(FLATS, inside="optimizer")


@pytest.mark.parametrize(
    ("key", "stage"),
    [("fp32_flat_groups", ()), ("fp32_flat_groups", (2,)), ("single_partition_of_fp32_groups", (3,))],
)
def test_flat_tensors_of_another_stage_are_refused(key, stage):
    with pytest.raises(MalformedFile, match="zero_stage"):
        optimizer((key, FLATS[1]), *(("zero_stage", number(one)) for one in stage))


def test_flat_tensors_of_both_stages_are_refused():
    with pytest.raises(MalformedFile, match="has both"):
        optimizer(FLATS, ("single_partition_of_fp32_groups", FLATS[1]), ("zero_stage", number(3)))


def repeated(part, times):
    """A list that holds one value many times, in two bytes each."""
    return b"](" + part + b"q\xf0" + b"h\xf0" * (times - 1) + b"e"


def test_paddings_of_more_parameters_than_any_model_has_are_refused():
    paddings = repeated(list_of(*[number(0)] * 1000), 1000)
    with pytest.raises(MalformedFile, match="is of 1,000,000 parameters"):
        optimizer(FLATS, ("zero_stage", number(3)), ("param_alignment_paddings", paddings))


def test_one_group_many_times_is_refused():
    shapes = dict_of(*((f"p{place}", SHAPE) for place in range(1000)))
    with pytest.raises(MalformedFile, match="is of 1,000,000 parameters"):
        model(("param_shapes", repeated(shapes, 1000)))


@pytest.mark.parametrize("shape", [(1,) * 65, (2**30, 2**30), (2**60,)])
def test_a_shape_of_no_parameter_is_refused(shape):
    with pytest.raises(MalformedFile, match="shape"):
        model(("param_shapes", dict_of(("a", tuple_of(*map(number, shape))))))
