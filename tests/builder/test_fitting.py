"""What tensors say of themselves: the class that they are of, and what is wrong with their names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from repokit import api
from repokit.architectures import skeleton
from repokit.builder import fitting
from repokit.builder.draft import draft
from repokit.errors import Stopped
from repokit.repo.config import Config

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "tie_word_embeddings": False,
    "vocab_size": 16,
}
BERT: dict[str, Any] = {
    "model_type": "bert",
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 16,
}


def shapes_of(config: dict[str, Any], architecture: str | None = None) -> fitting.Shapes:
    found = skeleton(config, architecture).shapes
    return {name: tuple(size or 0 for size in shape) for name, shape in found.items()}


def fit(shapes: fitting.Shapes, config: dict[str, Any] = LLAMA) -> tuple[dict[str, str], tuple[str, ...]]:
    wanted = fitting.wanted_tensors(Config("config.json", config))
    assert wanted is not None
    return fitting.fitted({name: name for name in shapes}, shapes, wanted)


# ---------------------------------------------------------------- names


def test_names_that_are_right_stay() -> None:
    shapes = shapes_of(LLAMA)
    assert fit(shapes) == ({name: name for name in shapes}, ())


@pytest.mark.parametrize("prefix", ["net.", "actor.", "language_model.", "policy.backbone."])
def test_a_prefix_is_taken_off_where_the_names_then_match(prefix: str) -> None:
    shapes = shapes_of(LLAMA)
    names, told = fit({prefix + name: shape for name, shape in shapes.items()})
    assert (names, told) == ({prefix + name: name for name in shapes}, (f"the prefix '{prefix}' removed",))


def test_a_lost_tensor_does_not_keep_the_others_from_their_names() -> None:
    shapes = shapes_of(LLAMA)
    del shapes["model.norm.weight"]
    names, _ = fit({f"net.{name}": shape for name, shape in shapes.items()})
    assert set(names.values()) == set(shapes)


def test_names_of_another_model_stay() -> None:
    shapes = {f"blocks.{number}.weight": (8, 8) for number in range(20)}
    assert fit(shapes) == ({name: name for name in shapes}, ())


def test_a_spelling_that_loaders_take_is_no_fault() -> None:
    shapes = {name.removeprefix("model."): shape for name, shape in shapes_of(LLAMA).items()}
    assert fit(shapes)[1] == ()


@given(st.sets(st.sampled_from(sorted(shapes_of(LLAMA))), max_size=6), st.sampled_from(["", "net.", "model."]))
def test_no_two_names_become_one(lost: set[str], prefix: str) -> None:
    shapes = {prefix + name: shape for name, shape in shapes_of(LLAMA).items() if name not in lost}
    names, _ = fit(shapes)
    assert len(set(names.values())) == len(shapes) == len(names)


@pytest.mark.parametrize(
    "values",
    [
        {"auto_map": {"AutoModel": "modeling.Llama"}},
        {"model_type": "unheard_of"},
        {"architectures": None},
        {"hidden_size": -1},
    ],
    ids=str,
)
def test_where_nothing_is_known_nothing_is_wanted(values: dict[str, Any]) -> None:
    assert fitting.wanted_tensors(Config("config.json", {**LLAMA, **values})) is None


# ---------------------------------------------------------------- classes

CLASSES = [
    (LLAMA, "LlamaForCausalLM"),
    ({**LLAMA, "tie_word_embeddings": True}, "LlamaForCausalLM"),
    (BERT, "BertForMaskedLM"),
    ({**BERT, "is_decoder": True}, "BertLMHeadModel"),
    (BERT, "BertForQuestionAnswering"),
]


@pytest.mark.parametrize(("config", "name"), CLASSES, ids=[name for _, name in CLASSES])
def test_the_class_is_the_one_that_the_tensors_are_exactly_of(config: dict[str, Any], name: str) -> None:
    unnamed = {key: value for key, value in config.items() if key != "architectures"}
    assert fitting.classes(Config("config.json", unnamed), shapes_of(config, name)) == (name,)


def test_classes_that_nothing_tells_apart_are_all_named() -> None:
    found = fitting.classes(Config("config.json", BERT), shapes_of(BERT, "BertForSequenceClassification"))
    assert "BertForSequenceClassification" in found


def test_tensors_of_no_class_have_none() -> None:
    shapes = shapes_of(LLAMA)
    del shapes["model.norm.weight"]
    assert fitting.classes(Config("config.json", LLAMA), shapes) == ()


# ---------------------------------------------------------------- init and build

RECIPE = """version: 1
source: ./{source}
output: ./out
license: {{id: mit}}
card: {{summary: A model.}}
weights: {{rename: {rename}}}
{more}
"""


def recipe(folder: Path, source: Path, rename: str = "auto", more: str = "") -> Path:
    path = folder / "repokit.yaml"
    path.write_text(RECIPE.format(source=source.relative_to(folder), rename=rename, more=more), encoding="utf-8")
    return path


def edit(checkpoint: Path, **values: Any) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    config = {key: value for key, value in {**config, **values}.items() if value is not None}
    (checkpoint / "config.json").write_text(json.dumps(config))


def rewrite(workshop: Any, checkpoint: Path, rename: Any) -> None:
    """Names, or None for a tensor that is lost."""
    path = checkpoint / "model.safetensors"
    tensors = workshop.read_safetensors(path)
    workshop.write_safetensors(path, {new: tensor for name, tensor in tensors.items() if (new := rename(name))})


def test_init_names_the_class_that_config_does_not(checkpoint: Path, tmp_path: Path) -> None:
    edit(checkpoint, architectures=None)
    found = draft(checkpoint, recipe_folder=tmp_path)
    assert "architectures: [Qwen2ForCausalLM]" in found.text
    assert "class         Qwen2ForCausalLM: its tensors are exactly these" in found.found
    assert re.search(r"pipeline_tag: text-generation\s", found.text)


def test_init_says_nothing_of_a_class_that_config_names(checkpoint: Path, tmp_path: Path) -> None:
    text = draft(checkpoint, recipe_folder=tmp_path).text
    assert ("architectures:" in text, "its tensors are exactly" in text) == (False, False)


def test_init_only_tells_of_the_class_where_config_names_another(checkpoint: Path, tmp_path: Path) -> None:
    edit(checkpoint, architectures=["MyOwnModel"])
    found = draft(checkpoint, recipe_folder=tmp_path)
    assert ("architectures:" in found.text, any("Qwen2ForCausalLM" in line for line in found.found)) == (False, True)


def test_a_config_of_the_base_is_judged_with_the_checkpoint_s_tensors(checkpoint: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    edit(checkpoint, architectures=None)
    for name in ("config.json", "generation_config.json"):
        (checkpoint / name).rename(base / name)
    text = draft(checkpoint, recipe_folder=tmp_path, base=base).text
    assert re.search(r"config:\n  from: base .*\n  architectures: \[Qwen2ForCausalLM\] ", text)


def test_a_build_writes_the_class_that_the_recipe_names(checkpoint: Path, tmp_path: Path) -> None:
    edit(checkpoint, architectures=None)
    api.build(recipe(tmp_path, checkpoint, more="config: {architectures: [Qwen2ForCausalLM]}"))
    assert json.loads((tmp_path / "out" / "config.json").read_text())["architectures"] == ["Qwen2ForCausalLM"]


def test_a_build_takes_a_foreign_prefix_off(checkpoint: Path, tmp_path: Path, workshop: Any) -> None:
    before = set(workshop.read_safetensors(checkpoint / "model.safetensors"))
    rewrite(workshop, checkpoint, lambda name: f"net.{name}")
    plan = api.plan(api.read_recipe(recipe(tmp_path, checkpoint)), folder=tmp_path)
    assert (plan.summary.renamed, plan.summary.repairs) == (len(before), ("the prefix 'net.' removed",))
    api.build(plan)
    assert set(workshop.read_safetensors(tmp_path / "out" / "model.safetensors")) == before


def test_names_that_the_recipe_leaves_alone_are_left_alone(checkpoint: Path, tmp_path: Path, workshop: Any) -> None:
    rewrite(workshop, checkpoint, lambda name: f"net.{name}")
    plan = api.plan(api.read_recipe(recipe(tmp_path, checkpoint, rename="off")), folder=tmp_path)
    assert plan.summary.renamed == 0


def test_a_plan_that_lacks_tensors_stops_before_a_byte_is_written(
    checkpoint: Path, tmp_path: Path, workshop: Any
) -> None:
    rewrite(workshop, checkpoint, lambda name: None if "layers.1.mlp" in name else name)
    with pytest.raises(Stopped, match=r"WGT111\); nothing was written") as caught:
        api.build(recipe(tmp_path, checkpoint))
    messages = [finding.message for finding in caught.value.findings]
    assert messages == ["lacks 3 tensors of Qwen2ForCausalLM: model.layers.1.mlp: all 3 tensors"]
    assert not (tmp_path / "out").exists()


def test_a_waiver_lets_such_a_plan_pass(checkpoint: Path, tmp_path: Path, workshop: Any) -> None:
    rewrite(workshop, checkpoint, lambda name: None if "layers.1.mlp" in name else name)
    waiver = 'lint: {ignore: [{code: WGT111, reason: "pruned on purpose"}]}'
    assert api.build(recipe(tmp_path, checkpoint, more=waiver)).output.is_dir()
