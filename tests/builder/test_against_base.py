"""What a build says it lost or changed against a base that is at hand."""

from __future__ import annotations

import json
import re

import pytest

from repokit import api
from repokit.builder.plan import Plan
from repokit.linter.examples import edited, lora, safetensors, sharded, single, tensors_of, tied, tokenizer_json
from repokit.linter.examples_gguf import TOKENS as GGUF_TOKENS, gguf
from repokit.linter.examples_quantized import METHODS
from repokit.linter.examples_values import planted
from repokit.repo.compared_tensors import compare_tensors
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository
from repokit.repo.weights import ADAPTER, SINGLE
from repokit.schema.recipe import Recipe

VISUAL = {
    f"model.visual.blocks.{block}.{part}.weight": ("F32", (4, 8)) for block in range(3) for part in ("up", "down")
}


@pytest.fixture
def summary(workshop):
    """The summary and the warnings of a plan whose source and base differ by tensors, config keys and files."""

    def plan(
        *,
        lost=None,
        gained=None,
        ours=None,
        theirs=None,
        files=None,
        base_files=None,
        **keys,
    ):
        whole = workshop.model()
        filled = {name: workshop.tensor(*spec) for name, spec in (lost or {}).items()}
        more = {name: workshop.tensor(*spec) for name, spec in (gained or {}).items()}
        workshop.checkpoint({**whole, **more}, config=ours, files=files)
        workshop.checkpoint({**whole, **filled}, name="base", config=theirs, files=base_files)
        return workshop.plan(base={"path": "./base"}, **keys)

    return plan


def test_nothing_is_said_of_equals(summary):
    plan = summary()
    assert (plan.summary.lost, plan.summary.changed, plan.warnings[1:]) == ((), (), ())


def test_a_plan_without_a_base_says_nothing_of_one(workshop):
    workshop.checkpoint()
    assert workshop.plan().summary.base is None


def test_a_tower_is_lost_in_one_word(summary):
    assert summary(lost=VISUAL).summary.lost == ("model.visual (6 tensors)",)


def test_what_is_lost_is_a_warning_that_names_the_base(summary, workshop):
    found = [warning for warning in summary(lost=VISUAL).warnings if "lacks" in warning]
    assert found == [f"against the base ({workshop.folder / 'base'}) it lacks model.visual (6 tensors)"]


def test_what_the_recipe_drops_is_not_lost(summary, workshop):
    filled = {name: workshop.tensor(*spec) for name, spec in VISUAL.items()}
    summary(lost=VISUAL)
    workshop.checkpoint({**workshop.model(), **filled})
    plan = workshop.plan(base={"path": "./base"}, weights={"drop": ["model.visual.*"]})
    assert plan.summary.lost == ()


@pytest.mark.parametrize(
    ("lost", "config", "words"),
    [
        ({"mtp.fc.weight": ("F32", (8, 16))}, {}, "mtp (1 tensor of multi-token prediction)"),
        (
            {f"model.layers.2.{part}.weight": ("F32", (8, 8)) for part in ("eh_proj", "enorm")},
            {"num_nextn_predict_layers": 1},
            "model.layers.2 (2 tensors of multi-token prediction)",
        ),
        (
            {f"model.layers.{layer}.up.weight": ("F32", (8, 8)) for layer in (2, 3, 4)},
            {},
            "model.layers.2-4 (3 tensors)",
        ),
        (
            {f"model.layers.{layer}.self_attn.q_proj.bias": ("F32", (8,)) for layer in (0, 1)},
            {},
            "model.layers.*.self_attn.q_proj.bias (2 tensors)",
        ),
    ],
    ids=["draft stack", "draft layer", "layers", "part of each layer"],
)
def test_what_is_lost_is_grouped(summary, lost, config, words):
    assert summary(lost=lost, theirs=config).summary.lost == (words,)


def test_many_groups_are_counted(summary):
    lost = {f"part{number}.weight": ("F32", (2,)) for number in range(9)}
    assert summary(lost=lost).summary.lost[-1] == "3 more groups of tensors"


def test_another_prefix_is_no_loss(summary, workshop):
    workshop.checkpoint()
    names = {name.replace("model.", "model.language_model.", 1): tensor for name, tensor in workshop.model().items()}
    workshop.checkpoint(names, name="base")
    assert workshop.plan(base={"path": "./base"}).summary.lost == ()


def test_a_tied_head_is_no_loss(summary, workshop):
    tensors = workshop.model()
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    workshop.checkpoint(tensors, config={"tie_word_embeddings": True})
    workshop.checkpoint(tensors, name="base", config={"tie_word_embeddings": True})
    assert workshop.plan(base={"path": "./base"}).summary.lost == ()


def test_buffers_of_older_versions_are_no_loss(summary):
    assert summary(lost={"model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", (4,))}).summary.lost == ()


def test_another_layout_of_the_experts_is_a_change(summary):
    block = "model.layers.{}.mlp.experts."
    lost = {
        block.format(layer) + f"{expert}.{part}.weight": ("F32", (4, 8))
        for layer in range(2)
        for expert in range(2)
        for part in ("gate_proj", "up_proj")
    }
    gained = {block.format(layer) + "gate_up_proj": ("F32", (2, 8, 8)) for layer in range(2)}
    found = summary(lost=lost, gained=gained, weights={"rename": "off"}).summary
    assert found.lost == ()
    assert "model.layers.*.mlp.experts.*.gate_proj (4)" in found.changed[0]


def test_a_router_that_is_lost_beside_another_layout_of_the_experts_is_lost(summary):
    block = "model.layers.0.mlp."
    lost = {f"{block}experts.0.up_proj.weight": ("F32", (4, 8)), f"{block}gate.e_score_correction_bias": ("F32", (2,))}
    gained = {f"{block}experts.gate_up_proj": ("F32", (2, 8, 8))}
    found = summary(lost=lost, gained=gained, weights={"rename": "off"}).summary
    assert found.lost == ("model.layers.0.mlp.gate (1 tensor)",)


def test_names_that_have_nothing_in_common_are_another_architecture(workshop):
    workshop.checkpoint()
    workshop.checkpoint({"conv.weight": workshop.tensor("F32", (2, 2))}, name="base")
    lost = workshop.plan(base={"path": "./base"}).summary.lost
    assert lost == ("every tensor, by its names: it is another architecture",)


def test_rows_of_the_vocabulary(summary):
    rows = dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), ("F32", (24, 8)))
    found = summary(gained=rows, ours={"vocab_size": 24}).summary.changed
    assert found == ("rows of the vocabulary: 16 became 24", "config.json: vocab_size 16 became 24")


def test_other_shapes(summary):
    found = summary(gained={"model.norm.weight": ("F32", (4,))}).summary.changed
    assert found == ("other shapes of model.norm.weight (1)",)


def test_a_cast(summary):
    assert "stored as BF16, the base as F32" in summary(weights={"dtype": "bfloat16"}).summary.changed


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ({"max_position_embeddings": 8192}, {}, "max_position_embeddings 64 became 8,192"),
        ({"rope_theta": 1e6}, {"rope_theta": 1e4}, 'rope {"rope_theta": 10000.0} became {"rope_theta": 1000000.0}'),
        ({"architectures": ["LlamaModel"]}, {}, 'architectures ["LlamaForCausalLM"] became ["LlamaModel"]'),
        ({"text_config": {"a": 1}}, {"text_config": {"a": 2}}, "text_config.a 2 became 1"),
    ],
)
def test_a_key_of_the_config(summary, ours, theirs, words):
    assert summary(ours=ours, theirs=theirs, weights={"rename": "off"}).summary.changed == (f"config.json: {words}",)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"transformers_version": "5.0"}, {"transformers_version": "4.57"}),
        ({"attention_bias": False}, {}),
        ({}, {"pretraining_tp": 1}),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, {"rope_theta": 1e4, "rope_scaling": None}),
        (
            {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}},
            {"rope_theta": 1e4, "rope_scaling": {"type": "yarn", "factor": 4.0}},
        ),
        ({}, {"text_config": {"a": 1}}),
    ],
    ids=["version", "a newer key", "an older key", "no scaling in two spellings", "scaling in two spellings", "text"],
)
def test_a_spelling_is_no_change(summary, ours, theirs):
    found = summary(ours=ours, theirs=theirs).summary
    assert (found.lost, found.changed) == ((), ())


def test_a_model_inside_the_model_is_lost(summary):
    assert summary(theirs={"vision_config": {"depth": 3}}).summary.lost == ("vision_config in config.json",)


def test_what_ends_a_generation(summary):
    files = {"generation_config.json": json.dumps({"eos_token_id": [1, 2]})}
    base_files = {"generation_config.json": json.dumps({"eos_token_id": 2})}
    assert summary(files=files, base_files=base_files).summary.changed == ("eos_token_id: 2 became 1, 2",)


TOKENIZER = {"tokenizer.json": tokenizer_json()}
TOKENS = tuple(json.loads(tokenizer_json())["model"]["vocab"])


def test_tokens_that_were_added(summary):
    files = {"tokenizer.json": tokenizer_json((*TOKENS, "<a>"), (*TOKENS[:6], "<a>"))}
    assert summary(files=files, base_files=TOKENIZER).summary.changed == ("tokenizer: 1 token added ('<a>')",)


def test_tokens_that_have_another_id(summary):
    files = {"tokenizer.json": tokenizer_json((*TOKENS[:6], *reversed(TOKENS[6:])))}
    changed = summary(files=files, base_files=TOKENIZER).summary.changed[0]
    assert changed.startswith(f"tokenizer: {len(TOKENS) - 6} tokens renumbered (")


def test_merges_and_steps_that_differ(summary):
    document = json.loads(tokenizer_json())
    document["model"]["merges"] = document["model"]["merges"][:-1]
    document["normalizer"] = {"type": "NFC"}
    files = {"tokenizer.json": json.dumps(document)}
    found = summary(files=files, base_files=TOKENIZER).summary.changed
    assert found == ("tokenizer: normalizer differs, merges differ",)


def test_merges_in_two_spellings_are_the_same(summary):
    document = json.loads(tokenizer_json())
    merges = document["model"]["merges"]
    assert merges
    document["model"]["merges"] = [" ".join(m) if isinstance(m, list) else m.split(" ") for m in merges]
    files = {"tokenizer.json": json.dumps(document)}
    assert summary(files=files, base_files=TOKENIZER).summary.changed == ()


def test_a_vocabulary_that_is_not_read_is_compared_by_its_bytes(summary):
    found = summary(files={"tokenizer.model": b"\x0a\x01b"}, base_files={"tokenizer.model": b"\x0a\x01a"}).summary
    assert found.changed == ("tokenizer: its file differs",)


def test_a_tokenizer_is_lost(summary):
    assert summary(base_files=TOKENIZER).summary.lost == ("the tokenizer",)


def test_a_chat_template_is_lost(summary):
    assert summary(base_files={"chat_template.jinja": "x"}).summary.lost == ("the chat template",)


def test_a_chat_template_is_another_one(summary):
    found = summary(files={"chat_template.jinja": "y"}, base_files={"chat_template.jinja": "x"}).summary
    assert found.changed == ("the chat template",)


def test_a_processor_is_lost(summary):
    lost = summary(base_files={"preprocessor_config.json": "{}"}).summary.lost
    assert lost == ("preprocessor_config.json",)


def test_what_of_the_base_does_not_parse_is_said_and_stops_nothing(summary):
    plan = summary(files=TOKENIZER, base_files={"tokenizer.json": "{"})
    assert any("the tokenizer was not compared with the base's" in warning for warning in plan.warnings)


def test_a_plan_for_another_folder_still_finds_the_base(summary, workshop, monkeypatch):
    monkeypatch.chdir(workshop.folder)
    summary()
    plan = api.plan(workshop.recipe(base={"path": "./base"}))
    assert plan.anywhere().summary.base == str(workshop.folder / "base")


# ---------------------------------------------------------------- other kinds


def planned(tmp_path, files, beside, **keys):
    """The plan of a build from these files, with those of the base beside them."""
    for name, content in (("source", files), ("base", beside)):
        (tmp_path / name).mkdir()
        for path, data in content.items():
            (tmp_path / name / path).write_bytes(data)
    known = {
        "version": 1,
        "source": "./source",
        "output": "./out",
        "license": {"id": "apache-2.0"},
        "base": {"id": "example/base", "path": "./base"},
    }
    return api.plan(Recipe.model_validate({**known, **keys}), folder=tmp_path)


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"mxfp4"}))
def test_the_parts_of_a_quantized_matrix_are_no_loss(method):
    with Repository(Memory(METHODS[method]())) as ours, Repository(Memory(single())) as base:
        assert compare_tensors(ours, base).lost == ()


def test_packed_experts_are_no_loss():
    files = METHODS["mxfp4"]()
    names = {re.sub(r"_(?:blocks|scales)$", "", name) for name in tensors_of(files[SINGLE])}
    full = dict.fromkeys(names, ("BF16", (4, 4)))
    base = {"config.json": single()["config.json"], SINGLE: safetensors(full)}
    with Repository(Memory(files)) as ours, Repository(Memory(base)) as theirs:
        assert compare_tensors(ours, theirs).lost == ()


def test_a_layer_that_a_quantized_model_lost(tmp_path):
    files = METHODS["fp8"]()
    base = {
        "config.json": single()["config.json"],
        SINGLE: edited(add={"mtp.fc.weight": ("BF16", (4, 4))})(files[SINGLE]),
    }
    assert planned(tmp_path, files, base).summary.lost == ("mtp (1 tensor of multi-token prediction)",)


def test_an_adapter_is_compared_in_its_tokens_alone(tmp_path):
    tokenizer = {"tokenizer.json": grown(), "tokenizer_config.json": single()["tokenizer_config.json"]}
    summary = planned(tmp_path, {**lora(), **tokenizer}, single()).summary
    assert summary.lost == ()
    assert summary.changed == ("tokenizer: 3 tokens added ('<a>', '<b>', '<c>')",)


def test_an_adapter_without_a_tokenizer_has_lost_nothing(tmp_path):
    summary = planned(tmp_path, lora(), single()).summary
    assert (summary.lost, summary.changed) == ((), ())


def test_gguf_files_with_fewer_blocks_than_the_base(tmp_path):
    config = {**json.loads(single()["config.json"]), "num_hidden_layers": 3}
    base = {**single(), "config.json": json.dumps(config).encode()}
    changed = planned(tmp_path, gguf(), base).summary.changed
    assert changed[-1] == "example-F32.gguf: 1 block, the base has 3 layers"


def test_gguf_files_with_fewer_tokens_than_the_base(tmp_path):
    base = {**single(), "tokenizer.json": grown()}
    changed = planned(tmp_path, gguf(), base).summary.changed
    assert changed[0] == f"example-F32.gguf: {len(GGUF_TOKENS)} tokens, the base has {len(TOKENS) + 3}"


def test_gguf_files_that_are_filled_up_to_the_rows_of_the_base(tmp_path):
    config = {**json.loads(single()["config.json"]), "num_hidden_layers": 1, "vocab_size": len(GGUF_TOKENS)}
    base = {**single(), "config.json": json.dumps(config).encode()}
    assert planned(tmp_path, gguf(), base).summary.changed == ()


# ---------------------------------------------------------------- the gate


def outcome(plan):
    """What became of a build, with the codes that were found last."""
    gate = api.Gate(api.Selection())
    try:
        api.build(plan, gate=gate)
    except api.Stopped as stopped:
        done = stopped.what
    else:
        done = "built"
    assert gate.last is not None
    return done, {finding.code for finding in gate.last.report.findings}


def grown():
    """A tokenizer of three tokens more than the base."""
    more = ("<a>", "<b>", "<c>")
    return tokenizer_json((*TOKENS, *more), (*TOKENS[:6], *more))


FAULTS = {
    "huggingface/peft#2898": (
        "ADP206",
        {
            **lora(),
            ADAPTER: edited(
                add={
                    f"base_model.model.model.embed_tokens.{name}": ("F32", (32, 16))
                    for name in ("weight", "base_layer.weight")
                }
            )(lora()[ADAPTER]),
        },
        single(),
    ),
    "huggingface/peft#2898 (and the head that is the embedding)": (
        "ADP206",
        {
            **lora(),
            ADAPTER: edited(
                add={f"base_model.model.{name}.weight": ("F32", (35, 16)) for name in ("model.embed_tokens", "lm_head")}
            )(lora()[ADAPTER]),
        },
        tied(),
    ),
    "huggingface/peft#2589": (
        "ADP205",
        {**lora(), "tokenizer.json": grown(), "tokenizer_config.json": single()["tokenizer_config.json"]},
        single(),
    ),
    "unslothai/unsloth#869": ("WGT222", single(), single()),
    "unslothai/unsloth#869 (in shards)": ("WGT222", sharded(), single()),
}


@pytest.mark.parametrize(("code", "files", "base"), FAULTS.values(), ids=FAULTS)
def test_a_build_finds_what_only_the_base_can_tell(tmp_path, code, files, base):
    assert code in outcome(planned(tmp_path, files, base))[1]


@pytest.mark.parametrize(("code", "files", "base"), FAULTS.values(), ids=FAULTS)
def test_nobody_finds_it_without_the_base(tmp_path, code, files, base):
    assert code not in outcome(planned(tmp_path, files, base, base={"id": "example/base"}))[1]


def test_an_adapter_that_does_not_fit_the_base_stops_the_build_before_anything_is_written(tmp_path):
    deeper = {**json.loads(single()["config.json"]), "num_hidden_layers": 3}
    done, found = outcome(planned(tmp_path, lora(), {**single(), "config.json": json.dumps(deeper).encode()}))
    assert "nothing was written" in done
    assert "ADP118" in found


def test_a_plan_out_of_a_file_is_held_against_the_same_base(tmp_path):
    plan = planned(tmp_path, single(), single()).anywhere()
    assert "WGT222" in outcome(Plan.model_validate_json(plan.model_dump_json()))[1]


def test_a_model_that_was_trained_is_not_called_its_base(tmp_path):
    trained = planted({"BF16": b"\x80\x3f"}, 3, "model.layers.0.mlp.up_proj.weight")(single()[SINGLE])
    done, found = outcome(planned(tmp_path, {**single(), SINGLE: trained}, single()))
    assert (done, "WGT222" in found) == ("built", False)


def test_a_base_without_a_config_is_no_reason_to_stop(tmp_path):
    files = {"tokenizer.json": single()["tokenizer.json"]}
    assert outcome(planned(tmp_path, single(), files))[0] == "built"


def test_weights_of_a_base_that_cannot_be_read_are_not_checked_and_stop_nothing(tmp_path):
    plan = planned(tmp_path, single(), {**single(), SINGLE: b"no weights"})
    gate = api.Gate(api.Selection())
    api.build(plan, gate=gate)
    assert gate.last is not None
    assert "WGT222" in gate.last.report.coverage.not_checked


@pytest.mark.parametrize("is_equal", [True, False])
def test_what_was_held_against_it_is_said(summary, is_equal):
    plan = summary(theirs={} if is_equal else {"rope_theta": 5.0})
    assert plan.summary.held == "layers, shapes, config, tokens and template"
