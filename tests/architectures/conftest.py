"""A small made-up architecture, so that what is compared with it does not depend on the data of some day."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from repokit.architectures import Skeleton, member as members, skeleton

TOY: dict[str, Any] = {
    "model_type": "toy",
    "architectures": ["ToyForCausalLM"],
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_experts": 3,
    "num_hidden_layers": 4,
    "tie_word_embeddings": False,
    "vocab_size": 20,
}
ATTENTION = [
    ["model.layers.{i}.attn.q_proj.weight", ["num_attention_heads*head_dim", "hidden_size"]],
    ["model.layers.{i}.attn.k_proj.weight", ["num_key_value_heads*head_dim", "hidden_size"]],
    ["model.layers.{i}.norm.weight", ["hidden_size"], "n"],
]
BODY = [
    ["True", [], False, [["model.embed_tokens.weight", ["vocab_size", "hidden_size"], "e"]]],
    ["True", ["num_hidden_layers"], False, ATTENTION],
    ["attention_bias", ["num_hidden_layers"], False, [["model.layers.{i}.attn.q_proj.bias", ["hidden_size"]]]],
]
EXPERTS = [
    [
        "True",
        ["num_hidden_layers", "num_experts"],
        True,
        [
            ["model.layers.{i}.experts.{j}.up.weight", ["intermediate_size", "hidden_size"]],
            ["model.layers.{i}.experts.{j}.down.weight", ["hidden_size", "intermediate_size"]],
        ],
    ]
]
FUSED = [
    [
        "True",
        ["num_hidden_layers"],
        False,
        [
            ["model.layers.{i}.experts.up", ["num_experts", "intermediate_size", "hidden_size"]],
            ["model.layers.{i}.experts.down", ["num_experts", "hidden_size", "intermediate_size"]],
        ],
    ]
]
HEAD = [["not tie_word_embeddings", [], False, [["lm_head.weight", ["vocab_size", "hidden_size"]]]]]
CLASSIFIER = [["True", [], False, [["score.weight", ["num_labels", "hidden_size"]]]]]
KNOWN_ABOUT_ALL: dict[str, Any] = {
    "evidence": "verified",
    "configs": 24,
    "prefix": "model",
    "names": {"base": "model", "renames": [[r"\.gamma$", ".weight"]]},
    "legacy": [r"rotary\.inv_freq$"],
}
MEMBER: dict[str, Any] = {
    "format": 1,
    "model_type": "toy",
    "transformers": "5.24.0",
    "date": "2026-11-30",
    "source": "0123456789abcdef",
    "config": {
        "class": "ToyConfig",
        "defaults": {
            **{key: value for key, value in TOY.items() if isinstance(value, (int, bool))},
            "attention_bias": False,
            "num_labels": 2,
        },
        "aliases": [["num_experts", "num_local_experts"]],
        "derive": {"head_dim": {"given": True, "expr": "hidden_size//num_attention_heads"}},
        "subs": {"text_config": "toy"},
    },
    "classes": {
        "ToyForCausalLM": {
            **KNOWN_ABOUT_ALL,
            "blocks": [*BODY, *EXPERTS, *HEAD],
            "memory": [*BODY, *FUSED, *HEAD],
            "tied": [["lm_head.weight", "model.embed_tokens.weight"]],
            "ignore_unexpected": [r"^mtp\."],
            "ignore_missing": [r"\.norm\.weight$"],
        },
        "ToyForSequenceClassification": {**KNOWN_ABOUT_ALL, "blocks": [*BODY, *EXPERTS, *CLASSIFIER]},
        "ToyDoubtful": {
            **KNOWN_ABOUT_ALL,
            "evidence": "partial",
            "blocks": [
                *BODY,
                [None, ["num_hidden_layers"], False, [["model.layers.{i}.gate.weight", ["hidden_size", None]]]],
            ],
        },
    },
}


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of data in which the toy is the only model type."""
    (tmp_path / "toy.json.z").write_bytes(zlib.compress(json.dumps(MEMBER).encode()))
    monkeypatch.setattr(members, "folder", lambda: tmp_path)
    members.member.cache_clear()
    yield tmp_path
    members.member.cache_clear()


@pytest.fixture
def toy(toys: Path) -> Callable[..., Skeleton]:
    """The toy's skeleton under its config with changes: `toy(num_hidden_layers=2)`."""

    def expand(architecture: str = "ToyForCausalLM", /, **changes: object) -> Skeleton:
        return skeleton(config(architecture, **changes))

    return expand


def config(architecture: str = "ToyForCausalLM", /, **changes: object) -> dict[str, Any]:
    return {**TOY, "architectures": [architecture], **changes}


@pytest.fixture
def toy_config() -> Callable[..., dict[str, Any]]:
    """The toy's config.json with changes."""
    return config
