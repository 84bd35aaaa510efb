"""The model card as rules see it."""

from __future__ import annotations

import pytest

from repokit.errors import MalformedFile
from repokit.repo.card import ModelCard, flattened, is_path, is_repo_id
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository


def card(metadata: str, body: str = "# Title\n") -> ModelCard:
    found = Repository(Memory({"README.md": f"---\n{metadata}---\n{body}".encode()})).card
    assert found is not None
    return found


def test_a_repository_without_a_card_has_none() -> None:
    assert Repository(Memory({})).card is None


def test_a_malformed_card_raises() -> None:
    with pytest.raises(MalformedFile):
        card("license: [mit\n")


def test_values_are_there_by_name() -> None:
    found = card(
        "license: mit\nbase_model: [a/b, c]\nlanguage: en\ndatasets: squad\ntags: [chat, 7]\n"
        "library_name: transformers\npipeline_tag: text-generation\nmodel-index: []\n"
    )
    assert (found.license_ids, found.base_models, found.languages, found.datasets, found.tags) == (
        ("mit",),
        ("a/b", "c"),
        ("en",),
        ("squad",),
        ("chat",),
    )
    assert (found.library_name, found.pipeline_tag) == ("transformers", "text-generation")


def test_values_of_another_type_are_absent() -> None:
    found = card("license: 7\nlibrary_name: [a]\ntags: chat\nbase_model:\n")
    assert (found.license_ids, found.library_name, found.tags, found.base_models) == ((), None, (), ())


def test_items_of_a_list_are_named_as_the_hub_names_them() -> None:
    found = card("license: mit\ndatasets:\n- a\n-\n")
    assert list(found.values("datasets")) == [("datasets[0]", "a", "line 3"), ("datasets[1]", None, "line 3")]


def test_a_key_has_its_line() -> None:
    found = card("license: mit\n# comment\nlanguage: en\n")
    assert (found.line_of("language"), found.place("language"), found.place("tags")) == (4, "line 4", None)


@pytest.mark.parametrize(("metadata", "front_matter", "any_key"), [("license: mit\n", True, True), ("\n", True, False)])
def test_an_empty_front_matter_is_one(metadata: str, front_matter: bool, any_key: bool) -> None:  # noqa: FBT001
    found = card(metadata)
    assert (found.has_front_matter, found.has_metadata) == (front_matter, any_key)


def test_a_front_matter_below_a_title_is_found() -> None:
    content = b"# Title\n\n---\n# comment\nlicense: mit\n---\n"
    found = Repository(Memory({"README.md": content})).card
    assert found is not None
    assert (found.has_front_matter, found.misplaced_at) == (False, 3)


def test_a_horizontal_rule_is_no_front_matter() -> None:
    found = Repository(Memory({"README.md": b"# Title\n\n---\nNote: text\n\n---\n"})).card
    assert found is not None
    assert found.misplaced_at is None


def test_placeholders_are_counted() -> None:
    assert card("license: mit\n", "[More Information Needed]\n- x: [More Information Needed]\n").placeholders == 2


@pytest.mark.parametrize("value", ["gpt2", "org/name", "a/b.c-d_e", "0-1/x"])
def test_an_id_names_a_repository(value: str) -> None:
    assert is_repo_id(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "/home/u/llama",
        "./out",
        "a/b/c",
        "a b",
        "librispeech 960h",
        "a--b",
        "a..b",
        "x.git",
        "org/",
        "é/a",
        "https://x/y",
        7,
        None,
    ],
)
def test_what_is_no_id_names_none(value: object) -> None:
    assert not is_repo_id(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/home/u", True),
        ("~/x", True),
        ("./x", True),
        ("C:\\x", True),
        ("a/b/c", True),
        ("org/name", False),
        ("a b", False),
    ],
)
def test_a_path_is_told_from_a_wrong_id(value: str, expected: bool) -> None:  # noqa: FBT001
    assert is_path(value) is expected


def test_only_values_that_are_no_ids_are_named() -> None:
    found = card("base_model: [a/b, /x]\ndatasets: [squad, 7]\nnew_version:\n")
    assert [value.key for value in found.not_ids] == ["base_model[1]", "datasets[1]"]


def test_flattened_gives_every_scalar_its_pointer() -> None:
    assert list(flattened({"a": [1, {"b/c": 2}], "d": {}})) == [("/a/0", 1), ("/a/1/b~1c", 2)]
