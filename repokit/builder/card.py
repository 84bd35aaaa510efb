"""README.md: true and complete front matter, short full sections, a person's own words kept.

The card says what is known and nothing else: a section without content is left out, not filled with placeholders.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from repokit.builder.generated_cards import is_generated
from repokit.formats.front_matter import parse_card
from repokit.formats.front_matter_edit import with_metadata
from repokit.formats.tensors import HEADER_NAMES
from repokit.printable import count, printable
from repokit.resources import data, folder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from repokit.builder.checkpoints.sources import Checkpoint
    from repokit.builder.checkpoints.training_run import TrainerState
    from repokit.repo.config import Config
    from repokit.schema.recipe import Recipe

README: Final = "README.md"


def write_card(
    recipe: Recipe,
    checkpoint: Checkpoint,
    *,
    published: Collection[str],
    dtypes: Mapping[str, int],
    parameters: int,
    license_file: str | None,
    merged_from: Sequence[str] = (),
    existing: bytes | None = None,
) -> bytes:
    """The card of a full model.

    Args:
        recipe: What the user says.
        checkpoint: What the source says; its README.md is kept where a person wrote it.
        published: The files beside weights and card.
        dtypes: Parameters by dtype, as a header spells it, of what will be written.
        parameters: Their sum.
        license_file: The license file that is published, or None.
        merged_from: The adapters that are part of it, by names that are no paths.
        existing: What stands for the source's README.md, where that is the card of something else.

    Raises:
        MalformedFile: The source's README.md does not parse.
    """
    config = checkpoint.config
    assert config is not None  # noqa: S101 - layouts.check_supported refuses a checkpoint without one
    inferred = {
        "library_name": "transformers",
        "base_model_relation": "finetune" if recipe.base.id else None,
        "pipeline_tag": pipeline_tag(config),
    }
    shown = partial(_body, recipe, checkpoint, config, published=published, dtypes=dtypes, parameters=parameters)
    body = partial(shown, merged_from=merged_from, license_file=license_file)
    return put_together(recipe, checkpoint, inferred, license_file, body, existing=existing)


def put_together(
    recipe: Recipe,
    checkpoint: Checkpoint,
    inferred: Mapping[str, Any],
    license_file: str | None,
    body: Callable[[], str],
    *,
    existing: bytes | None = None,
) -> bytes:
    """A card of any kind: front matter over the body that a person wrote, or over a new one.

    Args:
        recipe: What the user says.
        checkpoint: Its README.md is kept where a person wrote it.
        inferred: Front matter that follows from the files; it fills gaps.
        license_file: The license file that is published, or None.
        body: Writes the new one.
        existing: Stands for the source's README.md; empty for none.

    Raises:
        MalformedFile: The source's README.md does not parse.
    """
    content = (checkpoint.repository.content(README) or b"") if existing is None else existing
    found = parse_card(content, README)
    known = dict(found.metadata or {})
    if not is_generated(found.body):
        metadata = _metadata(recipe, inferred, license_file, known=known)
        outdated = () if recipe.license.id == "other" else ("license_name", "license_link")
        return with_metadata(content, metadata, README, without=[key for key in outdated if not metadata[key]])
    metadata = {**_survivors(known), **_stated(_metadata(recipe, inferred, license_file, known={}))}
    return with_metadata(b"\n" + body().encode(), metadata, README)


SECTIONS: Final = ("summary", "intended_use", "usage", "training", "evaluation", "limitations", "citation", "contact")


def unused(recipe: Recipe, checkpoint: Checkpoint) -> list[str]:
    """A warning where the recipe has sections for a card whose body a person wrote, and that is kept as it is."""
    content = checkpoint.repository.content(README)
    given = [name for name in SECTIONS if getattr(recipe.card, name)]
    if not given or content is None or is_generated(parse_card(content, README).body):
        return []
    names = ", ".join(f"card.{name}" for name in given)
    return [f"README.md of the source was written by a person and is kept: {names} of the recipe is not in it"]


# The models of transformers' first years that most are made from: their names have no owner.
_OWNERLESS: Final = frozenset(
    {"gpt2", "bert-base-uncased", "bert-base-cased", "distilbert-base-uncased", "roberta-base", "t5-small", "t5-base"}
)


def dead_links(recipe: Recipe) -> list[str]:
    """A warning for each repository that the card names without an owner."""
    named = {"base.id": recipe.base.id, "repo": recipe.repo}
    return [
        f"{key} {name!r} is no org/name: the card will link a page that is not there"
        for key, name in named.items()
        if name is not None and "/" not in name and name not in _OWNERLESS
    ]


def _survivors(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What a generated card knows that the recipe does not: its data sets and results, not its placeholders."""
    names = ("language", "datasets", "metrics", "model-index")
    return {name: metadata[name] for name in names if metadata.get(name)}


def _stated(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if value is not None}


def _metadata(
    recipe: Recipe, inferred: Mapping[str, Any], license_file: str | None, *, known: Mapping[str, Any]
) -> dict[str, Any]:
    """Front matter in the Hub's own order (hub-docs modelcard.md).

    Args:
        recipe: What it states wins.
        inferred: What follows from the files fills gaps.
        license_file: The license file that is published, or None.
        known: What the card states already, which only the recipe overrides.
    """
    card = recipe.card
    link = recipe.license.link or (license_file if recipe.license.id == "other" else None)
    gaps = {key: value for key, value in inferred.items() if key not in known}
    return {
        "language": _one_or_list(card.language),
        "license": recipe.license.id,
        "license_name": recipe.license.name,
        "license_link": link,
        "library_name": card.library_name or gaps.get("library_name"),
        "tags": list(dict.fromkeys([*gaps.get("tags", ()), *card.tags])) or None,
        "datasets": list(card.datasets) or None,
        "metrics": list(card.metrics) or None,
        "base_model": recipe.base.id,
        "base_model_relation": card.base_model_relation or gaps.get("base_model_relation"),
        "pipeline_tag": card.pipeline_tag or gaps.get("pipeline_tag"),
        "new_version": card.new_version,
        "thumbnail": card.thumbnail,
        **{name: value for name, value in card.model_dump().items() if name.startswith("extra_gated_")},
    }


def _one_or_list(values: Sequence[str]) -> str | list[str] | None:
    return None if not values else values[0] if len(values) == 1 else list(values)


def pipeline_tag(config: Config) -> str | None:
    """The task that the architecture is for, where its name says so."""
    task = _task(config)
    return task["pipeline_tag"] if task else None


def _task(config: Config) -> Mapping[str, str] | None:
    table: Mapping[str, Mapping[str, str]] = data("tasks")["suffixes"]
    architecture = next(iter(config.architectures), "")
    if architecture.endswith("ForConditionalGeneration") and "vision_config" in config:
        return {"pipeline_tag": "image-text-to-text", "auto": "AutoModelForImageTextToText"}
    return next((task for suffix, task in table.items() if architecture.endswith(suffix)), None)


def _body(
    recipe: Recipe,
    checkpoint: Checkpoint,
    config: Config,
    *,
    published: Collection[str],
    dtypes: Mapping[str, int],
    parameters: int,
    merged_from: Sequence[str],
    license_file: str | None,
) -> str:
    merged = [("Merged from", cell(", ".join(merged_from)))] if merged_from else []
    return rendered(
        "card-full.md.jinja",
        recipe,
        details=[*details(recipe, config, _spread(dtypes), parameters), *merged],
        training_facts=training_facts(checkpoint.trainer_state),
        license_file=license_file,
        **loading(checkpoint, config, published),
    )


def rendered(
    template: str,
    recipe: Recipe,
    *,
    license_file: str | None,
    **values: Any,  # noqa: ANN401 - whatever the template shows
) -> str:
    """The body of a card.

    Args:
        template: A file of templates/.
        recipe: Its sections, name and license are at hand in every template.
        license_file: The license file that is published, or None.
        values: What else the template shows.
    """
    import jinja2

    environment = jinja2.Environment(  # noqa: S701 - Markdown, from our own template
        loader=jinja2.FileSystemLoader(folder("templates")),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    text = environment.get_template(template).render(
        title=title(recipe),
        license_sentence=_license_sentence(recipe, license_file),
        repo=recipe.repo,
        revision=recipe.push.tag,
        directory=_directory(recipe, title(recipe)),
        **{name: (getattr(recipe.card, name) or "").strip() for name in SECTIONS},
        **values,
    )
    return text.strip() + "\n"


def title(recipe: Recipe) -> str:
    """One line, never empty."""
    named = (recipe.identity.name, (recipe.repo or "").rpartition("/")[2], PurePosixPath(recipe.output).name)
    return next((line for name in named if (line := " ".join((name or "").split()))), "Model")


def _directory(recipe: Recipe, named: str) -> str:
    """Where the snippet downloads to: a name that needs no quotes in a shell or in Python."""
    name = (recipe.repo or "").rpartition("/")[2] or named
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model"


def _spread(dtypes: Mapping[str, int]) -> str:
    spread = ", ".join(f"{HEADER_NAMES.get(name, name)} ({share:,})" for name, share in sorted(dtypes.items()))
    return spread.partition(" ")[0] if len(dtypes) == 1 else spread


def details(
    recipe: Recipe, config: Config, stored: str, parameters: int | None, made: str = "Fine-tuned from"
) -> list[tuple[str, str]]:
    """The rows of the table at the top of a card.

    Args:
        recipe: What the user says.
        config: What config.json says.
        stored: The dtypes, in words.
        parameters: None where they cannot be counted.
        made: What the model is to its base, as words before its name.
    """
    identity = recipe.identity
    length = config.text.integer("max_position_embeddings")
    base = recipe.base.id
    pinned = f" at `{recipe.base.revision}`" if recipe.base.revision else ""
    names = [f"`{name}`" for name in config.architectures] + ([f"(`{config.model_type}`)"] if config.model_type else [])
    rows: list[tuple[str, str | None]] = [
        ("Family", identity.family),
        ("Variant", identity.variant),
        ("Architecture", " ".join(names)),
        ("Parameters", None if parameters is None else f"{parameters:,}"),
        ("Stored as", f"{stored}, safetensors"),
        ("Vocabulary", f"{config.vocab_size:,} tokens" if config.vocab_size else None),
        ("Context length", f"{length:,} tokens" if length else None),
        (made, f"[{base}](https://huggingface.co/{base}){pinned}" if base else None),
    ]
    return [(label, cell(value)) for label, value in rows if value]


def cell(text: str) -> str:
    """A value that stays inside its cell of a Markdown table."""
    return printable(" ".join(text.split()), 500).replace("|", "\\|")


def training_facts(state: TrainerState) -> list[str]:
    """What trainer_state.json says of the run, in numbers: nothing that could be a path or a name."""
    facts = []
    epochs = state.number("epoch")
    if step := state.integer("global_step"):
        passes = "" if not epochs else ", 1 epoch" if epochs == 1 else f", {epochs:g} epochs"
        facts.append(count(step, "optimizer step") + passes)
    if batch := state.integer("train_batch_size"):
        facts.append(f"batch size {batch:,} per device")
    return facts


def _license_sentence(recipe: Recipe, license_file: str | None) -> str:
    license_ = recipe.license
    name = license_.name if license_.id == "other" and license_.name else license_.id
    text = license_.link or license_file
    return f"`{name}`{f' ([text]({text}))' if text else ''}."


def loading(checkpoint: Checkpoint, config: Config, published: Collection[str]) -> dict[str, Any]:
    """The names that the snippet imports. They come out of config.json and end up in code that people run."""
    remote = "auto_map" in config
    task = _task(config)
    architecture = next((name for name in config.architectures if name.isidentifier()), "AutoModel")
    model = (task["auto"] if task else "AutoModel") if remote else architecture
    has_processor = any(name in published for name in ("preprocessor_config.json", "processor_config.json"))
    has_tokenizer = any(name in published for name in ("tokenizer.json", "tokenizer_config.json"))
    processor = "AutoProcessor" if has_processor else "AutoTokenizer" if has_tokenizer else None
    sees = has_processor and ("vision_config" in config or "image" in (pipeline_tag(config) or ""))
    return {
        "model_class": model,
        "processor": "tokenizer" if processor == "AutoTokenizer" else "processor",
        "processor_class": processor,
        "classes": sorted({model, processor} - {None}),
        "chat": processor == "AutoTokenizer"
        and pipeline_tag(config) == "text-generation"
        and _has_template(checkpoint, published),
        "trust": ", trust_remote_code=True" if remote else "",
        "packages": ["transformers", "accelerate", "torch", *(["torchvision", "pillow"] if sees else [])],
    }


def _has_template(checkpoint: Checkpoint, published: Collection[str]) -> bool:
    config = checkpoint.repository.tokenizer_config
    return "chat_template.jinja" in published or (config is not None and "chat_template" in config)
