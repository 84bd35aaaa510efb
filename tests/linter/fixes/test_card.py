"""README.md: values as they were meant; comments, order and body as they were."""

from __future__ import annotations

import pytest

from repokit.linter.rules.card import with_lines
from repokit.repo.card import README

CARD = """---
# who made it
language:
- en # British
- no
license: Apache 2.0  # see LICENSE
library_name: transformers
base_model: example/base
---
# Body

license: Apache 2.0
"""


def test_a_comment_behind_a_value_stays(mend):
    assert mend("LIC101", {README: CARD}).text(README) == CARD.replace("Apache 2.0  #", "apache-2.0  #", 1)


def test_norwegian_is_put_in_quotes_and_nothing_else(mend):
    assert mend("CRD102", {README: CARD}).text(README) == CARD.replace("- no\n", "- 'no'\n")


def test_windows_line_ends_stay(mend):
    crlf = CARD.replace("\n", "\r\n").encode()
    assert mend("CRD102", {README: crlf}).bytes(README) == crlf.replace(b"- no\r\n", b"- 'no'\r\n")


@pytest.mark.parametrize("word", ["off", "false", "yes"])
def test_another_boolean_is_no_language(mend, word):
    assert not mend("CRD102", {README: with_lines(f"language: {word}\n", drop="language")}).changed


def test_a_number_among_tags_is_what_was_typed(mend):
    found = mend("CRD102", {README: with_lines("tags:\n- 0x1F\n- chat\n")}).text(README)
    assert "- '0x1F'\n- chat\n" in found


def test_an_id_that_is_a_number_is_left_to_a_person(mend):
    assert not mend("CRD102", {README: with_lines("base_model: 7\n", drop="base_model")}).changed


def test_only_the_path_goes_out_of_a_list(mend):
    lines = "datasets:\n- squad # public\n- /data/me/private\n"
    assert "datasets:\n- squad # public\nlicense:" in mend("CRD103", {README: with_lines(lines)}).text(README)


def test_an_address_of_the_hub_becomes_its_id(mend):
    lines = "base_model: https://huggingface.co/example/base/\n"
    found = mend("CRD103", {README: with_lines(lines, drop="base_model")}).text(README)
    assert "base_model: example/base\n" in found


def test_an_address_of_another_place_is_left_to_a_person(mend):
    lines = "base_model: https://example.org/example/base\n"
    assert not mend("CRD103", {README: with_lines(lines, drop="base_model")}).changed


def test_prose_is_left_to_a_person(mend):
    assert not mend("CRD103", {README: with_lines('datasets: ["librispeech 960h"]\n')}).changed


def test_the_base_of_an_adapter_takes_the_place_of_a_path(mend):
    change = {README: with_lines("base_model: /home/u/llama\n", drop="base_model")}
    assert "base_model: example/base\n" in mend("CRD103", change, "lora").text(README)


def test_a_base_model_that_contradicts_is_left_to_a_person(mend):
    change = {README: with_lines("base_model: example/old\n", drop="base_model")}
    assert not mend("CRD204", change, "lora").changed


@pytest.mark.parametrize("word", ["apache", "cc-by", "custom", "see LICENSE"])
def test_a_license_that_is_not_named_without_doubt_is_not_guessed(mend, word):
    assert not mend("LIC101", {README: with_lines(f"license: {word}\n", drop="license")}).changed


def test_a_language_and_its_country_become_the_language_once(mend):
    lines = "language: [zh-CN, zh-TW]\n"
    found = mend("CRD104", {README: with_lines(lines, drop="language")}).text(README)
    assert "language:\n- zh\n" in found


def test_a_word_that_is_no_language_stays(mend):
    assert not mend("CRD104", {README: with_lines("language: [en, noinfo]\n", drop="language")}).changed


def test_a_misspelt_key_is_renamed_where_it_stands(mend):
    change = {README: with_lines("pipeline-tag : fill-mask # task\n", drop="pipeline_tag")}
    assert "pipeline_tag : fill-mask # task\n" in mend("CRD207", change).text(README)


def test_a_misspelt_license_that_is_none_is_not_renamed(mend):
    change = {README: with_lines("licence: license\n", drop="license")}
    assert not mend("CRD207", change).changed


def test_a_library_is_not_named_for_weights_of_another(mend):
    from repokit.linter.examples import safetensors, tensors_of

    mlx = {"model.safetensors": lambda content: safetensors(tensors_of(content), {"format": "mlx"})}
    assert not mend("CRD301", mlx | {README: with_lines(drop="library_name")}).changed


def test_of_two_license_files_none_is_linked(mend):
    change = {
        README: with_lines("license: other\nlicense_name: ours\n", drop="license"),
        "LICENSE.md": "text",
    }
    assert not mend("LIC202", change).changed


def test_a_byte_order_mark_goes(mend):
    marked = b"\xef\xbb\xbf" + CARD.encode()
    assert mend("FIL101", {README: marked}).text(README) == CARD


def test_a_key_that_stands_twice_with_one_value_stands_once(mend):
    twice = CARD.replace("base_model:", "license: Apache 2.0\n# from\nbase_model:")
    assert mend("FIL101", {README: twice}).text(README) == CARD.replace("base_model:", "# from\nbase_model:")


def test_a_key_with_two_values_is_left_to_a_person(mend):
    assert not mend("FIL101", {README: CARD.replace("base_model:", "license: mit\nbase_model:")}).changed


def test_a_front_matter_that_is_never_closed_is_left_to_a_person(mend):
    assert not mend("FIL101", {README: "---\nlicense: mit\n"}).changed


def test_the_only_base_of_an_adapter_is_not_taken_away(mend):
    change = {
        README: with_lines("base_model: /home/u/llama\n", drop="base_model"),
        "adapter_config.json": {"base_model_name_or_path": "/home/u/llama"},
    }
    assert not mend("CRD103", change, "lora").changed


def test_a_license_is_not_named_against_the_text_that_lies_beside(mend):
    assert not mend("LIC101", {README: with_lines("license: MIT\n", drop="license")}).changed


def test_a_license_follows_the_one_text_of_one(mend):
    found = mend("LIC201", {README: with_lines(drop="license")}).text(README)
    assert "license: apache-2.0\n" in found


def test_a_text_that_is_not_known_names_no_license(mend):
    assert not mend("LIC201", {README: with_lines(drop="license"), "LICENSE": "Do as you please.\n"}).changed


def test_of_two_texts_none_names_the_license(mend):
    change = {README: with_lines(drop="license"), "LICENSE-MODEL": "MIT License\n"}
    assert not mend("LIC201", change).changed


@pytest.mark.parametrize("language", ["en-de", "en_to_fr", "non-english", "old-english"])
def test_what_may_be_two_languages_or_none_is_left_alone(mend, language):
    assert not mend("CRD104", {README: with_lines(f"language: {language}\n", drop="language")}).changed


def test_a_language_with_a_country_is_the_language(mend):
    assert "language: pt\n" in mend("CRD104", {README: with_lines("language: pt-BR\n", drop="language")}).text(README)
