"""README.md: true and complete front matter, short full sections, a person's own words kept.

The card says what is known and nothing else: a section without content is left out, not filled with placeholders.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from repokit.formats.front_matter import parse_card
from repokit.formats.front_matter_edit import with_metadata
from repokit.formats.tensors import HEADER_NAMES
from repokit.printable import count
from repokit.resources import data, folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from repokit.builder.sources import Checkpoint
    from repokit.repo.config import Config
    from repokit.schema.recipe import Recipe

README: Final = "README.md"

# Sentences of cards that a trainer wrote and no one edited (transformers modelcard.py, peft and trl templates).
_GENERATED: Final = (
    "[More Information Needed]",
    "This model card has been generated automatically",
    "More information needed",
    "has been trained using [TRL]",
    "You should probably proofread and complete it",
)


def write_card(
    recipe: Recipe, checkpoint: Checkpoint, *, dtypes: Mapping[str, int], parameters: int, license_file: str | None
) -> bytes:
    """The card of a full model.

    Args:
        recipe: What the user says.
        checkpoint: What the source says; its README.md is kept where a person wrote it.
        dtypes: Parameters by dtype, as a header spells it, of what will be written.
        parameters: Their sum.
        license_file: The license file that is published, or None.

    Raises:
        MalformedFile: The source's README.md does not parse.
    """
    config = checkpoint.repository.config
    assert config is not None  # noqa: S101 - sources.check_supported refuses a checkpoint without one
    existing = checkpoint.repository.content(README)
    metadata = _metadata(recipe, config, license_file)
    if existing is not None and not is_generated(existing):
        return with_metadata(existing, metadata, README)
    body = _body(recipe, checkpoint, config, dtypes=dtypes, parameters=parameters)
    kept = {} if existing is None else dict(parse_card(existing, README).metadata or {})
    return with_metadata(b"\n" + body.encode(), {**_survivors(kept), **metadata}, README)


def is_generated(card: bytes) -> bool:
    """Whether a trainer wrote this card and no one has edited it, as far as its sentences tell."""
    text = card.decode("utf-8", errors="replace")
    body = text.split("\n---", 1)[-1]
    return not body.strip() or any(sentence in body for sentence in _GENERATED)


def _survivors(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What a generated card knows that the recipe does not: its data sets and results, not its placeholders."""
    names = ("language", "datasets", "metrics", "model-index")
    return {name: metadata[name] for name in names if metadata.get(name)}


def _metadata(recipe: Recipe, config: Config, license_file: str | None) -> dict[str, Any]:
    """Front matter in the Hub's own order (hub-docs modelcard.md)."""
    card = recipe.card
    link = recipe.license.link or (license_file if recipe.license.id == "other" else None)
    return {
        "language": _one_or_list(card.language),
        "license": recipe.license.id,
        "license_name": recipe.license.name,
        "license_link": link,
        "library_name": card.library_name or "transformers",
        "tags": list(card.tags) or None,
        "datasets": list(card.datasets) or None,
        "metrics": list(card.metrics) or None,
        "base_model": recipe.base.id,
        "base_model_relation": card.base_model_relation or ("finetune" if recipe.base.id else None),
        "pipeline_tag": card.pipeline_tag or pipeline_tag(config),
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


def _body(recipe: Recipe, checkpoint: Checkpoint, config: Config, *, dtypes: Mapping[str, int], parameters: int) -> str:
    import jinja2

    environment = jinja2.Environment(  # noqa: S701 - Markdown, from our own template
        loader=jinja2.FileSystemLoader(folder("templates")),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    card = recipe.card
    title = recipe.identity.name or (recipe.repo or PurePosixPath(recipe.output).name).rpartition("/")[2]
    text = environment.get_template("card-full.md.jinja").render(
        title=title,
        summary=card.summary,
        details=_details(recipe, config, dtypes, parameters),
        intended_use=card.intended_use,
        limitations=card.limitations,
        training=card.training,
        training_facts=_training_facts(checkpoint.trainer_state),
        evaluation=card.evaluation,
        usage=card.usage,
        citation=card.citation,
        contact=card.contact,
        license_sentence=_license_sentence(recipe),
        repo=recipe.repo,
        revision=recipe.push.tag,
        directory=title.replace(" ", "-"),
        **_loading(checkpoint, config),
    )
    return text.strip() + "\n"


def _details(recipe: Recipe, config: Config, dtypes: Mapping[str, int], parameters: int) -> list[tuple[str, str]]:
    identity = recipe.identity
    length = config.text.integer("max_position_embeddings")
    spread = ", ".join(f"{HEADER_NAMES[name]} ({share:,})" for name, share in sorted(dtypes.items()))
    stored = HEADER_NAMES[next(iter(dtypes))] if len(dtypes) == 1 else spread
    base = recipe.base.id
    pinned = f" at `{recipe.base.revision}`" if recipe.base.revision else ""
    rows: list[tuple[str, str | None]] = [
        ("Family", identity.family),
        ("Variant", identity.variant),
        ("Architecture", f"`{', '.join(config.architectures)}` (`{config.model_type}`)"),
        ("Parameters", f"{parameters:,}"),
        ("Stored as", f"{stored}, safetensors"),
        ("Vocabulary", f"{config.vocab_size:,} tokens" if config.vocab_size else None),
        ("Context length", f"{length:,} tokens" if length else None),
        ("Fine-tuned from", f"[{base}](https://huggingface.co/{base}){pinned}" if base else None),
    ]
    return [(label, value) for label, value in rows if value]


def _training_facts(state: Mapping[str, object]) -> list[str]:
    """What trainer_state.json says of the run, in numbers: nothing that could be a path or a name."""
    facts = []
    step, epoch, batch = state.get("global_step"), state.get("epoch"), state.get("train_batch_size")
    if type(step) is int and step > 0:
        spent = f", {epoch:g} {'epoch' if epoch == 1 else 'epochs'}" if isinstance(epoch, int | float) else ""
        facts.append(f"{count(step, 'optimizer step')}{spent}")
    if type(batch) is int and batch > 0:
        facts.append(f"batch size {batch:,} per device")
    return facts


def _license_sentence(recipe: Recipe) -> str:
    license_ = recipe.license
    name = license_.name if license_.id == "other" and license_.name else license_.id
    link = f" ([text]({license_.link}))" if license_.link else ""
    return f"`{name}`{link}."


def _loading(checkpoint: Checkpoint, config: Config) -> dict[str, Any]:
    """The names that the snippet imports."""
    files = checkpoint.repository.files
    remote = "auto_map" in config
    task = _task(config)
    architecture = next(iter(config.architectures), "AutoModel")
    model = (task["auto"] if task else "AutoModel") if remote else architecture
    has_processor = any(name in files for name in ("preprocessor_config.json", "processor_config.json"))
    has_tokenizer = any(name in files for name in ("tokenizer.json", "tokenizer_config.json"))
    processor = "AutoProcessor" if has_processor else "AutoTokenizer" if has_tokenizer else None
    return {
        "model_class": model,
        "processor": "tokenizer" if processor == "AutoTokenizer" else "processor",
        "processor_class": processor,
        "classes": sorted({model, processor} - {None}),
        "chat": processor == "AutoTokenizer"
        and pipeline_tag(config) == "text-generation"
        and _has_template(checkpoint),
        "trust": ", trust_remote_code=True" if remote else "",
    }


def _has_template(checkpoint: Checkpoint) -> bool:
    config = checkpoint.repository.tokenizer_config
    return "chat_template.jinja" in checkpoint.roles or (config is not None and "chat_template" in config)
