"""The closed grammar: what it refuses, and that the rest means what Python means."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from repokit.architectures.completion import Completed
from repokit.architectures.grammar import UNUSABLE, NotInGrammar, expression

ATTACKS = [
    "__import__('os').system('true')",
    "open('/etc/passwd')",
    "eval('1')",
    "(lambda: 1)()",
    "lambda: 1",
    "[x for x in (1, 2)]",
    "{x for x in (1, 2)}",
    "{1: 2}",
    "sum(x for x in (1, 2))",
    "().__class__",
    "'a'.join",
    "(1).real",
    "f'{hidden_size}'",
    "f(1)(2)",
    "hidden_size.bit_length()",
    "(x := 1)",
    "max(*(1, 2))",
    "max((1, 2), key=len)",
    "round(1, ndigits=2)",
    "(1, 2)[0:1]",
    "~1",
    "1 << 2",
    "1 | 2",
    "1 @ 2",
    "b'x'",
    "...",
    "1j",
    "await x",
    "x = 1",
    "import os",
    "",
    "1 1",
    "(",
    "\0",
    "(" * 5000,
    "-" * 5000 + "1",
    "+".join(["1"] * 50_000),
]


@pytest.mark.parametrize("text", ATTACKS, ids=[text[:30] or "empty" for text in ATTACKS])
def test_what_is_not_in_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(NotInGrammar):
        expression(text)


@pytest.mark.parametrize("name", ["__builtins__", "__environment", "__times", "print", "max"])
def test_a_name_is_a_key_and_nothing_else(name: str) -> None:
    assert expression(name).evaluate({name: 3}) == 3


def test_an_attribute_is_a_part_of_a_key() -> None:
    assert expression("text_config.__class__ + 1").evaluate({"text_config.__class__": 1}) == 2


BOMBS = [
    ("10 ** 10 ** 10", {}),
    ("x ** y", {"x": 10**9, "y": 10**9}),
    ("x ** y", {"x": 1.5, "y": 10**12}),
    ("x * y", {"x": "a", "y": 10**12}),
    ("x * y", {"x": 10**12, "y": (1,)}),
    ("x % y", {"x": "%999999999999d", "y": 1}),
    ("x % y", {"x": "%*d", "y": (999999999999, 1)}),
    ("round(x, y)", {"x": 5, "y": -(10**9)}),
]


@pytest.mark.parametrize(("text", "values"), BOMBS)
def test_what_would_not_end_is_refused_before_it_begins(text: str, values: dict[str, Any]) -> None:
    with pytest.raises((TypeError, OverflowError)):
        expression(text).evaluate(values)


def test_the_keys_of_an_expression_are_known() -> None:
    found = expression("text_config.hidden_size // heads if layer_types[i] == 'full' else 2")
    assert found.keys == {"text_config.hidden_size", "heads", "layer_types"}
    assert found.indexed


# ---------------------------------------------------------------- what it means

NUMBERS = st.integers(-50, 50)
LEAVES = st.one_of(
    NUMBERS.map(str),
    st.sampled_from(
        ["i", "hidden_size", "text_config.heads", "ratio", "kinds[0]", "kinds[i % 3]", "sizes[-1]", "len(sizes)"]
    ),
    st.sampled_from(["True", "False", "None", "'full'", "sum(sizes)", "flag", "nothing"]),
)


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.sampled_from(
        ["+", "-", "*", "//", "%", "/", "==", "!=", "<", "<=", ">", ">=", "and", "or", "is", "is not"]
    )
    return st.one_of(
        st.tuples(inner, binary, inner).map(lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"),
        st.tuples(inner, inner, inner).map(lambda parts: f"({parts[0]} if {parts[1]} else {parts[2]})"),
        st.tuples(st.sampled_from(["-", "not ", "+"]), inner).map(lambda parts: f"({parts[0]}{parts[1]})"),
        st.tuples(st.sampled_from(["abs", "bool", "int"]), inner).map(lambda parts: f"{parts[0]}({parts[1]})"),
        st.tuples(st.sampled_from(["max", "min"]), inner, inner).map(
            lambda parts: f"{parts[0]}({parts[1]}, {parts[2]})"
        ),
        st.tuples(inner, st.sampled_from(["kinds", "sizes"])).map(lambda parts: f"({parts[0]} in {parts[1]})"),
    )


EXPRESSIONS = st.recursive(LEAVES, combined, max_leaves=12)
VALUES: dict[str, Any] = {
    "hidden_size": 64,
    "ratio": 2.5,
    "kinds": ("full", "sliding", "full"),
    "sizes": (4, 8, 16),
    "flag": True,
    "nothing": None,
}


def outcome(compute: Any) -> Any:
    try:
        value = compute()
    except UNUSABLE as error:
        return type(error)
    return (type(value), value) if value == value else math.nan.hex()  # noqa: PLR0124 - NaN is no number that is equal


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@given(EXPRESSIONS, st.integers(0, 9))
def test_an_expression_means_what_python_means(text: str, index: int) -> None:
    python = {**VALUES, "text_config": SimpleNamespace(heads=8), "i": index}
    ours = Completed({**VALUES, "text_config.heads": 8})
    wanted = outcome(lambda: eval(text, {}, python))  # noqa: S307 - made by this test
    found = outcome(lambda: expression(text).evaluate(ours, index))
    repeats = "*" in text and ("'" in text or "kinds" in text)  # Python repeats strings
    assert found == wanted or (repeats and found is TypeError)


@given(st.text(max_size=60))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    try:
        found = expression(text)
    except NotInGrammar:
        return
    try:
        found.evaluate(Completed())
    except UNUSABLE:
        return


@given(st.floats(0, 1000), st.integers(1, 64))
def test_rounding_forgives_what_division_adds(value: float, divisor: int) -> None:
    whole = int(value) * divisor
    assert expression("ceil(x / y)").evaluate({"x": whole, "y": divisor}) == int(value)
    assert expression("floor(x / y)").evaluate({"x": whole, "y": divisor}) == int(value)
