"""The card of an adapter: its base, what it was trained with, and how it is put onto it."""

from __future__ import annotations

import ast
import json
import re

import pytest

from repokit.builder.adapters.card import _literal
from repokit.formats.front_matter import parse_card

COMMIT = "0e9e39f249a16976918f6564b8830bc894c89659"
BASE = {"id": "example/base", "revision": COMMIT}


@pytest.fixture
def card(adapters):
    """The card of a build; the checkpoint has an adapter unless the test has written one."""

    def build(**keys):
        if not (adapters.folder / "checkpoint").exists():
            adapters.adapter()
        adapters.build(**keys)
        return adapters.read("README.md").decode()

    return build


def metadata(text):
    return parse_card(text.encode(), "README.md").metadata


def snippet(text):
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]


def test_the_front_matter(card):
    assert metadata(card(base=BASE)) == {
        "license": "apache-2.0",
        "library_name": "peft",
        "tags": ["lora"],
        "base_model": "example/base",
        "base_model_relation": "adapter",
        "pipeline_tag": "text-generation",
    }


def test_the_base_of_the_config_is_the_base_of_the_card(card):
    assert metadata(card())["base_model"] == "example/base"


@pytest.mark.parametrize(
    ("task", "tag"),
    [
        ("SEQ_CLS", "text-classification"),
        ("TOKEN_CLS", "token-classification"),
        ("QUESTION_ANS", "question-answering"),
        ("FEATURE_EXTRACTION", "feature-extraction"),
        ("SEQ_2_SEQ_LM", None),
        (None, None),
    ],
)
def test_the_task_is_the_one_that_it_was_trained_for(adapters, card, task, tag):
    adapters.adapter(config={"task_type": task})
    assert metadata(card()).get("pipeline_tag") == tag


def test_the_base_says_that_it_sees(adapters, card):
    config = {"architectures": ["LlavaForConditionalGeneration"], "vision_config": {}, "model_type": "llava"}
    adapters.adapter(files={"config.json": json.dumps(config)})
    text = card()
    assert metadata(text)["pipeline_tag"] == "image-text-to-text"
    assert "AutoModelForImageTextToText, AutoProcessor" in snippet(text)


SEES = {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "vision_config": {}, "model_type": "qwen2_5_vl"}


def test_a_tokenizer_alone_is_no_processor(adapters, card):
    adapters.adapter(files={"config.json": json.dumps(SEES), "tokenizer.json": "{}", "tokenizer_config.json": "{}"})
    assert 'processor = AutoProcessor.from_pretrained("example/base")' in snippet(card())


def test_its_own_processor_where_it_has_one(adapters, card):
    files = {"tokenizer.json": "{}", "tokenizer_config.json": "{}", "preprocessor_config.json": "{}"}
    adapters.adapter(files={"config.json": json.dumps(SEES), **files})
    assert 'processor = AutoProcessor.from_pretrained("x")' in snippet(card(repo="me/x"))


ROWS = {
    "LoRA": {},
    "LoRA (DoRA)": {"use_dora": True},
    "LoRA (rank-stabilized)": {"use_rslora": True},
    "LoRA (DoRA, rank-stabilized)": {"use_dora": True, "use_rslora": True},
}


@pytest.mark.parametrize("method", ROWS)
def test_the_method_in_words(adapters, card, method):
    adapters.adapter(config=ROWS[method])
    assert f"| Method | {method} |" in card()


@pytest.mark.parametrize(
    "row",
    [
        f"| Base model | [example/base](https://huggingface.co/example/base) at `{COMMIT}` |",
        "| Rank | 4 |",
        "| Alpha | 8 |",
        "| Adapted modules | `q_proj`, `v_proj` |",
        "| Parameters | 448 (1.8 kB) |",
        "| Stored as | float32, safetensors |",
    ],
)
def test_what_it_was_trained_with(card, row):
    assert row in card(base=BASE)


@pytest.mark.parametrize(
    ("config", "row"),
    [
        ({"alpha_pattern": {"q_proj": 16}}, "| Alpha | 8, others by alpha_pattern |"),
        ({"rank_pattern": {"q_proj": 4}}, "| Rank | 4, others by rank_pattern |"),
        ({"lora_alpha": 10**400}, "| Alpha | more than any float |"),
        ({"lora_alpha": -(10**400)}, "| Alpha | less than any float |"),
    ],
)
def test_numbers_that_are_more_than_one(adapters, card, config, row):
    adapters.adapter(config=config)
    assert row in card()


def test_an_expression_stays_inside_its_cell(adapters, card):
    adapters.adapter(config={"target_modules": "(q|v)_proj\n| x |"})
    line = next(line for line in card().splitlines() if line.startswith("| Adapted modules"))
    assert re.sub(r"\\\|", "", line).count("|") == 3


# ------------------------------------------------------------------------------------------------ how it is loaded


def test_the_snippet_is_python(card):
    assert ast.parse(snippet(card(base=BASE)))


def test_the_snippet_loads_the_base_at_its_revision(card):
    assert f'"example/base", revision="{COMMIT}", device_map="auto"' in snippet(card(base=BASE))


def test_the_tokenizer_of_the_base_where_the_adapter_has_none(card):
    assert 'AutoTokenizer.from_pretrained("example/base")' in snippet(card())


def test_its_own_tokenizer_where_it_has_one(adapters, card):
    adapters.adapter(files={"tokenizer.json": "{}", "tokenizer_config.json": "{}"})
    assert 'AutoTokenizer.from_pretrained("x")' in snippet(card(repo="me/x"))


def test_a_chat_where_there_is_a_template(adapters, card):
    adapters.adapter(files={"tokenizer_config.json": '{"chat_template": "x"}'})
    assert "apply_chat_template" in snippet(card())


def test_an_embedding_with_more_rows_is_made_room_for(adapters, card):
    rows = {"base_model.model.model.embed_tokens.weight": adapters.tensor("F32", (20, 16))}
    adapters.adapter({**adapters.lora(), **rows}, config={"modules_to_save": ["embed_tokens"]})
    assert "model.resize_token_embeddings(20)" in snippet(card())


def test_a_classifier_is_made_with_its_labels(adapters, card):
    head = {"base_model.model.score.weight": adapters.tensor("F32", (5, 16))}
    config = {"task_type": "SEQ_CLS", "modules_to_save": ["classifier", "score"]}
    adapters.adapter({**adapters.lora(), **head}, config=config)
    assert "num_labels=5" in snippet(card())


def test_a_class_that_is_no_name_is_not_written_into_the_snippet(adapters, card):
    adapters.adapter(config={"task_type": None, "auto_mapping": {"base_model_class": 'X"); import os; ("'}})
    assert "import os" not in snippet(card())


def test_the_first_of_several_adapters_is_loaded_from_its_folder(adapters, card):
    adapters.adapter(folder="chat")
    adapters.adapter(folder="sql")
    text = card()
    assert 'subfolder="chat"' in snippet(text)
    assert 'adapter_name="sql", subfolder="sql"' in text


def test_no_name_of_an_adapter_has_a_dot_and_none_is_there_twice(adapters, card):
    for folder in ("a", "default", "v1.0", "v1_0"):
        adapters.adapter(folder=folder)
    names = re.findall(r'adapter_name="(.*?)", subfolder="(.*?)"', card())
    assert names == [("default_2", "default"), ("v1_0", "v1.0"), ("v1_0_2", "v1_0")]


@pytest.mark.parametrize("folder", ['a"b', "a'b\"c", "a\\b", "\N{GRINNING FACE}", "\u00e9"])
def test_a_folder_is_a_string_whatever_its_name_is(folder):
    assert ast.literal_eval(_literal(folder)) == folder


def test_one_adapter_has_no_others(card):
    assert "The others" not in card()


# ------------------------------------------------------------------------------------------------ a person's words


def test_the_card_that_peft_writes_is_replaced(adapters, card):
    adapters.adapter(
        files={
            "README.md": "---\nbase_model: /data/base\n---\n\n# Model Card for Model ID\n\n[More Information Needed]\n\n### Framework versions\n\n- PEFT 0.21.2\n"
        }
    )
    assert "More Information Needed" not in card()


def test_a_persons_card_is_kept_with_its_base_set_right(adapters, card):
    adapters.adapter(files={"README.md": "---\nbase_model: /data/base\n---\n\n# Mine\n\nWords of my own.\n"})
    text = card(base=BASE)
    assert text.endswith("# Mine\n\nWords of my own.\n")
    assert metadata(text)["base_model"] == "example/base"


def test_nothing_is_left_open(card):
    assert not re.search(r"\{\{|\{%|None|undefined|\n\n\n", card(repo="me/x"))


def test_it_leads_to_the_text_of_the_license(adapters, card):
    (adapters.adapter() / "LICENSE").write_text("words")
    assert "`apache-2.0` ([text](LICENSE))." in card()
