"""Canonical names: what loaders take for the same tensor has one name, and what they keep apart has two."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from repokit.architectures.names import MAX_LENGTH, Names, scoped

# As transformers 5.24 has them for LlavaForConditionalGeneration, with a CLIP tower.
TOWER = ["model.vision_tower.", "vision_tower."]
LLAVA = {
    "renames": [
        ["^language_model.lm_head(?!\\w)", "lm_head"],
        ["^language_model(?!\\w)", "model.language_model"],
        ["^vision_tower(?!\\w)", "model.vision_tower"],
        ["^language_model.model(?!\\w)", "language_model", ["model.", ""]],
        ["^vision_model\\.(.+)", "\\1", TOWER],
        ["LayerNorm.gamma(?!\\w)", "LayerNorm.weight"],
    ],
    "base": "model",
}


def same(names: Names, *spellings: str) -> bool:
    return len({names.canonical(name) for name in spellings}) == 1


def test_without_data_every_name_is_canonical() -> None:
    assert Names(None).canonical("model.layers.0.mlp.up_proj.weight") == "model.layers.0.mlp.up_proj.weight"


@pytest.mark.parametrize(
    "spellings",
    [
        ("language_model.lm_head.weight", "lm_head.weight"),
        ("language_model.model.layers.7.w", "model.language_model.layers.7.w", "language_model.layers.7.w"),
        ("vision_tower.vision_model.encoder.w", "vision_tower.encoder.w", "model.vision_tower.encoder.w"),
        ("language_model.model.LayerNorm.gamma", "model.language_model.LayerNorm.weight"),
    ],
)
def test_spellings_of_one_tensor_have_one_name(spellings: tuple[str, ...]) -> None:
    assert same(Names(LLAVA), *spellings)


def test_a_rename_of_a_part_leaves_the_rest_alone() -> None:
    assert not same(Names(LLAVA), "vision_model.encoder.w", "encoder.w")


def test_the_prefix_of_the_base_model_may_be_there_or_not() -> None:
    assert same(Names({"base": "bert"}), "bert.embeddings.word_embeddings.weight", "embeddings.word_embeddings.weight")


def test_the_prefix_is_a_whole_module() -> None:
    assert not same(Names({"base": "bert"}), "bertha.weight", "ha.weight")


def test_the_first_place_of_the_matched_text_is_replaced() -> None:
    # As transformers does it: by str.replace of what was found, here at the end.
    names = Names({"renames": [["norm$", "ln"]]})

    assert names.canonical("norm.1.norm") == "ln.1.norm"


def test_renames_apply_one_after_another() -> None:
    names = Names({"renames": [["^a\\.", "b."], ["^b\\.", "c."]]})

    assert names.canonical("a.w") == "c.w"


def test_a_name_that_is_right_as_it_stands_is_kept() -> None:
    names = Names({"renames": [["^", "model."]], "kept": ["model.layers.#.w"]})

    assert same(names, "layers.12.w", "model.layers.12.w")


def test_a_number_in_a_pattern_means_that_number() -> None:
    names = Names({"renames": [["layers\\.0\\.", "first."]]})

    assert [names.canonical(f"layers.{number}.w") for number in (0, 1, 10)] == ["first.w", "layers.1.w", "layers.10.w"]


def test_numbers_can_be_calculated_with() -> None:
    names = Names({"renames": [["queries\\.(\\d+)", "layers.\\1.query", None, {"index": [2, 1]}]]})

    assert [names.canonical(f"queries.{number}") for number in (0, 5)] == ["layers.1.query", "layers.3.query"]


SHIFT = {
    "renames": [
        ["blocks\\.(\\d+)\\.norm0(?!\\w)", "blocks.\\1.norm1", None, {"group": 0}],
        ["blocks\\.(\\d+)\\.norm1(?!\\w)", "blocks.\\1.norm2", None, {"group": 0}],
    ]
}


def test_a_group_applies_to_files_that_have_its_first_name() -> None:
    held = ["blocks.3.norm0.weight", "blocks.3.norm1.weight"]
    names = Names(SHIFT).among(held)

    assert list(map(names.canonical, held)) == ["blocks.3.norm1.weight", "blocks.3.norm2.weight"]


def test_a_group_leaves_other_files_alone() -> None:
    held = ["blocks.3.norm1.weight", "blocks.3.norm2.weight"]
    names = Names(SHIFT).among(held)

    assert list(map(names.canonical, held)) == held


def test_names_that_are_too_long_are_left_alone() -> None:
    name = "language_model." + "x" * MAX_LENGTH

    assert Names(LLAVA).canonical(name) == name


def test_braces_and_percent_signs_are_text() -> None:
    names = Names({"renames": [["^a", "b"]]})

    assert names.canonical("a.{0}.12.%s.{") == "b.{0}.12.%s.{"


_SEGMENTS = st.sampled_from(
    [
        "language_model",
        "model",
        "vision_tower",
        "vision_model",
        "lm_head",
        "LayerNorm",
        "gamma",
        "layers",
        "0",
        "7",
        "12",
    ]
)
_ANY = st.lists(_SEGMENTS | st.integers(0, 10**9).map(str) | st.text(max_size=4), max_size=8).map(".".join)


@given(_ANY)
def test_what_is_remembered_of_other_numbers_changes_nothing(name: str) -> None:
    names = Names(LLAVA)
    names.canonical(name.replace("7", "8"))

    assert names.canonical(name) == names._canonical(name)


@given(_ANY.filter(lambda name: len(name) < MAX_LENGTH // 2))
def test_a_canonical_name_is_canonical(name: str) -> None:
    names = Names({"renames": LLAVA["renames"]})
    canonical = names.canonical(name)

    # One more application can only undo what a name contrived for it has twice: a prefix of a prefix.
    assert names.canonical(canonical) == canonical or name.count("model") > 1 or name.count("gamma") > 1


def test_a_part_of_another_class_brings_its_own_spellings() -> None:
    part = {"renames": [["attn\\.proj", "attention.o_proj"]], "base": "vit", "kept": ["layers.#.x"]}

    names = Names(scoped(LLAVA, part, "model.vision_tower."))

    assert same(names, "vision_tower.layers.0.attn.proj.w", "model.vision_tower.layers.0.attention.o_proj.w")


def test_a_part_of_another_class_loses_the_spellings_of_the_derived_one() -> None:
    names = Names(scoped(LLAVA, None, "model.vision_tower."))

    assert not same(names, "vision_tower.vision_model.encoder.w", "vision_tower.encoder.w")


def test_the_spellings_of_a_part_stay_within_it() -> None:
    names = Names(scoped(LLAVA, {"renames": [["attn", "attention"]]}, "model.vision_tower."))

    assert not same(names, "language_model.model.attn.w", "language_model.model.attention.w")
