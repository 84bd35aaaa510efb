"""README.md of GGUF files: which there are, how large, how many bits a weight has, and how each is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from repokit.builder.card import cell, pipeline_tag, put_together, rendered
from repokit.printable import count, printable, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from repokit.builder.checkpoints.sources import Checkpoint
    from repokit.builder.gguf.files import GgufEntry
    from repokit.repo.config import Config
    from repokit.repo.gguf import GgufFile
    from repokit.schema.recipe import Recipe

# What llama.cpp takes where nothing is asked for (common/arg.cpp), and most people with it.
_FIRST: Final = "Q4_K_M"
_RANKING: Final = "text-ranking"


def write_card(
    recipe: Recipe,
    checkpoint: Checkpoint,
    entries: Sequence[GgufEntry],
    *,
    base: Config | None,
    license_file: str | None,
) -> bytes:
    """The card.

    Args:
        recipe: What the user says.
        checkpoint: Its README.md is kept where a person wrote it.
        entries: What is published.
        base: config.json of the base model, where it is at hand.
        license_file: The license file that is published, or None.

    Raises:
        MalformedFile: The source's README.md does not parse.
    """
    own = task(entries)  # a reranker's base is a model of texts by its architecture
    tag = own if own == _RANKING else (pipeline_tag(base) if base is not None else None) or own
    inferred = {
        "library_name": "gguf",
        "base_model_relation": "quantized" if recipe.base.id else None,
        "pipeline_tag": tag,
        "tags": ["gguf"],
    }
    return put_together(recipe, checkpoint, inferred, license_file, lambda: _body(recipe, entries, tag, license_file))


def task(entries: Sequence[GgufEntry]) -> str | None:
    """What the model is for, where its metadata tell."""
    head = next((entry.head for entry in entries if entry.what == "model"), None)
    if head is None or head.architecture is None:
        return None
    projectors = [entry.head for entry in entries if entry.what == "projector"]
    if any(is_set(file, "clip.has_vision_encoder") for file in projectors):
        return "image-text-to-text"
    if any(is_set(file, "clip.has_audio_encoder") for file in projectors):
        return "audio-text-to-text"
    if ranks(head):
        return _RANKING
    if embeds(head):
        return "feature-extraction"
    return "text-generation" if head.templates else None


def is_set(file: GgufFile, key: str) -> bool:
    """Whether a flag is true."""
    entry = file.header.metadata.get(key)
    return entry is not None and entry.value is True


def embeds(file: GgufFile) -> bool:
    """Whether it makes one vector of a text (llama.cpp LLM_KV_POOLING_TYPE; 0 is none, 4 a rank)."""
    return (file.integer(f"{file.architecture}.pooling_type") or 0) in {1, 2, 3}


def ranks(file: GgufFile) -> bool:
    """Whether it scores a text against a query."""
    return file.integer(f"{file.architecture}.pooling_type") == 4


def _body(recipe: Recipe, entries: Sequence[GgufEntry], tag: str | None, license_file: str | None) -> str:
    models = [entry for entry in entries if entry.what in {"model", "LoRA adapter"}]
    first = _first(models)
    projector = next((entry for entry in entries if entry.what == "projector"), None)
    return rendered(
        "card-gguf.md.jinja",
        recipe,
        license_file=license_file,
        details=[(label, cell(value)) for label, value in _details(recipe, models)],
        rows=[[cell(value) for value in row] for row in _rows(recipe, models)],
        beside=[cell(_told(entry)) for entry in entries if entry not in models],
        notes=(recipe.quantization.notes or "").strip(),
        first=_quoted(first.label or ""),
        first_path=_quoted(first.paths[0]),
        split=len(first.paths) > 1,
        projector=None if projector is None else _quoted(projector.paths[0]),
        embeds=embeds(first.head),
        ranks=ranks(first.head),
        is_adapter=first.what == "LoRA adapter",
        chat=tag in {"text-generation", "image-text-to-text"},
    )


def _first(models: Sequence[GgufEntry]) -> GgufEntry:
    """The one for the snippets: the usual choice, else the first that is quantized and one file."""
    usual = [entry for entry in models if (entry.label or "").upper() == _FIRST]
    whole = [entry for entry in models if len(entry.paths) == 1 and entry.group_size != "-"]
    return next(iter((*usual, *whole, *models)))


def _quoted(text: str) -> str:
    """For a shell: names with a blank or a quote in them are put between quotes."""
    import shlex

    return shlex.quote(printable(text, 300)) if text else ""


def _details(recipe: Recipe, models: Sequence[GgufEntry]) -> Iterator[tuple[str, str]]:
    head = models[0].head
    length = head.integer(f"{head.architecture}.context_length")
    base, revision = recipe.base.id, recipe.base.revision
    pinned = f" at `{revision}`" if revision else ""
    tokens = head.tokens
    rows = {
        "Family": recipe.identity.family,
        "Variant": recipe.identity.variant,
        "Architecture": f"`{printable(head.architecture, 60)}`" if head.architecture else None,
        "Parameters": f"{max(entry.parameters for entry in models):,}",
        "Vocabulary": f"{len(tokens):,} tokens" if tokens else None,
        "Context length": f"{length:,} tokens" if length else None,
        "Chat template": "in each file" if all(_chats(entry.head) for entry in models) else None,
        "Quantized from": f"[{base}](https://huggingface.co/{base}){pinned}" if base else None,
        "Quantized with": recipe.quantization.tool,
    }
    yield from ((label, value) for label, value in rows.items() if value)


def _chats(head: GgufFile) -> bool:
    return bool(head.templates) and not ranks(head)


def _rows(recipe: Recipe, models: Sequence[GgufEntry]) -> Iterator[list[str]]:
    for entry in models:
        bits = entry.bits_per_weight
        width = "-" if bits is None else f"{bits:.2f}"
        calibration = entry.calibration(recipe.quantization)
        yield [_named(entry), size(entry.size), width, entry.method, entry.group_size, calibration]


def _named(entry: GgufEntry) -> str:
    more = len(entry.paths) - 1
    path = f"`{printable(entry.paths[0], 200)}`"
    return f"{path} and {count(more, 'more part')}" if more else path


def _told(entry: GgufEntry) -> str:
    return f"{_named(entry)}: {entry.what}, {entry.method}, {size(entry.size)}"
