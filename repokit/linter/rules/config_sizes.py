"""CFG: sizes and counts in config.json that are none, of every family; CFG105 speaks of those that all have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from repokit.linter.examples import DELETE, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.config_slips import judged
from repokit.printable import printable
from repokit.repo.config import CONFIG
from repokit.repo.weights import SINGLE

if TYPE_CHECKING:
    from repokit.repo.repository import Repository


def as_part(text: dict[str, Any]) -> dict[str, Any]:
    """A change that leaves of the base a config.json with this text model in it."""
    return {CONFIG: {"architectures": DELETE, "model_type": "llava", "text_config": text}, SINGLE: None}


def windows(width: int | None) -> dict[str, Any]:
    """A change that makes config.json one of a family with windows of this width."""
    types = ["sliding_attention", "full_attention"]
    family = {"architectures": DELETE, "model_type": "gemma3_text", "rope_parameters": DELETE}
    return {CONFIG: {**family, "layer_types": types, "sliding_window": width}}


class NonpositiveSize(Rule):
    """A size or a count that a model is built from is zero or less.

    Building stops with a division by zero or a negative dimension, or a layer is built that computes nothing.
    """

    code = "CFG136"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("no width of a head", {CONFIG: {"architectures": DELETE, "head_dim": 0}, SINGLE: None}),
        Example("fewer than no groups", {CONFIG: {"architectures": DELETE, "num_key_value_heads": -1}, SINGLE: None}),
    )
    good = (
        Example("sizes as they should be", {CONFIG: {"num_key_value_heads": 1}}),
        Example("a window that is switched off", {CONFIG: {"model_type": "mistral", "sliding_window": None}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for level in judged(repository):
            for key in POSITIVE:
                value = level.raw.get(key) if key in level.cls else None
                if not isinstance(value, int | float) or isinstance(value, bool):
                    continue
                if value < 0 or (value == 0 and key not in MAY_BE_ZERO):
                    yield self.finding(CONFIG, f"is {printable(value)}; it must be above 0", place=level.at(key))


class NamelessPart(Rule):
    """A part of config.json has null where its model_type should be.

    transformers looks the class of the part up by it, and stops.
    """

    code = "CFG137"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("the text model", as_part({"model_type": None, "vocab_size": 32})),)
    good = (Example("left out, for the default", as_part({"vocab_size": 32})),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for level in judged(repository):
            for key in level.cls.parts:
                part = level.raw.get(key)
                if isinstance(part, dict) and "model_type" in part and part["model_type"] is None:
                    yield self.finding(CONFIG, "is null", place=f"{level.at(key)}/model_type")


class WindowlessLayers(Rule):
    """Layers of config.json look at a window of the text, and it has no width.

    The first step stops: a mask of no width cannot be made.
    """

    code = "CFG138"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("the width was taken out", {**windows(None), SINGLE: None}),)
    good = (
        Example("a width", {**windows(8), SINGLE: None}),
        Example("no such layers", {CONFIG: {"sliding_window": None}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for level in judged(repository):
            types = level.raw.get("layer_types")
            needs = isinstance(types, list) and "sliding_attention" in types and "sliding_window" in level.cls
            width = level.raw.get("sliding_window", 1)
            if needs and (width is None or width == 0):
                message = f"is {printable(width)}, and layer_types has sliding_attention"
                yield self.finding(CONFIG, message, place=level.at("sliding_window"))


RULES: Final[tuple[Rule, ...]] = (NonpositiveSize(), NamelessPart(), WindowlessLayers())

POSITIVE: Final = (
    *("d_ff", "d_kv", "d_model", "decoder_attention_heads", "encoder_attention_heads", "head_dim", "image_size"),
    *(
        "mm_tokens_per_image",
        "n_embd",
        "n_group",
        "n_head",
        "n_heads",
        "num_channels",
        "num_heads",
        "num_key_value_heads",
    ),
    *("max_source_positions", "max_target_positions", "num_mel_bins", "patch_size", "query_pre_attn_scalar"),
    *("sliding_window", "spatial_merge_size", "temporal_patch_size", "time_step_max", "time_step_min", "topk_group"),
)
MAY_BE_ZERO: Final = frozenset({"sliding_window"})  # where nothing looks at a window
