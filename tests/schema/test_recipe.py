"""The recipe's own values: sizes, waivers, ids, words."""

from __future__ import annotations

from contextlib import suppress
from datetime import date

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from repokit.schema.recipe import IgnoredRule, Recipe, Weights, parse_size

REQUIRED = {"version": 1, "source": "in", "output": "out"}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("5GB", 5_000_000_000),
        ("5 GB", 5_000_000_000),
        ("5gb", 5_000_000_000),
        ("5G", 5_000_000_000),
        ("1.5GB", 1_500_000_000),
        ("500MB", 500_000_000),
        ("0.0005KB", None),
        ("4096", 4096),
        ("1TB", 10**12),
        ("1B", 1),
        ("5GiB", None),
        ("0", None),
        ("-1GB", None),
        ("", None),
        ("GB", None),
        ("auto", None),
        ("5,000MB", None),
        ("\u0665GB", None),
        ("1" * 5000, None),
    ],
)
def test_size(text, size):
    try:
        assert parse_size(text) == size
    except ValueError:
        assert size is None


@given(st.integers(1, 10**12), st.sampled_from([("B", 1), ("KB", 10**3), ("MB", 10**6), ("GB", 10**9), ("TB", 10**12)]))
def test_size_is_number_times_unit(number, unit):
    name, scale = unit
    assert parse_size(f"{number}{name}") == number * scale


@given(st.integers(1, 10**6), st.integers(0, 999))
def test_fraction_of_a_size_is_exact(whole, thousandths):
    assert parse_size(f"{whole}.{thousandths:03d}GB") == (whole * 1000 + thousandths) * 10**6


@given(st.text())
def test_any_text_is_a_positive_size_or_a_value_error(text):
    with suppress(ValueError):
        assert parse_size(text) > 0


def test_defaults_keep_everything_as_it_is():
    weights = Weights()
    assert (weights.dtype, weights.max_shard_size, weights.rename, weights.tie) == ("auto", "auto", "auto", "auto")


def test_recipe_is_frozen():
    recipe = Recipe.model_validate(REQUIRED)
    with pytest.raises(ValidationError):
        recipe.source = "elsewhere"


def test_lists_become_tuples():
    recipe = Recipe.model_validate({**REQUIRED, "files": {"include": ["*.py"]}, "compat": ["transformers-4"]})
    assert (recipe.files.include, recipe.compat) == (("*.py",), ("transformers-4",))


@pytest.mark.parametrize("written", ["en", ["en"]])
def test_one_language_may_stand_without_a_list(written):
    assert Recipe.model_validate({**REQUIRED, "card": {"language": written}}).card.language == ("en",)


@pytest.mark.parametrize(("section", "key"), [("manifest", None), ("weights", "tie"), ("weights", "rename")])
def test_false_is_the_unquoted_word_off(section, key):
    recipe = Recipe.model_validate({**REQUIRED, section: {key: False} if key else False})
    value = getattr(recipe, section)
    assert (getattr(value, key) if key else value) == "off"


@pytest.mark.parametrize(
    ("written", "until"),
    [
        ("2027-01", date(2027, 1, 31)),
        ("2028-02", date(2028, 2, 29)),
        ("2027-01-15", date(2027, 1, 15)),
        (date(2027, 1, 15), date(2027, 1, 15)),
        (None, None),
    ],
)
def test_waiver_ends_with_its_last_day(written, until):
    waiver = IgnoredRule.model_validate({"code": "IDX101", "reason": "MLX layout", "until": written})
    assert waiver.until == until


@pytest.mark.parametrize("written", ["2027-13", "soon", "2027", 2027, "2027-02-30"])
def test_waiver_until_no_day_is_refused(written):
    with pytest.raises(ValidationError):
        IgnoredRule.model_validate({"code": "IDX101", "reason": "MLX layout", "until": written})


def test_waiver_needs_a_reason():
    with pytest.raises(ValidationError):
        IgnoredRule.model_validate({"code": "IDX101", "reason": ""})


@pytest.mark.parametrize("name", ["gpt2", "org/name", "Org_1/a.b-c", "a" * 96, "_x/y"])
def test_repository_id(name):
    assert Recipe.model_validate({**REQUIRED, "repo": name}).repo == name


@pytest.mark.parametrize(
    "name", ["", "a/b/c", "/a", "a/", "-a/b", "a/b.", "a--b", "a..b", "a b", "a/b.git", "é/b", "a" * 97, "a/b\n"]
)
def test_what_is_no_repository_id(name):
    with pytest.raises(ValidationError):
        Recipe.model_validate({**REQUIRED, "repo": name})


def test_rename_rules_are_read_in_order():
    rules = [{"from": r"module\.(.*)", "to": r"\1"}, {"from": "a", "to": "b"}]
    rename = Recipe.model_validate({**REQUIRED, "weights": {"rename": rules}}).weights.rename
    assert [rule.from_ for rule in rename] == [r"module\.(.*)", "a"]


def test_rename_rule_must_be_a_regular_expression():
    with pytest.raises(ValidationError, match="no regular expression"):
        Recipe.model_validate({**REQUIRED, "weights": {"rename": [{"from": "(", "to": "x"}]}})


def test_python_name_of_a_key_is_not_a_key():
    with pytest.raises(ValidationError):
        Recipe.model_validate({**REQUIRED, "tokenizer": {"from_": "base"}})
