"""ADP: what adapter_config.json says was trained, against what the adapter holds; no base model is needed for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example, edited
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.adapter import with_weights
from repokit.linter.rules.expected_adapter import held
from repokit.printable import count, some
from repokit.repo.adapter import ADAPTER_CONFIG
from repokit.repo.adapter_names import PREFIX
from repokit.repo.weights import ADAPTER

if TYPE_CHECKING:
    from repokit.repo.adapter import Adapter
    from repokit.repo.repository import Repository

SCORE: Final = {"base_model.model.score.weight": ("F32", (2, 16))}
MAGNITUDE: Final = "lora_magnitude_vector"
_MAGNITUDES: Final = {
    f"{PREFIX}model.layers.{layer}.self_attn.{module}.{MAGNITUDE}": ("F32", (rows,))
    for layer in range(2)
    for module, rows in (("q_proj", 16), ("v_proj", 8))
}
# PEFT adds them for the task, whether the model has such a module or not (peft 0.21 peft_model.py).
_OF_TASK: Final = frozenset({"classifier", "score", "qa_outputs"})
# The number of a layer, as peft 0.21 tuners/tuners_utils.py check_target_module_exists finds it.
_LAYER: Final = re.compile(r".*?\.[^.]*\.(\d+)\.")


class UnsavedModule(Rule):
    """adapter_config.json says that modules were trained as a whole, or tokens, and none of them is in the adapter.

    PEFT leaves them as the base model has them, with a warning among others: what they learned is lost.
    """

    code = "ADP150"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("embedding and head", {ADAPTER_CONFIG: {"modules_to_save": ["embed_tokens", "lm_head"]}}, "lora"),
        Example("new tokens", {ADAPTER_CONFIG: {"trainable_token_indices": [4, 5]}}, "lora"),
    )
    good = (
        Example("the module", {ADAPTER_CONFIG: {"modules_to_save": ["score"]}, ADAPTER: edited(add=SCORE)}, "lora"),
        Example(
            "one of the heads that PEFT lists for a task",
            {ADAPTER_CONFIG: {"modules_to_save": ["classifier", "score"], "task_type": "SEQ_CLS"}},
            "lora",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        # Where the base is at hand, every tensor that is missing is told by ADP118.
        known = {one.adapter.config.path for one in held(repository)}
        for _, adapter in with_weights(repository):
            config, names = adapter.config, adapter.names
            if config.path in known:
                continue
            saved = [module for module in config.strings("modules_to_save") if module]
            own = [module for module in saved if module not in _OF_TASK]
            if own and not any(f".{module}." in f".{name}" for module in saved for name in names):
                message = f"lists {some(own)} in modules_to_save, and the adapter has no tensor of them"
                yield self.finding(config.path, message, names=own, place=config.at("modules_to_save"))
            if config.raw.get("trainable_token_indices") and not any("trainable_tokens" in name for name in names):
                message = "has trainable_token_indices, and the adapter has no rows for them"
                yield self.finding(config.path, message, place=config.at("trainable_token_indices"))


class UnreadFactor(Rule):
    """An adapter holds factors for modules that adapter_config.json leaves out.

    PEFT does not adapt these modules and drops their tensors, with a warning among others: the adapter does a part of
    what it has learned.
    """

    code = "ADP151"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("layers that are not transformed", {ADAPTER_CONFIG: {"layers_to_transform": [0]}}, "lora"),
        Example("modules that are excluded", {ADAPTER_CONFIG: {"exclude_modules": ["v_proj"]}}, "lora"),
        Example("magnitudes without DoRA", {ADAPTER: edited(add=_MAGNITUDES)}, "lora"),
    )
    good = (
        Example("the layers that are transformed", {ADAPTER_CONFIG: {"layers_to_transform": [0, 1]}}, "lora"),
        Example("an expression, which is not run", {ADAPTER_CONFIG: {"exclude_modules": ".*v_proj"}}, "lora"),
        Example("DoRA", {ADAPTER_CONFIG: {"use_dora": True}, ADAPTER: edited(add=_MAGNITUDES)}, "lora"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, adapter in with_weights(repository):
            modules = [module.removeprefix(PREFIX) for module in adapter.pairs]
            for key, left_out in (("layers_to_transform", outside_layers), ("exclude_modules", excluded)):
                if names := left_out(adapter, modules):
                    message = f"holds factors of {count(len(names), 'module')} that {key} leaves out"
                    yield self.finding(path, message, names=names, place=PREFIX + names[0])
            magnitudes = [name for name in adapter.names if name.endswith(MAGNITUDE)]
            if magnitudes and adapter.config.string("peft_type") == "LORA" and not adapter.config.flag("use_dora"):
                message = f"holds {count(len(magnitudes), 'magnitude')} of DoRA; {adapter.config.path} has no use_dora"
                yield self.finding(path, message, names=magnitudes, place=magnitudes[0])


RULES: Final = (UnsavedModule(), UnreadFactor())


def outside_layers(adapter: Adapter, modules: list[str]) -> list[str]:
    """Modules of layers that layers_to_transform does not list; none where the layers have a pattern of their own."""
    config = adapter.config
    listed = config.raw.get("layers_to_transform")
    layers = [listed] if type(listed) is int else listed
    if not isinstance(layers, list) or not layers or config.raw.get("layers_pattern"):
        return []
    if not config.strings("target_modules"):
        return []  # an expression chooses by itself
    numbers = {module: match[1] for module in modules if (match := _LAYER.match(module))}
    return [module for module, number in numbers.items() if int(number[:9]) not in layers]


def excluded(adapter: Adapter, modules: list[str]) -> list[str]:
    """Modules that exclude_modules lists by the end of their path."""
    listed = adapter.config.strings("exclude_modules")
    return [module for module in modules if any(f".{module}".endswith(f".{name}") for name in listed)]
