"""From the weights of a model to the tensors that a quantized checkpoint of it holds.

A config says how weights are stored, and not always of which modules, nor whether every companion is there. What it
leaves open is decided by the file, where one is given: a module that has any companion must have all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from repokit.architectures.expansion import Expanded, Shape
from repokit.architectures.grammar import INDICES, Expression
from repokit.architectures.member import Kind, Template
from repokit.architectures.quantized_bitsandbytes import BitsAndBytes
from repokit.architectures.quantized_compressed import CompressedTensors
from repokit.architectures.quantized_expressions import TooSlow
from repokit.architectures.quantized_float8 import FbgemmFp8, Fp8, ModelOpt
from repokit.architectures.quantized_held import Held
from repokit.architectures.quantized_mlx import Mlx, Mxfp4, is_mlx
from repokit.architectures.quantized_modules import WEIGHT, Modules, Site
from repokit.architectures.quantized_parts import Method, Need, NotTransformed, Part, Settings, Verdict
from repokit.architectures.quantized_rows import AutoRound, Awq, Gptq
from repokit.architectures.quantized_skips import Defaults
from repokit.architectures.skeleton import Skeleton

__all__ = ["NotTransformed", "Stored", "declared", "stored"]

_METHODS: Final[Mapping[str, Callable[[Settings, Defaults], Method]]] = {
    "gptq": Gptq,
    "awq": Awq,
    "auto-round": AutoRound,
    "intel/auto-round": AutoRound,
    "bitsandbytes": BitsAndBytes,
    "fp8": Fp8,
    "mxfp8": Fp8,
    "fbgemm_fp8": FbgemmFp8,
    "compressed-tensors": CompressedTensors,
    "modelopt": ModelOpt,
    "mxfp4": Mxfp4,
    "mlx": Mlx,
}
# Nested configs whose quantization_config counts for the whole model: transformers 5.24 quantizers/auto.py asks
# config.get_text_config(decoder=True).
_TEXT_KEYS: Final = ("decoder", "generator", "text_config")
_INDEX: Final = re.compile(r"\{[" + INDICES + r"]\}")
_KEYS: Final = ("quantization_config", "compression_config")


@dataclass
class Stored:
    """The tensors of a quantized checkpoint.

    Attributes:
        skeleton: The model's own.
        method: As config.json has it.
        shapes: What must be there.
        optional: What may be there: the config does not say, and no file was given.
        extras: Find the names of further tensors that may be there.
        note: What could not be decided; "" where everything could.
    """

    skeleton: Skeleton
    method: str
    shapes: dict[str, Shape] = field(default_factory=dict)
    optional: dict[str, Shape] = field(default_factory=dict)
    templates: dict[str, Template] = field(default_factory=dict)
    extras: list[re.Pattern[str]] = field(default_factory=list)
    note: str = ""
    kinds: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    @cached_property
    def dtypes(self) -> dict[str, tuple[str, ...]]:
        """Name -> the dtypes of safetensors that the method takes there, where it asks for certain ones."""
        own = ((name, template) for name, template in self.templates.items() if template.kind is Kind.BUFFER)
        return {name: dtypes for name, template in own if (dtypes := self.kinds.get(template.name))}

    @cached_property
    def as_skeleton(self) -> Skeleton:
        """The model's skeleton with these tensors in the place of its own, to compare a file with."""
        expanded = Expanded(self.shapes, self.templates, self.skeleton.expanded.loose)
        facts = self.skeleton.facts
        passed_over = [*facts.other.get("ignore_unexpected", ()), *(pattern.pattern for pattern in self.extras)]
        other = {**facts.other, "ignore_unexpected": passed_over}
        return replace(self.skeleton, expanded=expanded, second=None, facts=replace(facts, memory=None, other=other))

    def may_be_there(self, name: str) -> bool:
        """Whether a tensor that must not be there may be."""
        return name in self.optional or any(pattern.search(name) for pattern in self.extras)


def declared(
    config: Mapping[str, Any], beside: Mapping[str, Any] | None = None
) -> tuple[str, Mapping[str, Any]] | None:
    """The method, and the object that says how; None where the weights are not said to be quantized.

    Args:
        config: config.json.
        beside: hf_quant_config.json, or a quantize_config.json or quant_config.json; config.json goes before it.
    """
    own = next((config[key] for key in _KEYS if isinstance(config.get(key), Mapping)), None)
    mlx = config.get("quantization")
    if own is None and mlx is None:
        texts = (config.get(key) for key in _TEXT_KEYS)
        found = (text.get(_KEYS[0]) for text in texts if isinstance(text, Mapping))
        own = next((value for value in found if isinstance(value, Mapping)), None)
    if isinstance(mlx, Mapping) and (own is None or _method(own) is None or is_mlx(own)):
        return "mlx", mlx
    if own is None:
        return None if beside is None else _beside(beside)
    return (_method(own) or "unknown"), own


def _method(own: Mapping[str, Any]) -> str | None:
    """The method of an object; bitsandbytes need not say it."""
    if any(own.get(key) is True for key in ("load_in_4bit", "load_in_8bit")):
        return "bitsandbytes"
    method = own.get("quant_method")
    if isinstance(method, str) and method:
        return method.lower()
    return (
        "modelopt"
        if "quant_algo" in own or "producer" in own
        else "compressed-tensors"
        if "config_groups" in own
        else None
    )


def _beside(document: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """A declaration in a file of its own."""
    nested = document.get("quantization")
    if isinstance(nested, Mapping) and "quant_algo" in nested:
        return "modelopt", nested
    if "w_bit" in document and "q_group_size" in document:
        return "awq", {**document, "bits": document["w_bit"], "group_size": document["q_group_size"]}
    if "bits" in document and "group_size" in document:
        return _method(document) or "gptq", document
    return None


def stored(
    skeleton: Skeleton,
    config: Mapping[str, Any],
    held: Mapping[str, tuple[int, ...]] | None = None,
    *,
    beside: Mapping[str, Any] | None = None,
) -> Stored | None:
    """The tensors that must be on disk.

    Args:
        skeleton: The model's, from the same config.
        config: config.json.
        held: Name -> shape of what a file holds. It decides what the config leaves open.
        beside: A declaration in a file of its own: see `declared`.

    Returns:
        None where nothing is said to be quantized.

    Raises:
        NotTransformed: The method, or one of its settings, is not known here.
    """
    found = declared(config, beside)
    if found is None:
        return None
    name, values = found
    if name not in _METHODS:
        raise NotTransformed(name)
    modules = Modules(skeleton)
    try:
        method = _METHODS[name](Settings(name, values), modules.defaults)
        file = None if held is None else Held(skeleton, held)
        result = _Transformation(modules, method, file, undone=values.get("dequantize") is True).run()
    except TooSlow:
        raise NotTransformed(name, "its lists of modules take too long to read") from None
    if name == "mlx" and held is not None and sum(own in held for own in result.shapes) * 2 < len(result.shapes):
        raise NotTransformed(name, "the model has names of MLX's own")
    return result


@dataclass(frozen=True, slots=True)
class _Said:
    """What a config says about a module, and its parts as the file has them."""

    verdict: Verdict
    parts: tuple[Part, ...]
    settled: list[tuple[Part, Template]]


class _Transformation:
    """One skeleton on its way to the tensors that are stored. `undone`: loaders turn the weights back."""

    def __init__(self, modules: Modules, method: Method, held: Held | None, *, undone: bool) -> None:
        self.modules, self.method, self.held, self.undone = modules, method, held, undone
        self.skeleton = modules.skeleton
        self.result = Stored(self.skeleton, method.name, note=method.note, extras=list(method.extras))
        self._biases = {name for name in self.skeleton.shapes if name.endswith(".bias")}
        self._said: dict[tuple[str, Shape], _Said] = {}
        self._templates: dict[str, Template] = {}
        self._elsewhere: set[str] = set()

    def run(self) -> Stored:
        """All of it."""
        if self.held is not None and not self._anything_quantized(self.held):
            self.result.shapes, self.result.templates = self.skeleton.shapes, self.skeleton.templates
            self.result.note = "no tensor is stored as the declared method stores it"
            return self.result
        for own, shape in self.skeleton.shapes.items():
            template, name = self.skeleton.templates[own], self.method.spelled(own)
            if (site := self.modules.sites[template.name]) is not None:
                self._weight(name, shape, site)
            elif (fused := self._fused(name, shape)) is not None:
                self._experts(name, shape, template, fused)
            else:
                self._keep(name, self.method.kept(shape, template.kind), template)
        self._loose()
        return self.result

    # ---------------------------------------------------------------- one tensor

    def _keep(self, name: str, shape: Shape, template: Template) -> None:
        self.result.shapes[name] = shape
        self.result.templates[name] = template

    def _weight(self, name: str, shape: Shape, site: Site) -> None:
        """A weight of two dimensions."""
        said = self._said_of(name, shape, site)
        verdict = said.verdict
        if verdict is Verdict.OPEN and self.held is not None:
            quantized = self.held.is_quantized(self.modules.module(name, shape, site), said.parts)
            verdict = Verdict.QUANTIZED if quantized else Verdict.PLAIN
        match verdict:
            case Verdict.PLAIN:
                self._keep(name, self.method.kept(shape, site.kind), site.template)
            case Verdict.QUANTIZED:
                self._parts(name.removesuffix(WEIGHT), said)
            case Verdict.OPEN:
                self.result.optional[name] = shape
                self._parts(name.removesuffix(WEIGHT), said, certain=False)
            case Verdict.ELSEWHERE:
                self._experts(name, shape, site.template, ())

    def _said_of(self, name: str, shape: Shape, site: Site) -> _Said:
        """What the config says; the same for all numbers, unless its lists look at them."""
        key = (name if self.method.numbered else site.template.name, shape)
        if key not in self._said:
            module = self.modules.module(name, shape, site)
            verdict = self.method.verdict(module)
            if verdict is Verdict.QUANTIZED and self.undone:
                verdict = Verdict.OPEN
            elif verdict is Verdict.OPEN and self.held is None:
                verdict = self.method.unsaid
            parts = () if verdict is Verdict.PLAIN else tuple(self.method.parts(module))
            self._said[key] = _Said(verdict, parts, self._settled(site.template, parts))
        return self._said[key]

    def _fused(self, name: str, shape: Shape) -> tuple[Part, ...] | None:
        """What stands in the place of the experts of a layer in one tensor."""
        parts = self.method.fused(name, shape) if len(shape) == 3 else None
        return None if parts is None else tuple(parts)

    def _experts(self, name: str, shape: Shape, template: Template, parts: tuple[Part, ...]) -> None:
        """Experts: by their parts, or, without any, in a layout that is not known."""
        if parts and not (self.undone and self.held is None):
            self._parts(name, _Said(Verdict.QUANTIZED, parts, self._settled(template, parts)))
            return
        self.result.optional[name] = shape
        layer = template.name.partition(".experts.")[0]
        if layer not in self._elsewhere:
            self._elsewhere.add(layer)
            self.result.extras.append(
                re.compile(_any_numbers(self.method.spelled(layer)) + r"\.(?:experts|switch_mlp)\.")
            )
        self.result.note = self.result.note or "experts in one tensor are not judged"

    def _parts(self, name: str, said: _Said, *, certain: bool = True) -> None:
        """What stands in the place of a weight."""
        result, held = self.result, self.held
        for part, template in said.settled:
            own, shape = name + part.suffix, part.shape
            wanted = certain and part.need is Need.REQUIRED
            if own in self._biases:
                continue
            if held is not None and (part.also or not wanted):
                wanted = wanted or held.shape(own) is not None
                shape = held.fitting(own, part)
            if wanted:
                result.shapes[own] = shape
                result.templates[own] = template
            elif held is None:
                result.optional[own] = shape
                result.templates[own] = template

    def _settled(self, template: Template, parts: Sequence[Part]) -> list[tuple[Part, Template]]:
        """The parts as the file has them, each with the template that its tensors have."""
        settled = parts if self.held is None else self.held.settled(parts)
        return [(part, self._template(template, part)) for part in settled]

    def _template(self, template: Template, part: Part) -> Template:
        name = template.name.removesuffix(WEIGHT) + part.suffix
        if name not in self._templates:
            unknown: tuple[Expression | None, ...] = (None,) * len(part.shape)
            self._templates[name] = Template(name, unknown, Kind.BUFFER, integer=bool(part.dtypes))
            self.result.kinds[name] = part.dtypes
        return self._templates[name]

    # ---------------------------------------------------------------- the whole

    def _loose(self) -> None:
        """Weights of which it is not known whether they are there may be quantized."""
        for loose in self.skeleton.loose:
            module = loose.template.name.removesuffix(WEIGHT)
            if module != loose.template.name:
                self.result.extras.append(re.compile(_any_numbers(module) + r"\.\w"))

    def _anything_quantized(self, held: Held) -> bool:
        """Whether the file has any companion of the method at all: a stale declaration is another rule's matter."""
        first = {template.name: name for name, template in reversed(self.skeleton.templates.items())}
        for template, name in first.items():
            shape, site = self.skeleton.shapes[name], self.modules.sites[template]
            parts = self._fused(name, shape) if site is None else self._said_of(name, shape, site).parts
            for part in parts or ():
                endings = {(name + suffix if site is None else suffix).rpartition(".")[2] for suffix in part.suffixes}
                if not held.endings.keys().isdisjoint(endings - {"weight", "bias"}):
                    return True
        return False


def _any_numbers(template: str) -> str:
    """What finds the names of a template."""
    return "^" + r"\d+".join(map(re.escape, _INDEX.split(template)))
