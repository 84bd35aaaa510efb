"""An adapter is published as PEFT saves it: one file under its names, a config for others, a card with its base."""

from __future__ import annotations

import json
import struct

import pytest

from repokit import api
from repokit.errors import InputError, PlanError, RecipeError

PINNED = {"id": "example/base", "revision": "0e9e39f249a16976918f6564b8830bc894c89659"}

ADAPTER, CONFIG = "adapter_model.safetensors", "adapter_config.json"
TOKENIZER = {"tokenizer.json": "{}", "tokenizer_config.json": "{}", "chat_template.jinja": "{{ messages }}"}
BASE = {"id": "example/base", "revision": "0e9e39f249a16976918f6564b8830bc894c89659"}


def test_what_is_published(adapters):
    adapters.adapter(files=TOKENIZER)
    adapters.build()
    published = {path for path in adapters.contents() if path not in {"repokit-manifest.json", "LICENSE"}}
    assert published == {"README.md", ADAPTER, CONFIG, *TOKENIZER}


def test_the_tensors_are_those_of_the_source(adapters):
    adapters.adapter()
    adapters.build()
    assert adapters.tensors() == adapters.lora()


def test_the_weights_of_an_adapter_in_order_are_copied_byte_for_byte(adapters):
    root = adapters.adapter()
    adapters.build()
    first = adapters.read(ADAPTER)
    (root / ADAPTER).write_bytes(first)
    adapters.build(force=True)
    assert adapters.read(ADAPTER) == first


def test_the_file_says_its_format(adapters):
    adapters.adapter()
    adapters.build()
    content = adapters.read(ADAPTER)
    header = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
    assert header["__metadata__"] == {"format": "pt"}


def test_a_pickled_adapter_is_written_as_safetensors(adapters):
    adapters.adapter(weights="adapter_model.bin")
    adapters.build()
    assert adapters.tensors() == adapters.in_pickle(adapters.lora())


def test_safetensors_win_over_a_pickle_beside_them(adapters):
    adapters.adapter(weights="adapter_model.bin")
    adapters.adapter()
    plan = adapters.plan()
    assert [left.path for left in plan.left_out] == ["adapter_model.bin"]


@pytest.mark.parametrize("named", [ADAPTER, "adapter_model.bin"])
def test_the_file_itself_may_be_the_source(adapters, named):
    adapters.adapter(weights=named)
    adapters.build(source=f"./checkpoint/{named}")
    assert adapters.tensors().keys() == adapters.lora().keys()


def test_one_file_is_written_whatever_size_is_asked_for(adapters):
    adapters.adapter()
    plan = adapters.plan(weights={"max_shard_size": "1KB"})
    assert [operation.path for operation in plan.operations if operation.op == "write-shard"] == [ADAPTER]
    assert any("max_shard_size does nothing" in warning for warning in plan.warnings)


def test_the_config_of_the_base_is_left_out(adapters):
    """Beside adapter_config.json some loaders would take it for that of a whole model."""
    adapters.adapter(files={"config.json": json.dumps({"model_type": "llama"}), "generation_config.json": "{}"})
    left = {left.path: left.reason for left in adapters.plan().left_out}
    assert left == dict.fromkeys(("config.json", "generation_config.json"), "of the base model, which has its own")


def test_leftovers_of_the_training_stay_out(adapters):
    leftovers = (
        "optimizer.pt",
        "training_args.bin",
        "checkpoint-3/adapter_config.json",
        "runs/x/events.out.tfevents.1",
    )
    adapters.adapter(files=dict.fromkeys(leftovers, "canary"))
    adapters.build()
    assert not any(b"canary" in content for content in adapters.contents().values())


def test_the_license_text_of_the_base_is_found(adapters):
    adapters.adapter()
    adapters.base(files={"LICENSE": "terms of the base"})
    adapters.build(base={**BASE, "path": "./base"})
    assert adapters.read("LICENSE") == b"terms of the base"


def test_the_tokenizer_may_be_the_one_of_the_base(adapters):
    adapters.adapter(files=TOKENIZER)
    adapters.base(files={"tokenizer.json": '{"base": 1}'})
    adapters.build(base={**BASE, "path": "./base"}, tokenizer={"from": "base"})
    assert adapters.read("tokenizer.json") == b'{"base": 1}'


# ------------------------------------------------------------------------------------------------ which kind


def test_auto_takes_a_folder_with_its_config_for_an_adapter(adapters):
    adapters.adapter()
    assert adapters.plan().operations == adapters.plan(kind="adapter").operations


def test_a_directory_without_a_config_is_no_adapter(adapters):
    (adapters.adapter() / CONFIG).unlink()
    with pytest.raises(InputError, match=r"has no adapter_config\.json"):
        adapters.plan(kind="adapter")


def test_an_adapter_beside_a_full_model_must_be_chosen(adapters):
    adapters.adapter()
    adapters.write_safetensors(adapters.folder / "checkpoint" / "model.safetensors", adapters.model())
    with pytest.raises(RecipeError, match="an adapter and a full model"):
        adapters.plan()


def test_an_adapter_beside_a_full_model_is_built_where_it_is_chosen(adapters):
    adapters.adapter()
    adapters.write_safetensors(adapters.folder / "checkpoint" / "model.safetensors", adapters.model())
    plan = adapters.plan(kind="adapter")
    assert [left.path for left in plan.left_out] == ["model.safetensors"]


def test_an_output_directory_names_its_checkpoints(adapters):
    adapters.adapter(folder="checkpoint-20")
    with pytest.raises(InputError, match="output directory with 1 checkpoint and no adapter") as caught:
        adapters.plan(kind="adapter")
    assert caught.value.hint.endswith("/checkpoint-20")


# ------------------------------------------------------------------------------------------------ several


def test_each_of_several_adapters_keeps_its_folder(adapters):
    adapters.adapter()
    adapters.adapter(folder="sql")
    adapters.build()
    shards = [path for path in adapters.contents() if path.endswith((".safetensors", CONFIG))]
    assert shards == [CONFIG, ADAPTER, f"sql/{CONFIG}", f"sql/{ADAPTER}"]


def test_several_adapters_have_the_same_base(adapters):
    adapters.adapter()
    adapters.adapter(folder="sql", config={"base_model_name_or_path": "example/other"})
    with pytest.raises(RecipeError, match="which base model"):
        adapters.plan()


def test_the_only_adapter_is_published_at_the_top(adapters):
    adapters.adapter(folder="default")
    plan = adapters.plan(base=PINNED)
    assert {ADAPTER, CONFIG} <= {operation.path for operation in plan.operations}
    assert plan.warnings == ("the only adapter lies in default/: it is published at the top",)
    assert plan.left_out == ()


def test_patterns_name_the_folder(adapters):
    adapters.adapter()
    adapters.adapter(folder="sql")
    adapters.build(weights={"dtype": "bfloat16", "keep": ["sql/*"]})
    dtypes = {
        path: {dtype for dtype, _, _ in adapters.read_safetensors(adapters.output / path).values()}
        for path in (ADAPTER, f"sql/{ADAPTER}")
    }
    assert dtypes == {ADAPTER: {"BF16"}, f"sql/{ADAPTER}": {"F32"}}


# ------------------------------------------------------------------------------------------------ what the recipe asks for


def test_the_dtype_stays_by_default(adapters):
    adapters.adapter(adapters.lora("F16"))
    adapters.build()
    assert {dtype for dtype, _, _ in adapters.tensors().values()} == {"F16"}


def test_a_cast_of_all_but_what_is_kept(adapters):
    adapters.adapter()
    plan = adapters.plan(weights={"dtype": "bfloat16", "keep": ["*.lora_B.weight"]})
    assert (plan.summary.cast, plan.summary.kept) == (4, 4)


def test_a_pattern_that_matches_nothing_is_an_error(adapters):
    adapters.adapter()
    with pytest.raises(RecipeError, match=r"weights\.keep: 'x\*' matches none"):
        adapters.plan(weights={"dtype": "bfloat16", "keep": ["x*"]})


def test_dropped_tensors_are_told(adapters):
    adapters.adapter()
    plan = adapters.plan(weights={"drop": ["*.layers.1.*"]})
    assert (plan.summary.tensors, len(plan.summary.dropped)) == (4, 4)


def test_rules_of_renaming_take_the_place_of_our_own(adapters):
    tensors = {name.replace("self_attn", "attn"): held for name, held in adapters.lora().items()}
    adapters.adapter(tensors)
    adapters.build(weights={"rename": [{"from": r"\.attn\.", "to": ".self_attn."}]})
    assert adapters.tensors() == adapters.lora()


def test_names_may_stay_as_they_are(adapters):
    tensors = {name.replace(".weight", ".default.weight"): held for name, held in adapters.lora().items()}
    adapters.adapter(tensors)
    adapters.build(weights={"rename": "off"})
    assert adapters.tensors() == tensors


def test_names_are_repaired_and_counted(adapters):
    tensors = {f"module.{name.replace('.weight', '.default.weight')}": held for name, held in adapters.lora().items()}
    adapters.adapter(tensors)
    plan = adapters.plan()
    adapters.carry_out(plan)
    assert (adapters.tensors(), plan.summary.renamed) == (adapters.lora(), 8)


def test_two_names_that_become_one_are_refused(adapters):
    name, held = next(iter(adapters.lora().items()))
    adapters.adapter({**adapters.lora(), f"module.{name}": held, f"_orig_mod.{name}": held})
    with pytest.raises(PlanError, match="and so would"):
        adapters.plan()


@pytest.mark.parametrize(
    "keys", [{"generation_config": {"temperature": 0.7}}, {"config": {"architectures": ["LlamaForCausalLM"]}}]
)
def test_the_configs_of_a_model_are_the_bases(adapters, keys):
    adapters.adapter()
    with pytest.raises(RecipeError, match="an adapter has none"):
        adapters.plan(**keys)


# ------------------------------------------------------------------------------------------------ the state of a training


def whole(adapters):
    """The state of a Lightning module: base, adapter and head under the attribute of the model."""
    inside = {
        name.replace("lora_A.weight", "lora_A.default.weight").replace("lora_B.weight", "lora_B.default.weight"): held
        for name, held in adapters.lora().items()
    }
    base = {
        f"{adapters.prefix}model.layers.{layer}.self_attn.q_proj.base_layer.weight": adapters.tensor("F32", (16, 16))
        for layer in range(2)
    }
    return {f"model.{name}": held for name, held in {**inside, **base}.items()}


def test_an_adapter_is_taken_out_of_the_state_of_a_training(adapters):
    adapters.adapter(whole(adapters), weights="last.ckpt")
    plan = adapters.plan(kind="adapter", source="./checkpoint/last.ckpt")
    adapters.carry_out(plan)
    assert adapters.tensors().keys() == adapters.lora().keys()
    assert any("last.ckpt: 2 tensors of the base model" in warning for warning in plan.warnings)


EMBEDDING = "base_model.model.model.embed_tokens.weight"


@pytest.mark.parametrize(("rows", "published"), [(24, True), (16, False)])
def test_an_embedding_that_was_resized_is_taken_out_of_the_state_too(adapters, rows, published):
    """The new rows are in the state of the training alone: without them the tokens of the tokenizer have none."""
    adapters.base(more={"model.embed_tokens.weight": adapters.tensor("F32", (16, 16))})
    state = whole(adapters) | {f"model.{EMBEDDING}": adapters.tensor("F32", (rows, 16))}
    adapters.adapter(state, weights="last.ckpt")
    adapters.build(kind="adapter", source="./checkpoint/last.ckpt", base={**BASE, "path": "./base"})
    assert (EMBEDDING in adapters.tensors()) is published


def test_without_a_base_nobody_can_tell_whether_it_was_resized(adapters):
    adapters.adapter(whole(adapters) | {f"model.{EMBEDDING}": adapters.tensor("F32", (24, 16))}, weights="last.ckpt")
    (told,) = adapters.plan(kind="adapter", source="./checkpoint/last.ckpt", base=PINNED).warnings
    assert told.endswith("whether its vocabulary was resized, only a base.path can tell")


def test_a_state_without_an_adapter_is_refused(adapters):
    adapters.adapter(adapters.model(), weights="last.ckpt")
    with pytest.raises(PlanError, match="holds no tensor of LORA"):
        adapters.plan(kind="adapter", source="./checkpoint/last.ckpt")


@pytest.mark.parametrize("method", ["SHIRA", "PROMPT_TUNING", "XLORA"])
def test_a_state_that_peft_would_have_to_work_out_is_refused(adapters, method):
    adapters.adapter(whole(adapters), weights="last.ckpt", config={"peft_type": method})
    with pytest.raises(InputError, match=f"is of {method}, and there is no adapter_model") as caught:
        adapters.plan(kind="adapter", source="./checkpoint/last.ckpt")
    assert "save_pretrained" in caught.value.hint


def test_the_tensors_of_a_program_are_an_adapter_too(adapters):
    import numpy as np

    from repokit.builder.build import carry_out
    from repokit.builder.checkpoints.memory_weights import MemoryWeights
    from repokit.builder.planner import make_plan

    (adapters.adapter() / ADAPTER).unlink()
    arrays = {
        name: np.frombuffer(data, np.float32).reshape(shape) for name, (_, shape, data) in adapters.lora().items()
    }
    given = MemoryWeights(arrays)
    plan = make_plan(adapters.recipe(kind="adapter"), folder=adapters.folder, given=given)
    carry_out(plan, gate=lambda _source, _stage: None, given=given)
    assert adapters.tensors() == adapters.lora()


# ------------------------------------------------------------------------------------------------ the whole of it


def test_the_linter_has_nothing_to_say(adapters, gate):
    adapters.adapter()
    api.build(adapters.plan(repo="me/x"), gate=gate)
    assert not gate.last.report.at_least(api.Severity.WARNING)


@pytest.mark.parametrize(
    ("config", "code"),
    [({"r": 8}, "ADP104"), ({"target_modules": ["c_attn"]}, "ADP105"), ({"modules_to_save": ["lm_head"]}, "ADP150")],
)
def test_what_the_linter_finds_stops_the_build(adapters, gate, config, code):
    adapters.adapter(config=config)
    with pytest.raises(api.Stopped, match=code):
        api.build(adapters.plan(), gate=gate)
    assert not adapters.output.exists()


def test_the_adapter_is_held_against_the_architecture_of_its_base(adapters, gate):
    adapters.adapter()
    adapters.checkpoint(name="base", config={"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64})
    (adapters.folder / "base" / "model.safetensors").unlink()
    with pytest.raises(api.Stopped, match="ADP116"):
        api.build(adapters.plan(base={**BASE, "path": "./base"}), gate=gate)


def test_a_rebuild_of_what_was_built_is_the_same(adapters):
    adapters.adapter(files=TOKENIZER)
    adapters.build(base=BASE)
    adapters.build(source="./out", output="./again", base=BASE)
    manifest = "repokit-manifest.json"  # says of adapter_config.json that it follows from the recipe, the first time
    first, second = adapters.contents(), adapters.contents(adapters.folder / "again")
    assert {**second, manifest: first[manifest]} == first


def test_a_base_without_a_revision_is_told(adapters):
    adapters.adapter()
    told = "base.revision is not given: the adapter will be put onto whatever example/base is then"
    assert adapters.plan().warnings == (told,)
