"""config.json from elsewhere: a Lightning checkpoint is one file, and has none of its own."""

from __future__ import annotations

import json

import pytest

from repokit import api
from repokit.errors import MissingInput, RecipeError
from repokit.linter.examples_torch import torch_file
from repokit.schema.recipe import load_recipe

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
    assert "--base DIR" in error.value.hint


def test_a_base_that_is_not_at_hand_is_asked_for(lightning, workshop):
    with pytest.raises(RecipeError, match="config: from base needs a local copy of the base"):
        workshop.plan(source="./run/last.ckpt", config={"from": "base"})


def test_init_takes_from_a_base_what_the_checkpoint_lacks(lightning, workshop):
    (lightning / "tokenizer.json").write_text("{}")
    text = api.init(
        workshop.folder / "run" / "last.ckpt", recipe_folder=workshop.folder, base=workshop.folder / "base"
    ).text
    recipe = workshop.folder / "repokit.yaml"
    recipe.write_text(text.replace("  id: null   ", "  id: mit   "))
    found = load_recipe(recipe)
    assert (found.base.path, found.config.from_, found.tokenizer.from_, found.processor.from_) == (
        "./base",
        "base",
        "base",
        "source",
    )


def test_the_generation_config_comes_with_the_config(lightning, workshop):
    (lightning / "generation_config.json").write_text('{"eos_token_id": 2}')
    workshop.build(source="./run/last.ckpt", config={"from": "./base"})
    assert json.loads(workshop.read("generation_config.json")) == {"eos_token_id": 2}


def test_values_of_the_recipe_win_over_the_generation_config_of_the_base(lightning, workshop):
    (lightning / "generation_config.json").write_text('{"eos_token_id": 2, "top_k": 5}')
    workshop.build(source="./run/last.ckpt", config={"from": "./base"}, generation_config={"eos_token_id": 3})
    assert json.loads(workshop.read("generation_config.json")) == {"eos_token_id": 3, "top_k": 5}
