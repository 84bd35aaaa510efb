"""What is built: the word of the recipe, or what the files of the source say."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from repokit.builder.sources import Checkpoint
    from repokit.schema.recipe import Recipe

_GGUF: Final = re.compile(r"[^/]+\.gguf")
ADAPTER_CONFIG: Final = "adapter_config.json"


class Kind(StrEnum):
    """The kinds of repositories, as a recipe spells them."""

    FULL = "full"
    ADAPTER = "adapter"
    QUANTIZED = "quantized"
    GGUF = "gguf"


def kind_of(recipe: Recipe, checkpoint: Checkpoint) -> Kind:
    """The kind that a recipe asks for; `auto` goes by what lies in the source."""
    return Kind(recipe.kind) if recipe.kind != "auto" else found_kind(checkpoint)


def found_kind(checkpoint: Checkpoint) -> Kind:
    """What a checkpoint is by its files."""
    files = checkpoint.repository.files
    if checkpoint.given or checkpoint.file is not None:
        return Kind.FULL
    if ADAPTER_CONFIG in files:
        return Kind.ADAPTER
    if not checkpoint.weights.files and any(_GGUF.fullmatch(path) for path in files):
        return Kind.GGUF
    config = checkpoint.config
    if config is not None and (config.quantization or config.mapping("compression_config")) is not None:
        return Kind.QUANTIZED
    return Kind.FULL
