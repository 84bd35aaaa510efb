"""Faults of published repositories: adapters of PEFT.

Each id is the kind of fault and the public thread that reports it.
"""

from __future__ import annotations

import json
from typing import Final

import pytest

from repokit.linter.engine import lint
from repokit.linter.examples import Example, edited, lora, safetensors, single, tensors_of, tokenizer_json
from repokit.linter.finding import Severity
from repokit.repo.adapter import ADAPTER_CONFIG
from repokit.repo.repository import Repository
from repokit.repo.weights import ADAPTER

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
CARD: Final = "README.md"
PREFIX: Final = "base_model.model."
EMBEDDING: Final = "model.embed_tokens"
HEAD: Final = "lm_head"
ROWS: Final = {"embed": ("F32", (32, 16)), "more": ("F32", (35, 16))}


def adapter(**config: object) -> dict[str, object]:
    """A change to adapter_config.json."""
    return {ADAPTER_CONFIG: config}


def renamed(old: str, new: str) -> dict[str, object]:
    """A change to the names of all tensors."""
    return {ADAPTER: edited(rename=lambda name: name.replace(old, new))}


def grown() -> bytes:
    """A tokenizer of three tokens more than the base."""
    tokens = tuple(json.loads(tokenizer_json())["model"]["vocab"])
    more = ("<a>", "<b>", "<c>")
    return tokenizer_json((*tokens, *more), (*tokens[:6], *more))


def of_rank(rank: int) -> dict[str, object]:
    """Factors of another rank than the config's 4."""
    tensors = tensors_of(lora()[ADAPTER])
    return {
        ADAPTER: safetensors(
            {
                name: (dtype, tuple(rank if size == 4 else size for size in shape))
                for name, (dtype, shape) in tensors.items()
            }
        )
    }


FAULTS: Final[dict[str, tuple[str, Severity, Example]]] = {
    "AD01 huggingface/transformers#25215": (
        "ADP101",
        ERROR,
        Example("no base", adapter(base_model_name_or_path=None), "lora"),
    ),
    "AD01 (a folder)": ("ADP101", ERROR, Example("a folder", adapter(base_model_name_or_path="/data/llama"), "lora")),
    "AD01 (a folder in another folder)": (
        "ADP101",
        ERROR,
        Example(
            "two adapters",
            {
                **{f"second/{path}": lora()[path] for path in (ADAPTER, ADAPTER_CONFIG)},
                f"second/{ADAPTER_CONFIG}": json.dumps(
                    {**json.loads(lora()[ADAPTER_CONFIG]), "base_model_name_or_path": "./base"}
                ),
            },
            "lora",
        ),
    ),
    "AD02 unslothai/unsloth#1107": (
        "ADP110",
        ERROR,
        Example("both in one folder", {ADAPTER: lora()[ADAPTER], ADAPTER_CONFIG: lora()[ADAPTER_CONFIG]}),
    ),
    "AD02 unslothai/unsloth#1061": (
        "ADP110",
        ERROR,
        Example(
            "both in one folder, in shards",
            {ADAPTER: lora()[ADAPTER], ADAPTER_CONFIG: lora()[ADAPTER_CONFIG]},
            "sharded",
        ),
    ),
    "AD02 (called a model)": (
        "ADP201",
        WARNING,
        Example("a card of transformers", {CARD: lambda card: card.replace(b"peft", b"transformers")}, "lora"),
    ),
    "AD03 ymcui/Chinese-LLaMA-Alpaca#302": (
        "ADP104",
        ERROR,
        Example("r 64, factors of 8", {**adapter(r=64), **of_rank(8)}, "lora"),
    ),
    "AD03 HighCWu/control-lora-v3#12": (
        "ADP104",
        ERROR,
        Example("r 64, factors of 16", {**adapter(r=64), **of_rank(16)}, "lora"),
    ),
    "AD03 huggingface/peft#1539": (
        "ADP111",
        ERROR,
        Example(
            "pruned to nothing",
            adapter(
                peft_type="ADALORA",
                init_r=4,
                target_r=2,
                rank_pattern={
                    f"model.layers.{layer}.self_attn.{module}.lora_E": [False] * 4
                    for layer in range(2)
                    for module in ("q_proj", "v_proj")
                },
            ),
            "lora",
        ),
    ),
    "AD03 (zero)": ("ADP111", ERROR, Example("no rank", adapter(r=0), "lora")),
    "AD03 (a pattern of another rank)": (
        "ADP104",
        ERROR,
        Example("2 for the queries", adapter(rank_pattern={"q_proj": 2}), "lora"),
    ),
    "AD04 huggingface/peft#1579": (
        "ADP108",
        ERROR,
        Example("a level too few", renamed("model.model.layers", "model.layers"), "lora"),
    ),
    "AD04 huggingface/diffusers#11675": (
        "ADP107",
        ERROR,
        Example("the name of the adapter", renamed(".weight", ".default_0.weight"), "lora"),
    ),
    "AD04 (default)": (
        "ADP107",
        ERROR,
        Example("the name of the adapter", renamed(".weight", ".default.weight"), "lora"),
    ),
    "AD04 (no prefix)": ("ADP106", ERROR, Example("names of the model", renamed(PREFIX, ""), "lora")),
    "AD05 huggingface/peft#2275": ("ADP301", NOTE, Example("a newer key", adapter(eva_config=None), "lora")),
    "AD05 huggingface/peft#1087": ("ADP113", ERROR, Example("an older key", adapter(enable_lora=None), "lora")),
    "AD05 huggingface/peft#1168": (
        "ADP112",
        ERROR,
        Example(
            "a config of generation",
            {ADAPTER_CONFIG: single()["generation_config.json"].replace(b"{", b'{"_from_model_config": true, ', 1)},
            "lora",
        ),
    ),
    "AD04 huggingface/transformers#38627": (
        "ADP109",
        ERROR,
        Example(
            "names of transformers 4.51",
            adapter(auto_mapping={"base_model_class": "Qwen2_5_VLForConditionalGeneration"}, task_type=None),
            "lora",
        ),
    ),
}

BASE: Final = json.loads(single()["config.json"])
TIED: Final = {**BASE, "tie_word_embeddings": True}

# With config.json of the base model at hand.
WITH_A_BASE: Final[dict[str, tuple[str, Severity, Example, dict[str, object]]]] = {
    "AD04 huggingface/peft#1579 (against the base)": (
        "ADP117",
        ERROR,
        Example(
            "a module that the base does not have",
            {**adapter(target_modules=["q_proj", "v_proj", "qkv"]), **renamed("v_proj", "qkv")},
            "lora",
        ),
        BASE,
    ),
    "AD07 huggingface/peft#2898": (
        "ADP206",
        WARNING,
        Example(
            "the embedding twice",
            {
                ADAPTER: edited(
                    add={f"{PREFIX}{EMBEDDING}.{name}": ROWS["embed"] for name in ("weight", "base_layer.weight")}
                )
            },
            "lora",
        ),
        BASE,
    ),
    "AD07 huggingface/peft#2898 (and the head that is the embedding)": (
        "ADP206",
        WARNING,
        Example(
            "the embedding twice",
            {ADAPTER: edited(add={f"{PREFIX}{name}.weight": ROWS["more"] for name in (EMBEDDING, HEAD)})},
            "lora",
        ),
        TIED,
    ),
    "AD07 huggingface/peft#2589": (
        "ADP205",
        WARNING,
        Example(
            "tokens without rows",
            {"tokenizer.json": grown(), "tokenizer_config.json": single()["tokenizer_config.json"]},
            "lora",
        ),
        BASE,
    ),
    "AD07 (rows of another vocabulary)": (
        "ADP205",
        WARNING,
        Example(
            "fewer rows than tokens",
            {
                "tokenizer.json": grown(),
                "tokenizer_config.json": single()["tokenizer_config.json"],
                ADAPTER: edited(add={f"{PREFIX}{name}.weight": ROWS["embed"] for name in (EMBEDDING, HEAD)}),
            },
            "lora",
        ),
        BASE,
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_known_fault_is_found(fault, report_of):
    code, severity, example = fault
    assert (code, severity) in {(finding.code, finding.severity) for finding in report_of(example).findings}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_no_rule_breaks_over_a_known_fault(fault, report_of):
    assert report_of(fault[2]).coverage.broken == {}


@pytest.mark.parametrize("fault", WITH_A_BASE.values(), ids=WITH_A_BASE.keys())
def test_a_known_fault_is_found_with_its_base_at_hand(fault, worker):
    code, severity, example, base = fault
    repository = Repository(example.source())
    repository.base, repository._worker = base, worker
    report = lint(repository)
    assert (code, severity) in {(finding.code, finding.severity) for finding in report.findings}
    assert report.coverage.broken == {}
