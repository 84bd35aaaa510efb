from __future__ import annotations

import json
import shutil

import pytest

from repokit import api
from repokit.errors import InputError, MalformedFile, MissingInput
from repokit.formats.front_matter import parse_card
from repokit.schema.recipe import load_recipe


@pytest.fixture
def demo(tmp_path, checkpoint):
    """An output directory with three checkpoints, the second of which is the best."""
    output = checkpoint.parent
    for step in (100, 150, 200):
        folder = output / f"checkpoint-{step}"
        if not folder.exists():
            shutil.copytree(checkpoint, folder)
        log = [
            {"step": past, "eval_loss": value} for past, value in ((100, 2.0), (150, 1.25), (200, 1.5)) if past <= step
        ]
        state = {
            "global_step": step,
            "epoch": step / 10,
            "log_history": log,
            "best_metric": 1.25,
            "best_global_step": 150,
        }
        state["best_model_checkpoint"] = "/home/someone/run/checkpoint-150"
        (folder / "trainer_state.json").write_text(json.dumps(state))
    return output


@pytest.fixture
def loaded(tmp_path):
    """The recipe that a draft is, once a person has filled what it asks for."""

    def load(draft):
        text = draft.text.replace("repo: null ", "repo: org/name ")
        text = text.replace("  id: null                        # TODO", "  id: apache-2.0  # TODO")
        (tmp_path / "repokit.yaml").write_text(text, encoding="utf-8")
        return load_recipe(tmp_path / "repokit.yaml")

    return load


def test_a_draft_is_a_recipe(checkpoint, tmp_path, loaded):
    recipe = loaded(api.init(checkpoint, recipe_folder=tmp_path))
    assert (recipe.repo, recipe.license.id) == ("org/name", "apache-2.0")
    assert (recipe.source, recipe.output) == ("./run/checkpoint-200", "./dist/run")


def test_a_draft_builds(checkpoint, tmp_path, loaded, gate):
    recipe = loaded(api.init(checkpoint, recipe_folder=tmp_path))
    assert api.build(api.plan(recipe, folder=tmp_path), gate=gate).files


def test_a_draft_writes_nothing(checkpoint, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    api.init(checkpoint, recipe_folder=tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_draft_says_what_only_a_person_knows(checkpoint, tmp_path):
    draft = api.init(checkpoint, recipe_folder=tmp_path)
    assert draft.missing == ("repo", "license.id")
    assert draft.text.count("# TODO") == 2


def test_a_draft_says_what_it_found(checkpoint, tmp_path):
    assert api.init(checkpoint, recipe_folder=tmp_path).found == (
        "model         Qwen2ForCausalLM (qwen2), from config.json",
        "weights       27 tensors, 38.4 kB, float32, in 1 file",
        "tokenizer     tokenizer.json, tokenizer_config.json",
        "chat template chat_template.jinja",
        "run           step 200, epoch 200, from trainer_state.json",
        "left out      5 files of the training run, 121.7 kB: optimizer.pt, rng_state.pth, scheduler.pt and 2 more",
    )


def test_what_it_found_stands_in_the_recipe_too(checkpoint, tmp_path):
    draft = api.init(checkpoint, recipe_folder=tmp_path)
    assert all(f"#   {line}\n" in draft.text for line in draft.found)


def test_an_output_directory_lists_its_checkpoints_with_step_and_metric(demo, tmp_path):
    draft = api.init(demo, recipe_folder=tmp_path)
    assert [(nested.path, nested.metric, nested.best) for nested in draft.nested] == [
        ("checkpoint-100", "eval_loss 2.0000", False),
        ("checkpoint-150", "eval_loss 1.2500", True),
        ("checkpoint-200", "eval_loss 1.5000", False),
    ]


def test_the_recipe_names_the_best(demo, tmp_path):
    text = api.init(demo, recipe_folder=tmp_path).text
    assert "#     checkpoint-100  eval_loss 2.0000\n#     checkpoint-150  eval_loss 1.2500  (best)\n" in text


def test_an_output_directory_is_built_from_its_best_checkpoint(demo, tmp_path, loaded):
    assert loaded(api.init(demo, recipe_folder=tmp_path)).source == "./run/checkpoint-150"


def test_without_a_best_the_last_is_taken(demo, tmp_path, loaded):
    for state in demo.glob("*/trainer_state.json"):
        state.unlink()
    assert loaded(api.init(demo, recipe_folder=tmp_path)).source == "./run/checkpoint-200"


def test_a_model_at_the_top_of_an_output_directory_is_taken(demo, tmp_path, loaded):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(demo / "checkpoint-100" / name, demo / name)
    assert loaded(api.init(demo, recipe_folder=tmp_path)).source == "./run"


@pytest.mark.parametrize("inside", [".", "deep/er"])
def test_a_recipe_inside_the_checkpoint_builds_beside_it(checkpoint, inside, loaded):
    folder = checkpoint / inside
    folder.mkdir(parents=True, exist_ok=True)
    recipe = loaded(api.init(checkpoint, recipe_folder=folder))
    assert (folder / recipe.source).resolve() == checkpoint
    assert (folder / recipe.output).resolve() == checkpoint.parent / "dist" / "run"


def test_wrapper_prefixes_are_announced(workshop):
    workshop.checkpoint({f"module.{name}": value for name, value in workshop.model().items()})
    draft = api.init(workshop.folder / "checkpoint", recipe_folder=workshop.folder)
    assert "10 names carry the prefix of a wrapper" in draft.text


def test_a_dtype_that_config_denies_is_announced(workshop):
    workshop.checkpoint(workshop.model("BF16"))
    draft = api.init(workshop.folder / "checkpoint", recipe_folder=workshop.folder)
    assert "auto keeps bfloat16 + int64, although config.json states float32" in draft.text


def test_a_dtype_without_a_name_in_torch_is_no_obstacle(workshop):
    """float6 has none."""
    workshop.checkpoint()
    file = workshop.folder / "checkpoint" / "model.safetensors"
    body = b'{"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}}'
    file.write_bytes(len(body).to_bytes(8, "little") + body + b"abc")
    draft = api.init(workshop.folder / "checkpoint", recipe_folder=workshop.folder)
    assert "F6_E2M3" in draft.text


CARD = """\
---
license: llama3.1
base_model: org/base
language: [en, "no"]
datasets: [org/data, "../local"]
pipeline_tag: fill-mask
---
# Title
"""


def test_a_card_of_the_checkpoint_fills_the_recipe(checkpoint, tmp_path, loaded):
    (checkpoint / "README.md").write_text(CARD)
    draft = api.init(checkpoint, recipe_folder=tmp_path)
    recipe = loaded(draft)
    assert draft.missing == ("repo",)
    assert (recipe.license.id, recipe.base.id) == ("llama3.1", "org/base")
    assert (recipe.card.language, recipe.card.datasets, recipe.card.pipeline_tag) == (
        ("en", "no"),
        ("org/data",),
        "fill-mask",
    )


@pytest.mark.parametrize("license_id", ["license", "unknown"])
def test_a_placeholder_is_no_license(checkpoint, tmp_path, license_id):
    (checkpoint / "README.md").write_text(f"---\nlicense: {license_id}\n---\n")
    assert "license.id" in api.init(checkpoint, recipe_folder=tmp_path).missing


def test_a_card_that_does_not_parse_is_no_obstacle(checkpoint, tmp_path):
    (checkpoint / "README.md").write_text("---\na: 1\na: 2\n---\n")
    assert api.init(checkpoint, recipe_folder=tmp_path).text


@pytest.mark.parametrize(("name", "found"), [("org/base", "org/base"), ("/home/x/base", None), ("./base", None)])
def test_the_base_is_what_config_names_on_the_hub(workshop, name, found, loaded):
    workshop.checkpoint(config={"_name_or_path": name})
    assert loaded(api.init(workshop.folder / "checkpoint", recipe_folder=workshop.folder)).base.id == found


HOSTILE = [
    "x: {y: [",
    "'\"",
    "# comment",
    "a\nlicense: {id: mit}\nb",
    "a\r\nrepo: evil/evil",
    "\u2028repo: evil/evil",
    "\u0085repo: evil/evil",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "&a *a !!python/object:os.system",
    "\U0001f600 \U0010ffff",
    "no",
    "1e3",
    "- x",
    "a: b",
    "\u202eevil",
    "\t",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_folder_name_stays_a_value(workshop, name, loaded):
    name = name.replace("/", "|")
    root = workshop.checkpoint(name=name)
    recipe = loaded(api.init(root, recipe_folder=workshop.folder))
    assert (recipe.source, recipe.output) == (f"./{name}", f"./dist/{name}")
    assert recipe.repo == "org/name"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_name_stays_a_comment(workshop, name, loaded):
    workshop.checkpoint(files={name: b"x"})
    recipe = loaded(api.init(workshop.folder / "checkpoint", recipe_folder=workshop.folder))
    assert (recipe.repo, recipe.files.include) == ("org/name", ())


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_value_in_config_stays_a_comment(workshop, value, loaded):
    workshop.checkpoint(config={"architectures": [value], "model_type": value, "_name_or_path": value, "dtype": value})
    recipe = loaded(api.init(workshop.folder / "checkpoint", recipe_folder=workshop.folder))
    assert (recipe.repo, recipe.license.id, recipe.base.id) == ("org/name", "apache-2.0", None)


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_value_in_a_card_stays_a_value(workshop, value, loaded):
    card = {"license": value, "language": [value], "pipeline_tag": value, "base_model": value, "datasets": [value]}
    text = f"---\n{json.dumps(card, ensure_ascii=False)}\n---\n"
    workshop.checkpoint(files={"README.md": text})
    recipe = loaded(api.init(workshop.folder / "checkpoint", recipe_folder=workshop.folder))
    stated = parse_card(text.encode(), "README.md").metadata["license"]  # YAML reads U+0085 as a line break
    assert recipe.repo == "org/name"
    assert (recipe.card.language, recipe.card.pipeline_tag) == ((stated,), stated)


def test_a_name_that_is_no_text_is_refused_by_name(workshop):
    root = workshop.checkpoint()
    odd = root.rename(workshop.folder / "a\udcffb")
    with pytest.raises(InputError, match="is not UTF-8"):
        api.init(odd, recipe_folder=workshop.folder)


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({}, MissingInput),
        ({"pytorch_model.bin": b"x"}, MalformedFile),
        ({"adapter_config.json": b"{}"}, InputError),
    ],
)
def test_what_cannot_be_built_is_refused_at_once(tmp_path, files, error):
    (tmp_path / "x").mkdir()
    for name, content in files.items():
        (tmp_path / "x" / name).write_bytes(content)
    with pytest.raises(error):
        api.init(tmp_path / "x", recipe_folder=tmp_path)


def test_master_weights_are_cast_to_what_config_states(workshop, loaded):
    workshop.checkpoint({"lm_head.weight": workshop.tensor("F32", (4, 8))}, config={"dtype": "bfloat16"})
    draft = api.init(workshop.folder / "checkpoint", recipe_folder=workshop.folder)
    assert loaded(draft).weights.dtype == "bfloat16"
    assert "as config.json states; auto keeps float32" in draft.text


def test_a_folder_of_folders_of_adapters_is_not_one_model(tmp_path):
    for folder in ("one/checkpoint-4", "dist/one"):
        (tmp_path / "runs" / folder).mkdir(parents=True)
        (tmp_path / "runs" / folder / "adapter_config.json").write_text("{}")
    with pytest.raises(InputError, match="several checkpoints, name one: dist/one"):
        api.init(tmp_path / "runs", recipe_folder=tmp_path)
