"""`repokit init` on an adapter."""

from __future__ import annotations

import pytest
import yaml

from repokit import api
from repokit.schema.recipe import Recipe

COMMIT = "0e9e39f249a16976918f6564b8830bc894c89659"


@pytest.fixture
def draft(adapters):
    def write(**arguments):
        return api.init(adapters.folder / "checkpoint", recipe_folder=adapters.folder, **arguments)

    return write


def recipe(made, **changes):
    raw = yaml.safe_load(made.text)
    raw["license"]["id"] = raw["license"]["id"] or "mit"
    return Recipe.model_validate({**raw, **changes})


def test_the_recipe_is_one_and_builds(adapters, draft):
    adapters.adapter()
    plan = api.plan(recipe(draft()), folder=adapters.folder)
    assert plan.summary.tensors == 8


def test_the_kind_is_written(adapters, draft):
    adapters.adapter()
    assert recipe(draft()).kind == "adapter"


def test_the_base_of_the_config(adapters, draft):
    adapters.adapter(config={"revision": COMMIT})
    made = draft()
    assert (recipe(made).base.id, recipe(made).base.revision) == ("example/base", COMMIT)
    assert "base.id" not in made.missing


def test_a_path_makes_the_base_a_question(adapters, draft):
    adapters.adapter(config={"base_model_name_or_path": "/data/base"})
    made = draft()
    assert made.missing == ("repo", "base.id", "license.id")
    assert "TODO what it was trained on: org/name; adapter_config.json names /data/base" in made.text


def test_a_folder_of_the_cache_is_an_answer(adapters, draft):
    folder = f"/root/.cache/huggingface/hub/models--org--base/snapshots/{COMMIT}"
    adapters.adapter(config={"base_model_name_or_path": folder})
    base = recipe(draft()).base
    assert (base.id, base.revision) == ("org/base", COMMIT)


def test_a_copy_of_the_base_is_named(adapters, draft):
    adapters.adapter()
    base = adapters.base()
    assert recipe(draft(base=base)).base.path == "./base"


FOUND = {
    "adapter       LoRA, rank 4, alpha 8, on q_proj, v_proj": {},
    "base          example/base, from adapter_config.json": {},
    "beside it     4.1 kB: modules that were trained whole (modules_to_save)": {"modules_to_save": ["lm_head"]},
    "run           step 40, from trainer_state.json": {},
}


@pytest.mark.parametrize("line", FOUND)
def test_what_was_found(adapters, draft, line):
    head = {"base_model.model.lm_head.weight": adapters.tensor("F32", (64, 16))} if FOUND[line] else {}
    state = {"trainer_state.json": '{"global_step": 40}'}
    adapters.adapter({**adapters.lora(), **head}, config=FOUND[line], files=state)
    assert line in draft().found


def test_names_that_will_change_are_counted(adapters, draft):
    adapters.adapter({name.replace(".weight", ".default.weight"): held for name, held in adapters.lora().items()})
    assert "8 names are not those that PEFT saves" in draft().text


def test_the_best_checkpoint_of_a_run(adapters, draft):
    adapters.adapter(folder="checkpoint-20")
    adapters.adapter(
        folder="checkpoint-40",
        files={"checkpoint-40/trainer_state.json": '{"best_model_checkpoint": "x/checkpoint-20"}'},
    )
    made = draft()
    assert recipe(made).source == "./checkpoint/checkpoint-20"
    assert recipe(made).output == "./dist/checkpoint"


def test_words_out_of_files_stay_words(adapters, draft):
    adapters.adapter(config={"base_model_name_or_path": '/x"\nkind: full', "revision": "a: b\n#"})
    raw = yaml.safe_load(draft().text)
    assert (raw["kind"], raw["base"]["revision"]) == ("adapter", None)


def test_what_can_be_no_revision_is_not_taken(adapters, draft):
    adapters.adapter(config={"revision": 'x")\nimport os'})
    made = draft()
    assert recipe(made).base.revision is None
    assert any(line.startswith("not taken     revision x") for line in made.found)


def test_the_revision_of_a_folder_is_not_taken(adapters, draft):
    readme = "---\nbase_model: org/base\n---\n\n# Mine\n\nWords of my own.\n"
    adapters.adapter(config={"base_model_name_or_path": "/data/base", "revision": COMMIT}, files={"README.md": readme})
    base = recipe(draft()).base
    assert (base.id, base.revision) == ("org/base", None)


def test_a_number_that_no_float_holds(adapters, draft):
    adapters.adapter(config={"lora_alpha": 10**400})
    assert any("alpha more than any float" in line for line in draft().found)
