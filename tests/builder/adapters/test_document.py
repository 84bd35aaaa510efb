"""adapter_config.json: what is for others is written, what is of a machine goes, everything else stays."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from repokit.builder.adapters.document import Known, cached, on_the_hub, published_config
from repokit.builder.adapters.weights import StoredAdapter
from repokit.errors import InputError, RecipeError
from repokit.repo.document import Document

PINNED = {"id": "example/base", "revision": "0e9e39f249a16976918f6564b8830bc894c89659"}

RANDOM = "Zk3Qw8LmRt5pXvBnHd2fJsCaEu7oTyNbKaPq"  # after the beginning of a token it is one

COMMIT = "0e9e39f249a16976918f6564b8830bc894c89659"
CACHE = f"/home/me/.cache/huggingface/hub/models--meta-llama--Llama-3.1-8B/snapshots/{COMMIT}"


BASE = Known("org/base", None)


def edited(text: str, known: Known = BASE) -> str:
    adapter = StoredAdapter("", Document("adapter_config.json", json.loads(text)), text.encode(), None, whole=False)
    return published_config(adapter, known).content.decode()


# ------------------------------------------------------------------------------------------------ edits


def test_what_nobody_has_to_change_stays_byte_for_byte():
    text = '{\n  "r":  4,\n\t"lora_alpha": 8.0e0, "base_model_name_or_path": "org/base",\n "inference_mode": true }'
    assert edited(text) == text


def test_the_id_stands_in_the_place_of_a_path():
    text = '{"peft_type": "LORA", "base_model_name_or_path": "/data/base", "inference_mode": true,  "r": 4}\n'
    assert edited(text) == text.replace("/data/base", "org/base")


def test_the_revision_is_pinned():
    text = '{"base_model_name_or_path": "org/base", "revision": null, "inference_mode": true}'
    assert edited(text, Known("org/base", COMMIT)) == text.replace("null", f'"{COMMIT}"')


def test_a_revision_that_is_not_there_is_added():
    assert json.loads(edited("{}", Known("org/base", COMMIT)))["revision"] == COMMIT


def test_a_saved_adapter_is_not_trained_further():
    text = '{"base_model_name_or_path": "org/base", "inference_mode": false}'
    assert edited(text) == text.replace("false", "true")


OF_A_MACHINE = {
    "runtime_config": {"ephemeral_gpu_offload": True},
    "corda_config": {"covariance_file": "/data/covariance.pt", "corda_method": "ipm"},
    "eva_config": {"deeper": {"cache": "~/eva"}},
    "lora_ga_config": {"gradient_file": "../gradients.pt"},
    "init_from": "C:\\runs\\3",
    "seen": ["/home/me/a", "b", {"log": "/home/me/c"}, "~/d"],
    "started": "--file=/home/me/train.yaml",
    "/home/me/e": 1,
}
KEPT_OF_IT = {"corda_config": {"corda_method": "ipm"}, "eva_config": {"deeper": {}}, "lora_ga_config": {}}
KEPT_OF_IT |= {"seen": ["b", {}]}


def test_what_is_of_the_machine_that_trained_goes():
    raw = {"base_model_name_or_path": "org/base", "inference_mode": True, "r": 4}
    found = json.loads(edited(json.dumps({**OF_A_MACHINE, **raw})))
    assert found == {**KEPT_OF_IT, **raw}


def test_what_goes_is_told(adapters):
    adapters.adapter(config=OF_A_MACHINE)
    told = next(told for told in adapters.plan().warnings if "of the machine that trained" in told)
    assert all(key in told for key in ("runtime_config", "corda_config/covariance_file"))


def test_an_expression_that_looks_like_a_path_stays():
    raw = {"base_model_name_or_path": "org/base", "inference_mode": True, "target_modules": "./q_proj"}
    assert json.loads(edited(json.dumps(raw))) == raw


def test_the_tokenizer_of_a_prompt_is_the_bases():
    raw = {"base_model_name_or_path": "/x", "inference_mode": True, "tokenizer_name_or_path": "/x"}
    assert json.loads(edited(json.dumps(raw)))["tokenizer_name_or_path"] == "org/base"


def test_the_first_words_of_a_prompt_stay_whatever_they_speak_of():
    raw = {"base_model_name_or_path": "org/base", "inference_mode": True, "prompt_tuning_init_text": "/data/x is here"}
    assert json.loads(edited(json.dumps(raw))) == raw


# A PEFT of the time of data/peft_types.json, one that is older, and none.
@pytest.mark.parametrize("version", ["0.21.2", "0.9", None, 7])
def test_keys_that_peft_drops_are_dropped(version):
    raw = {"base_model_name_or_path": "org/base", "inference_mode": True, "peft_type": "LORA", "peft_version": version}
    assert json.loads(edited(json.dumps({**raw, "wandb": {"id": "me/secret"}}))) == raw


@pytest.mark.parametrize("of", [{"peft_type": "NEW"}, {"peft_type": "LORA", "peft_version": "0.99.0.dev0"}])
def test_keys_of_a_newer_peft_are_kept(of):
    raw = {"base_model_name_or_path": "org/base", "inference_mode": True, **of, "added": 1}
    assert json.loads(edited(json.dumps(raw))) == raw


def test_a_key_that_is_null_is_kept():
    raw = {"base_model_name_or_path": "org/base", "inference_mode": True, "peft_type": "LORA", "enable_lora": None}
    assert json.loads(edited(json.dumps(raw))) == raw


def test_keys_that_are_dropped_are_told(adapters):
    adapters.adapter(config={"hub_token": "hf_" + RANDOM, "wandb_run": 3})
    (told,) = adapters.plan(base=PINNED).warnings
    assert told == "adapter_config.json: hub_token, wandb_run left out: PEFT reads no such field of LORA"


def test_a_module_of_a_machine_is_left_out_with_its_class(adapters):
    mapping = {"base_model_class": "OwnForCausalLM", "parent_library": "transformers_modules.home_me_own.modeling_own"}
    adapters.adapter(config={"auto_mapping": mapping})
    plan = adapters.plan()
    adapters.carry_out(plan)
    assert adapters.published()["auto_mapping"] is None
    assert any("auto_mapping left out" in told for told in plan.warnings)


SECRETS = ["hf_" + RANDOM, "sk-proj-" + RANDOM, "ghp_" + RANDOM, "x\nhf_" + RANDOM]
SECRETS += ["https://me:" + "hunter2x9" + "@hub.example.org"]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("put", [lambda secret: secret, lambda secret: {"deep": [1, {"er": secret}]}], ids=["", "deep"])
def test_a_secret_in_what_is_published_is_refused(secret, put):
    with pytest.raises(InputError, match=r"holds an? .* (token|key|address): .{4}…") as caught:
        edited(json.dumps({"peft_type": "LORA", "megatron_config": put(secret)}))
    assert (caught.value.place or "").startswith("/megatron_config")


def test_a_secret_for_a_key_is_not_shown():
    secret = "hf_" + RANDOM
    with pytest.raises(InputError) as caught:
        edited(json.dumps({"megatron_config": {secret: 1}}))
    assert secret not in str(caught.value)


def test_a_mixture_of_adapters_on_a_disk_is_refused(adapters):
    mixed = {"one": "org/one", "two": "/runs/two"}
    tensors = {"base_model.model.xlora_classifier.0.weight": adapters.tensor("F32", (2, 2))}
    adapters.adapter(tensors, config={"peft_type": "XLORA", "adapters": mixed})
    with pytest.raises(InputError, match="mixes 1 adapter that nobody else has: two"):
        adapters.plan()


TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\\/~.:"), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
KEPT = st.dictionaries(TEXT, VALUES, max_size=6)


@given(KEPT, st.integers(0, 4))
def test_everything_else_stays_as_it_is(kept, indent):
    own = {"base_model_name_or_path": "/data/base", "inference_mode": False, "runtime_config": {}}
    text = json.dumps({**kept, **own}, indent=indent or None)
    found = json.loads(edited(text))
    assert found == {**kept, "base_model_name_or_path": "org/base", "inference_mode": True}
    assert list(found)[: len(kept)] == list(kept)


# ------------------------------------------------------------------------------------------------ the base


def test_the_base_of_the_config_is_taken_where_the_recipe_names_none(adapters):
    adapters.adapter(config={"base_model_name_or_path": "org/base", "revision": COMMIT})
    adapters.build()
    assert (adapters.published()["base_model_name_or_path"], adapters.published()["revision"]) == ("org/base", COMMIT)


def test_the_recipes_word_wins_and_that_is_told(adapters):
    adapters.adapter(config={"base_model_name_or_path": "unsloth/base-bnb-4bit"})
    plan = adapters.plan(base={"id": "org/base"})
    assert any("names the base unsloth/base-bnb-4bit; the recipe's org/base" in told for told in plan.warnings)


def test_a_revision_of_another_model_is_not_that_of_the_base(adapters):
    adapters.adapter(config={"base_model_name_or_path": "unsloth/base-bnb-4bit", "revision": "abcdef1"})
    plan = adapters.plan(base={"id": "org/base"})
    adapters.carry_out(plan)
    assert adapters.published()["revision"] is None
    assert b"abcdef1" not in adapters.read("README.md")
    assert any("the revision abcdef1, which is left out: it is of unsloth" in told for told in plan.warnings)


def test_a_revision_of_a_folder_is_not_that_of_the_base(adapters):
    adapters.adapter(config={"base_model_name_or_path": "/data/base", "revision": "abcdef1"})
    adapters.build(base={"id": "org/base"})
    assert adapters.published()["revision"] is None


def test_the_revision_stands_where_the_recipe_names_the_same_base(adapters):
    adapters.adapter(config={"base_model_name_or_path": "org/base", "revision": COMMIT})
    adapters.build(base={"id": "org/base"})
    assert adapters.published()["revision"] == COMMIT


@pytest.mark.parametrize("revision", ['x")\nimport os\n#("', "-x", "a..b", "/home/me", "", "a b", 7, ["main"]])
def test_what_can_be_no_revision_is_left_out(adapters, revision):
    adapters.adapter(config={"revision": revision})
    plan = adapters.plan()
    adapters.carry_out(plan)
    assert adapters.published()["revision"] is None
    assert any("which is left out: it can be none of the Hub's" in told for told in plan.warnings)


@pytest.mark.parametrize("named", ["/data/base", "./base", "../base", "C:\\base", "a/b/c", "None", None, 7, ...])
def test_a_base_that_nobody_else_has_is_refused(adapters, named):
    adapters.adapter(config={"base_model_name_or_path": named})
    with pytest.raises(RecipeError, match=r"base\.id: does not say which base model") as caught:
        adapters.plan()
    assert "nobody else can load that" in (caught.value.why or "")


def test_a_folder_of_the_cache_says_which_model_it_is(adapters):
    adapters.adapter(config={"base_model_name_or_path": CACHE})
    with pytest.raises(RecipeError) as caught:
        adapters.plan()
    assert f"base: {{id: meta-llama/Llama-3.1-8B, revision: {COMMIT}}}" in caught.value.hint


def test_a_local_path_is_replaced_by_the_id_of_the_recipe(adapters):
    adapters.adapter(config={"base_model_name_or_path": "/home/me/models/base"})
    adapters.build(base={"id": "org/base", "revision": COMMIT})
    assert not any(b"/home/me" in content for content in adapters.contents().values())


def test_the_model_of_a_cache_folder():
    assert cached(CACHE) == Known("meta-llama/Llama-3.1-8B", COMMIT)


@pytest.mark.parametrize("path", [None, "", "/data/base", "models--a--b", f"/x/models--a--b/snapshots/{COMMIT}/more/x"])
def test_other_folders_say_nothing(path):
    assert cached(path) is None


@pytest.mark.parametrize(
    ("name", "usable"), [("org/base", True), ("gpt2", True), ("a b", False), ("", False), (None, False)]
)
def test_which_names_others_can_load(name, usable):
    assert on_the_hub(name) is usable
