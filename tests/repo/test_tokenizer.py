"""Which ids tokens really get: against the tokenizers library, over generated vocabularies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st
from tokenizers import AddedToken, Tokenizer as Library

from repokit.errors import MalformedFile, UnsupportedSource
from repokit.linter.examples import tokenizer_json
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository
from repokit.repo.tokenizer import Tokenizer, is_tiktoken, lost_merges, vocabularies

WORDS = st.sampled_from(["a", "b", "c", "d", "<s>", "</s>", "<pad>", "<|x|>", "é"])
IDS = st.integers(0, 12)
VOCABULARY = st.dictionaries(WORDS, IDS, max_size=6).map(
    lambda found: {token: number for number, token in {number: token for token, number in found.items()}.items()}
)
ADDED = st.lists(st.tuples(WORDS | st.just(""), IDS), max_size=6)
MODEL = b"\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02"


def document(vocabulary: dict[str, int], added: list[tuple[str, int]] = [], **parts: Any) -> bytes:  # noqa: B006
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    entries = [{"id": number, "content": token, "special": True, **flags} for token, number in added]
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}
    whole = {"version": "1.0", "added_tokens": entries, "model": model, **parts}
    absent = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    return json.dumps({**absent, **whole}).encode()


def tokenizer(files: dict[str, bytes | dict[str, Any]]) -> Tokenizer:
    encoded = {
        path: json.dumps(content).encode() if isinstance(content, dict) else content for path, content in files.items()
    }
    found = Repository(Memory(encoded)).tokenizer
    assert found is not None
    return found


# ---------------------------------------------------------------- ids


@settings(deadline=None)
@given(VOCABULARY, ADDED)
@example({"a": 0, "b": 1, "d": 5}, [("x", 6), ("y", 6), ("d", 5), ("z", 9)])
@example({}, [("x", 6), ("y", 6)])
def test_ids_are_those_that_the_library_gives(vocabulary: dict[str, int], added: list[tuple[str, int]]) -> None:
    content = document(vocabulary, added)
    library = Library.from_buffer(content)
    tokens = {*vocabulary, *(token for token, _ in added if token)}
    assert dict(tokenizer({"tokenizer.json": content}).ids) == {token: library.token_to_id(token) for token in tokens}


@settings(deadline=None)
@given(VOCABULARY, ADDED, st.lists(WORDS, min_size=1, max_size=4))
def test_appended_tokens_get_the_ids_that_the_library_gives(
    vocabulary: dict[str, int], added: list[tuple[str, int]], named: list[str]
) -> None:
    content = document(vocabulary, added)
    library = Library.from_buffer(content)
    known = {*vocabulary, *(token for token, _ in added)}
    library.add_tokens([AddedToken(token, special=True) for token in dict.fromkeys(named) if token not in known])
    found = tokenizer({"tokenizer.json": content, "tokenizer_config.json": {"extra_special_tokens": named}})
    expected = {token: library.token_to_id(token) for token in dict.fromkeys(named) if token not in known}
    assert {token.content: token.id for token in found.appended} == expected


@settings(deadline=None)
@given(VOCABULARY, ADDED)
def test_the_size_is_what_the_library_counts(vocabulary: dict[str, int], added: list[tuple[str, int]]) -> None:
    content = document(vocabulary, added)
    assert tokenizer({"tokenizer.json": content}).size == Library.from_buffer(content).get_vocab_size()


def test_a_token_with_another_id_than_written_is_renumbered() -> None:
    found = tokenizer({"tokenizer.json": document({"a": 0, "b": 1, "d": 5}, [("x", 6), ("d", 5)])})
    assert [(token.content, token.written, token.id, token.place) for token in found.renumbered] == [
        ("x", 6, 3, "/added_tokens/0")
    ]


def test_without_tokenizer_json_added_tokens_go_behind_the_vocabulary() -> None:
    vocabulary = {"vocab.json": {"a": 0, "b": 1}, "added_tokens.json": {"<x>": 2, "<y>": 9}}
    found = tokenizer({**vocabulary, "merges.txt": "a b\n"})
    assert [(token.content, token.id) for token in found.renumbered] == [("<y>", 3)]


def test_tokenizers_that_are_python_take_ids_as_they_are_written() -> None:
    found = tokenizer({"vocab.json": {"a": 0, "b": 1}, "added_tokens.json": {"<y>": 9}})
    assert found.renumbered == ()


def test_pieces_of_a_unigram_have_their_positions_as_ids() -> None:
    model = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -2.0]]}
    found = tokenizer({"tokenizer.json": document({}, [("<x>", 9)], model=model)})
    assert dict(found.ids) == {"<unk>": 0, "a": 1, "b": 2, "<x>": 3}


def test_the_largest_id_is_not_the_number_of_tokens() -> None:
    found = tokenizer({"tokenizer.json": document({"a": 0, "b": 7})})
    assert (found.max_id, found.size) == (7, 2)


def test_values_that_are_no_ids_are_left_out() -> None:
    assert dict(tokenizer({"tokenizer.json": document({"a": 0, "b": "1", "c": True})}).ids) == {"a": 0}  # type: ignore[dict-item]


@pytest.mark.parametrize("model", [{}, {"vocab": 3}, None])
def test_a_tokenizer_without_a_vocabulary_is_malformed(model: Any) -> None:
    with pytest.raises(MalformedFile, match="no vocabulary"):
        tokenizer({"tokenizer.json": document({}, model=model)})


# ---------------------------------------------------------------- which file


def test_a_repository_without_a_vocabulary_has_no_tokenizer() -> None:
    assert Repository(Memory({"tokenizer_config.json": b"{}"})).tokenizer is None


@pytest.mark.parametrize(
    ("files", "path"),
    [
        ({"tokenizer.json": document({"a": 0}), "vocab.json": {"a": 0}, "tokenizer.model": MODEL}, "tokenizer.json"),
        ({"vocab.json": {"a": 0}, "source.spm": MODEL, "target.spm": MODEL}, "vocab.json"),
        ({"vocab.txt": b"[PAD]\n[UNK]\n", "tokenizer.model": MODEL}, "vocab.txt"),
        ({"sentencepiece.bpe.model": MODEL}, "sentencepiece.bpe.model"),
        ({"tekken.json": {}}, "tekken.json"),
    ],
)
def test_the_file_that_a_loader_prefers_decides(files: dict[str, Any], path: str) -> None:
    assert tokenizer(files).path == path


def test_vocabularies_in_folders_are_not_the_models_own() -> None:
    assert vocabularies(Repository(Memory({"tokenizer_2/tokenizer.json": b"{}"}))) == ()


def test_lines_of_vocab_txt_have_their_numbers_as_ids() -> None:
    assert dict(tokenizer({"vocab.txt": b"[PAD]\n[UNK]\nthe\n"}).ids) == {"[PAD]": 0, "[UNK]": 1, "the": 2}


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"tokenizer.model": MODEL}, id="SentencePiece"),
        pytest.param({"vocab.json": {"eng": {"a": 0}}}, id="a vocabulary for each language"),
        pytest.param({"vocab.txt": b"the 12\nof 7\n"}, id="a dictionary of fairseq"),
    ],
)
def test_ids_of_a_vocabulary_that_is_not_read_are_unknown(files: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedSource, match="does not read"):
        tokenizer(files).id_of("a")


def test_ids_that_are_spelled_out_are_known_all_the_same() -> None:
    decoder = {"added_tokens_decoder": {"2": {"content": "</s>", "special": True}}}
    assert tokenizer({"tokenizer.model": MODEL, "tokenizer_config.json": decoder}).id_of("</s>") == 2


def test_the_pieces_of_a_sentencepiece_model_are_counted() -> None:
    assert tokenizer({"tokenizer.model": MODEL * 3}).pieces == 3


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"IQ== 0\nIg== 1\n", True), (b"IQ== 0", True), (MODEL, False), (b"", False), (b"a b\n", False)],
)
def test_tiktoken_is_told_from_its_first_line(content: bytes, expected: bool) -> None:  # noqa: FBT001
    assert is_tiktoken(content) is expected


# ---------------------------------------------------------------- special tokens


def test_the_map_wins_where_the_config_has_no_decoder() -> None:
    files = {
        "tokenizer.json": tokenizer_json(),
        "tokenizer_config.json": {"eos_token": "<|im_end|>", "bos_token": "<s>"},
        "special_tokens_map.json": {"eos_token": {"content": "</s>"}, "bos_token": None},
    }
    roles = tokenizer(files).roles
    assert {role: (token.content, token.path) for role, token in roles.items()} == {
        "eos_token": ("</s>", "special_tokens_map.json")
    }


def test_the_config_wins_where_it_has_a_decoder() -> None:
    files = {
        "tokenizer.json": tokenizer_json(),
        "tokenizer_config.json": {"eos_token": "<|im_end|>", "added_tokens_decoder": {}},
        "special_tokens_map.json": {"eos_token": "</s>"},
    }
    assert tokenizer(files).roles["eos_token"].content == "<|im_end|>"


def test_a_frozen_padding_names_the_pad_token() -> None:
    padding = {"strategy": "BatchLongest", "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"}
    found = tokenizer({"tokenizer.json": document({"<pad>": 0}, padding=padding)})
    assert (found.roles["pad_token"].content, found.role_id("pad_token")) == ("<pad>", 0)


def test_tokens_of_one_model_have_roles_too() -> None:
    config = {"image_token": "<|im_start|>", "extra_special_tokens": {"audio_token": "<unk>"}, "add_bos_token": True}
    found = tokenizer({"tokenizer.json": tokenizer_json(), "tokenizer_config.json": config})
    assert {role: found.role_id(role) for role in found.roles} == {"image_token": 3, "audio_token": 5}


def test_tokens_without_a_role_are_those_of_the_first_list() -> None:
    config = {"additional_special_tokens": ["<s>", {"content": "</s>"}], "extra_special_tokens": []}
    found = tokenizer({"tokenizer.json": tokenizer_json(), "tokenizer_config.json": config})
    assert [(token.content, token.place) for token in found.extras] == [
        ("<s>", "/additional_special_tokens/0"),
        ("</s>", "/additional_special_tokens/1"),
    ]


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        ({"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]}, {("</s>", 2), ("<s>", 1)}),
        (
            {
                "type": "Sequence",
                "processors": [
                    {"type": "ByteLevel"},
                    {
                        "type": "TemplateProcessing",
                        "special_tokens": {"x": {"id": "x", "ids": [1, 7], "tokens": ["<s>"]}},
                    },
                ],
            },
            {("<s>", 1), ("x", 7)},
        ),
        (None, set()),
    ],
)
def test_what_the_post_processor_adds_is_found(processor: Any, expected: set[tuple[str, int]]) -> None:
    found = tokenizer({"tokenizer.json": document({"a": 0}, post_processor=processor)})
    assert {(token, number) for token, number, _ in found.post_processor} == expected


# ---------------------------------------------------------------- against the embedding


def with_rows(rows: int, files: dict[str, Any]) -> Tokenizer:
    return tokenizer({"config.json": {"model_type": "llama", "vocab_size": rows}, **files})


def test_tokens_beyond_the_rows_are_named_with_their_ids() -> None:
    found = with_rows(2, {"tokenizer.json": document({"a": 0, "b": 1, "c": 2}, [("<x>", 3)])})
    assert (dict(found.beyond), found.produced) == ({"c": 2, "<x>": 3}, {"c"})


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"tokenizer_config.json": {"image_token": "<x>"}}, id="a role"),
        pytest.param({"tokenizer_config.json": {"extra_special_tokens": ["<x>"]}}, id="a list"),
        pytest.param({"chat_template.jinja": b"{{ '<x>' }}"}, id="the chat template"),
    ],
)
def test_an_added_token_that_something_uses_is_produced(files: dict[str, Any]) -> None:
    assert with_rows(1, {"tokenizer.json": document({"a": 0}, [("<x>", 1)]), **files}).produced == {"<x>"}


def test_one_special_token_that_nothing_uses_is_not_produced() -> None:
    assert with_rows(1, {"tokenizer.json": document({"a": 0}, [("<x>", 1)])}).produced == set()


def test_several_special_tokens_that_nothing_uses_say_that_nothing_was_resized() -> None:
    assert with_rows(1, {"tokenizer.json": document({"a": 0}, [("<x>", 1), ("<y>", 2)])}).produced == {"<x>", "<y>"}


# ---------------------------------------------------------------- merges.txt


@pytest.mark.parametrize(
    ("vocabulary", "merges", "lost"),
    [
        ({"a": 0, "b": 1, "ab": 2}, "#version: 0.2 - Trained by `huggingface/tokenizers`\na b\n", ()),
        ({"a": 0, "b": 1}, "a b\n", ("a b",)),
        ({"a": 0, "ab": 1}, "a b\r\n", ("a b\r",)),
        ({"a": 0, "b": 1, "ab": 2}, "a b c\n", ("a b c",)),
        ({"a@@": 0, "b": 1}, "a b\n", ()),
        ({"#": 0, "##": 1}, "# #\n", ()),
    ],
)
def test_merges_of_tokens_that_are_not_there_are_lost(
    vocabulary: dict[str, int], merges: str, lost: tuple[str, ...]
) -> None:
    files = {"vocab.json": json.dumps(vocabulary).encode(), "merges.txt": merges.encode()}
    assert lost_merges(Repository(Memory(files))) == lost
