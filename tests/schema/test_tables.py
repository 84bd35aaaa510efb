"""The dated tables in data/ that the schema modules speak of."""

from __future__ import annotations

import re

import pytest

from repokit.resources import data
from repokit.schema.license import license_ids

TABLES = ["licenses", "pipeline_tags", "languages"]


@pytest.mark.parametrize("name", [*TABLES, "peft_types"])
def test_table_says_where_it_is_from_and_of_when(name):
    table = data(name)
    assert table["source"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", table["date"])


@pytest.mark.parametrize("name", TABLES)
def test_ids_are_distinct(name):
    ids = data(name)["ids"]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("word", ["apache-2.0", "mit", "llama3.1", "openmdw-1.0", "openrail++", "unknown", "other"])
def test_license_of_the_hub(word):
    assert word in license_ids()


@pytest.mark.parametrize("word", ["gpl-3.0-or-later", "apache-2", "MIT", "licence", ""])
def test_no_license_of_the_hub(word):
    assert word not in license_ids()


@pytest.mark.parametrize("word", ["text-generation", "image-text-to-text", "any-to-any"])
def test_pipeline_tag(word):
    assert word in data("pipeline_tags")["ids"]


@pytest.mark.parametrize("word", ["text2text-generation", "conversational"])
def test_former_pipeline_tag(word):
    assert word not in data("pipeline_tags")["ids"]


@pytest.mark.parametrize("word", ["en", "no", "deu", "code", "multilingual"])
def test_language(word):
    assert word in data("languages")["ids"]


@pytest.mark.parametrize("word", ["english", "xx", "en-US", ""])
def test_no_language(word):
    assert word not in data("languages")["ids"]
