"""Places in a YAML file."""

from __future__ import annotations

import pytest

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
