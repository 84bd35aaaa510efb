"""`problems`: pydantic's errors as one problem per place."""

from __future__ import annotations

import datetime as dt
from typing import Literal

import pytest
from hypothesis import given, strategies as st

from repokit.schema.card import Card
from repokit.schema.config import Config
from repokit.schema.document import MOST_PROBLEMS, Document, Problem, pointer, problems, steps
from repokit.schema.export import SCHEMAS
from repokit.schema.tokenizer import Tokenizer


class Part(Document):
    content: str
    count: int | None = None


class Sample(Document):
    integer: int | None = None
    number: float | None = None
    flag: bool | None = None
    text: str | None = None
    union: int | list[int] | None = None
    part: str | Part | None = None
    choice: Literal["a", "b"] | None = None
    table: dict[str, int] | None = None
    nested: Sample | None = None


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"integer": "4096"}, Problem("/integer", "is a string, must be an integer")),
        ({"integer": True}, Problem("/integer", "is a boolean, must be an integer")),
        ({"integer": 4096.0}, Problem("/integer", "is a float, must be an integer")),
        ({"number": "1e-5"}, Problem("/number", "is a string, must be a number")),
        ({"number": True}, Problem("/number", "is a boolean, must be a number")),
        ({"number": 10**400}, Problem("/number", "is an integer beyond what a float can hold")),
        ({"flag": 1}, Problem("/flag", "is an integer, must be a boolean")),
        ({"text": 5}, Problem("/text", "is an integer, must be a string")),
        ({"\ud800": 5}, Problem("", "holds a lone surrogate, must be Unicode text")),
        ({"text": dt.date(2026, 1, 1)}, Problem("/text", "is a date, must be a string")),
        ({"union": "x"}, Problem("/union", "is a string, must be an integer or a list")),
        ({"union": [1, "x"]}, Problem("/union/1", "is a string, must be an integer")),
        ({"part": 5}, Problem("/part", "is an integer, must be a string or an object")),
        ({"part": {"content": 5}}, Problem("/part/content", "is an integer, must be a string")),
        ({"part": {}}, Problem("/part", "lacks `content`", "missing", "content")),
        ({"choice": "c"}, Problem("/choice", "is 'c', must be 'a' or 'b'")),
        ({"choice": []}, Problem("/choice", "is a list, must be 'a' or 'b'")),
        ({"table": {"a/b~c": "x"}}, Problem("/table/a~1b~0c", "is a string, must be an integer")),
        ({"table": {1: 2}}, Problem("/table/1", "is a key that is not a string")),
        ({1: 2}, Problem("/1", "is a key that is not a string")),
        (
            {"nested": {"nested": {"union": {}}}},
            Problem("/nested/nested/union", "is an object, must be an integer or a list"),
        ),
        ([], Problem("", "is a list, must be an object")),
        (None, Problem("", "is null, must be an object")),
    ],
)
def test_wrong_value_is_one_problem_at_its_pointer(raw, expected):
    assert problems(Sample, raw) == (expected,)


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"integer": None, "part": None},
        {"number": 1},
        {"unknown": object, "another": {"deep": [1]}},
        {"union": []},
        {"part": "text"},
        {"part": {"content": "text", "other": 1}},
    ],
)
def test_legal_document_has_no_problem(raw):
    assert problems(Sample, raw) == ()


def test_every_place_has_its_own_problem():
    found = problems(Sample, {"integer": "x", "nested": {"flag": 0, "union": ["a", "b"]}})
    assert [problem.pointer for problem in found] == ["/integer", "/nested/flag", "/nested/union/0", "/nested/union/1"]


def test_missing_key_and_wrong_value_in_one_object_are_both_told():
    found = problems(Sample, {"part": {"count": "x"}})
    assert {(problem.pointer, problem.fault) for problem in found} == {("/part", "missing"), ("/part/count", "value")}


def test_unknown_keys_are_kept():
    assert Sample.model_validate({"novel": {"a": 1}}).model_extra == {"novel": {"a": 1}}


def test_document_with_too_many_wrong_values_is_one_problem():
    raw = {"union": ["x"] * (MOST_PROBLEMS + 1)}
    (problem,) = problems(Sample, raw)
    assert problem.pointer == ""


def test_nesting_beyond_the_validator_is_a_problem():
    raw: dict[str, object] = {}
    for _ in range(1000):
        raw = {"nested": raw}
    (problem,) = problems(Sample, raw)
    assert problem.message == "is nested too deeply"


@given(st.lists(st.text() | st.integers(min_value=0)))
def test_pointer_and_steps_are_inverse(path):
    assert steps(pointer(path)) == tuple(str(step) for step in path)


KEYS = sorted(
    {field.alias or name for model in (Config, Tokenizer, Card) for name, field in model.model_fields.items()}
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()))
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(), inner, max_size=6),
    max_leaves=25,
)


@given(st.sampled_from(sorted({model.__name__: model for model, _ in SCHEMAS.values()}.items())), JSON)
def test_any_json_gives_problems_and_never_an_exception(model, raw):
    for problem in problems(model[1], raw):
        assert problem.message


@given(JSON)
def test_every_pointer_leads_into_the_document(raw):
    for problem in problems(Config, raw):
        value = raw
        for step in steps(problem.pointer):
            value = value[int(step)] if isinstance(value, list) else value[step]


@given(JSON)
def test_no_place_is_told_twice(raw):
    found = [(problem.pointer, problem.missing) for problem in problems(Config, raw)]
    assert len(found) == len(set(found))
