"""Roles and ids against transformers itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from repokit.linter.examples import tokenizer_json
from repokit.repo.directory import Directory
from repokit.repo.repository import Repository

pytestmark = pytest.mark.oracle

CASES = {
    "as saved by transformers 5": {"eos_token": "</s>", "pad_token": "<pad>"},
    "named and never added": {"eos_token": "</s>", "image_token": "<image>", "mask_token": "<mask>"},
    "a list beside a role": {"pad_token": "<new_pad>", "extra_special_tokens": ["<b>", "<a>", "</s>"]},
    "the older list": {
        "eos_token": "</s>",
        "additional_special_tokens": ["<z>", {"__type": "AddedToken", "content": "<y>"}],
    },
    "a decoder": {
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "added_tokens_decoder": {"40": {"content": "<d>", "special": True}, "33": {"content": "<c>", "special": True}},
    },
    "a map": {
        "eos_token": "<|im_end|>",
        "bos_token": "<s>",
        "map": {"eos_token": "</s>", "pad_token": {"content": "<p>"}},
    },
    "a map that is not read": {"eos_token": "</s>", "added_tokens_decoder": {}, "map": {"eos_token": "<s>"}},
    "added_tokens.json": {"eos_token": "</s>", "added": {"<o>": 90, "<n>": 50, "</s>": 3}},
}


def written(folder: Path, config: dict[str, Any]) -> None:
    beside = {"special_tokens_map.json": config.pop("map", None), "added_tokens.json": config.pop("added", None)}
    (folder / "tokenizer.json").write_bytes(tokenizer_json())
    beside["tokenizer_config.json"] = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
    for name, content in beside.items():
        if content is not None:
            (folder / name).write_text(json.dumps(content))


@pytest.mark.parametrize("name", CASES)
def test_tokens_and_roles_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    written(tmp_path, dict(CASES[name]))
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    ours = Repository(Directory(tmp_path)).tokenizer
    assert ours is not None
    assert (ours.size, dict(ours.ids)) == (len(theirs), theirs.get_vocab())
    assert {role: token.content for role, token in ours.roles.items()} == theirs.special_tokens_map
