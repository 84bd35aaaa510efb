"""ADP: an adapter that does nothing, and a method with a slip in its name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.slips import meant_by
from repokit.printable import printable
from repokit.repo.adapter import ADAPTER_CONFIG, adapters
from repokit.repo.weights import ADAPTER

if TYPE_CHECKING:
    from repokit.repo.repository import Repository


class MisspelledAdapterType(Rule):
    """The method of an adapter is nearly one of PEFT's.

    Loading stops with KeyError.
    """

    code = "ADP130"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a letter too many", {ADAPTER_CONFIG: {"peft_type": "LORAX"}}, "lora"),)
    good = (
        Example("LoRA", base="lora"),
        Example("a method of a later PEFT", {ADAPTER_CONFIG: {"peft_type": "FROBNICATE"}}, "lora"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        from repokit.schema.adapter_types import source, type_names

        for adapter in adapters(repository):
            kind = adapter.config.string("peft_type")
            known = sorted(type_names())
            meant = None if kind is None or kind.upper() in known else meant_by(kind.upper(), known)
            if meant is not None:
                message = f"has peft_type {printable(kind, 40)!r}, which {source()} does not have"
                place = adapter.config.at("peft_type")
                yield self.finding(adapter.config.path, message, place=place, hint=f'"{meant}"')


class IdleAdapter(Rule):
    """The scale of a LoRA adapter is zero, or turns it around.

    Its update is multiplied by lora_alpha / r: the model answers as the base does, or away from what was trained.
    """

    code = "ADP230"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("zero", {ADAPTER_CONFIG: {"lora_alpha": 0}}, "lora"),)
    good = (Example("small", {ADAPTER_CONFIG: {"lora_alpha": 1}}, "lora"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for adapter in adapters(repository):
            alpha = adapter.config.number("lora_alpha")
            if alpha is not None and alpha <= 0 and adapter.config.string("peft_type") in {"LORA", "ADALORA"}:
                place = adapter.config.at("lora_alpha")
                yield self.finding(adapter.config.path, f"has lora_alpha {printable(alpha)}", place=place)


class UnusableAdapterValue(Rule):
    """A value without which no LoRA can be built is null, or a bias is of no kind that there is.

    PEFT computes with it while it builds the layers, and stops with TypeError or NotImplementedError.
    """

    code = "ADP131"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("no scale", {ADAPTER_CONFIG: {"lora_alpha": None}}, "lora"),
        Example("no method", {ADAPTER_CONFIG: {"peft_type": None}}, "lora"),
        Example("a bias of another method", {ADAPTER_CONFIG: {"bias": "boft_only"}}, "lora"),
    )
    good = (
        Example("biases of the adapted modules", {ADAPTER_CONFIG: {"bias": "lora_only"}}, "lora"),
        Example("nulls that mean something", {ADAPTER_CONFIG: {"rank_pattern": None, "modules_to_save": None}}, "lora"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for adapter in adapters(repository):
            config = adapter.config
            is_lora = config.string("peft_type") == "LORA"
            for key in ("peft_type", *(NEVER_NULL if is_lora else ())):
                if key in config and config.raw[key] is None:
                    yield self.finding(config.path, "is null", place=config.at(key))
            bias = config.string("bias") if is_lora else None
            if bias is not None and bias not in BIASES:
                message = f"is {printable(bias, 40)!r}; it must be one of {', '.join(BIASES)}"
                yield self.finding(config.path, message, place=config.at("bias"))


class MissingAdapterConfig(Rule):
    """There are the weights of an adapter, and no adapter_config.json.

    PEFT does not know what they are for: loading stops, "Can't find 'adapter_config.json'".
    """

    code = "ADP132"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.LISTING
    bad = (Example("it was not uploaded", {ADAPTER_CONFIG: None}, "lora"),)
    good = (Example("both are there", base="lora"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        if repository.has(ADAPTER) and not repository.has(ADAPTER_CONFIG):
            yield self.finding(ADAPTER, f"lies here without {ADAPTER_CONFIG}", hint="copy it from the training run")


RULES: Final[tuple[Rule, ...]] = (
    MisspelledAdapterType(),
    UnusableAdapterValue(),
    MissingAdapterConfig(),
    IdleAdapter(),
)

NEVER_NULL: Final = ("bias", "lora_alpha", "lora_dropout", "r")
BIASES: Final = ("none", "all", "lora_only")  # peft 0.21 tuners/lora/model.py _mark_only_adapters_as_trainable()
