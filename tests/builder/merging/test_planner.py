"""Merging planned and built: where the tensors of an adapter go, what comes from where, and what is refused by name."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from repokit.errors import (
    InputError,
    MalformedFile,
    MissingInput,
    PlanError,
    RecipeError,
    RepokitError,
    UnsupportedSource,
)
from repokit.formats.tensors import DTYPE_BITS, HEADER_NAMES
from repokit.operations import Merged, WriteShard

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16}
PREFIX = "base_model.model."
Q, UP = (f"model.layers.{{}}.{module}" for module in ("self_attn.q_proj", "mlp.up_proj"))
LORA = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 2, "lora_alpha": 6, "target_modules": ["q_proj"]}
# A llama of two layers of the sizes of the workshop's: its tensors are what its class must have.
LLAMA = {
    "hidden_size": 8,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "num_hidden_layers": 2,
    "vocab_size": 16,
}


def array(tensor: tuple[str, tuple[int, ...], bytes]) -> np.ndarray[Any, Any]:
    dtype, shape, data = tensor
    return np.frombuffer(data, dtype=DTYPES[dtype]).reshape(shape).astype(np.float64)


class Smithy:
    """A base model and adapters for it, as PEFT saves them."""

    def __init__(self, workshop) -> None:
        self.workshop = workshop
        self.folder = workshop.folder
        self.base: dict[str, Any] = {}

    def whole_llama(self, dtype: str = "F32") -> dict[str, Any]:
        tensors = self.workshop.model(dtype)
        del tensors["model.position_ids"]
        for layer in range(2):
            for number, name in enumerate(("self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")):
                tensors[f"model.layers.{layer}.{name}.weight"] = self.workshop.tensor(dtype, (8, 8), 50 + number)
            tensors[f"model.layers.{layer}.mlp.gate_proj.weight"] = self.workshop.tensor(dtype, (24, 8), 60)
            tensors[f"model.layers.{layer}.mlp.down_proj.weight"] = self.workshop.tensor(dtype, (8, 24), 61)
            tensors[f"model.layers.{layer}.post_attention_layernorm.weight"] = self.workshop.tensor(dtype, (8,), 62)
        return tensors

    def make_base(self, tensors=None, *, dtype: str = "F32", config=None, **arguments: Any) -> dict[str, Any]:
        self.base = self.whole_llama(dtype) if tensors is None else tensors
        config = {**LLAMA, **(config or {})}
        self.workshop.checkpoint(self.base, name="base", config=config, **arguments)
        return self.base

    def factors(self, modules, rank: int = 2, dtype: str = "F32", seed: int = 0) -> dict[str, Any]:
        """Factors of linear modules of the base, by the names under which PEFT saves them."""
        made = {}
        for number, module in enumerate(modules):
            outputs, inputs = self.base[f"{module}.weight"][1]
            for part, shape in (("lora_A", (rank, inputs)), ("lora_B", (outputs, rank))):
                seed_of = seed + 100 * number + (part == "lora_B")
                made[f"{PREFIX}{module}.{part}.weight"] = self.workshop.tensor(dtype, shape, seed_of)
        return made

    def adapter(self, tensors=None, *, name: str = "checkpoint", files=None, **config: Any) -> None:
        tensors = self.factors(self.layers(Q)) if tensors is None else tensors
        root = self.folder / name
        root.mkdir(parents=True, exist_ok=True)
        (root / "adapter_config.json").write_text(json.dumps({**LORA, **config}))
        self.workshop.write_safetensors(root / "adapter_model.safetensors", tensors)
        for path, content in (files or {}).items():
            (root / path).write_text(content)

    @staticmethod
    def layers(module: str) -> list[str]:
        return [module.format(layer) for layer in range(2)]

    def recipe(self, **keys: Any) -> dict[str, Any]:
        return {"kind": "full", "base": {"path": "./base", "id": "org/base"}, **keys}

    def plan(self, **keys: Any):
        return self.workshop.plan(**self.recipe(**keys))

    def build(self, **keys: Any) -> dict[str, Any]:
        self.workshop.build(**self.recipe(**keys))
        return self.workshop.tensors()

    def added(self, tensors, module: str, scale: float) -> np.ndarray[Any, Any]:
        a, b = (array(tensors[f"{PREFIX}{module}.lora_{side}.weight"]) for side in "AB")
        return scale * b @ a

    def config(self) -> dict[str, Any]:
        return json.loads(self.workshop.read("config.json"))


@pytest.fixture
def smithy(workshop):
    return Smithy(workshop)


def close(tensor, wanted) -> bool:
    eps = {"F64": 2.0**-52, "F32": 2.0**-23, "F16": 2.0**-10, "BF16": 2.0**-7}[tensor[0]]
    return bool(np.all(np.abs(array(tensor) - wanted) <= 2 * eps * (np.abs(wanted) + 0.05)))


# ---------------------------------------------------------------- what is built


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
def test_an_adapter_becomes_part_of_its_base(smithy, dtype):
    base = smithy.make_base(dtype=dtype)
    tensors = smithy.factors(smithy.layers(Q))
    smithy.adapter(tensors)
    built = smithy.build()
    assert all(
        close(built[f"{module}.weight"], array(base[f"{module}.weight"]) + smithy.added(tensors, module, 3.0))
        for module in smithy.layers(Q)
    )


def test_what_no_adapter_changes_keeps_every_bit(smithy):
    base = smithy.make_base(dtype="BF16")
    smithy.adapter()
    built = smithy.build()
    changed = {f"{module}.weight" for module in smithy.layers(Q)}
    assert {name: built[name] for name in base if name not in changed} == {
        name: base[name] for name in base if name not in changed
    }


def test_a_merge_is_cast_and_sharded_like_any_model(smithy):
    base = smithy.make_base(dtype="F32")
    tensors = smithy.factors(smithy.layers(Q))
    smithy.adapter(tensors)
    built = smithy.build(weights={"dtype": "bfloat16", "max_shard_size": "1KB"})
    module = Q.format(1)
    whole = array(base[f"{module}.weight"]) + smithy.added(tensors, module, 3.0)
    assert (
        array(built[f"{module}.weight"]).tolist() == whole.astype("f4").astype(ml_dtypes.bfloat16).astype("f8").tolist()
    )
    assert {tensor[0] for tensor in built.values()} == {"BF16"}


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_bytes_do_not_depend_on_the_number_of_jobs(smithy, jobs):
    smithy.make_base(dtype="BF16", shards=3)
    smithy.adapter()
    first = smithy.build()
    smithy.workshop.build(**smithy.recipe(output="./again"), jobs=jobs)
    assert smithy.workshop.tensors(smithy.folder / "again") == first


def test_adapters_of_a_recipe_are_added_up_by_their_weights(smithy):
    base = smithy.make_base()
    one, other = smithy.factors(smithy.layers(Q)), smithy.factors([*smithy.layers(Q), UP.format(0)], seed=7)
    smithy.adapter(one, name="a")
    smithy.adapter(other, name="b", target_modules=["q_proj", "layers.0.mlp.up_proj"])
    adapters = [{"path": "./a"}, {"path": "./b", "weight": 0.25}]
    built = smithy.build(source="./base", base={}, merge={"adapters": adapters})
    q, up = Q.format(0), UP.format(0)
    wanted = array(base[f"{q}.weight"]) + smithy.added(one, q, 3.0) + smithy.added(other, q, 0.75)
    assert close(built[f"{q}.weight"], wanted)
    assert close(built[f"{up}.weight"], array(base[f"{up}.weight"]) + smithy.added(other, up, 0.75))


def test_adapters_beside_one_that_is_the_source_follow_it(smithy):
    base = smithy.make_base()
    one, other = smithy.factors(smithy.layers(Q)), smithy.factors(smithy.layers(Q), seed=7)
    smithy.adapter(one)
    smithy.adapter(other, name="b")
    built = smithy.build(merge={"adapters": [{"path": "./b"}]})
    q = Q.format(1)
    wanted = array(base[f"{q}.weight"]) + smithy.added(one, q, 3.0) + smithy.added(other, q, 3.0)
    assert close(built[f"{q}.weight"], wanted)


SCALES = {
    "alpha over rank": ({}, 3.0),
    "rsLoRA": ({"use_rslora": True}, 6 / 2**0.5),
    "a rank pattern": ({"r": 8, "rank_pattern": {"self_attn.q_proj": 2}}, 3.0),
    "an alpha pattern": ({"alpha_pattern": {r"layers\.[01]\..*q_proj": 1.0}}, 0.5),
    "the first of two patterns": ({"alpha_pattern": {"q_proj": 4, "self_attn.q_proj": 100}}, 2.0),
    "a pattern that ends elsewhere": ({"alpha_pattern": {"q_pro": 100}}, 3.0),
}


@pytest.mark.parametrize("case", SCALES)
def test_the_scale_is_as_the_config_says(smithy, case):
    config, scale = SCALES[case]
    base = smithy.make_base()
    tensors = smithy.factors(smithy.layers(Q))
    smithy.adapter(tensors, **config)
    q = Q.format(0)
    assert close(smithy.build()[f"{q}.weight"], array(base[f"{q}.weight"]) + smithy.added(tensors, q, scale))


NAMES = {
    "the adapter's name in memory": lambda name: name.replace(".weight", ".default.weight"),
    "torch.compile": lambda name: name.replace(PREFIX, f"{PREFIX}_orig_mod."),
    "DDP": lambda name: f"module.{name}",
    "no prefix": lambda name: name.removeprefix(PREFIX),
    "a level less": lambda name: name.replace(f"{PREFIX}model.", PREFIX),
    "a level more": lambda name: name.replace(PREFIX, f"{PREFIX}model."),
}


@pytest.mark.parametrize("spelling", NAMES)
def test_names_are_found_however_they_were_saved(smithy, spelling):
    base = smithy.make_base()
    tensors = smithy.factors(smithy.layers(Q))
    smithy.adapter({NAMES[spelling](name): tensor for name, tensor in tensors.items()})
    q = Q.format(0)
    assert close(smithy.build()[f"{q}.weight"], array(base[f"{q}.weight"]) + smithy.added(tensors, q, 3.0))


def test_a_moved_prefix_is_told(smithy):
    smithy.make_base()
    tensors = smithy.factors(smithy.layers(Q))
    smithy.adapter({name.replace(f"{PREFIX}model.", PREFIX): tensor for name, tensor in tensors.items()})
    assert any("names begin with model. in the base" in warning for warning in smithy.plan().warnings)


def test_a_base_with_wrapped_names_is_merged_into(smithy):
    plain = smithy.whole_llama()
    smithy.make_base({f"module.{name}": tensor for name, tensor in plain.items()})
    smithy.base = plain
    tensors = smithy.factors(smithy.layers(Q))
    smithy.adapter(tensors)
    q = Q.format(0)
    assert close(smithy.build()[f"{q}.weight"], array(plain[f"{q}.weight"]) + smithy.added(tensors, q, 3.0))


def test_a_module_that_was_trained_in_full_takes_the_place_of_the_bases(smithy):
    smithy.make_base(dtype="BF16")
    head = smithy.workshop.tensor("BF16", (16, 8), 99)
    tensors = {**smithy.factors(smithy.layers(Q)), f"{PREFIX}lm_head.weight": head}
    smithy.adapter(tensors, modules_to_save=["lm_head"])
    assert smithy.build()["lm_head.weight"] == head


def test_a_whole_module_has_the_dtype_of_the_base(smithy):
    """PEFT trains them in F32 beside a model of 16 bits."""
    smithy.make_base(dtype="BF16")
    head = smithy.workshop.tensor("F32", (16, 8), 99)
    smithy.adapter({**smithy.factors(smithy.layers(Q)), f"{PREFIX}lm_head.weight": head}, modules_to_save=["lm_head"])
    built = smithy.build()["lm_head.weight"]
    assert (built[0], array(built).tolist()) == (
        "BF16",
        array(head).astype("f4").astype(ml_dtypes.bfloat16).astype("f8").tolist(),
    )


def test_single_tokens_get_new_rows(smithy):
    base = smithy.make_base()
    rows = smithy.workshop.tensor("F32", (2, 8), 99)
    name = f"{PREFIX}model.embed_tokens.token_adapter.trainable_tokens_delta"
    smithy.adapter({**smithy.factors(smithy.layers(Q)), name: rows}, trainable_token_indices={"embed_tokens": [5, 2]})
    wanted = array(base["model.embed_tokens.weight"])
    wanted[[5, 2]] = array(rows)
    assert array(smithy.build()["model.embed_tokens.weight"]).tolist() == wanted.tolist()


def test_a_class_that_nobody_knows_is_merged_into_by_its_names(smithy):
    """With torch's MultiheadAttention, whose input projection is a parameter and whose output is wrapped inside."""
    shapes = {"attn.in_proj_weight": (24, 8), "attn.out_proj.weight": (8, 8)}
    base = smithy.make_base(
        {name: smithy.workshop.tensor("F32", shape, 5) for name, shape in shapes.items()},
        config={"model_type": "home-made", "architectures": ["HomeMade"]},
    )
    sizes = {"attn": (24, 8), "attn.base_layer.out_proj": (8, 8)}
    tensors = {
        f"{PREFIX}{module}.lora_{side}.weight": smithy.workshop.tensor(
            "F32", (2, inputs) if side == "A" else (outputs, 2), 7
        )
        for module, (outputs, inputs) in sizes.items()
        for side in "AB"
    }
    smithy.adapter(tensors, target_modules=["attn"])
    built = smithy.build()
    wanted = {
        name: array(base[name]) + smithy.added(tensors, module, 3.0) for name, module in zip(shapes, sizes, strict=True)
    }
    assert all(close(built[name], values) for name, values in wanted.items())


def test_an_adapter_in_a_pickle_is_refused_where_it_is_none(smithy):
    smithy.make_base()
    smithy.adapter()
    (smithy.folder / "checkpoint/adapter_model.safetensors").rename(smithy.folder / "checkpoint/adapter_model.bin")
    with pytest.raises(InputError):
        smithy.plan()


# ---------------------------------------------------------------- what comes from where


def test_the_rest_comes_from_the_base(smithy):
    smithy.make_base(files={"tokenizer.json": "base", "generation_config.json": "{}", "LICENSE": "text"})
    smithy.adapter()
    smithy.build()
    assert {path: smithy.workshop.read(path) for path in ("tokenizer.json", "generation_config.json", "LICENSE")} == {
        "tokenizer.json": b"base",
        "generation_config.json": b"{}",
        "LICENSE": b"text",
    }


def test_a_tokenizer_beside_the_adapter_wins(smithy):
    """A Trainer saves it there, with the tokens and the template that were trained."""
    smithy.make_base(files={"tokenizer.json": "base", "chat_template.jinja": "base", "preprocessor_config.json": "{}"})
    smithy.adapter(files={"tokenizer.json": "own"})
    smithy.build()
    found = smithy.workshop.contents()
    assert (found["tokenizer.json"], found.get("chat_template.jinja"), found["preprocessor_config.json"]) == (
        b"own",
        None,
        b"{}",
    )


def test_a_tokenizer_is_the_bases_where_the_recipe_says_so(smithy):
    smithy.make_base(files={"tokenizer.json": "base"})
    smithy.adapter(files={"tokenizer.json": "own"})
    smithy.build(tokenizer={"from": "base"})
    assert smithy.workshop.read("tokenizer.json") == b"base"


def test_the_card_of_the_base_is_not_that_of_the_merge(smithy):
    smithy.make_base(files={"README.md": "---\nlicense: apache-2.0\n---\n# Words of the base\n"})
    smithy.adapter()
    smithy.build()
    card = smithy.workshop.read("README.md").decode()
    assert "Words of the base" not in card
    assert "base_model: org/base" in card
    assert "base_model_relation: finetune" in card


def test_the_base_is_the_one_that_the_adapter_names(smithy):
    smithy.make_base()
    smithy.adapter(base_model_name_or_path="org/trained-on", revision="abc")
    smithy.build(base={"path": "./base"})
    assert "base_model: org/trained-on" in smithy.workshop.read("README.md").decode()


def test_another_base_than_the_adapters_is_told(smithy):
    smithy.make_base()
    smithy.adapter(base_model_name_or_path="org/trained-on")
    assert any("was trained on org/trained-on, and base.id is org/base" in line for line in smithy.plan().warnings)


def test_a_local_path_is_no_base(smithy):
    smithy.make_base()
    smithy.adapter(base_model_name_or_path="/home/me/models/base")
    assert not any("/home/me" in line for line in smithy.plan().warnings)


def test_training_state_beside_the_adapter_stays_behind(smithy):
    smithy.make_base()
    smithy.adapter(files={"optimizer.pt": "x", "trainer_state.json": "{}", "README.md": "# A person's words\n"})
    plan = smithy.plan()
    left = {file.path: file.reason for file in plan.left_out}
    assert left["adapter_config.json"] == "merged"
    assert {"optimizer.pt", "trainer_state.json"} <= left.keys()
    assert not {"optimizer.pt", "trainer_state.json"} & {operation.path for operation in plan.operations}


def test_the_summary_says_what_was_merged(smithy):
    smithy.make_base()
    smithy.adapter()
    summary = smithy.plan().summary
    assert (summary.merged, summary.adapters) == (2, ("./checkpoint (r 2, scale 3)",))


def test_planning_reads_no_values_of_the_base(smithy):
    """Only its headers: the values are made unreadable."""
    smithy.make_base()
    smithy.adapter()
    path = smithy.folder / "base/model.safetensors"
    length = path.stat().st_size
    header = int.from_bytes(path.read_bytes()[:8], "little") + 8
    with path.open("r+b") as stream:
        stream.truncate(header)
        stream.truncate(length)
    shards = [operation for operation in smithy.plan().operations if isinstance(operation, WriteShard)]
    assert sum(isinstance(piece, Merged) for shard in shards for piece in shard.pieces) == 2


# ---------------------------------------------------------------- ties


def tied(smithy, **arguments: Any) -> dict[str, Any]:
    tensors = smithy.whole_llama()
    del tensors["lm_head.weight"]
    return smithy.make_base(tensors, config={"tie_word_embeddings": True}, **arguments)


def embedding_factors(smithy) -> dict[str, Any]:
    a, b = smithy.workshop.tensor("F32", (2, 16), 1), smithy.workshop.tensor("F32", (8, 2), 2)
    name = f"{PREFIX}model.embed_tokens.lora_embedding_"
    return {f"{name}A": a, f"{name}B": b}


def test_a_head_that_stays_as_it_was_comes_apart_from_the_embedding(smithy):
    """What was trained has the base's head; PEFT's own merge changes both."""
    base = tied(smithy)
    factors = embedding_factors(smithy)
    smithy.adapter(factors, target_modules=["embed_tokens"])
    built = smithy.build()
    a, b = (array(tensor) for tensor in factors.values())
    assert close(built["model.embed_tokens.weight"], array(base["model.embed_tokens.weight"]) + 3 * (b @ a).T)
    assert built["lm_head.weight"] == base["model.embed_tokens.weight"]
    assert smithy.config()["tie_word_embeddings"] is False


def test_a_head_that_was_trained_alone_comes_apart_too(smithy):
    base = tied(smithy)
    head = smithy.workshop.tensor("F32", (16, 8), 99)
    smithy.adapter({**smithy.factors(smithy.layers(Q)), f"{PREFIX}lm_head.weight": head}, modules_to_save=["lm_head"])
    built = smithy.build()
    assert (built["lm_head.weight"], built["model.embed_tokens.weight"]) == (head, base["model.embed_tokens.weight"])
    assert smithy.config()["tie_word_embeddings"] is False


def test_coming_apart_is_told(smithy):
    tied(smithy)
    smithy.adapter(embedding_factors(smithy), target_modules=["embed_tokens"])
    assert any("tie_word_embeddings becomes false" in warning for warning in smithy.plan().warnings)


def test_what_was_trained_as_one_stays_one(smithy):
    base = tied(smithy)
    factors = embedding_factors(smithy)
    a, b = factors.values()
    of_head = {f"{PREFIX}lm_head.lora_A.weight": turned(b), f"{PREFIX}lm_head.lora_B.weight": turned(a)}
    smithy.adapter({**factors, **of_head}, target_modules=["embed_tokens"], ensure_weight_tying=True)
    built = smithy.build()
    assert "lm_head.weight" not in built
    wanted = array(base["model.embed_tokens.weight"]) + 3 * (array(b) @ array(a)).T
    assert close(built["model.embed_tokens.weight"], wanted)
    assert smithy.config()["tie_word_embeddings"] is True


def turned(tensor):
    dtype, (rows, columns), data = tensor
    return dtype, (columns, rows), np.frombuffer(data, dtype=DTYPES[dtype]).reshape(rows, columns).T.tobytes()


def test_copies_of_one_embedding_stay_one(smithy):
    """save_embedding_layers writes the embedding and the head, which are the same."""
    tied(smithy)
    same = smithy.workshop.tensor("F32", (16, 8), 99)
    whole = {f"{PREFIX}model.embed_tokens.weight": same, f"{PREFIX}lm_head.weight": same}
    smithy.adapter({**smithy.factors(smithy.layers(Q)), **whole})
    built = smithy.build()
    assert (built["model.embed_tokens.weight"], "lm_head.weight" in built) == (same, False)


def test_more_tokens_are_more_rows_and_another_vocab_size(smithy):
    smithy.make_base()
    embedding, head = (smithy.workshop.tensor("F32", (20, 8), seed) for seed in (98, 99))
    whole = {f"{PREFIX}model.embed_tokens.weight": embedding, f"{PREFIX}lm_head.weight": head}
    smithy.adapter({**smithy.factors(smithy.layers(Q)), **whole})
    built = smithy.build()
    assert (built["model.embed_tokens.weight"], built["lm_head.weight"]) == (embedding, head)
    assert smithy.config()["vocab_size"] == 20


def test_more_tokens_of_the_embedding_alone_are_refused(smithy):
    smithy.make_base()
    whole = {f"{PREFIX}model.embed_tokens.weight": smithy.workshop.tensor("F32", (20, 8), 98)}
    smithy.adapter({**smithy.factors(smithy.layers(Q)), **whole})
    with pytest.raises(PlanError, match=r"embed_tokens.weight has 20 rows and lm_head.weight has 16 rows"):
        smithy.plan()


# ---------------------------------------------------------------- what is refused


def zeros(tensor):
    dtype, shape, data = tensor
    return dtype, shape, bytes(len(data))


def with_value(tensor, value: float):
    dtype, shape, data = tensor
    values = np.frombuffer(data, dtype=DTYPES[dtype]).copy()
    values[1] = value
    return dtype, shape, values.tobytes()


def reshaped(tensor, shape):
    dtype, _, data = tensor
    size = int(np.prod(shape)) * DTYPE_BITS[dtype] // 8
    return dtype, shape, (data * 100)[:size]


A, B = (f"{PREFIX}model.layers.0.self_attn.q_proj.lora_{side}.weight" for side in "AB")
TENSORS = {
    "every B is zero": (
        lambda t: {name: zeros(tensor) if "lora_B" in name else tensor for name, tensor in t.items()},
        PlanError,
        "changes nothing",
    ),
    "A without B": (lambda t: {name: t[name] for name in t if name != B}, MalformedFile, "has lora_A and no lora_B"),
    "B without A": (lambda t: {name: t[name] for name in t if name != A}, MalformedFile, "has lora_B and no lora_A"),
    "a rank that the config does not say": (
        lambda t: {**t, A: reshaped(t[A], (3, 8)), B: reshaped(t[B], (8, 3))},
        MalformedFile,
        "has the rank 3, and adapter_config.json says 2",
    ),
    "factors that do not fit": (lambda t: {**t, B: reshaped(t[B], (8, 3))}, MalformedFile, "factors that do not fit"),
    "factors of another size": (
        lambda t: {**t, A: reshaped(t[A], (2, 9))},
        MalformedFile,
        r"has factors for \[8, 9\], and the base has \[8, 8\]",
    ),
    "a slice of one rank": (lambda t: {**t, A: reshaped(t[A], (4,))}, MalformedFile, r"a lora_A of the shape \[4\]"),
    "NaN": (lambda t: {**t, A: with_value(t[A], float("nan"))}, MalformedFile, "no numbers"),
    "infinity": (lambda t: {**t, B: with_value(t[B], float("inf"))}, MalformedFile, "no numbers"),
    "factors of 8 bits": (lambda t: {**t, A: ("I8", (2, 8), bytes(16))}, UnsupportedSource, "is stored as I8"),
    "a layer that the base does not have": (
        lambda t: {**t, **{name.replace(".0.", ".7."): t[name] for name in (A, B)}},
        PlanError,
        r"has 1 module that the base does not have: model.layers.7.self_attn.q_proj",
    ),
    "a tensor that goes nowhere": (
        lambda t: {**t, f"{PREFIX}v_head.weight": t[A]},
        PlanError,
        "the base does not have: v_head",
    ),
    "two adapters in one file": (
        lambda t: {
            name.replace(".weight", f".{number}.weight"): tensor for number, (name, tensor) in enumerate(t.items())
        },
        InputError,
        "holds several adapters",
    ),
    "one tensor under two names": (
        lambda t: {**t, A.replace("model.layers", "_orig_mod.model.layers"): t[A]},
        MalformedFile,
        "is in the file twice",
    ),
    "a layer of the adapter is missing": (
        lambda t: {name: t[name] for name in (A, B)},
        MalformedFile,
        "lacks 2 tensors that adapter_config.json promises",
    ),
    "magnitudes that the config does not promise": (
        lambda t: {**t, A.replace("lora_A.weight", "lora_magnitude_vector"): reshaped(t[A], (8,))},
        MalformedFile,
        "says use_dora: false",
    ),
    "no tensor": (lambda t: {}, InputError, "no tensor"),
}


@pytest.mark.parametrize("damage", TENSORS)
def test_tensors_that_cannot_be_merged_are_refused(smithy, damage):
    change, error, words = TENSORS[damage]
    smithy.make_base()
    smithy.adapter(change(smithy.factors(smithy.layers(Q))))
    with pytest.raises(error, match=words):
        smithy.plan()


CONFIGS = {
    "another method": ({"peft_type": "IA3"}, UnsupportedSource, "an adapter of IA3, which this version does not merge"),
    "a prompt": ({"peft_type": "PREFIX_TUNING"}, UnsupportedSource, "PREFIX_TUNING, which cannot be merged"),
    "no method": ({"peft_type": None}, InputError, "peft_type"),
    "aLoRA": ({"alora_invocation_tokens": [1, 2]}, UnsupportedSource, "activated LoRA"),
    "QALoRA": ({"use_qalora": True}, UnsupportedSource, "QALoRA"),
    "replicated layers": ({"layer_replication": [[0, 2], [1, 2]]}, UnsupportedSource, "layer_replication"),
    "PiSSA": ({"init_lora_weights": "pissa_niter_4"}, UnsupportedSource, "weights that its start has changed"),
    "OLoRA": ({"init_lora_weights": "olora"}, UnsupportedSource, "weights that its start has changed"),
    "LoftQ": ({"init_lora_weights": "loftq"}, UnsupportedSource, "weights that its start has changed"),
    "DoRA without magnitudes": ({"use_dora": True}, MalformedFile, "lacks lora_magnitude_vector of 2 modules"),
    "a rank that is none": ({"r": "many"}, MalformedFile, "says no rank and alpha"),
    "an alpha that is none": ({"lora_alpha": None}, MalformedFile, "says no rank and alpha"),
    "another rank": ({"r": 4}, MalformedFile, "has the rank 2, and adapter_config.json says 4"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_config_that_cannot_be_merged_is_refused(smithy, case):
    config, error, words = CONFIGS[case]
    smithy.make_base()
    smithy.adapter(**config)
    with pytest.raises(error, match=words):
        smithy.plan()


@pytest.mark.parametrize("start", [True, False, "gaussian", "eva", "orthogonal", "mica", None])
def test_other_starts_leave_the_base_as_it_is(smithy, start):
    smithy.make_base()
    smithy.adapter(init_lora_weights=start)
    assert smithy.plan().summary.merged == 2


def test_some_modules_that_change_nothing_are_told(smithy):
    smithy.make_base()
    tensors = smithy.factors(smithy.layers(Q))
    smithy.adapter({**tensors, B: zeros(tensors[B])})
    assert any("1 module of 2 change nothing" in warning for warning in smithy.plan().warnings)


def test_a_weight_of_zero_changes_nothing(smithy):
    smithy.make_base()
    smithy.adapter(name="a")
    with pytest.raises(PlanError, match="changes nothing: its weight is 0"):
        smithy.plan(source="./base", merge={"adapters": [{"path": "./a", "weight": 0}]})


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_what_is_lost_where_the_sums_are_rounded_changes_nothing(smithy, dtype):
    smithy.make_base(dtype=dtype)
    smithy.adapter(name="a")
    with pytest.raises(PlanError, match="lost where the sums are rounded to " + HEADER_NAMES[dtype]):
        smithy.plan(source="./base", merge={"adapters": [{"path": "./a", "weight": 1e-30}]})


def test_one_adapter_among_several_is_lost(smithy):
    smithy.make_base()
    smithy.adapter(name="a")
    smithy.adapter(name="b", lora_alpha=1e-30)
    with pytest.raises(PlanError, match="changes nothing") as caught:
        smithy.plan(source="./base", merge={"adapters": [{"path": "./a"}, {"path": "./b"}]})
    assert Path(caught.value.path).parent.name == "b"


def test_what_a_cast_loses_changes_nothing(smithy):
    """A thousandth of the last bit of BF16, and a hundred times that of F32."""
    smithy.make_base()
    smithy.adapter(lora_alpha=1e-5)
    assert smithy.plan().summary.merged == 2
    with pytest.raises(PlanError, match="rounded to bfloat16"):
        smithy.plan(weights={"dtype": "bfloat16"})


def test_one_element_that_changes_is_enough(smithy):
    base = smithy.make_base(dtype="BF16")
    factors = smithy.factors(smithy.layers(Q))
    tensors = {name: zeros(tensor) for name, tensor in factors.items()}
    for side, place in {"lora_A": (0, -1), "lora_B": (-1, 0)}.items():
        name = f"{PREFIX}{Q.format(1)}.{side}.weight"
        values = np.zeros(factors[name][1], dtype="<f4")
        values[place] = 1
        tensors[name] = ("F32", values.shape, values.tobytes())
    smithy.adapter(tensors)
    built = smithy.build()
    changed = [array(built[f"{module}.weight"]) != array(base[f"{module}.weight"]) for module in smithy.layers(Q)]
    assert [int(found.sum()) for found in changed] == [0, 1]


def test_what_is_no_sum_has_no_weight(smithy):
    smithy.make_base()
    head = {f"{PREFIX}lm_head.weight": smithy.workshop.tensor("F32", (16, 8), 99)}
    smithy.adapter({**smithy.factors(smithy.layers(Q)), **head}, name="a", modules_to_save=["lm_head"])
    with pytest.raises(PlanError, match=r"trained in full .*, and its weight is 0.5"):
        smithy.plan(source="./base", merge={"adapters": [{"path": "./a", "weight": 0.5}]})


def test_two_adapters_cannot_both_have_a_module_whole(smithy):
    smithy.make_base()
    head = {f"{PREFIX}lm_head.weight": smithy.workshop.tensor("F32", (16, 8), 99)}
    for name in ("a", "b"):
        smithy.adapter({**smithy.factors(smithy.layers(Q)), **head}, name=name, modules_to_save=["lm_head"])
    with pytest.raises(PlanError, match=r"has lm_head.weight whole, which an adapter before it changes too"):
        smithy.plan(source="./base", merge={"adapters": [{"path": "./a"}, {"path": "./b"}]})


def test_weights_of_8_bits_are_not_merged_into(smithy):
    tensors = smithy.whole_llama()
    for module in (Q.format(0), Q.format(1)):
        tensors[f"{module}.weight"] = ("F8_E4M3", (8, 8), bytes(64))
    smithy.make_base(tensors)
    smithy.adapter(smithy.factors(smithy.layers(Q)))
    with pytest.raises(UnsupportedSource, match=r"q_proj.weight: is stored as F8_E4M3"):
        smithy.plan()


def test_a_quantized_base_is_refused_by_its_method(smithy):
    smithy.make_base(config={"quantization_config": {"quant_method": "bitsandbytes"}})
    smithy.adapter()
    with pytest.raises(UnsupportedSource, match=r"is quantized \(bitsandbytes\)"):
        smithy.plan()


def test_a_merge_needs_its_base_at_hand(smithy):
    smithy.adapter({f"{PREFIX}x.lora_A.weight": smithy.workshop.tensor("F32", (2, 8))})
    with pytest.raises(RecipeError, match="needs the weights of its base") as error:
        smithy.plan(base={"id": "org/base"})
    assert "hf download org/base" in error.value.hint


def test_a_base_that_is_an_adapter_itself_is_refused(smithy):
    smithy.make_base()
    smithy.adapter()
    smithy.adapter(name="other")
    with pytest.raises(UnsupportedSource, match="PEFT adapter"):
        smithy.plan(base={"path": "./other"})


def test_an_adapter_without_its_config_is_refused(smithy):
    smithy.make_base()
    (smithy.folder / "a").mkdir()
    with pytest.raises(MissingInput, match=r"has no adapter_config.json"):
        smithy.plan(source="./base", merge={"adapters": [{"path": "./a"}]})


def test_adapters_are_merged_into_nothing_but_a_full_model(smithy):
    smithy.make_base()
    smithy.adapter()
    with pytest.raises(RecipeError, match="merged into a full model"):
        smithy.plan(kind="adapter", merge={"adapters": [{"path": "./checkpoint"}]})


def test_a_truncated_adapter_is_refused(smithy):
    smithy.make_base()
    smithy.adapter()
    path = smithy.folder / "checkpoint/adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(MalformedFile):
        smithy.plan()


def test_a_value_that_does_not_fit_stops_the_build(smithy):
    smithy.make_base(dtype="F16")
    tensors = smithy.factors(smithy.layers(Q))
    smithy.adapter({**tensors, A: with_value(tensors[A], 1e6), B: with_value(tensors[B], 1e6)})
    with pytest.raises(PlanError, match="which F16 cannot hold") as error:
        smithy.build()
    assert error.value.place == f"{Q.format(0)}.weight"


def test_a_value_beyond_all_bounds_stops_the_build(smithy):
    """Of F32, which no cast looks at."""
    smithy.make_base()
    tensors = smithy.factors(smithy.layers(Q))
    smithy.adapter({**tensors, A: with_value(tensors[A], 3e38)}, lora_alpha=600)
    with pytest.raises(PlanError, match="which F32 cannot hold") as error:
        smithy.build()
    assert error.value.place == f"{Q.format(0)}.weight"


# ---------------------------------------------------------------- what must not be lost or invented


@pytest.mark.parametrize(
    "keys",
    [
        {"output": "./dd"},
        {"output": "./runs", "merge": {"adapters": [{"path": "./runs/dd"}]}},
        {"output": "./text", "license": {"id": "mit", "file": "./text/LICENSE"}},
        {"output": "./words", "tokenizer": {"from": "./words"}},
    ],
)
def test_an_output_that_holds_what_is_read_is_refused(smithy, keys):
    smithy.make_base()
    for name in ("dd", "runs/dd"):
        smithy.adapter(name=name)
    with pytest.raises(RecipeError, match="a build replaces its output"):
        smithy.plan(source="./base", base={}, **{"merge": {"adapters": [{"path": "./dd"}]}, **keys})


def test_an_output_inside_an_adapter_is_refused(smithy):
    smithy.make_base()
    smithy.adapter(name="dd")
    with pytest.raises(RecipeError, match=r"lies inside the merge\.adapters"):
        smithy.plan(source="./base", base={}, output="./dd/out", merge={"adapters": [{"path": "./dd"}]})


CARD = "---\nlibrary_name: peft\ntags: [lora]\nbase_model_relation: adapter\n---\n# Words of a person\n"


def test_the_card_of_an_adapter_is_not_that_of_the_merge(smithy):
    smithy.make_base()
    smithy.adapter(files={"README.md": CARD})
    smithy.build()
    card = smithy.workshop.read("README.md").decode()
    assert [word for word in ("Words of a person", "peft", "lora", "relation: adapter") if word in card] == []


def test_the_card_of_a_base_that_is_the_source_is_not_that_of_the_merge(smithy):
    smithy.make_base(files={"README.md": "---\nbase_model: org/first\n---\n# Words of the base\n"})
    smithy.adapter(name="a")
    smithy.build(source="./base", base={"id": "org/base"}, merge={"adapters": [{"path": "./a"}]})
    assert "Words of the base" not in smithy.workshop.read("README.md").decode()


@pytest.mark.parametrize(("source", "whose"), [("./checkpoint", "adapter"), ("./base", "base")])
def test_the_card_that_is_not_taken_over_is_told(smithy, source, whose):
    smithy.make_base(files={"README.md": CARD})
    smithy.adapter(files={"README.md": CARD})
    smithy.adapter(name="b")
    plan = smithy.plan(source=source, merge={"adapters": [{"path": "./b"}]})
    reasons = {left.path: left.reason for left in plan.left_out}
    assert reasons["README.md"] == f"the card of the {whose}: the merged model has its own"


def test_the_card_names_the_adapters_and_no_path(smithy):
    smithy.make_base()
    smithy.adapter()
    smithy.adapter(name="runs/b")
    smithy.build(merge={"adapters": [{"path": str(smithy.folder / "runs/b"), "weight": 0.5}]})
    card = smithy.workshop.read("README.md").decode()
    assert ("| Merged from | `checkpoint`, `b` (weight 0.5) |" in card, str(smithy.folder) in card) == (True, False)


@pytest.mark.parametrize("config", [{"lora_alpha": 0}, {"alpha_pattern": {"q_proj": 0}}])
def test_a_scale_of_zero_changes_nothing(smithy, config):
    smithy.make_base()
    smithy.adapter(**config)
    with pytest.raises(PlanError, match="changes nothing: its scale is 0"):
        smithy.plan()


def test_some_modules_of_the_scale_zero_are_told(smithy):
    smithy.make_base()
    smithy.adapter(alpha_pattern={"layers.0.self_attn.q_proj": 0})
    assert any("1 tensor not changed, the scale is 0" in warning for warning in smithy.plan().warnings)


@pytest.mark.parametrize(
    ("modules", "config", "named"),
    [
        ((*Smithy.layers(Q), UP.format(1)), {}, "layers.1.mlp.up_proj.lora_A"),
        (tuple(Smithy.layers(Q)), {"layers_to_transform": [0]}, "layers.1.self_attn.q_proj.lora_A"),
    ],
)
def test_factors_that_the_config_does_not_ask_for_are_refused(smithy, modules, config, named):
    smithy.make_base()
    smithy.adapter(smithy.factors(modules), **config)
    with pytest.raises(MalformedFile, match=r"2 tensors that adapter_config\.json does not ask for") as error:
        smithy.plan()
    assert named in error.value.what


@pytest.mark.parametrize("name", ["unsloth llama 3", "None", "org/base\nlicense: mit", "./base"])
def test_a_name_that_is_none_on_the_hub_is_no_base(smithy, name):
    smithy.make_base()
    smithy.adapter(base_model_name_or_path=name)
    smithy.build(base={"path": "./base"})
    assert "base_model:" not in smithy.workshop.read("README.md").decode()


def test_a_folder_of_the_cache_says_which_base_it_is(smithy):
    smithy.make_base()
    smithy.adapter(base_model_name_or_path=f"/home/me/hub/models--org--trained/snapshots/{'a' * 40}")
    smithy.build(base={"path": "./base"})
    card = smithy.workshop.read("README.md").decode()
    assert f"[org/trained](https://huggingface.co/org/trained) at `{'a' * 40}`" in card


@pytest.mark.parametrize(
    ("base", "revision", "shown"),
    [("org/base", "v1", True), ("org/other", "v1", False), ("org/base", "v1` **x**", False)],
)
def test_a_revision_is_that_of_the_base_it_was_stated_for(smithy, base, revision, shown):
    smithy.make_base()
    smithy.adapter(base_model_name_or_path=base, revision=revision)
    smithy.build()
    assert (" at `v1" in smithy.workshop.read("README.md").decode()) is shown


def test_a_source_that_may_be_another_model_than_the_adapters_is_told(smithy):
    smithy.make_base()
    smithy.adapter(name="a", base_model_name_or_path="org/trained-on")
    plan = smithy.plan(source="./base", base={}, merge={"adapters": [{"path": "./a"}]})
    assert any("nothing says that the source is that model" in warning for warning in plan.warnings)


@pytest.mark.parametrize(
    ("source", "paths", "place"),
    [("./base", ["./a", "./x/../a"], "merge.adapters[1].path"), ("./a", ["a"], "merge.adapters[0].path")],
)
def test_one_adapter_is_not_merged_twice(smithy, source, paths, place):
    smithy.make_base()
    smithy.adapter(name="a")
    (smithy.folder / "x").mkdir()
    with pytest.raises(RecipeError, match="is merged twice") as error:
        smithy.plan(source=source, merge={"adapters": [{"path": path} for path in paths]})
    assert (error.value.place, "its weight: 2" in error.value.hint) == (place, True)


def head_factors(smithy, **more: Any) -> dict[str, Any]:
    return {**smithy.factors(["lm_head"]), **{f"{PREFIX}lm_head.{name}": tensor for name, tensor in more.items()}}


def test_the_bases_own_weight_inside_an_adapted_head_is_no_change(smithy):
    """PEFT saves it beside the factors: two such adapters can be merged, with weights."""
    base = smithy.make_base()
    inside = {"base_layer.weight": base["lm_head.weight"]}
    tensors = head_factors(smithy, **inside)
    for name in ("a", "b"):
        smithy.adapter(tensors, name=name, target_modules=["lm_head"])
    adapters = [{"path": "./a", "weight": 0.5}, {"path": "./b"}]
    built = smithy.build(source="./base", base={}, merge={"adapters": adapters})
    wanted = array(base["lm_head.weight"]) + smithy.added(tensors, "lm_head", 4.5)
    assert close(built["lm_head.weight"], wanted)


def test_another_weight_inside_an_adapted_head_takes_the_place_of_the_bases(smithy):
    smithy.make_base()
    other = smithy.workshop.tensor("F32", (16, 8), 99)
    tensors = head_factors(smithy, **{"base_layer.weight": other})
    smithy.adapter(tensors, target_modules=["lm_head"])
    assert close(smithy.build()["lm_head.weight"], array(other) + smithy.added(tensors, "lm_head", 3.0))


def test_one_module_whole_under_two_names_is_refused(smithy):
    smithy.make_base()
    one, other = (smithy.workshop.tensor("F32", (16, 8), seed) for seed in (98, 99))
    names = {"modules_to_save.default.weight": one, "weight": other}
    whole = {f"{PREFIX}lm_head.{name}": tensor for name, tensor in names.items()}
    smithy.adapter({**smithy.factors(smithy.layers(Q)), **whole}, modules_to_save=["lm_head"])
    with pytest.raises(MalformedFile, match="is in the file twice"):
        smithy.plan()


# ---------------------------------------------------------------- whatever a stranger's adapter says

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        "peft_type", "r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "use_dora", "lora_bias", "bias",
        "target_modules", "modules_to_save", "target_parameters", "trainable_token_indices", "token_indices",
        "init_lora_weights", "layers_to_transform", "layers_pattern", "fan_in_fan_out", "ensure_weight_tying",
        "base_model_name_or_path", "revision", "task_type", "auto_mapping", "exclude_modules",
    ]
)  # fmt: skip
PARTS = st.sampled_from(
    [
        "base_model.model.", "model.", "layers.0.", "layers.9.", "self_attn.q_proj", "embed_tokens", "lm_head",
        ".base_layer", ".lora_A", ".lora_B", ".lora_E", ".lora_embedding_A", ".lora_embedding_B", ".default", ".weight",
        ".bias", ".lora_magnitude_vector", ".token_adapter", ".trainable_tokens_delta", ".modules_to_save",
        ".original_module", "_orig_mod.", "../", "x",
    ]
)  # fmt: skip
SHAPES = st.lists(st.sampled_from([0, 1, 2, 8, 16]), max_size=4).map(tuple)


def tries_to_plan(smithy) -> None:
    """A plan, or an error of ours; never another."""
    with contextlib.suppress(RepokitError):
        smithy.plan()


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=st.dictionaries(KEYS, JSON, max_size=4))
def test_any_config_is_planned_or_refused(smithy, config):
    if not (smithy.folder / "base").exists():
        smithy.make_base()
    smithy.adapter(**config)
    tries_to_plan(smithy)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(st.lists(PARTS, min_size=1, max_size=7).map("".join), unique=True, max_size=4),
    shapes=st.lists(SHAPES, min_size=4, max_size=4),
    config=st.dictionaries(KEYS, JSON, max_size=2),
)
def test_any_tensors_are_planned_or_refused(smithy, names, shapes, config):
    if not (smithy.folder / "base").exists():
        smithy.make_base()
    named = [name for name in names if name]
    smithy.adapter(
        {name: smithy.workshop.tensor("F32", shape) for name, shape in zip(named, shapes, strict=False)}, **config
    )
    tries_to_plan(smithy)
