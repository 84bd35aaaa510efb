"""What is built: the word of the recipe, or what the files of the source say."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from repokit.builder.checkpoints.sources import Role
from repokit.builder.quantized.files import is_declared

if TYPE_CHECKING:
    from repokit.builder.checkpoints.sources import Checkpoint
    from repokit.schema.recipe import Recipe

_GGUF: Final = re.compile(r".+\.gguf")
ADAPTER_CONFIG: Final = "adapter_config.json"
# First match wins: PEFT, PEFT before 0.5, torchtune.
ADAPTER_FILES: Final = ("adapter_model.safetensors", "adapter_model.bin", "adapter_model.pt")


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
    if checkpoint.given:
        return Kind.FULL
    if checkpoint.file is not None:
        if _GGUF.fullmatch(checkpoint.file):
            return Kind.GGUF
        if checkpoint.file in ADAPTER_FILES:
            return Kind.ADAPTER
    elif ADAPTER_CONFIG in files:
        return Kind.ADAPTER
    elif not checkpoint.weights.files:
        if _in_a_folder(checkpoint):
            return Kind.ADAPTER
        if any(_GGUF.fullmatch(path) for path in files):
            return Kind.GGUF
    return Kind.QUANTIZED if is_declared(checkpoint) else Kind.FULL


def _in_a_folder(checkpoint: Checkpoint) -> bool:
    """Whether an adapter lies in a folder of its own, as PEFT saves several; those of other steps do not count."""
    unknown = [path for path, role in checkpoint.roles.items() if role is Role.UNKNOWN]
    return any(path.endswith(f"/{ADAPTER_CONFIG}") for path in unknown)
