from __future__ import annotations

import json
import re

import pytest
from huggingface_hub import ModelCard

from repokit.errors import MalformedFile
from repokit.formats.front_matter import parse_card

HUMAN = """\
---
# mine
license: mit
pipeline_tag: feature-extraction
library_name: sentence-transformers
tags: [mine]
---
# Meine Größe

A body\twith blanks at the end of a line\x20\x20

---

license: this is text
"""
SECTIONS = {
    "intended_use": "Intended use",
    "limitations": "Limitations",
    "training": "Training",
    "evaluation": "Evaluation",
    "citation": "Citation",
    "contact": "Contact",
}


@pytest.fixture
def card(workshop):
    """Plans a build of a checkpoint with a README.md and gives the planned card."""

    def write(readme=None, *, files=None, config=None, tensors=None, **recipe):
        extra = {} if readme is None else {"README.md": readme}
        workshop.checkpoint(tensors, config=config, files={**extra, **(files or {})})
        plan = workshop.plan(**recipe)
        return next(operation.content for operation in plan.operations if operation.path == "README.md").decode()

    return write


def metadata(card):
    return dict(parse_card(card.encode(), "README.md").metadata)


def body(card):
    return parse_card(card.encode(), "README.md").body


def headings(card):
    return re.findall(r"^#+ .*$", re.sub(r"```.*?```", "", body(card), flags=re.DOTALL), re.MULTILINE)


# ------------------------------------------------------------------------------------------------ front matter

FULL = {
    "license": {"id": "other", "name": "my-license", "link": "https://example.com/license"},
    "base": {"id": "org/base", "revision": "abc"},
    "card": {
        "language": ["en", "no"],
        "datasets": "org/data",
        "metrics": ["accuracy"],
        "tags": ["a", "b"],
        "pipeline_tag": "text-generation",
        "library_name": "transformers",
        "new_version": "org/new",
        "thumbnail": "https://example.com/x.png",
        "extra_gated_prompt": "You agree\n---\nto this.",
        "extra_gated_fields": {"Name": "text", "Country": {"type": "select", "options": ["NO", "no"]}},
    },
}
FULL_METADATA = {
    "language": ["en", "no"],
    "license": "other",
    "license_name": "my-license",
    "license_link": "https://example.com/license",
    "library_name": "transformers",
    "tags": ["a", "b"],
    "datasets": ["org/data"],
    "metrics": ["accuracy"],
    "base_model": "org/base",
    "base_model_relation": "finetune",
    "pipeline_tag": "text-generation",
    "new_version": "org/new",
    "thumbnail": "https://example.com/x.png",
    "extra_gated_prompt": "You agree\n---\nto this.",
    "extra_gated_fields": {"Name": "text", "Country": {"type": "select", "options": ["NO", "no"]}},
}


def test_the_front_matter_says_what_the_recipe_says(card):
    assert metadata(card(**FULL)) == FULL_METADATA


def test_the_client_of_the_hub_reads_the_same(card):
    assert ModelCard(card(**FULL)).data.to_dict() == FULL_METADATA


def test_the_least_front_matter_is_complete(card):
    assert metadata(card()) == {
        "license": "apache-2.0",
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
    }


def test_one_language_is_a_string(card):
    assert metadata(card(card={"language": ["no"]}))["language"] == "no"


@pytest.mark.parametrize(
    ("config", "task"),
    [
        ({"architectures": ["BertForSequenceClassification"]}, "text-classification"),
        ({"architectures": ["Qwen2VLForConditionalGeneration"], "vision_config": {}}, "image-text-to-text"),
        ({"architectures": ["GPT2LMHeadModel"]}, "text-generation"),
    ],
)
def test_the_task_follows_from_the_architecture(card, config, task):
    assert metadata(card(config=config))["pipeline_tag"] == task


@pytest.mark.parametrize("architectures", [[], ["T5ForConditionalGeneration"], ["SomethingElse"], None])
def test_a_task_that_the_architecture_does_not_tell_is_not_guessed(card, architectures):
    assert "pipeline_tag" not in metadata(card(config={"architectures": architectures}))


def test_another_license_links_to_the_file_that_is_published(card):
    found = metadata(card(files={"LICENSE.md": "text"}, license={"id": "other", "name": "x"}))
    assert found["license_link"] == "LICENSE.md"


# ------------------------------------------------------------------------------------------------ a person's card


def test_a_persons_body_stays_byte_for_byte(card):
    assert body(card(HUMAN, card={"summary": "another", "limitations": "others"})) == body(HUMAN)


def test_what_the_recipe_says_wins_over_a_persons_front_matter(card):
    assert metadata(card(HUMAN, license={"id": "apache-2.0"}, card={"tags": ["x"], "pipeline_tag": "fill-mask"})) == {
        "license": "apache-2.0",
        "pipeline_tag": "fill-mask",
        "library_name": "sentence-transformers",
        "tags": ["x"],
    }


def test_what_is_inferred_does_not_win_over_a_persons_front_matter(card):
    found = metadata(card(HUMAN))
    assert (found["pipeline_tag"], found["library_name"]) == ("feature-extraction", "sentence-transformers")


def test_a_card_that_says_everything_stays_byte_for_byte(card):
    assert card(HUMAN, license={"id": "mit"}) == HUMAN


def test_the_name_of_an_outdated_license_is_taken_out(card):
    readme = "---\nlicense: other\nlicense_name: old\nlicense_link: https://x\n---\nText of a person.\n"
    assert metadata(card(readme)) == {
        "license": "apache-2.0",
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
    }


@pytest.mark.parametrize(
    "text", ["Text.\n", "Text.\n\n---\n", "# Title\n\nText with [More Information Needed] in it.\n"]
)
def test_a_persons_card_without_front_matter_gets_one(card, text):
    assert body(card(text)) == text


def test_a_byte_order_mark_before_a_persons_text_is_dropped(card):
    assert body(card("\ufeffText.\n")) == "Text.\n"


def test_a_card_that_does_not_parse_stops_the_build(card):
    with pytest.raises(MalformedFile, match=r"README\.md: line 3"):
        card("---\nlicense: mit\nlicense: mit\n---\nText.\n")


# ------------------------------------------------------------------------------------------------ our card

GENERATED = """\
---
library_name: peft
license: license
language: de
datasets: [org/data]
tags: [generated_from_trainer]
model-index:
- name: out
  results: []
---
# out

It has been trained using [TRL](https://github.com/huggingface/trl).

## Model description

More information needed
"""


def test_a_generated_card_is_replaced(card):
    assert "More information needed" not in card(GENERATED)


def test_what_a_generated_card_knows_survives(card):
    assert metadata(card(GENERATED)) == {
        "language": "de",
        "datasets": ["org/data"],
        "model-index": [{"name": "out", "results": []}],
        "license": "apache-2.0",
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
    }


def test_sections_without_content_are_left_out(card):
    assert headings(card()) == ["# out", "## Model details", "## How to use", "## License"]


@pytest.mark.parametrize("key", SECTIONS)
def test_a_section_with_content_is_there(card, key):
    text = card(card={key: "Some words."})
    assert f"## {SECTIONS[key]}\n\nSome words.\n" in text


@pytest.mark.parametrize("key", [*SECTIONS, "summary", "usage"])
@pytest.mark.parametrize("value", ["", "  \n "])
def test_a_section_of_white_space_is_left_out(card, key, value):
    assert headings(card(card={key: value})) == ["# out", "## Model details", "## How to use", "## License"]


@pytest.mark.parametrize(
    "recipe",
    [
        {},
        FULL,
        {"card": dict.fromkeys(SECTIONS, "Some words.")},
        {"identity": {"name": "N", "family": "F", "variant": "V"}, "repo": "org/name", "push": {"tag": "v1"}},
    ],
)
@pytest.mark.parametrize("config", [{}, {"architectures": [], "model_type": None, "vocab_size": None}])
def test_nothing_empty_is_shown(card, recipe, config):
    text = card(config=config, **recipe)
    assert [word for word in ("None", "null", "[]", "\n\n\n", "(``)") if word in text] == []


@pytest.mark.parametrize("config", [{}, {"architectures": [], "model_type": None, "vocab_size": None}])
def test_no_row_of_the_table_is_empty(card, config):
    rows = re.findall(r"^\| ([^|]*) \| ([^|]*) \|$", card(config=config), re.MULTILINE)
    assert [row for row in rows if not all(cell.strip(" `()") for cell in row)] == []


def test_every_heading_has_a_text(card):
    assert re.findall(r"^##+ [^\n]*\n+(?=#+ |\Z)", body(card(**FULL)), re.MULTILINE) == []


def test_the_title_is_the_name_of_the_model(card):
    assert headings(card(identity={"name": "My  model\n8B"}))[0] == "# My model 8B"


def test_the_title_is_the_repositorys_where_no_name_is_given(card):
    assert headings(card(repo="org/name"))[0] == "# name"


def test_the_details_count_what_is_written(card):
    text = card(weights={"dtype": "bfloat16"})
    assert "| Parameters | 796 |" in text
    assert "| Stored as | bfloat16 (792), int64 (4), safetensors |" in text


def test_a_name_in_config_cannot_break_the_table(card):
    text = card(config={"architectures": ["A|B\n# Injected"], "model_type": "x`\n\n## Injected"})
    assert headings(text) == ["# out", "## Model details", "## How to use", "## License"]
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 3 for line in text.splitlines() if line.startswith("| "))


def test_a_name_in_config_cannot_get_into_the_snippet(card):
    text = card(config={"architectures": ['Evil; import os; os.system("x")']})
    assert "AutoModel.from_pretrained" in text
    assert "import os" not in re.findall(r"```python(.*?)```", text, re.DOTALL)[0]


@pytest.mark.parametrize("name", ['My "model"', "a/b\\c", "ü", "-", "x; rm -rf ~"])
def test_the_directory_of_the_snippet_needs_no_quotes(card, name):
    found = re.search(r"--local-dir (.*)", card(repo="me/model", identity={"name": name}))
    assert re.fullmatch(r"[A-Za-z0-9._-]+", found[1])


def snippet(text):
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]


def test_the_snippet_loads_offline(card):
    assert 'LlamaForCausalLM.from_pretrained("out", local_files_only=True, device_map="auto")' in snippet(card())


def test_the_snippet_is_python(card):
    compile(snippet(card(files=CHAT)), "README.md", "exec")


CHAT = {"tokenizer.json": "{}", "tokenizer_config.json": json.dumps({"chat_template": "{{ messages }}"})}


def test_the_snippet_chats_where_there_is_a_template(card):
    assert "apply_chat_template" in snippet(card(files=CHAT))


def test_the_snippet_has_no_tokenizer_that_the_recipe_excludes(workshop):
    workshop.checkpoint(files=CHAT)
    workshop.build(files={"exclude": ["tokenizer*"]})
    assert "Tokenizer" not in workshop.read("README.md").decode()


def test_the_snippet_has_the_tokenizer_that_comes_from_the_base(workshop):
    workshop.checkpoint()
    workshop.checkpoint(name="base", files=CHAT)
    workshop.build(base={"path": "./base"}, tokenizer={"from": "base"})
    assert "AutoTokenizer.from_pretrained" in workshop.read("README.md").decode()


@pytest.mark.parametrize(
    ("config", "processor", "needs"),
    [
        ({}, False, "transformers accelerate torch"),
        ({"architectures": ["ViTForImageClassification"]}, True, "transformers accelerate torch torchvision pillow"),
        ({"vision_config": {}}, True, "transformers accelerate torch torchvision pillow"),
        ({"architectures": ["Wav2Vec2ForCTC"]}, True, "transformers accelerate torch"),
    ],
)
def test_the_card_says_what_must_be_installed(card, config, processor, needs):
    files = {"preprocessor_config.json": "{}"} if processor else {}
    assert f"`pip install {needs}`" in card(config=config, files=files)


def test_the_snippet_pins_the_tag(card):
    assert "hf download org/name --revision v1.0 --local-dir name" in card(repo="org/name", push={"tag": "v1.0"})


def test_own_code_is_named_as_such(card):
    text = card(config={"auto_map": {"AutoModelForCausalLM": "modeling.X"}}, files={"modeling.py": "class X: pass"})
    assert "AutoModelForCausalLM.from_pretrained" in snippet(text)
    assert "trust_remote_code=True" in snippet(text)


def test_usage_of_a_person_stands_for_the_snippet(card):
    assert "```python" not in card(card={"usage": "Use it well."})


@pytest.mark.parametrize(
    ("state", "facts"),
    [
        (
            {"global_step": 1200, "epoch": 3.0, "train_batch_size": 8},
            ["- 1,200 optimizer steps, 3 epochs", "- batch size 8 per device"],
        ),
        ({"global_step": 1, "epoch": 1.0}, ["- 1 optimizer step, 1 epoch"]),
        ({"global_step": 5, "epoch": None}, ["- 5 optimizer steps"]),
        ({"global_step": 5, "epoch": True}, ["- 5 optimizer steps"]),
        ({"global_step": 0, "epoch": 0.0, "train_batch_size": 0}, []),
        ({"global_step": "5", "epoch": "/home/x", "train_batch_size": [1]}, []),
    ],
)
def test_facts_of_the_training_are_numbers(card, state, facts):
    text = card(files={"trainer_state.json": json.dumps(state)})
    assert [line for line in text.splitlines() if line.startswith("- ")] == facts


def test_a_state_with_nan_says_nothing(card):
    assert "nan" not in card(files={"trainer_state.json": '{"global_step": 5, "epoch": NaN}'})


def test_sections_that_a_person_s_card_does_not_take_are_said(workshop):
    workshop.checkpoint(files={"README.md": "---\nlicense: apache-2.0\n---\n# Mine\n\nWritten by me.\n"})
    (warning,) = workshop.plan(card={"summary": "A model.", "limitations": "Many."}).warnings
    assert "card.summary, card.limitations" in warning


def test_the_license_links_to_its_text(card):
    assert "## License\n\n`apache-2.0` ([text](LICENSE))." in card(files={"LICENSE": "words"})


def test_the_packages_come_before_the_code(card):
    text = card()
    assert text.index("pip install") < text.index("```python")


@pytest.mark.parametrize("keys", [{"base": {"id": "base"}}, {"repo": "base"}])
def test_a_repository_without_an_owner_is_a_warning(workshop, keys):
    workshop.checkpoint()
    assert any("'base' is no org/name" in warning for warning in workshop.plan(**keys).warnings)


def test_an_old_name_has_no_owner(workshop):
    workshop.checkpoint()
    assert not any("org/name" in warning for warning in workshop.plan(base={"id": "gpt2"}).warnings)
