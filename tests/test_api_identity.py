"""What a recipe says of a model reaches the rules: of the directory that it builds, and of no other."""

from __future__ import annotations

import pytest

from repokit import api
from repokit.errors import Stopped
from repokit.linter.examples import single
from repokit.repo.memory import Memory

RECIPE = "version: 1\nrepo: example/base\nsource: ./run\noutput: ./dist/model\nidentity: {variant: 7b}\n"


@pytest.fixture
def built(tmp_path, monkeypatch):
    """A directory that the recipe here builds."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "repokit.yaml").write_text(RECIPE)
    return written(tmp_path / "dist" / "model")


def written(folder):
    folder.mkdir(parents=True)
    for path, content in single().items():
        (folder / path).write_bytes(content)
    return folder


def codes(folder):
    return {finding.code for finding in api.lint(folder).report.findings}


def test_the_recipe_of_a_directory_counts(built):
    assert {"CRD250", "CRD253"} <= codes(built)


def test_the_recipe_of_another_directory_does_not(built, tmp_path):
    assert not {"CRD250", "CRD253"} & codes(written(tmp_path / "other"))


def test_a_recipe_that_cannot_be_read_says_nothing(built, tmp_path):
    (tmp_path / "repokit.yaml").write_text("version: [")
    assert "CRD250" not in codes(built)


def test_a_gate_that_knows_the_recipe_holds_the_model_against_it(built):
    gate = api.Gate(api.Selection(), api.Severity.WARNING)
    gate.recipe = api.read_recipe()
    with pytest.raises(Stopped) as stopped:
        gate(Memory(single()), "plan")
    assert {finding.code for finding in stopped.value.findings} == {"CRD250", "CRD253"}
