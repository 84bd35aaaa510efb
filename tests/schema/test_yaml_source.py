"""Places in a YAML file."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, strategies as st

from repokit.errors import RecipeError
from repokit.schema.yaml_source import load

TEXT = """\
a: 1
list:
  - x
  - {deep: no}
quoted: "no"
"""


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text(TEXT)
    return load(path)


@pytest.mark.parametrize(
    ("steps", "place"),
    [
        ((), (1, 1)),
        (("a",), (1, 4)),
        (("list",), (3, 3)),
        (("list", "0"), (3, 5)),
        (("list", "1", "deep"), (4, 12)),
        (("absent",), (1, 1)),
        (("list", "9"), (3, 3)),
        (("a", "below a number"), (1, 4)),
    ],
)
def test_position_of_a_value(source, steps, place):
    assert source.position(steps) == place


def test_position_of_a_key(source):
    assert source.key_position(("list", "1", "deep")) == (4, 6)


def test_unquoted_word_that_is_no_string(source):
    assert source.unquoted(("list", "1", "deep")) == ("no", "a boolean")


@pytest.mark.parametrize("steps", [("quoted",), ("list", "0"), ("list",)])
def test_what_is_a_string_or_no_scalar_is_not_unquoted(source, steps):
    assert source.unquoted(steps) is None


@pytest.mark.parametrize("text", ["1.0e-5", "'1e-5'", '"12e4567"', "e5", "1e", "1e5x", "0x1e5"])
def test_numbers_and_texts_that_every_reader_tells_apart(tmp_path, text):
    path = tmp_path / "file.yaml"
    path.write_text(f"a: {text}\n")
    assert load(path).value


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["e", "E"]))
def test_what_is_advised_is_the_number_that_was_meant(number, letter):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file.yaml"
        path.write_text(f"a: {number:.0{letter}}\n")
        with pytest.raises(RecipeError) as caught:
            load(path)
        advised = re.search(r"write (\S+),", caught.value.hint)[1]
        path.write_text(f"a: {advised}\n")
        assert load(path).value == {"a": float(f"{number:.0e}")}
