"""The front matter of README.md: what the Hub knows of a model.

Source: hub-docs modelcard.md, docs/hub/model-cards.md and models-gated.md; huggingface_hub 2.4 repocard_data.py.
Which values the Hub accepts is in data/: licenses, pipeline_tags, languages.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from pydantic import Field

from repokit.schema.document import Document

OneOrMany: TypeAlias = str | list[str]


class Task(Document):
    """What was evaluated."""

    type: str = Field(description="A pipeline tag.")
    name: str | None = Field(None, description="The task's name, for people.")


class EvaluationDataset(Document):
    """On what it was evaluated."""

    type: str = Field(description="Id of a dataset on the Hub.")
    name: str = Field(description="The dataset's name, for people.")
    config: str | None = Field(None, description="Its configuration.")
    split: str | None = Field(None, description="Its split: `test`.")
    revision: str | None = Field(None, description="Its commit.")
    args: Any = Field(None, description="Arguments of load_dataset().")


class Metric(Document):
    """One measured number."""

    type: str = Field(description="Id of a metric.")
    value: Any = Field(description="Usually a number.")
    name: str | None = Field(None, description="The metric's name, for people.")
    config: str | None = Field(None, description="Its configuration.")
    args: Any = Field(None, description="Arguments of the metric.")
    verified: bool | None = Field(None, description="Whether the Hub ran the evaluation.")
    verify_token: str | None = Field(
        None, alias="verifyToken", description="Signature of an evaluation that the Hub ran."
    )


class EvaluationSource(Document):
    """Who says so."""

    name: str | None = Field(None, description="Its name, for people.")
    url: str | None = Field(None, description="The Hub asks for it where there is a source.")


class EvaluationResult(Document):
    """Metrics of one task on one dataset."""

    task: Task = Field(description="What was evaluated.")
    dataset: EvaluationDataset = Field(description="On what it was evaluated.")
    metrics: list[Metric] = Field(description="What was measured.")
    source: EvaluationSource | None = Field(None, description="Who says so.")


class ModelIndexEntry(Document):
    """The results of one model. Without one of the required keys huggingface_hub refuses the whole card."""

    name: str = Field(description="The model's name, for people.")
    results: list[EvaluationResult] = Field(description="One entry per task and dataset.")


class Card(Document):
    """The front matter of README.md."""

    language: OneOrMany | None = Field(None, description="ISO 639-1 or 639-3 codes, `code` or `multilingual`.")
    license: OneOrMany | None = Field(None, description="Ids of data/licenses.json.")
    license_name: str | None = Field(None, description="An id of its own, where license is `other`.")
    license_link: str | None = Field(None, description="LICENSE, LICENSE.md or a URL, where license is `other`.")
    library_name: str | None = Field(None, description="The library that loads it: `transformers`, `peft`.")
    pipeline_tag: str | None = Field(None, description="The task: one of data/pipeline_tags.json.")
    tags: list[str] | None = Field(None, description="Words that the model is found by.")
    datasets: OneOrMany | None = Field(None, description="Ids of datasets on the Hub that it was trained on.")
    metrics: OneOrMany | None = Field(None, description="Ids of metrics.")
    base_model: OneOrMany | None = Field(None, description="Ids of the models that it was made from.")
    base_model_relation: str | None = Field(None, description="adapter, merge, quantized or finetune.")
    new_version: str | None = Field(None, description="Id of the model that replaces this one.")
    model_name: str | None = Field(None, description="Name in model-index, for people.")
    thumbnail: str | None = Field(None, description="URL of a picture.")
    inference: bool | dict[str, Any] | str | None = Field(None, description="Whether the widget runs; or parameters.")
    widget: list[Any] | None = Field(None, description="Examples of the widget: {text, example_title, output}.")
    co2_eq_emissions: float | dict[str, Any] | None = Field(None, description="Grams, or {emissions: grams, ...}.")
    model_index: list[ModelIndexEntry] | None = Field(None, alias="model-index", description="Evaluation results.")
    instance_prompt: str | None = Field(None, description="Text that makes a fine-tuned image model draw its subject.")
    extra_gated_prompt: str | None = Field(None, description="What a person agrees to before a download.")
    extra_gated_fields: dict[str, Any] | None = Field(
        None, description="Question -> text, checkbox, date_picker, country, select, or {type, options}."
    )
    extra_gated_heading: str | None = Field(None, description="Heading of the form.")
    extra_gated_description: str | None = Field(None, description="Text above the form.")
    extra_gated_button_content: str | None = Field(None, description="Label of the button.")
    extra_gated_eu_disallowed: bool | None = Field(None, description="Has an effect only where the model is gated.")
