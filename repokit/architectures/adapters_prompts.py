"""Prompts that were learnt, by the sizes of the base model.

Source: peft 0.21 utils/other.py _prepare_prompt_learning_config.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from repokit.architectures.adapters_modules import Modules
    from repokit.architectures.adapters_targets import Settings
    from repokit.architectures.expansion import Shape

_NAMES: Final = {
    "layers": ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers"),
    "width": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads"),
    "groups": ("num_key_value_heads",),
    "head": ("head_dim",),
}


def prompts(modules: Modules, settings: Settings) -> Iterator[tuple[str, Shape]]:
    """The tensors of a method that learns a prompt."""
    tokens, width = settings.number("num_virtual_tokens"), _size(modules, "width") or settings.number("token_dim")
    rows = None if tokens is None else tokens * _parts(settings)
    match settings.method:
        case "PREFIX_TUNING" | "CARTRIDGE":
            yield "prompt_embeddings", (tokens, _prefix(modules, settings))
        case "CPT":
            given = settings["cpt_token_ids"]
            yield "prompt_embeddings", (len(given) if isinstance(given, list) else tokens, width)
        case "MULTITASK_PROMPT_TUNING":
            tasks, size = settings.number("num_tasks"), settings.number("num_ranks")
            yield "prefix_task_cols", (tasks, rows, size)
            yield "prefix_task_rows", (tasks, size, width)
            yield "prompt_embeddings", (rows, width)
        case _:
            yield "prompt_embeddings", (rows, width)


PROMPTS: Final = frozenset(
    {"CARTRIDGE", "CPT", "MULTITASK_PROMPT_TUNING", "PREFIX_TUNING", "PROMPT_TUNING", "P_TUNING"}
)


def _parts(settings: Settings) -> int:
    """Encoder-decoders have a prompt for each of their two parts."""
    return settings.number("num_transformer_submodules") or (2 if settings["task_type"] == "SEQ_2_SEQ_LM" else 1)


def _prefix(modules: Modules, settings: Settings) -> int | None:
    """A key and a value for every layer; with grouped queries only for the groups."""
    layers = settings.number("num_layers") or _size(modules, "layers")
    width, heads, groups = (_size(modules, what) for what in ("width", "heads", "groups"))
    special = any(_value(modules, key) is not None for key in ("global_head_dim", "per_layer_config"))
    if layers is None or special:
        return None
    if groups is not None:
        head = _size(modules, "head") or (width // heads if width and heads else None)
        return None if head is None else layers * 2 * head * groups
    return None if width is None else layers * 2 * width


def _size(modules: Modules, what: str) -> int | None:
    """A size of the language model of the base; None where its config does not have it."""
    found = (_value(modules, key) for key in _NAMES[what])
    return next((value for value in found if type(value) is int and value > 0), None)


def _value(modules: Modules, key: str) -> object:
    inner = modules.value(f"text_config.{key}")
    return modules.value(key) if inner is None else inner
