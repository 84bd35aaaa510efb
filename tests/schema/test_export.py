"""schemas/: generated, committed, and never edited."""

from __future__ import annotations

import json

import pytest

from repokit.errors import UsageError
from repokit.resources import folder
from repokit.schema.export import SCHEMAS, render, stale, write
from repokit.schema.recipe import Recipe


def test_committed_schemas_are_what_the_models_say():
    assert stale(folder("schemas")) == [], "run: python -m repokit.schema.export"


def test_rendering_twice_gives_equal_bytes():
    assert render() == render()


@pytest.fixture
def schemas(tmp_path):
    write(tmp_path)
    return tmp_path


def test_written_folder_is_not_stale(schemas):
    assert stale(schemas) == []


def test_edited_schema_is_stale(schemas):
    (schemas / "recipe.schema.json").write_text("{}")
    assert stale(schemas) == ["recipe.schema.json"]


def test_missing_schema_is_stale(schemas):
    (schemas / "recipe.schema.json").unlink()
    assert stale(schemas) == ["recipe.schema.json"]


def test_schema_of_no_model_is_stale_and_removed(schemas):
    (schemas / "gone.schema.json").write_text('{"$id": "urn:repokit:schema:gone"}')
    assert stale(schemas) == ["gone.schema.json"]
    write(schemas)
    assert stale(schemas) == []


@pytest.mark.parametrize("name", ["thesis.txt", "mine.schema.json"])
def test_file_that_is_no_schema_of_repokit_stays(schemas, name):
    (schemas / name).write_text("{}")
    write(schemas)
    assert (schemas / name).exists()


def test_folder_is_made(tmp_path):
    write(tmp_path / "new" / "schemas")
    assert stale(tmp_path / "new" / "schemas") == []


def test_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        write(tmp_path / "file")


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema_has_a_dialect_and_an_id(name):
    schema = json.loads(render()[name])
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"].startswith("urn:repokit:schema:")


def test_recipe_schema_names_keys_as_the_file_does():
    schema = json.loads(render()["recipe.schema.json"])
    assert list(schema["$defs"]["Origin"]["properties"]) == ["from"]


def test_recipe_schema_is_closed_everywhere():
    schema = json.loads(render()["recipe.schema.json"])
    assert all(part.get("additionalProperties") is False for part in (schema, *schema["$defs"].values()))


@pytest.mark.parametrize("field", ["source", "output", "repo", "kind", "generation_config", "manifest", "compat"])
def test_key_of_the_recipe_is_described(field):
    assert Recipe.model_fields[field].description
