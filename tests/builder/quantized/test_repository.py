"""Quantized weights are assembled as their tool wrote them: one repository for each way to store them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from safetensors.numpy import load_file

from repokit import api
from repokit.builder.quantized.companions import module_of
from repokit.errors import InputError, MalformedFile, MissingInput, PlanError, RecipeError
from repokit.formats.front_matter import parse_card
from repokit.formats.safetensors import read_header
from repokit.linter.examples import edited, safetensors, single
from repokit.linter.examples_quantized import AWQ, FP8, GPTQ, METHODS
from repokit.schema.recipe import load_recipe

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CONFIG, SINGLE = "config.json", "model.safetensors"
_UNDECLARED = {"quantization_config": None, "compression_config": None}
PINNED = {"id": "org/base", "revision": "0123456789abcdef0123456789abcdef01234567"}


@pytest.fixture
def source(workshop):
    """Writes the example of a method as the checkpoint, with files changed; None leaves one out."""

    def write(method: str = "gptq", *, config: Mapping[str, object] | None = None, **files: bytes | None) -> Path:
        root = workshop.folder / "checkpoint"
        contents = {
            **METHODS[method](),
            "README.md": None,
            **{name.replace("__", "."): content for name, content in files.items()},
        }
        if config is not None:
            document = {**json.loads(contents[CONFIG]), **config}
            kept = {key: value for key, value in document.items() if value is not None or key not in _UNDECLARED}
            contents[CONFIG] = json.dumps(kept).encode()
        for path, content in contents.items():
            if content is not None:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(content)
        return root

    return write


@pytest.fixture
def base(workshop):
    """The base model at hand, whose tokenizer nobody has saved anew."""
    root = workshop.folder / "base"
    for path, content in single().items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    (root / "LICENSE").write_text("of the base")
    return {**PINNED, "path": "./base"}


def side(**values: object) -> bytes:
    return json.dumps(values).encode()


# ------------------------------------------------------------------------------------------------ every method


@pytest.mark.parametrize("method", METHODS)
def test_no_tensor_changes(source, workshop, method):
    root = source(method)
    workshop.build(base=PINNED)
    assert workshop.tensors() == workshop.tensors(root)


@pytest.mark.parametrize("method", METHODS)
def test_config_stays_as_the_quantizer_wrote_it(source, workshop, method):
    root = source(method)
    workshop.build()
    assert workshop.read(CONFIG) == (root / CONFIG).read_bytes()


@pytest.mark.parametrize("method", METHODS)
def test_the_linter_finds_nothing(source, workshop, gate, method):
    source(method)
    api.build(workshop.plan(base=PINNED), gate=gate)
    assert not gate.last.report.at_least(api.Severity.WARNING)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("limit", ["1", "700", "2KB"])
def test_no_module_is_cut_apart(source, workshop, method, limit):
    source(method)
    workshop.build(weights={"max_shard_size": limit})
    weight_map = json.loads(workshop.read("model.safetensors.index.json"))["weight_map"]
    files = {(module_of(name), file) for name, file in weight_map.items()}
    assert len(files) == len({module for module, _ in files})


@pytest.mark.parametrize("method", METHODS)
def test_a_build_in_small_files_changes_no_tensor(source, workshop, method):
    root = source(method)
    workshop.build(weights={"max_shard_size": "700"})
    assert workshop.tensors() == workshop.tensors(root)


@pytest.mark.parametrize("method", METHODS)
def test_parameters_are_those_of_the_base(source, workshop, method):
    source(method)
    oss = method == "mxfp4"
    config = json.loads(METHODS[method]()[CONFIG])
    wanted = _parameters(config) if oss else 4944
    assert workshop.plan().summary.parameters == wanted


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"mxfp4"}))
def test_parameters_are_counted_without_the_architecture_too(source, workshop, method):
    """An architecture that nobody knows: packed weights are counted by how they are packed."""
    source(method, config={"architectures": ["NobodysModel"]})
    assert workshop.plan().summary.parameters == 4944


def _parameters(config: Mapping[str, int]) -> int:
    """Of the gpt-oss of the examples, by hand."""
    rows = config["vocab_size"]
    attention = 2 * 32 * 32 + 2 * 16 * 32 + 2 * 32 + 2 * 16 + 4
    experts = 2 * (64 * 32 + 64 + 32 * 32 + 32)
    return 2 * rows * 32 + 32 + 2 * (attention + experts + 2 * 32 + 2 + 2 * 32)


# ------------------------------------------------------------------------------------------------ what is built


def test_kind_auto_goes_by_the_config(source, workshop):
    source()
    assert workshop.plan().summary.quantized == f"GPTQ, 4-bit: {_bits(workshop):.2f} bits per weight"


def _bits(workshop) -> float:
    return sum(len(data) for _, _, data in workshop.tensors(workshop.folder / "checkpoint").values()) * 8 / 4944


def test_a_cast_is_refused(source, workshop):
    source()
    with pytest.raises(RecipeError, match="is bfloat16, and the weights are quantized") as error:
        workshop.plan(weights={"dtype": "bfloat16"})
    assert "scales" in error.value.why


def test_a_full_model_asked_for_by_that_kind_is_refused(workshop):
    workshop.checkpoint()
    with pytest.raises(MissingInput, match="says nothing of a quantization"):
        workshop.plan(kind="quantized")


def test_what_the_names_are_evidence_of_is_told(source, workshop):
    source("gptq", config={"quantization_config": None})
    with pytest.raises(MissingInput) as error:
        workshop.plan(kind="quantized")
    assert error.value.hint.endswith("these weights are of gptq, awq or auto-round")


def test_a_config_without_a_method_is_refused(source, workshop):
    source("gptq", config={"quantization_config": {"bits": 4, "group_size": 8}})
    with pytest.raises(InputError, match="names no quant_method") as error:
        workshop.plan()
    assert error.value.place == "/quantization_config"


def test_a_method_that_is_newer_is_assembled_with_a_note(source, workshop):
    root = source("gptq", config={"quantization_config": {"quant_method": "frobnicate"}})
    plan = workshop.plan()
    workshop.carry_out(plan)
    assert "quant_method 'frobnicate' is not known to this version: it is assembled as it is" in plan.warnings
    assert workshop.tensors() == workshop.tensors(root)


def test_companions_that_lie_in_two_files_come_together(source, workshop):
    root = source()
    tensors = workshop.tensors(root)
    (root / SINGLE).unlink()
    workshop.checkpoint(tensors, config=json.loads((root / CONFIG).read_text()), shards=3)
    plan = workshop.plan()
    workshop.carry_out(plan)
    weight_map = json.loads(workshop.read("model.safetensors.index.json"))["weight_map"]
    files = {(module_of(name), file) for name, file in weight_map.items()}
    assert len(files) == len({module for module, _ in files})
    assert any("in two files of the source" in warning for warning in plan.warnings)


def test_shards_that_are_whole_stay_as_they_are(source, workshop):
    root = source()
    workshop.build(weights={"max_shard_size": "2KB"}, output="./sharded")
    before = workshop.contents(workshop.folder / "sharded")
    workshop.build(source="./sharded")
    after = workshop.contents()
    shards = [name for name in before if name.endswith(".safetensors")]
    assert len(shards) > 2
    assert [after[name] for name in shards] == [before[name] for name in shards]
    assert root.is_dir()


def test_scales_are_not_dropped_without_their_weight(source, workshop):
    source()
    with pytest.raises(PlanError, match=r"weights\.drop takes .* and leaves other tensors of the module"):
        workshop.plan(weights={"drop": ["*.scales"]})


def test_a_module_is_dropped_whole(source, workshop):
    source()
    plan = workshop.plan(weights={"drop": ["model.layers.1.mlp.up_proj.*"]})
    assert len(plan.summary.dropped) == 4


def test_a_missing_companion_is_found_before_anything_is_written(source, workshop, gate):
    broken = edited(drop=("model.layers.0.mlp.up_proj.scales",))(METHODS["gptq"]()[SINGLE])
    source(model__safetensors=broken)
    with pytest.raises(api.Stopped, match="QNT103"):
        api.build(workshop.plan(), gate=gate)
    assert not workshop.output.exists()


def test_shapes_that_disagree_are_found_before_anything_is_written(source, workshop, gate):
    broken = edited(add={"model.layers.0.mlp.up_proj.scales": ("F16", (3, 24))})(METHODS["gptq"]()[SINGLE])
    source(model__safetensors=broken)
    with pytest.raises(api.Stopped, match="QNT"):
        api.build(workshop.plan(), gate=gate)
    assert not workshop.output.exists()


# ------------------------------------------------------------------------------------------------ tied heads


def test_a_head_that_is_packed_is_not_held_against_its_embedding(workshop):
    """config.json ties them, and the quantizer untied them: nothing is compared, nothing is left out."""
    tensors = {
        "model.embed_tokens.weight": workshop.tensor("BF16", (16, 8)),
        "lm_head.weight": workshop.tensor("I8", (16, 8)),
        "lm_head.SCB": workshop.tensor("F32", (16,)),
    }
    config = {"tie_word_embeddings": True, "quantization_config": {"load_in_8bit": True}}
    workshop.checkpoint(tensors, config=config)
    workshop.build()
    assert workshop.tensors() == tensors


def test_a_plain_head_is_stored_once(source, workshop):
    root = source(config={"tie_word_embeddings": True})
    tensors = workshop.tensors(root)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    workshop.write_safetensors(root / SINGLE, tensors)
    plan = workshop.plan()
    assert plan.summary.tied == ("lm_head.weight",)


# ------------------------------------------------------------------------------------------------ side files


def test_a_side_file_that_agrees_is_published(source, workshop):
    content = side(bits=4, group_size=8, desc_act=False, model_name_or_path=None)
    source(quantize_config__json=content)
    workshop.build()
    assert workshop.read("quantize_config.json") == content


CONTRADICTIONS = [
    ("pack-quantized", "quantize_config.json", {"bits": 4, "group_size": 8}, "gptq", "compressed-tensors"),
    ("gptq", "quant_config.json", {"w_bit": 4, "q_group_size": 8}, "awq", "gptq"),
    ("gptq", "quantize_config.json", {"bits": 8, "group_size": 8}, "8", "4"),
    ("gptq", "quantize_config.json", {"bits": 4, "group_size": 128}, "128", "8"),
    ("gptq", "quantize_config.json", {"bits": 4, "group_size": 8, "desc_act": True}, "True", "False"),
    ("gptq", "quantize_config.json", {"bits": 4, "group_size": 8, "format": "gptq_v2"}, "gptq_v2", "gptq"),
    ("awq", "quant_config.json", {"w_bit": 8, "q_group_size": 8}, "8", "4"),
    ("awq", "quant_config.json", {"w_bit": 4, "q_group_size": 64}, "64", "8"),
    ("awq", "quant_config.json", {"w_bit": 4, "q_group_size": 8, "version": "GEMV"}, "GEMV", "gemm"),
    ("modelopt", "hf_quant_config.json", {"quantization": {"quant_algo": "FP8"}}, "FP8", "NVFP4"),
    ("modelopt", "hf_quant_config.json", {"quantization": {"group_size": 16}}, "16", "8"),
    ("gptq", "quantization_config.json", {"quant_method": "auto-round", "bits": 4}, "auto-round", "gptq"),
    ("gptq", "hf_quant_config.json", {"quantization": {"quant_algo": "FP8"}}, "FP8", "gptq"),
    ("gptq", "quantize_config.json", {"bits": 4, "group_size": 8, "is_marlin_format": True}, "marlin", "gptq"),
]


@pytest.mark.parametrize("case", CONTRADICTIONS, ids=str)
def test_a_side_file_that_contradicts_is_refused_with_both_values(source, workshop, case):
    method, path, content, said, here = case
    source(method, **{path.replace(".", "__"): side(**content)})
    with pytest.raises(InputError, match=rf"says {re.escape(said)}; config\.json says {re.escape(here)} at /") as error:
        workshop.plan()
    assert error.value.path.endswith(path)


SILENT = [
    ("checkpoint_format", "gptq_v2"),
    ("sym", False),
    ("desc_act", True),
    ("dynamic", {"-:lm_head": {}}),
]


@pytest.mark.parametrize(("key", "value"), SILENT)
def test_what_config_leaves_to_another_default_is_put_into_it(source, workshop, key, value):
    declared = {name: item for name, item in GPTQ.items() if name != key}
    content = side(bits=4, group_size=8, **{key: value})
    source(config={"quantization_config": declared}, quantize_config__json=content)
    plan = workshop.plan()
    workshop.carry_out(plan)
    assert json.loads(workshop.read(CONFIG))["quantization_config"] == {**declared, key: value}
    assert [told for told in plan.warnings if f"does not say {key}" in told]


@pytest.mark.parametrize(("key", "value"), [("checkpoint_format", "gptq"), ("sym", True), ("desc_act", False)])
def test_what_config_leaves_to_the_same_default_stays_out(source, workshop, key, value):
    declared = {name: item for name, item in GPTQ.items() if name != key}
    root = source(
        config={"quantization_config": declared}, quantize_config__json=side(bits=4, group_size=8, **{key: value})
    )
    workshop.build()
    assert workshop.read(CONFIG) == (root / CONFIG).read_bytes()


def test_it_is_put_into_the_object_that_loaders_go_by(source, workshop):
    content = side(bits=4, group_size=8, sym=False)
    declared = {name: item for name, item in GPTQ.items() if name != "sym"}
    config = {"quantization_config": None, "compression_config": declared}
    source(config=config, quantize_config__json=content)
    workshop.build()
    document = json.loads(workshop.read(CONFIG))
    assert "quantization_config" not in document
    assert document["compression_config"]["sym"] is False


def test_the_other_name_of_a_format_counts(source, workshop):
    declared = {name: item for name, item in GPTQ.items() if name != "checkpoint_format"}
    content = side(bits=4, group_size=8, checkpoint_format="gptq_v2")
    source(config={"quantization_config": {**declared, "format": "gptq"}}, quantize_config__json=content)
    with pytest.raises(InputError, match=r"says gptq_v2; config\.json says gptq at /"):
        workshop.plan()


@pytest.mark.parametrize("method", ["modelopt", "float-quantized"])
def test_the_file_of_modelopt_stands_beside_methods_that_go_with_it(source, workshop, method):
    source(method, hf_quant_config__json=side(quantization={"kv_cache_quant_algo": "FP8"}))
    assert workshop.plan()


def test_the_old_flag_of_marlin_becomes_its_format(source, workshop):
    content = side(bits=4, group_size=8, is_marlin_format=True)
    source("gptq", config={"quantization_config": None}, quantize_config__json=content)
    workshop.build()
    assert json.loads(workshop.read(CONFIG))["quantization_config"]["checkpoint_format"] == "marlin"


def test_the_old_flag_of_marlin_beside_another_format_is_refused(source, workshop):
    source(quantize_config__json=side(bits=4, group_size=8, is_marlin_format=True, checkpoint_format="gptq"))
    with pytest.raises(MalformedFile, match="says gptq, and is_marlin_format is true"):
        workshop.plan()


def test_the_same_word_in_other_letters_is_no_contradiction(source, workshop):
    source("awq", quant_config__json=side(w_bit=4, q_group_size=8, zero_point=True, version="GEMM"))
    assert workshop.plan()


def test_a_file_of_the_same_name_that_no_quantizer_wrote_is_left_alone(source, workshop):
    source(quantize_config__json=b'{"per_channel": false}')
    left = {file.path for file in workshop.plan().left_out}
    assert "quantize_config.json" in left


ALONE = [
    (
        "gptq",
        "quantize_config.json",
        {"bits": 4, "group_size": 8, "desc_act": False, "sym": True, "model_name_or_path": "/home/me/x"},
        {"bits": 4, "group_size": 8, "desc_act": False, "sym": True, "quant_method": "gptq"},
    ),
    (
        "awq",
        "quant_config.json",
        {"w_bit": 4, "q_group_size": 8, "zero_point": True, "version": "GEMM"},
        {key: AWQ[key] for key in ("quant_method", "bits", "group_size", "zero_point", "version")},
    ),
]


@pytest.mark.parametrize("case", ALONE, ids=["gptq", "awq"])
def test_what_a_side_file_alone_says_becomes_the_quantization_config(source, workshop, case):
    method, path, content, wanted = case
    source(method, config={"quantization_config": None}, **{path.replace(".", "__"): side(**content)})
    plan = workshop.plan()
    workshop.carry_out(plan)
    assert json.loads(workshop.read(CONFIG))["quantization_config"] == wanted
    assert f"translated from {path}" in plan.warnings[0]


def test_a_quantization_config_that_was_added_pleases_the_linter(source, workshop, gate):
    content = side(bits=4, group_size=8, desc_act=False, sym=True)
    source("gptq", config={"quantization_config": None}, quantize_config__json=content)
    api.build(workshop.plan(base=PINNED), gate=gate)
    assert not gate.last.report.at_least(api.Severity.WARNING)


def test_the_rest_of_config_keeps_its_order(source, workshop):
    root = source("gptq", config={"quantization_config": None}, quantize_config__json=side(bits=4, group_size=8))
    before = list(json.loads((root / CONFIG).read_text()))
    workshop.build()
    assert list(json.loads(workshop.read(CONFIG))) == [*before, "quantization_config"]


@pytest.mark.parametrize("value", [None, "4", 4.5, True])
def test_a_side_file_without_numbers_is_refused(source, workshop, value):
    content = side(bits=value, group_size=8)
    source("gptq", config={"quantization_config": None}, quantize_config__json=content)
    with pytest.raises(MalformedFile, match="must be an integer"):
        workshop.plan()


def test_the_file_of_modelopt_alone_stays_alone(source, workshop):
    """vLLM reads it; config.json has no words for it that transformers would read."""
    source(
        "modelopt",
        config={"quantization_config": None},
        hf_quant_config__json=side(quantization={"quant_algo": "NVFP4"}),
    )
    plan = workshop.plan()
    workshop.carry_out(plan)
    assert "quantization_config" not in json.loads(workshop.read(CONFIG))
    assert "transformers does not" in plan.warnings[0]


def test_a_side_file_beside_plain_weights_makes_nothing_quantized(workshop):
    workshop.checkpoint(files={"quantize_config.json": side(bits=4, group_size=8)})
    workshop.build()
    assert "Quantization" not in workshop.read("README.md").decode()


def test_a_broken_side_file_beside_plain_weights_stays_behind(workshop):
    workshop.checkpoint(files={"quantize_config.json": b"{"})
    assert "quantize_config.json" in {file.path for file in workshop.plan().left_out}


def test_a_broken_side_file_beside_quantized_weights_is_refused(source, workshop):
    source(quantize_config__json=b"{")
    with pytest.raises(MalformedFile):
        workshop.plan()


def test_weights_of_a_program_are_assembled_too(source, workshop, gate):
    root = source("gptq")
    tensors = load_file(root / SINGLE)
    plan = api.plan(workshop.recipe(kind="quantized"), folder=workshop.folder, tensors=tensors)
    api.build(plan, tensors=tensors, gate=gate)
    assert workshop.tensors() == workshop.tensors(root)
    assert workshop.read(CONFIG) == (root / CONFIG).read_bytes()


LLM_COMPRESSOR = """\
default_stage:
  default_modifiers:
    GPTQModifier:
      targets: [Linear]
      ignore: [lm_head, 're:.*gate$']
      scheme: {scheme}
"""


def test_the_recipe_of_llm_compressor_is_published(source, workshop):
    content = LLM_COMPRESSOR.format(scheme="W4A16").encode()
    source("pack-quantized", recipe__yaml=content)
    workshop.build()
    assert workshop.read("recipe.yaml") == content


@pytest.mark.parametrize(
    ("method", "scheme"), [("pack-quantized", "W8A16"), ("pack-quantized", "FP8_DYNAMIC"), ("float-quantized", "NVFP4")]
)
def test_a_recipe_of_llm_compressor_that_contradicts_is_refused(source, workshop, method, scheme):
    source(method, recipe__yaml=LLM_COMPRESSOR.format(scheme=scheme).encode())
    with pytest.raises(InputError, match=f"says {scheme}; config.json says [48] at /quantization_config/config_groups"):
        workshop.plan()


def test_numbers_in_a_recipe_of_llm_compressor_are_compared(source, workshop):
    scheme = "{group_0: {targets: [Linear], weights: {num_bits: 4, group_size: 128}}}"
    content = LLM_COMPRESSOR.replace("scheme: {scheme}", f"config_groups: {scheme}")
    source("pack-quantized", recipe__yaml=content.encode())
    with pytest.raises(InputError, match=r"group_size: says 128; config\.json says 8"):
        workshop.plan()


@pytest.mark.parametrize(
    "content",
    [
        b"default_stage: {default_modifiers: {X: {output_dir: /home/me/secret}}}",
        b"a: &a [*a]",
        b"a: !!python/object:os.system {}",
        b"name: a recipe for soup",
        b"[1, 2]",
        b"\xff\xfe",
        b"default_stage: {" * 200,
    ],
)
def test_another_recipe_is_left_behind(source, workshop, content):
    source("pack-quantized", recipe__yaml=content)
    assert "recipe.yaml" in {file.path for file in workshop.plan().left_out}


# ------------------------------------------------------------------------------------------------ paths of a machine


@pytest.mark.parametrize("key", ["model_name_or_path", "dataset", "tokenizer"])
def test_paths_of_the_machine_that_quantized_are_published_nowhere(source, workshop, key):
    declared = {**GPTQ, key: "/home/me/secret"}
    source(config={"quantization_config": declared}, quantize_config__json=side(**declared))
    plan = workshop.plan()
    workshop.carry_out(plan)
    assert not [path for path, content in workshop.contents().items() if b"secret" in content]
    assert json.loads(workshop.read(CONFIG))["quantization_config"] == {**GPTQ, key: None}
    assert json.loads(workshop.read("quantize_config.json")) == {**GPTQ, key: None}
    assert len([told for told in plan.warnings if "paths of the machine that quantized" in told]) == 2


RANDOM = "Zk3Qw" + "secret" + "LmRt5pXvBnHd2fJsCaEu7oTyN"  # after the beginning of a token it is one
NESTED = [
    {"meta": {"offload_to_disk_path": "/home/me/secret"}},
    {"dataset": ["/home/me/secret.json"]},
    {"meta": {"runs": [{"out": "C:\\secret"}]}},
    {"meta": {"hub": "hf_" + RANDOM}},
    {"hf_token": "secret"},
    {"meta": ["ghp_" + RANDOM]},
    {"note": "key sk-" + RANDOM},
]


@pytest.mark.parametrize("values", NESTED, ids=str)
@pytest.mark.parametrize("declared", [True, False])
def test_paths_and_tokens_are_published_from_no_depth(source, workshop, values, declared):
    own = {**GPTQ, **values}
    source(config={"quantization_config": own if declared else None}, quantize_config__json=side(**own))
    workshop.build()
    assert not [path for path, content in workshop.contents().items() if b"secret" in content]


def test_a_token_that_was_taken_out_is_told(source, workshop):
    source(quantize_config__json=side(**GPTQ, hf_token="hf_" + "a" * 34))
    told = "quantize_config.json holds what looks like an access token: null stands in its place; revoke the token"
    assert told in workshop.plan().warnings


def test_what_no_loader_knows_is_not_translated(source, workshop):
    content = side(bits=4, group_size=8, nobodys_key=1)
    source("gptq", config={"quantization_config": None}, quantize_config__json=content)
    workshop.build()
    assert "nobodys_key" not in json.loads(workshop.read(CONFIG))["quantization_config"]


def test_expressions_for_modules_are_no_paths(source, workshop):
    declared = {**GPTQ, "modules_in_block_to_quantize": [[r".*\.gate"]], "dynamic": {r"-:.*\.up": {}}}
    root = source(config={"quantization_config": declared})
    workshop.build()
    assert workshop.read(CONFIG) == (root / CONFIG).read_bytes()


def test_ids_on_the_hub_are_no_paths(source, workshop):
    source(config={"quantization_config": {**GPTQ, "dataset": "org/data"}})
    workshop.build()
    assert json.loads(workshop.read(CONFIG))["quantization_config"]["dataset"] == "org/data"


# ------------------------------------------------------------------------------------------------ from the base


def test_tokenizer_template_license_and_generation_config_are_the_bases(source, base, workshop):
    source(
        tokenizer_config__json=b'{"tokenizer_class": "PreTrainedTokenizerFast", "saved": "anew"}',
        generation_config__json=b'{"do_sample": true}',
        LICENSE=b"of the quantizer",
    )
    plan = workshop.plan(base=base)
    workshop.carry_out(plan)
    files = single()
    assert workshop.read("tokenizer_config.json") == files["tokenizer_config.json"]
    assert workshop.read("generation_config.json") == files["generation_config.json"]
    assert workshop.read("LICENSE") == b"of the base"
    assert any("tokenizer_config.json is the base's, byte for byte" in warning for warning in plan.warnings)


def test_config_stays_the_quantizers(source, base, workshop):
    root = source()
    workshop.build(base=base)
    assert workshop.read(CONFIG) == (root / CONFIG).read_bytes()


def test_the_recipe_may_ask_for_the_quantizers_own(source, base, workshop):
    own = b'{"tokenizer_class": "PreTrainedTokenizerFast", "saved": "anew"}'
    source(tokenizer_config__json=own)
    workshop.build(base=base, tokenizer={"from": "source"})
    assert workshop.read("tokenizer_config.json") == own


def test_what_the_base_lacks_comes_from_the_source(source, base, workshop):
    (workshop.folder / "base" / "generation_config.json").unlink()
    root = source()
    workshop.build(base=base)
    assert workshop.read("generation_config.json") == (root / "generation_config.json").read_bytes()


def test_a_template_that_the_quantizer_took_out_of_the_tokenizer_is_left_behind(source, base, workshop):
    """transformers 5 writes it as a file of its own; the base has it in its tokenizer_config.json."""
    path = workshop.folder / "base" / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": "{{ messages }}"}))
    (workshop.folder / "base" / "chat_template.jinja").unlink(missing_ok=True)
    source(chat_template__jinja=b"{{ messages }} ")
    plan = workshop.plan(base=base)
    assert "chat_template.jinja" in {file.path for file in plan.left_out}


CHAT = "{% for message in messages %}{{ message.content }}{% endfor %}\u00e9"


def tokenizer_config(root: Path, **changed: object) -> bytes:
    """That of a checkpoint with another template, or none."""
    raw = json.loads((root / "tokenizer_config.json").read_bytes())
    raw.pop("chat_template", None)
    return json.dumps({**raw, **changed}).encode()


@pytest.fixture
def untold(base, workshop):
    """A base without a template."""
    root = workshop.folder / "base"
    (root / "chat_template.jinja").unlink(missing_ok=True)
    (root / "tokenizer_config.json").write_bytes(tokenizer_config(root))
    return base


def test_a_template_that_only_the_quantizers_tokenizer_has_is_written(source, untold, workshop):
    own = tokenizer_config(workshop.folder / "base", chat_template=CHAT)
    source(tokenizer_config__json=own, chat_template__jinja=None)
    plan = workshop.plan(base=untold)
    workshop.carry_out(plan)
    assert workshop.read("chat_template.jinja") == CHAT.encode()
    assert "apply_chat_template" in workshop.read("README.md").decode()
    assert [told for told in plan.warnings if told.startswith("chat_template.jinja is written from")]


def test_templates_by_name_that_are_lost_are_told(source, untold, workshop):
    templates = [{"name": "default", "template": CHAT}, {"name": "tool_use", "template": CHAT}]
    own = tokenizer_config(workshop.folder / "base", chat_template=templates)
    source(tokenizer_config__json=own, chat_template__jinja=None)
    plan = workshop.plan(base=untold)
    workshop.carry_out(plan)
    assert [told for told in plan.warnings if told.startswith("the chat templates in tokenizer_config.json")]
    assert "apply_chat_template" not in workshop.read("README.md").decode()


def test_the_snippet_chats_with_the_template_of_the_base(source, untold, workshop):
    path = workshop.folder / "base" / "tokenizer_config.json"
    plain = path.read_bytes()
    path.write_bytes(tokenizer_config(path.parent, chat_template=CHAT))
    source(tokenizer_config__json=plain, chat_template__jinja=None)
    workshop.build(base=untold)
    assert "apply_chat_template" in workshop.read("README.md").decode()


def test_values_of_the_recipe_go_into_the_bases_generation_config(source, base, workshop):
    source()
    workshop.build(base=base, generation_config={"temperature": 0.5})
    assert json.loads(workshop.read("generation_config.json"))["temperature"] == 0.5


@pytest.mark.parametrize(
    ("base", "warning"),
    [({}, "base.id is not given"), ({"id": "org/base", "path": "./base"}, "base.revision is not given")],
)
def test_what_nobody_could_find_again_is_told(source, workshop, base, warning):
    source()
    for path, content in single().items():
        (workshop.folder / "base" / path).parent.mkdir(parents=True, exist_ok=True)
        (workshop.folder / "base" / path).write_bytes(content)
    assert any(told.startswith(warning) for told in workshop.plan(base=base).warnings)


# ------------------------------------------------------------------------------------------------ card


def row(workshop) -> list[str]:
    text = workshop.read("README.md").decode()
    line = next(line for line in text.splitlines() if line.startswith("| `model"))
    return [cell.strip() for cell in line.strip("|").split(" | ")]


ROWS = {
    "gptq": ("GPTQ, 4-bit", "8"),
    "awq": ("awq".upper() + ", 4-bit, gemm", "8"),
    "fp8": ("FP8, E4M3, dynamic activations", "8 x 8"),
    "bnb4": ("bitsandbytes, NF4", "64"),
    "bnb8": ("bitsandbytes, LLM.int8()", "one scale a row"),
    "pack-quantized": ("compressed-tensors, W4A16 int (pack-quantized)", "8"),
    "float-quantized": ("compressed-tensors, W8A8 float (float-quantized)", "one scale a channel"),
    "int-quantized": ("compressed-tensors, W8A8 int (int-quantized)", "one scale a channel"),
    "mxfp4": ("MXFP4", "32"),
    "mlx": ("MLX, 4-bit", "8"),
    "modelopt": ("ModelOpt, NVFP4", "8"),
}


@pytest.mark.parametrize("method", METHODS)
def test_the_card_says_method_and_group_size(source, workshop, method):
    source(method)
    workshop.build(base=PINNED)
    assert (row(workshop)[3], row(workshop)[4]) == ROWS[method]


def test_the_card_says_file_size_and_bits(source, workshop):
    source("bnb8")
    workshop.build(base=PINNED)
    bytes_ = sum(len(data) for _, _, data in workshop.tensors().values())
    assert row(workshop)[:3] == ["`model.safetensors`", f"{bytes_ / 1000:.1f} kB", f"{bytes_ * 8 / 4944:.2f}"]


def test_front_matter_names_the_base_and_the_relation(source, workshop):
    source()
    workshop.build(base=PINNED)
    metadata = parse_card(workshop.read("README.md"), "README.md").metadata
    assert (metadata["base_model"], metadata["base_model_relation"]) == ("org/base", "quantized")


def test_calibration_is_not_stated_where_nobody_states_it(source, workshop):
    source()
    workshop.build()
    assert row(workshop)[5] == "not stated"


def test_calibration_is_what_a_person_states(source, workshop):
    source()
    calibration = {"dataset": "org/chats", "samples": 512, "text": "of 2,048 tokens | each"}
    workshop.build(quantization={"tool": "my-tool 1.0", "calibration": calibration, "notes": "Read **this**."})
    text = workshop.read("README.md").decode()
    assert "| 512 samples of org/chats; of 2,048 tokens \\| each |" in text
    assert "| Quantized with | my-tool 1.0 |" in text
    assert "\nRead **this**.\n" in text


def test_calibration_is_else_what_the_quantizer_wrote(source, workshop):
    source(config={"quantization_config": {**GPTQ, "dataset": "c4", "meta": {"quantizer": ["gptqmodel:2.0.0"]}}})
    workshop.build()
    assert row(workshop)[5] == "c4"
    assert "| Quantized with | gptqmodel:2.0.0 |" in workshop.read("README.md").decode()


@pytest.mark.parametrize("bits", [0, -4])
def test_a_width_that_cannot_be_is_not_in_the_card(source, workshop, bits):
    source(config={"quantization_config": {**GPTQ, "bits": bits}})
    assert "-bit" not in workshop.plan().summary.quantized


@pytest.mark.parametrize("samples", [0, -1])
def test_a_number_of_samples_that_cannot_be_is_not_in_the_card(source, workshop, samples):
    source(config={"quantization_config": {**GPTQ, "nsamples": samples}})
    workshop.build()
    assert row(workshop)[5] == "not stated"


def test_texts_of_a_calibration_are_not_published_in_the_card(source, workshop):
    source(config={"quantization_config": {**GPTQ, "dataset": ["my secret text"]}})
    workshop.build()
    assert b"secret" not in workshop.read("README.md")


def test_the_snippet_installs_what_the_method_needs(source, workshop):
    source("pack-quantized")
    workshop.build()
    assert "`pip install transformers accelerate torch compressed-tensors`" in workshop.read("README.md").decode()


def test_weights_that_transformers_does_not_read_are_served(source, workshop):
    source("modelopt")
    workshop.build(repo="org/name")
    text = workshop.read("README.md").decode()
    assert "vllm serve org/name" in text
    assert "from transformers" not in text


def test_a_card_that_a_person_wrote_is_kept(source, workshop):
    source(README__md=b"# Mine\n\nWords.\n")
    plan = workshop.plan(base=PINNED, quantization={"notes": "x"})
    workshop.carry_out(plan)
    assert workshop.read("README.md").endswith(b"# Mine\n\nWords.\n")
    assert any("quantization.notes" in warning for warning in plan.warnings)


def test_the_table_names_the_first_of_several_files(source, workshop):
    source()
    workshop.build(weights={"max_shard_size": "2KB"})
    assert re.fullmatch(r"`model-00001-of-\d{5}\.safetensors` and \d+ more shards", row(workshop)[0])


# ------------------------------------------------------------------------------------------------ metadata


def torchao(**changed: str) -> bytes:
    names = ["model.layers.0.mlp.up_proj.weight", "model.norm.weight"]
    packed = '{"_type": "Int8Tensor", "_data": {"block_size": [1, 16]}, "_tensor_data_names": ["qdata", "scale"]}'
    metadata = {
        "format": "pt",
        "tensor_names": json.dumps(names),
        names[0]: packed,
        names[1]: '{"_type": "Tensor"}',
        "ss_output_dir": "/home/me/secret",
        **changed,
    }
    tensors = {
        "model.layers.0.mlp.up_proj._weight_qdata": ("I8", (24, 16)),
        "model.layers.0.mlp.up_proj._weight_scale": ("F32", (24, 1)),
        "model.norm.weight": ("BF16", (16,)),
    }
    return safetensors(tensors, metadata)


TORCHAO = {
    "quantization_config": {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}}
}


def metadata_of(path: Path) -> Mapping[str, str]:
    content = path.read_bytes()
    return read_header(lambda offset, length: content[offset : offset + length], len(content), "x").metadata


def test_what_torchao_says_of_its_tensors_is_kept(source, workshop):
    root = source(config=TORCHAO, model__safetensors=torchao())
    workshop.build()
    before = metadata_of(root / SINGLE)
    del before["ss_output_dir"]
    assert metadata_of(workshop.output / SINGLE) == before


def test_every_shard_of_torchao_says_all_of_it(source, workshop):
    """As transformers writes it: a reader takes the metadata of all files together."""
    root = source(config=TORCHAO, model__safetensors=torchao())
    workshop.build(weights={"max_shard_size": "1"})
    before = metadata_of(root / SINGLE)
    del before["ss_output_dir"]
    shards = list(workshop.output.glob("*.safetensors"))
    assert len(shards) == 2
    assert all(metadata_of(shard) == before for shard in shards)


def test_metadata_that_names_the_tensors_forbids_other_names(source, workshop):
    source(config=TORCHAO, model__safetensors=torchao())
    with pytest.raises(PlanError, match="gives each tensor by its name"):
        workshop.plan(weights={"drop": ["model.norm.weight"]})


@pytest.mark.parametrize("names", ["[", "{}", "[1]", "[" * 10_000])
def test_metadata_that_is_no_list_of_names_is_refused(source, workshop, names):
    source(config=TORCHAO, model__safetensors=torchao(tensor_names=names))
    with pytest.raises(MalformedFile, match="is no JSON list of names"):
        workshop.plan()


@pytest.mark.parametrize("method", ["gptq", "pack-quantized"])
def test_arguments_of_a_trainer_in_the_metadata_stay_behind(source, workshop, method):
    content = METHODS[method]()[SINGLE]
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    header["__metadata__"] = {"format": "pt", "ss_output_dir": "/home/me/secret"}
    body = json.dumps(header).encode()
    data = content[8 + int.from_bytes(content[:8], "little") :]
    source(method, model__safetensors=len(body).to_bytes(8, "little") + body + data)
    workshop.build()
    assert metadata_of(workshop.output / SINGLE) == {"format": "pt"}


def test_mlx_keeps_its_mark(source, workshop):
    content = METHODS["mlx"]()[SINGLE].replace(b'"format":"pt"', b'"format":"mlx"', 1)
    length = int.from_bytes(content[:8], "little") + 1
    source("mlx", model__safetensors=length.to_bytes(8, "little") + content[8:])
    workshop.build()
    assert metadata_of(workshop.output / SINGLE) == {"format": "mlx"}


# ------------------------------------------------------------------------------------------------ init


@pytest.fixture
def drafted(workshop):
    """What `init` writes of the checkpoint, as a recipe, once a license is filled in."""

    def draft(**arguments: object):
        text = api.init(workshop.folder / "checkpoint", recipe_folder=workshop.folder, **arguments).text
        text = text.replace("  id: null                        # TODO", "  id: apache-2.0  # TODO")
        (workshop.folder / "repokit.yaml").write_text(text, encoding="utf-8")
        return load_recipe(workshop.folder / "repokit.yaml")

    return draft


@pytest.mark.parametrize("method", METHODS)
def test_a_draft_is_of_kind_quantized_and_builds(source, workshop, drafted, gate, method):
    source(method)
    recipe = drafted()
    assert recipe.kind == "quantized"
    assert api.build(api.plan(recipe, folder=workshop.folder), gate=gate).files


def test_a_draft_takes_the_base_from_the_side_file(source, drafted):
    source(quantize_config__json=side(bits=4, group_size=8, model_name_or_path="org/base"))
    assert drafted().base.id == "org/base"


def test_a_draft_leaves_out_a_base_that_is_a_path(source, drafted):
    source(quantize_config__json=side(bits=4, group_size=8, model_name_or_path="/home/me/base"))
    assert drafted().base.id is None


def test_a_draft_with_a_base_inherits_from_it(source, base, workshop, drafted):
    source(tokenizer_config__json=b'{"tokenizer_class": "PreTrainedTokenizerFast", "saved": "anew"}')
    recipe = drafted(base=workshop.folder / "base")
    workshop.carry_out(api.plan(recipe, folder=workshop.folder, output=str(workshop.output)))
    assert workshop.read("tokenizer_config.json") == single()["tokenizer_config.json"]


def test_a_draft_says_what_it_found(source, workshop):
    source("fp8", config={"quantization_config": FP8})
    found = api.init(workshop.folder / "checkpoint", recipe_folder=workshop.folder).found
    assert "quantized     FP8, E4M3, dynamic activations; group size: 8 x 8" in found


def test_the_card_leads_to_the_text_of_the_license(source, workshop):
    (source() / "LICENSE").write_text("words")
    workshop.build()
    assert "`apache-2.0` ([text](LICENSE))." in workshop.read("README.md").decode()
