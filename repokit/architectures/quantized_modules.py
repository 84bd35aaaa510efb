"""The modules of a skeleton, as quantizers see them: by kind, by place, and by the names that they have in memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from repokit.architectures.expansion import Shape
from repokit.architectures.grammar import INDICES
from repokit.architectures.member import Kind, Template
from repokit.architectures.quantized_expressions import Clock
from repokit.architectures.quantized_parts import Module
from repokit.architectures.quantized_skips import Defaults
from repokit.architectures.skeleton import Skeleton

WEIGHT: Final = ".weight"
_INDEX: Final = re.compile(r"\{[" + INDICES + r"]\}")
_EXPERT: Final = re.compile(r"\.experts?\.\{[" + INDICES + r"]\}\.")
# What chooses experts, and gates of one output. Their classes differ from version to version.
_ROUTER: Final = re.compile(r"(?:^|\.)(?:gate|router|shared_expert_gate|switch|router\.\w+|gate\.\w+|classifier)$")
# Guesses for data without kinds: an embedding by the last part of its name.
_EMBEDDING: Final = re.compile(r"embed|(?:^|\.)(?:wte|wpe|shared)$", re.IGNORECASE)
_PROJECTION: Final = re.compile(r"proj|linear|dense|embed_out", re.IGNORECASE)
_BIAS: Final = ".bias"
_OWN_LINEAR: Final = frozenset({"falcon"})  # transformers 5.24 models/falcon: FalconLinear; heads and routers aside
_MODULES: Final = frozenset({Kind.LINEAR, Kind.TRANSPOSED, Kind.EMBEDDING})


class Site(NamedTuple):
    """What all modules of one template share; None of it depends on their numbers."""

    template: Template
    kind: Kind
    block: bool
    router: bool
    expert: bool
    head: bool


@dataclass
class Modules:
    """The modules of one skeleton."""

    skeleton: Skeleton

    @cached_property
    def sites(self) -> Mapping[str, Site | None]:
        """Name of a template -> its modules; None where they have no weight of two dimensions."""
        return {template.name: self._site(template) for template in self._templates}

    @cached_property
    def _templates(self) -> list[Template]:
        return list({id(template): template for template in self.skeleton.templates.values()}.values())

    @cached_property
    def _kinds_known(self) -> bool:
        """Whether the data says kinds: without them every matrix counts as linear."""
        return any(template.kind not in {Kind.LINEAR, Kind.PARAMETER} for template in self._templates)

    def _site(self, template: Template) -> Site | None:
        module = template.name.removesuffix(WEIGHT)
        if module == template.name or len(template.shape) != 2:
            return None
        block, expert = _INDEX.search(module) is not None, _EXPERT.search(template.name) is not None
        kind = self._kind(template, module, expert=expert)
        if kind not in _MODULES:
            return None
        head = not block and kind is Kind.LINEAR
        return Site(template, kind, block, _ROUTER.search(module) is not None, expert, head)

    def _kind(self, template: Template, module: str, *, expert: bool) -> Kind:
        """Experts on disk are linear modules, whatever they are in memory."""
        leaf = module.rpartition(".")[2]
        if expert and template.kind is Kind.PARAMETER:
            return Kind.LINEAR
        if not self._kinds_known and _EMBEDDING.search(leaf) and not _PROJECTION.search(leaf):
            return Kind.EMBEDDING
        return template.kind

    def module(self, name: str, shape: Shape, site: Site) -> Module:
        """One module; `name` is that of its weight."""
        own = name.removesuffix(WEIGHT)
        rows, columns = shape if site.kind is not Kind.TRANSPOSED else shape[::-1]
        return Module(
            own, self._spellings(own), rows, columns, site.kind, site.block, site.router, site.expert, site.head
        )

    def _spellings(self, name: str) -> tuple[str, ...]:
        """The module's names on disk and in memory. Canonical names lack the prefix of the base model."""
        if not self._renamed:
            return (name,)
        canonical = self.skeleton.canonical(name + WEIGHT).removesuffix(WEIGHT)
        prefix = f"{self.skeleton.prefix}." if self.skeleton.prefix else ""
        if name == prefix + canonical:
            return (name,)
        return tuple(dict.fromkeys((name, prefix + canonical, canonical)))

    @cached_property
    def _renamed(self) -> bool:
        """Whether any name in memory is another than on disk."""
        names = self.skeleton.facts.other.get("names")
        return isinstance(names, Mapping) and bool(names.get("renames"))

    @cached_property
    def defaults(self) -> Defaults:
        """What the model brings along whatever its config says."""
        fp32 = self.skeleton.facts.other.get("fp32") or ()
        names = (template.name.removesuffix(WEIGHT) for template in self._templates)
        return Defaults(
            tied=frozenset(name.removesuffix(WEIGHT) for pair in self.skeleton.ties for name in pair),
            kept=tuple(entry for entry in map(str, fp32) if entry),
            names=frozenset(spelled for name in names for spelled in self._spellings(name)),
            biased=frozenset(name.removesuffix(_BIAS) for name in self.sites if name.endswith(_BIAS)),
            subclassed=self.skeleton.model_type in _OWN_LINEAR,
            clock=Clock(),
        )
