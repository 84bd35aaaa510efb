"""A card that no person has touched is replaced; one word of a person keeps it."""

from __future__ import annotations

import pytest
from huggingface_hub import ModelCard, ModelCardData

from repokit.builder.generated_cards import is_generated
from repokit.formats.front_matter import parse_card

TRL = """
# Model Card for out

This model is a fine-tuned version of [org/base](https://huggingface.co/org/base) on the [org/data](https://x) dataset.
It has been trained using [TRL](https://github.com/huggingface/trl).

## Quick start

```python
from transformers import pipeline

question = "If you had a time machine, but could only go to the past or the future once, which would you choose?"
generator = pipeline("text-generation", model="org/out", device="cuda")
print(generator([{"role": "user", "content": question}], max_new_tokens=128)[0]["generated_text"])
```

## Training procedure

[<img src="https://raw.githubusercontent.com/wandb/assets/main/badge.svg" alt="Visualize" width="150"/>](https://x)

This model was trained with SFT.

### Framework versions

- TRL: 0.25.0
- Transformers: 5.1.0
- Pytorch: 2.9.0+cu128

## Citations

Cite TRL as:

```bibtex
@misc{vonwerra2022trl, title = {{TRL}}}
```
"""
TRAINER = """
<!-- This model card has been generated automatically according to the information the Trainer had access to. You
should probably proofread and complete it, then remove this comment. -->

# out

This model is a fine-tuned version of [org/base](https://huggingface.co/org/base) on an unknown dataset.
It achieves the following results on the evaluation set:
- Loss: 0.4213
- Model Preparation Time: 0.0012

## Model description

More information needed

## Intended uses & limitations

More information needed

## Training and evaluation data

More information needed

## Training procedure

### Training hyperparameters

The following hyperparameters were used during training:
- learning_rate: 5e-05
- optimizer: Use OptimizerNames.ADAMW_TORCH with betas=(0.9,0.999) and epsilon=1e-08 and no additional arguments
- num_epochs: 3.0

### Training results

| Training Loss | Epoch | Step | Validation Loss |
|:-------------:|:-----:|:----:|:---------------:|
| No log        | 1.0   | 7    | 0.5             |


### Framework versions

- Transformers 5.24.0
- Pytorch 2.13.0+cpu
- Tokenizers 0.23.3
"""


def hub_template(**data):
    card = ModelCard.from_template(
        ModelCardData(**data), **{key: value for key, value in data.items() if key != "tags"}
    )
    return parse_card(str(card).encode(), "README.md").body


GENERATED = {
    "trl": TRL,
    "trainer": TRAINER,
    "hub": hub_template(),
    "hub with data": hub_template(license="mit", language="en"),
}


@pytest.mark.parametrize("card", GENERATED)
def test_what_a_trainer_wrote_is_generated(card):
    assert is_generated(GENERATED[card])


@pytest.mark.parametrize("card", GENERATED)
@pytest.mark.parametrize(
    "words",
    [
        "We trained it on tweets.",
        "## Limitations\n\nNot for medicine.",
        "- Do not use it for medicine",
        "> A quote",
        "![x](y.png)",
    ],
)
def test_a_sentence_of_a_person_in_any_section_is_seen(card, words):
    lines = GENERATED[card].splitlines()
    free = {"## Model description", "### Direct Use", "### Framework versions"}
    place = next(number for number, line in enumerate(lines) if line in free) + 1
    assert not is_generated("\n".join([*lines[:place], "", words, "", *lines[place:]]))


@pytest.mark.parametrize("card", GENERATED)
def test_a_placeholder_that_a_person_filled_is_seen(card):
    text = GENERATED[card].replace("More information needed", "Filled by me.", 1)
    text = text.replace("[More Information Needed]", "Filled by me.", 1).replace("SFT.", "SFT. Filled by me.")
    assert not is_generated(text.replace("- **Developed by:** Filled by me.", "- **Funded by:** me"))


@pytest.mark.parametrize("body", ["", "\n\n", "<!-- nothing -->\n"])
def test_an_empty_body_is_nobodys(body):
    assert is_generated(body)


@pytest.mark.parametrize(
    "body",
    [
        "# My model\n",
        "A text.\n",
        "A text.\n\n---\n",
        "\n---\n\nA text between rules.\n\n---\n",
        "# My model\n\nMore information needed\n",
        "| a | b |\n|---|---|\n",
        "# My model\n\n[More Information Needed]\n\nIt was trained by me.\n",
    ],
)
def test_a_short_card_of_a_person_is_a_persons(body):
    assert not is_generated(body)


@pytest.mark.oracle
def test_the_card_of_the_trainer_itself_is_generated():
    modelcard = pytest.importorskip("transformers.modelcard", reason="install the dependency group `oracles`")
    summary = modelcard.TrainingSummary(
        model_name="out",
        finetuned_from="org/base",
        eval_results={"Loss": 0.4213, "Accuracy": 0.75},
        eval_lines=[{"Training Loss": "No log", "Epoch": 1.0, "Step": 7, "Validation Loss": 0.5}],
        hyperparameters={
            "learning_rate": 5e-05,
            "train_batch_size": 2,
            "optimizer": "Use adamw with betas=(0.9,0.999)",
        },
        source="trainer",
    )
    assert is_generated(parse_card(summary.to_model_card().encode(), "README.md").body)


@pytest.mark.oracle
def test_the_card_of_peft_itself_is_generated(tmp_path):
    peft = pytest.importorskip("peft", reason="install the dependency group `oracles`")
    torch = pytest.importorskip("torch", reason="install the dependency group `oracles`")
    wrapped = peft.get_peft_model(torch.nn.Sequential(torch.nn.Linear(2, 2)), peft.LoraConfig(target_modules=["0"]))
    wrapped.save_pretrained(tmp_path)
    assert is_generated(parse_card((tmp_path / "README.md").read_bytes(), "README.md").body)
