"""Line and column of findings, in every kind of file that has lines."""

from __future__ import annotations

import json

import pytest

from repokit.linter import places
from repokit.linter.finding import Finding, Severity
from repokit.linter.places import locator
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

INDEX = '{\n  "metadata": {},\n  "weight_map": {\n    "a.weight": "x",\n    "b/c~d.weight": "y"\n  }\n}\n'
TOKENIZER = """{
  "added_tokens": [
    {"id": 5, "content": "<a>"},
    {"id": 9, "content": "<b>"}
  ],
  "model": {
    "vocab": {
      "one": 1,
      "t/o": 2
    }
  }
}
"""


def located(
    path: str, content: str | bytes, place: str | None, names: tuple[str, ...] = ()
) -> tuple[int, int | None] | None:
    repository = Repository(Memory({path: content.encode() if isinstance(content, str) else content}))
    return locator(repository)(Finding("X", "x", Severity.ERROR, path, "is odd", place=place, names=names))


@pytest.mark.parametrize(
    ("place", "position"),
    [
        ("line 3", (3, None)),
        ("line 3 column 14", (3, 14)),
        ("header, line 2 column 1", (2, 1)),
        ("/weight_map/a.weight", (4, 17)),
        ("/weight_map/b~1c~0d.weight", (5, 21)),
        ("a.weight", (4, 17)),
        ("b/c~d.weight", (5, 21)),
        ("/metadata", (2, 15)),
        ("/metadata/total_size", (2, 15)),
        ("/nowhere/at/all", (1, 1)),
        ("no.such.tensor", (3, 17)),
        (None, None),
    ],
)
def test_places_of_an_index(place: str | None, position: tuple[int, int | None] | None) -> None:
    assert located("model.safetensors.index.json", INDEX, place) == position


def test_a_tensor_that_only_the_names_have_is_looked_for() -> None:
    assert located("model.safetensors.index.json", INDEX, None, ("a.weight",)) == (4, 17)


@pytest.mark.parametrize(
    ("place", "position"),
    [
        ("token '<b>', id 9", (4, 5)),
        ("token 'one', id 1", (8, 14)),
        ("token 't/o', id 2", (9, 14)),
        ("token 'gone', id 77", None),
        ("/added_tokens/1/content", (4, 26)),
        ("/model/vocab", (7, 14)),
    ],
)
def test_places_of_a_tokenizer(place: str, position: tuple[int, int | None] | None) -> None:
    assert located("tokenizer.json", TOKENIZER, place) == position


def test_a_token_of_added_tokens_is_found() -> None:
    assert located("added_tokens.json", '{\n  "<x>": 7\n}', "token '<x>', id 7") == (2, 10)


def test_a_name_of_a_vocabulary_is_its_key() -> None:
    assert located("vocab.json", '{\n  "a": 0,\n  "b": 1\n}', None, ("b",)) == (3, 8)


@pytest.mark.parametrize(("content", "line"), [("a\nb c\nd\n", 2), ("a\r\nb c\r\n", 2), ("b c", 1)])
def test_a_line_of_a_list_is_found(content: str, line: int) -> None:
    assert located("merges.txt", content, None, ("b c",)) == (line, 1)


def test_a_part_of_a_line_is_not_it() -> None:
    assert located("vocab.txt", "abc\nbc d\n", None, ("b",)) is None


RESULTS = "# results\n- dataset:\n    id: x\n  value: 1\n- value: 2\n  dataset:\n    id: y\n"


@pytest.mark.parametrize(
    ("place", "position"), [("/0", (2, 1)), ("/1", (5, 1)), ("/0/value", (4, 3)), ("/1/value", (5, 3)), ("/2", None)]
)
def test_places_of_a_list_in_yaml(place: str, position: tuple[int, int] | None) -> None:
    assert located(".eval_results/a.yaml", RESULTS, place) == position


@pytest.mark.parametrize("path", ["model.safetensors", "model.gguf", "pytorch_model.bin"])
def test_a_binary_file_has_no_lines(path: str) -> None:
    assert located(path, b"\xff\xfe", "lm_head.weight", ("lm_head.weight",)) is None


@pytest.mark.parametrize("content", ["", "{", "[1, 2", b"\xff", "nonsense", "[" * 100_000])
def test_a_file_that_is_no_json_has_no_places(content: str | bytes) -> None:
    assert located("config.json", content, "/a/b") in {None, (1, 1)}


def test_a_file_that_is_not_there_has_no_places() -> None:
    repository = Repository(Memory({}))
    assert locator(repository)(Finding("X", "x", Severity.ERROR, "config.json", "is odd", place="/a")) is None


def test_siblings_are_not_walked_to_from_the_top_again(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []
    real = places.offset

    def counting(text: str, pointer: str, start: int = 0) -> int | None:
        walked.append(start)
        return real(text, pointer, start)

    monkeypatch.setattr(places, "offset", counting)
    text = json.dumps({"a": list(range(1000)), "b": {"x": 1, "y": 2}})
    find = locator(Repository(Memory({"config.json": text.encode()})))
    for place in ("/b/x", "/b/y"):
        assert find(Finding("X", "x", Severity.ERROR, "config.json", "is odd", place=place)) is not None
    assert walked == [0, text.index('{"x"'), text.index('{"x"')]


def test_no_more_is_walked_than_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "BUDGET", 100)
    text = json.dumps({"a": "x" * 200, "b": 1, "c": 2})
    find = locator(Repository(Memory({"config.json": text.encode()})))
    found = [find(Finding("X", "x", Severity.ERROR, "config.json", "is odd", place=place)) for place in ("/b", "/c")]
    assert [place is not None for place in found] == [True, False]
