"""Which ids end a generation, and who says so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from repokit.repo.memory import Memory
from repokit.repo.repository import Repository
from repokit.repo.stopping import EOS, Stopping

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}


def stopping(config: dict[str, Any] | None, generation: dict[str, Any] | None = None) -> Stopping:
    files = {"config.json": config, "generation_config.json": generation}
    return Stopping(
        Repository(Memory({path: json.dumps(raw).encode() for path, raw in files.items() if raw is not None}))
    )


@pytest.mark.parametrize(
    ("config", "generation", "ids"),
    [
        ({**LLAMA, EOS: 2}, {EOS: [4, 5]}, {2, 4, 5}),
        ({**LLAMA, EOS: 2}, None, {2}),
        ({**LLAMA, "text_config": {EOS: 7}}, None, {7}),
        ({**LLAMA, EOS: -1}, {EOS: 4}, {4}),
        (LLAMA, {}, {2}),  # the default of LlamaConfig
        ({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}, None, set()),  # Qwen2Config has none
        ({"model_type": "newer_than_we_are"}, None, None),
        ({**LLAMA, "auto_map": {"AutoConfig": "a.B"}}, None, None),
        (None, None, None),
    ],
)
def test_ids_are_those_of_all_files(config: Any, generation: Any, ids: set[int] | None) -> None:
    assert stopping(config, generation).ids == ids


@pytest.mark.parametrize(
    ("config", "generation", "expected"),
    [
        (LLAMA, None, True),
        ({"architectures": ["Qwen2_5_VLForConditionalGeneration"]}, None, True),
        ({"architectures": ["BertForMaskedLM"]}, None, False),
        ({"architectures": ["MiniCPMV"]}, {}, True),
        (None, None, False),
    ],
)
def test_a_model_generates_by_its_class_or_its_file(config: Any, generation: Any, expected: bool) -> None:  # noqa: FBT001
    assert stopping(config, generation).generates is expected


def test_every_place_is_told_apart() -> None:
    found = stopping({**LLAMA, "pad_token_id": 0, "text_config": {"pad_token_id": 1}}, {"pad_token_id": 2})
    assert [(said.path, said.place, said.ids) for said in found.declared("pad_token_id")] == [
        ("config.json", "/pad_token_id", (0,)),
        ("config.json", "/text_config/pad_token_id", (1,)),
        ("generation_config.json", "/pad_token_id", (2,)),
    ]
