"""Traced values behave as plain ones, and their expression says how they were computed."""

from __future__ import annotations

import copy
import json
import math
import operator
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st

from repokit.architectures.deriver import tracing_values
from repokit.architectures.deriver.tracing_builtins import SHADOWS, Float, Int
from repokit.architectures.deriver.tracing_terms import constant, element, named
from repokit.architectures.deriver.tracing_values import (
    TooMuch,
    Trace,
    TracedBool,
    TracedFloat,
    TracedInt,
    TracedStr,
    listed,
    recording,
)
from repokit.architectures.deriver.tracing_variants import MOST, keys_in, ordered
from repokit.architectures.grammar import expression

VALUES = {"width": 12, "heads": 3, "text_config.depth": 5, "ratio": 2.5}


@pytest.fixture(autouse=True)
def trace() -> Iterator[Trace]:
    with recording(Trace()) as running:
        yield running


def number(key: str) -> Any:
    value = VALUES[key]
    return TracedFloat(value, named(key)) if isinstance(value, float) else TracedInt(value, named(key))


def sizes() -> Any:
    return listed(
        [TracedInt(size, element(named("sizes"), constant(place))) for place, size in enumerate((4, 8, 16))],
        named("sizes"),
    )


OPERATORS: list[Callable[[Any, Any], Any]] = [
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv, operator.mod,
]  # fmt: skip


def trees() -> st.SearchStrategy[Any]:
    leaves = st.sampled_from([*VALUES]).map(number) | st.integers(-4, 9)
    return st.recursive(leaves, lambda inner: st.tuples(st.sampled_from(OPERATORS), inner, inner), max_leaves=7)


def computed(tree: Any) -> Any:
    if not isinstance(tree, tuple):
        return tree
    operate, left, right = tree
    return operate(computed(left), computed(right))


@given(trees())
def test_an_expression_has_the_value_that_was_computed(tree: Any) -> None:
    try:
        result = computed(tree)
    except ZeroDivisionError:
        return
    if isinstance(result, (TracedInt, TracedFloat)):
        value = expression(result.expression).evaluate(VALUES)
        assert math.isclose(value, tracing_values.plain(result), rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.parametrize(
    ("compute", "text"),
    [
        (lambda: number("width") * 3, "3*width"),
        (lambda: 2 * number("width") * 2, "4*width"),
        (lambda: number("width") * 1 + 0, "width"),
        (lambda: 1 + number("width") + 1, "width+2"),
        (lambda: number("width") + number("width"), "2*width"),
        (lambda: number("width") * number("heads") * 2, "2*width*heads"),
        (lambda: 2 * (number("width") // number("heads")), "2*(width//heads)"),
        (lambda: number("width") - (number("heads") - 1), "width-(heads-1)"),
        (lambda: (number("width") + 2 * number("heads") - 3) // 2 + 1, "(width+2*heads-3)//2+1"),
        (lambda: number("width") * 2 ** number("text_config.depth"), "width*2**text_config.depth"),
        (lambda: number("width") << number("heads"), "width*2**heads"),
        (lambda: -number("width"), "-1*width"),
        (lambda: math.ceil(number("width") / 16), "ceil(width/16)"),
        (lambda: math.floor(number("width") * 0.5), "floor(0.5*width)"),
        (lambda: round(number("width") / number("heads")), "round(width/heads)"),
        (lambda: divmod(number("width"), number("heads"))[1], "width%heads"),
        (lambda: Int(number("width") * number("ratio")), "int(width*ratio)"),
        (lambda: Float(number("width")) / 5, "width/5"),
        (lambda: SHADOWS["len"](sizes()), "len(sizes)"),
        (lambda: SHADOWS["sum"](sizes()), "sum(sizes)"),
        (lambda: SHADOWS["max"](sizes()), "max(sizes)"),
        (lambda: SHADOWS["max"](number("width"), 1), "max(width, 1)"),
        (lambda: sizes()[2] * 2, "2*sizes[2]"),
        (lambda: sizes()[:-1][0] + number("width"), "sizes[0]+width"),
    ],
)  # fmt: skip
def test_expressions_read_as_one_would_write_them(compute: Callable[[], Any], text: str) -> None:
    assert compute().expression == text


def test_a_loop_counts_in_index_variables() -> None:
    found = [sizes()[turn].expression for turn in SHADOWS["range"](2)]
    assert found == ["sizes[i]", "sizes[i]"]


def test_a_loop_in_a_loop_has_the_next_index_variable() -> None:
    ranges = SHADOWS["range"]
    found = {(outer + inner).expression for outer in ranges(2) for inner in ranges(2)}
    assert found == {"i+j"}


def test_a_loop_that_was_left_gives_its_index_variable_back() -> None:
    for _ in SHADOWS["range"](2):
        break
    assert [turn.expression for turn in SHADOWS["range"](1)] == ["i"]


def test_enumerate_counts_too() -> None:
    assert [turn.expression for turn, _ in SHADOWS["enumerate"](sizes())] == ["i"] * 3


def test_a_range_is_a_sequence() -> None:
    numbers = SHADOWS["range"](5)
    assert (len(numbers), list(reversed(numbers)), 3 in numbers, numbers[1]) == (5, [4, 3, 2, 1, 0], True, 1)


def test_the_bound_of_a_loop_is_a_count(trace: Trace) -> None:
    SHADOWS["range"](number("width"))
    assert "width" in trace.expressions


@pytest.mark.parametrize("value", [3, 3.5, TracedInt(3, named("width")), True])
def test_shadows_of_types_tell_instances_as_the_types_do(value: Any) -> None:
    assert (isinstance(value, Int), isinstance(value, Float)) == (isinstance(value, int), isinstance(value, float))


def test_shadows_of_types_make_plain_numbers_from_plain_values() -> None:
    assert [Int("7"), Float("1.5"), Int("ff", 16)] == [7, 1.5, 255]


@pytest.mark.parametrize(
    ("ask", "condition"),
    [
        (lambda: number("width") > 5, "width>5"),
        (lambda: 3 >= number("heads"), "heads<=3"),  # noqa: SIM300 - as models write it
        (lambda: number("width") % 2 == 0, "width%2==0"),
        (lambda: bool(number("heads")), "heads"),
        (lambda: TracedStr("gelu", named("act")) == "relu", "act=='relu'"),
        (lambda: TracedStr("gelu", named("act")) in ("relu", "gelu"), "act=='gelu'"),
        (lambda: "x" in TracedStr("MxM", named("pattern")), "'x' in pattern"),
        (lambda: 8 in sizes(), "8 in sizes"),
        (lambda: bool(sizes()), "len(sizes)>0"),
        (lambda: bool(TracedBool(1, named("bias"))), "bias"),
    ],
)  # fmt: skip
def test_what_decides_is_written_down(ask: Callable[[], Any], condition: str, trace: Trace) -> None:
    ask()
    assert condition in trace.conditions


@pytest.mark.parametrize(
    "value",
    [
        TracedInt(7, named("width")),
        TracedFloat(0.5, named("ratio")),
        TracedStr("gelu", named("act")),
        TracedBool(1, named("bias")),
    ],
)
def test_copies_keep_their_expression(value: Any) -> None:
    for copied in (copy.copy(value), copy.deepcopy([value])[0], pickle.loads(pickle.dumps(value))):  # noqa: S301 - our own
        assert (copied, copied.term, type(copied)) == (value, value.term, type(value))


def test_copies_of_lists_keep_their_expression() -> None:
    copied = copy.deepcopy({"sizes": sizes()})["sizes"]
    assert (copied.term.text, copied[1].expression) == ("sizes", "sizes[1]")


def test_a_traced_number_passes_for_the_plain_one() -> None:
    width = number("width")
    assert (hash(width), f"{width}", json.dumps([width]), [*range(13)][width], {12: "found"}[width]) == (
        hash(12), "12", "[12]", 12, "found",
    )  # fmt: skip


def test_a_traced_flag_passes_for_a_bool() -> None:
    assert isinstance(TracedBool(1, named("bias")), bool)


def test_an_expression_without_end_goes_on_as_a_number() -> None:
    length: Any = number("width")
    for _ in range(60):
        length = (length + number("heads")) * number("width") % 97
    assert type(length) is int


def test_a_model_that_computes_without_end_is_stopped(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing_values, "MOST_OPERATIONS", 3)
    with pytest.raises(TooMuch):
        _ = number("width") * 2 + number("heads") * 2 + 1
    assert trace.expressions


def test_one_layers_index_is_said_for_every_layer() -> None:
    expressions, _ = ordered([], ["16*sizes[2]"], [])
    assert {"16*sizes[i]", "16*sizes[i+1]", "16*sizes[i-1]", "16*sizes[j]"} <= {*expressions}


def test_indices_of_two_lists_keep_their_distance() -> None:
    expressions, _ = ordered([], ["depths[1]*sizes[2]"], [])
    assert {"depths[i]*sizes[i+1]", "depths[i-1]*sizes[i]"} <= {*expressions}


def test_doublings_are_said_as_a_power() -> None:
    expressions, _ = ordered([], ["2*width", "4*width", "8*width"], [])
    assert {"width*2**i", "width*2**(i+1)"} <= {*expressions}


def test_doublings_of_a_part_are_none_of_the_whole() -> None:
    expressions, _ = ordered([], ["2*width+1", "4*width+1"], [])
    assert not [text for text in expressions if "**" in text]


def test_numbers_of_a_loop_are_said_as_an_index() -> None:
    _, conditions = ordered([], [], ["first<=0", "first<=1", "first<=2"])
    assert {"first<=i", "first<=(i+1)", "first<=j", "first<=0"} <= {*conditions}


def test_a_single_number_is_no_loop() -> None:
    assert ordered([], [], ["heads>1"])[1] == ("heads>1",)


def test_what_modules_hold_comes_first_and_the_simplest_of_it() -> None:
    expressions, _ = ordered(["width*heads", "width"], ["heads"], [])
    assert expressions == ("width", "width*heads", "heads")


def test_orders_of_one_product_are_one_candidate() -> None:
    assert ordered(["width*heads"], ["heads*width"], [])[0] == ("width*heads",)


def test_functions_outside_the_grammar_are_no_candidates() -> None:
    assert ordered([], ["arctan(width)", "ceil(width)"], [])[0] == ("ceil(width)",)


def test_candidates_have_an_end() -> None:
    expressions, _ = ordered([], [f"width+{summand}" for summand in range(MOST + 9)], [])
    assert len(expressions) == MOST


@given(st.lists(trees(), max_size=4))
def test_every_candidate_is_in_the_grammar(drawn: list[Any]) -> None:
    with recording(Trace()) as running:
        for tree in drawn:
            try:
                computed(tree)
            except ZeroDivisionError:
                continue
    expressions, conditions = ordered([], running.expressions, running.conditions)
    for text in (*expressions, *conditions):
        assert expression(text).keys == keys_in(text)
