"""Chat templates: one text in every place."""

from __future__ import annotations

from repokit.linter.examples import CHATML
from repokit.repo.chat_template import JINJA, LEGACY

CONFIG = "tokenizer_config.json"
OTHER = "{{ messages[0].content }}"


def test_of_several_named_templates_only_the_other_one_changes(mend):
    named = [{"name": "tool_use", "template": OTHER}, {"name": "default", "template": OTHER}]
    change = {CONFIG: {"chat_template": named}, "additional_chat_templates/tool_use.jinja": OTHER}
    found = mend("TPL104", change).json(CONFIG)["chat_template"]
    assert found == [named[0], {"name": "default", "template": CHATML}]


def test_a_place_that_is_given_up_stays_where_it_is_the_only_one(mend):
    assert not mend("TPL303", {JINJA: None, LEGACY: {"chat_template": CHATML}}).changed


def test_a_place_that_is_given_up_stays_where_it_says_something_else(mend):
    assert not mend("TPL303", {LEGACY: {"chat_template": OTHER}}).changed


def test_other_keys_beside_a_template_stay(mend):
    found = mend("TPL303", {"processor_config.json": {"chat_template": CHATML, "processor_class": "XProcessor"}})
    assert found.json("processor_config.json") == {"processor_class": "XProcessor"}


def test_a_byte_order_mark_in_json_goes(mend):
    assert (
        mend("TPL106", {JINJA: None, CONFIG: {"chat_template": "\ufeff" + CHATML}}).json(CONFIG)["chat_template"]
        == CHATML
    )


def test_a_name_that_leads_elsewhere_is_not_written(mend):
    change = {CONFIG: {"chat_template": [{"name": "nul", "template": CHATML}, {"name": "../x", "template": CHATML}]}}
    assert not any(".." in path for path in mend("TPL205", change).changed)


def test_the_first_special_token_behind_a_turn_ends_it(mend):
    template = CHATML.replace("<|im_end|>", "<|im_end|></s>")
    change = {
        JINJA: template,
        "generation_config.json": {"eos_token_id": 1},
        "config.json": {"eos_token_id": 1},
        CONFIG: {"eos_token": "<s>"},
    }
    assert mend("TPL107", change).json("generation_config.json")["eos_token_id"] == [1, 4]
