"""The facet over GGUF files: what belongs together, what each file is for, and what it says of its tokens."""

from __future__ import annotations

import pytest

from repokit.errors import MalformedFile
from repokit.linter.examples_gguf import (
    CHAT,
    MODEL,
    TOKENS,
    gguf,
    gguf_bytes,
    gguf_edited,
    in_parts,
    metadata,
    part,
    tensors,
)
from repokit.repo.gguf import part_name, vocabulary_of
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

BASE = gguf()[MODEL]


def repository(files):
    return Repository(Memory({path: content for path, content in files.items() if content is not None}))


def heads(files):
    return [(model.head.path, len(model.parts)) for model in repository(files).gguf.models]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("m-00001-of-00003.gguf", ("m", 1, 3)),
        ("Q8_0/m-Q8_0-00002-of-00002.gguf", ("Q8_0/m-Q8_0", 2, 2)),
        ("m.gguf", None),
        ("m-1-of-3.gguf", None),
    ],
)
def test_the_name_of_a_part(path, name):
    assert part_name(path) == name


def test_a_file_alone_is_a_model():
    assert heads({MODEL: BASE}) == [(MODEL, 1)]


def test_parts_are_one_model():
    assert heads(in_parts(3)) == [(part(1, 3), 3)]


def test_parts_in_two_folders_are_two_models():
    files = {f"{folder}/{path}": content for folder in ("a", "b") for path, content in in_parts(2).items() if content}
    assert heads(files) == [(f"a/{part(1)}", 2), (f"b/{part(1)}", 2)]


def test_the_tensors_of_a_model_are_those_of_all_its_parts():
    model = next(iter(repository(in_parts(3)).gguf.models))
    assert {tensor.name for tensor in model.tensors} == set(tensors())


def test_a_part_that_is_missing_is_named():
    model = next(iter(repository({**in_parts(3), part(2, 3): None}).gguf.models))
    assert (model.missing, model.is_whole) == ((part(2, 3),), False)


@pytest.mark.parametrize(
    "entries",
    [
        {"general.architecture": "clip"},
        {"general.architecture": "llama", "general.type": "adapter"},
        {"general.type": "imatrix"},
        {"imatrix.chunk_count": 4},
        {"general.architecture": "controlvector"},
    ],
)
def test_what_lies_beside_models_is_none(entries):
    assert heads({"x.gguf": gguf_bytes(entries, {})}) == []


def test_a_repository_of_gguf_in_folders_holds_a_model():
    assert repository({"README.md": b"x", "Q8_0/m.gguf": BASE}).holds_model


def test_weights_of_transformers_beside_it_are_weights():
    assert not repository({MODEL: BASE, "model.safetensors": b""}).gguf.is_all


def test_special_tokens_are_those_with_a_type_of_their_own():
    file = repository({MODEL: BASE}).gguf.file(MODEL)
    assert dict(file.special) == {token: number for number, token in enumerate(TOKENS[:5]) if number}


def test_roles_are_texts():
    file = repository({MODEL: BASE}).gguf.file(MODEL)
    assert dict(file.roles) == {"bos_token": "<s>", "eos_token": "<|im_end|>", "unk_token": "<unk>"}


def test_a_role_whose_id_is_no_token_is_left_out():
    edited = gguf_edited({"tokenizer.ggml.bos_token_id": 999})(BASE)
    assert "bos_token" not in repository({MODEL: edited}).gguf.file(MODEL).roles


def test_a_value_of_the_wrong_type_is_none():
    edited = gguf_edited({"tokenizer.ggml.tokens": "a b", "llama.block_count": 1.5})(BASE)
    file = repository({MODEL: edited}).gguf.file(MODEL)
    assert (file.tokens, file.integer("llama.block_count")) == (None, None)


def test_named_templates_come_after_the_default_one():
    edited = gguf_bytes({**metadata(), "tokenizer.chat_template.tool_use": "{{ 1 }}"}, {})
    file = repository({MODEL: edited}).gguf.file(MODEL)
    assert [(template.name, template.source) for template in file.templates] == [
        ("default", CHAT),
        ("tool_use", "{{ 1 }}"),
    ]


def test_quantisations_share_one_vocabulary():
    large = gguf_edited({"tokenizer.ggml.tokens": [f"token {number}" for number in range(1000)]})(BASE)
    two = repository({"a.gguf": large, "b.gguf": large})
    assert vocabulary_of(two, two.gguf.file("a.gguf")) is vocabulary_of(two, two.gguf.file("b.gguf"))


def test_a_broken_file_is_said_once_and_again():
    broken = repository({MODEL: b"GGUF"})
    for _ in range(2):
        with pytest.raises(MalformedFile):
            broken.gguf.file(MODEL)
