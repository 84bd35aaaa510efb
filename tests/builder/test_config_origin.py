"""config.json from elsewhere: a Lightning checkpoint is one file, and has none of its own."""

from __future__ import annotations

import json

import pytest

from repokit.errors import MissingInput, RecipeError
from repokit.linter.examples_torch import torch_file

TENSORS = {"model.embed_tokens.weight": ("F32", (16, 8)), "lm_head.weight": ("F32", (16, 8))}


@pytest.fixture
def lightning(workshop):
    """A checkpoint of weights alone, beside the directory of the base model."""
    base = workshop.checkpoint(name="base", files={"modeling_x.py": "class X: ...\n"})
    (workshop.folder / "run").mkdir()
    (workshop.folder / "run" / "last.ckpt").write_bytes(torch_file(TENSORS))
    return base


def test_the_config_of_the_base_is_published(lightning, workshop):
    workshop.build(source="./run/last.ckpt", config={"from": "base"}, base={"path": "./base"})
    assert json.loads(workshop.read("config.json")) == workshop.config


def test_a_path_is_an_origin_too(lightning, workshop):
    workshop.build(source="./run/last.ckpt", config={"from": "./base"})
    assert json.loads(workshop.read("config.json")) == workshop.config


def test_it_says_what_the_weights_are_cast_to(lightning, workshop):
    workshop.build(source="./run/last.ckpt", config={"from": "./base"}, weights={"dtype": "bfloat16"})
    assert json.loads(workshop.read("config.json"))["dtype"] == "bfloat16"


def test_its_code_comes_from_the_same_place(lightning, workshop):
    config = {**workshop.config, "auto_map": {"AutoModel": "modeling_x.X"}}
    (lightning / "config.json").write_text(json.dumps(config))
    workshop.build(source="./run/last.ckpt", config={"from": "./base"})
    assert workshop.read("modeling_x.py") == b"class X: ...\n"


def test_without_it_the_build_says_where_to_take_it_from(lightning, workshop):
    with pytest.raises(MissingInput, match=r"has weights and no config\.json") as error:
        workshop.plan(source="./run/last.ckpt")
    assert "config: {from: DIR}" in error.value.hint


def test_a_base_that_is_not_at_hand_is_asked_for(lightning, workshop):
    with pytest.raises(RecipeError, match="config: from base needs a local copy of the base"):
        workshop.plan(source="./run/last.ckpt", config={"from": "base"})
