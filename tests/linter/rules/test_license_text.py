"""Which license a text is of, and what a base model asks for."""

from __future__ import annotations

import pytest

from repokit.linter.examples import Example
from repokit.linter.rules.license_text import MIT, RelicensedBase, licensed, recognised
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository
from repokit.resources import data

TITLES = data("license_titles")["titles"]
BASE_CARD = "---\nlicense: {}\n---\n# Base\n"


@pytest.mark.parametrize(("title", "license_id"), TITLES.items())
def test_a_text_is_known_by_its_title(title, license_id):
    assert recognised(f"\n      {title.title()}\n\nTerms and conditions ...\n".encode()) == {license_id}


def test_every_known_text_is_of_an_id_of_the_hub():
    assert set(TITLES.values()) <= set(data("licenses")["ids"])


def test_line_breaks_in_a_title_do_not_matter():
    assert recognised(b"Apache License\n                 Version 2.0, January 2004\n") == {"apache-2.0"}


def test_the_lesser_license_is_not_the_other():
    assert recognised(b"GNU LESSER GENERAL PUBLIC LICENSE\nVersion 3, 29 June 2007\n") == {"lgpl-3.0"}


def test_a_bundled_license_is_not_the_first():
    assert recognised(b"Our own terms.\n" * 200 + MIT.encode()) == set()


@pytest.mark.parametrize("license_id", ["llama3.1", "cc-by-nc-4.0", "gpl-3.0"])
def test_the_license_of_the_base_at_hand_counts(license_id):
    assert [finding.place for finding in held_against(license_id)] == ["line 2"]


@pytest.mark.parametrize("license_id", ["apache-2.0", "mit", "other", "openrail"])
def test_a_base_that_allows_it(license_id):
    assert held_against(license_id) == []


def held_against(license_id):
    repository = Repository(Example("derived", licensed("apache-2.0", "lab/base")).source())
    repository.base_model = Repository(Memory({"README.md": BASE_CARD.format(license_id).encode()}))
    return list(RelicensedBase().check(repository))


@pytest.mark.parametrize(
    ("base", "license_id"),
    [
        ("meta-llama/Llama-2-7b-hf", "llama2"),
        ("meta-llama/Meta-Llama-3-8B", "llama3"),
        ("meta-llama/Meta-Llama-3.1-8B", "llama3.1"),
        ("meta-llama/Llama-3.2-1B-Instruct", "llama3.2"),
        ("meta-llama/Llama-4-Scout-17B-16E", "llama4"),
        ("google/gemma-2b", "gemma"),
        ("google/gemma-2-9b-it", "gemma"),
        ("google/gemma-3-270m", "gemma"),
        ("CohereLabs/aya-expanse-8b", "cc-by-nc-4.0"),
        ("Qwen/Qwen2.5-3B-Instruct", "other"),
    ],
)
def test_a_known_base(base, license_id):
    repository = Repository(Example("derived", licensed("mit", base, MIT)).source())
    (finding,) = RelicensedBase().check(repository)
    assert finding.hint.startswith(f"license: {license_id}")


@pytest.mark.parametrize("base", ["google/gemma-4-31b", "Qwen/Qwen2.5-7B", "Qwen/Qwen3-8B", "lab/Llama-3.1-8B"])
def test_a_base_that_is_not_known(base):
    assert list(RelicensedBase().check(Repository(Example("derived", licensed("mit", base, MIT)).source()))) == []


def test_an_adapter_is_not_judged():
    repository = Repository(Example("an adapter", licensed("mit", "meta-llama/Llama-3.1-8B", MIT), "lora").source())
    assert list(RelicensedBase().check(repository)) == []
