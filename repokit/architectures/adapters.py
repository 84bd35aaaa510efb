"""Which tensors an adapter must hold, from the config of its base model and adapter_config.json alone.

    adapters_patterns  regular expressions of strangers, in bounded time
    adapters_modules   the modules of the base, by their names in memory
    adapters_targets   which of them a config chooses
    adapters_lora      the tensors of LoRA and AdaLoRA for one module
    adapters_linear    those of PEFT's other methods
    adapters_shared    what lies beside: shared matrices, biases, modules trained in full
    adapters_prompts   prompts that were learnt

Source: PEFT 0.21. Of a method, a variant or an expression that is not worked out nothing is said: NotCovered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from repokit.architectures import adapters_shared as beside
from repokit.architectures.adapters_blocks import Refused
from repokit.architectures.adapters_linear import METHODS
from repokit.architectures.adapters_lora import Parts, check_variant, parameters, replicated
from repokit.architectures.adapters_modules import Module, Modules, modules_of
from repokit.architectures.adapters_prompts import PROMPTS, prompts
from repokit.architectures.adapters_shared import PREFIX
from repokit.architectures.adapters_targets import Settings, check_spelling, targeted, unmatched
from repokit.architectures.errors import NotCovered
from repokit.architectures.expansion import Shape
from repokit.architectures.member import Evidence, Kind
from repokit.architectures.skeleton import Skeleton, covered
from repokit.printable import printable

# From this version on biases are saved under the name that they have while the adapter is loaded.
_BIASES_SINCE: Final = (0, 21)
_BODY: Final = ("Model",)
# Endings of the classes that PEFT's tasks stand for (peft 0.21 auto.py).
_ENDINGS: Final = {
    "CAUSAL_LM": ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration"),
    "SEQ_2_SEQ_LM": ("ForConditionalGeneration", "ForSpeechSeq2Seq"),
    "SEQ_CLS": ("ForSequenceClassification",),
    "TOKEN_CLS": ("ForTokenClassification",),
    "QUESTION_ANS": ("ForQuestionAnswering", "ForQuestionAnsweringSimple"),
    "FEATURE_EXTRACTION": _BODY,
}
_LANGUAGE: Final = frozenset({"CAUSAL_LM", "SEQ_2_SEQ_LM"})
_HEADS: Final = frozenset({"SEQ_CLS", "TOKEN_CLS"})


@dataclass(frozen=True)
class AdapterTensors:
    """The tensors of one adapter.

    Attributes:
        method: Its peft_type.
        evidence: Of the base's skeleton.
        required: Name -> shape, as save_pretrained writes them.
        optional: What may lie beside.
        targets: The modules of the base that the config chooses.
        unmatched: Names in target_modules that no module has.
        refused: Modules that are chosen and that PEFT stops at -> why.
        open: Modules of which nothing is known: their tensors may be any.
        modules: Of the base.
    """

    method: str
    evidence: Evidence
    modules: Modules = field(repr=False)
    required: Mapping[str, Shape]
    optional: Mapping[str, Shape]
    targets: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    open: tuple[str, ...] = ()


@dataclass(frozen=True)
class AdapterComparison:
    """What an adapter holds against what it must hold.

    Attributes:
        missing: Names that are required and not held.
        unexpected: Names that are held and have no place in the base.
        misshapen: (name, held shape, expected shape).
    """

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    misshapen: tuple[tuple[str, tuple[int, ...], Shape], ...]

    @property
    def clean(self) -> bool:
        """Whether there is nothing to say."""
        return not (self.missing or self.unexpected or self.misshapen)


def architectures(config: Mapping[str, Any], adapter_config: Mapping[str, Any]) -> tuple[str, ...]:
    """The classes that the adapter may have been trained on, the likeliest first.

    `auto_mapping` names it; else the task does, where it is not the class that the base was published as.
    """
    mapping = adapter_config.get("auto_mapping")
    named = mapping.get("base_model_class") if isinstance(mapping, Mapping) else None
    if isinstance(named, str) and named:
        return (named,)
    model_type, own = config.get("model_type"), config.get("architectures")
    published = [name for name in own if isinstance(name, str)][:1] if isinstance(own, list) else []
    known = [*published, *(covered(model_type) if isinstance(model_type, str) else ())]
    task = adapter_config.get("task_type")
    endings = _ENDINGS.get(task) if isinstance(task, str) else None
    fitting = known if endings is None else [name for name in known if _is_for(name, endings)]
    # The class that a language model was published as may have any name; that of a classifier has its task in it.
    others = published if isinstance(task, str) and task in _LANGUAGE else []
    return tuple(dict.fromkeys([*fitting, *others]))


def _is_for(name: str, endings: tuple[str, ...]) -> bool:
    return name.endswith(endings) and not (endings == _BODY and name.endswith("LMHeadModel"))


def adapter(skeleton: Skeleton, adapter_config: Mapping[str, Any]) -> AdapterTensors:
    """The tensors that adapter_model.safetensors must hold.

    Args:
        skeleton: Of the base model.
        adapter_config: adapter_config.json, parsed.

    Raises:
        NotCovered: The method, or something that the config asks for, is not worked out.
    """
    method = adapter_config.get("peft_type")
    if not isinstance(method, str):
        raise NotCovered("adapter_config.json names no peft_type")
    task = adapter_config.get("task_type")
    head = isinstance(task, str) and task in _HEADS
    return tensors(modules_of(skeleton, head=head), adapter_config, skeleton.evidence)


def tensors(modules: Modules, adapter_config: Mapping[str, Any], evidence: Evidence) -> AdapterTensors:
    """The tensors of an adapter of these modules.

    Raises:
        NotCovered: See `adapter`.
    """
    settings = Settings(adapter_config, str(adapter_config.get("peft_type")), modules.model_type)
    if settings.method in PROMPTS:
        return _of_prompts(modules, settings, evidence)
    if settings.method == "ADAPTION_PROMPT":
        required = dict(beside.adaption_prompt(modules, settings))
        targets = tuple(dict.fromkeys(name.removeprefix(PREFIX).rpartition(".")[0] for name in required))
        return AdapterTensors(settings.method, evidence, modules, required, {}, targets)
    if settings.method not in METHODS and settings.method != "FROD":
        raise NotCovered(f"the tensors of {printable(settings.method, 40)} are not worked out")
    if settings.method == "LORA":
        check_variant(settings)
        modules = replicated(modules, settings)
    return _of_modules(modules, settings, evidence)


def _of_prompts(modules: Modules, settings: Settings, evidence: Evidence) -> AdapterTensors:
    heads = {f"base_model.{name}": shape for name, shape in beside.trained_in_full(modules, settings)}
    return AdapterTensors(settings.method, evidence, modules, dict(prompts(modules, settings)), heads)


def _of_modules(modules: Modules, settings: Settings, evidence: Evidence) -> AdapterTensors:
    paths = targeted(modules, settings, (*modules.paths, *modules.unfused))
    check_spelling(modules, settings, paths)
    assembly = _Assembly(modules, settings)
    for path in paths:
        assembly.adapt(path)
    assembly.adapt_parameters()
    assembly.add_what_lies_beside()
    return AdapterTensors(
        method=settings.method,
        evidence=evidence,
        modules=modules,
        required=assembly.required,
        optional=assembly.optional(),
        targets=(*assembly.adapted, *assembly.wrapped),
        unmatched=unmatched(modules, settings),
        refused=assembly.refused,
        open=tuple(f"{PREFIX}{path}." for path in (*assembly.unknown, *assembly.refused)),
    )


class _Assembly:
    """The tensors of an adapter of single modules, as they come together."""

    def __init__(self, modules: Modules, settings: Settings) -> None:
        self.modules, self.settings = modules, settings
        self.required: dict[str, Shape] = {}
        self.adapted: dict[str, Module] = {}
        self.wrapped: dict[str, None] = {}  # modules of which parameters are adapted
        self.refused: dict[str, str] = {}
        self.unknown: list[str] = []

    def adapt(self, path: str) -> None:
        """Adds the tensors of one module, or notes that they are not known or that PEFT refuses it."""
        module = self.modules.found.get(path) or self.modules.unfused.get(path)
        if module is None:
            self.refused[path] = "it only holds other modules"
            return
        parts = self._parts(module)
        if parts is not None:
            self.required |= {f"{PREFIX}{path}.{name}": shape for name, shape in parts.items()}
        if path not in self.refused:
            self.adapted[path] = module

    def _parts(self, module: Module) -> Parts | None:
        if self.settings.method == "FROD":
            return {}
        try:
            parts = METHODS[self.settings.method](module, self.settings)
        except Refused as error:
            self.refused[module.path] = str(error)
            return None
        except (TypeError, ValueError, KeyError, OverflowError, IndexError):
            self.unknown.append(module.path)
            return None
        if parts is None and ("in_proj_weight" in module.own or not module.weight):
            self.unknown.append(module.path)  # nn.MultiheadAttention, which LoRA takes as a whole
        elif parts is None:
            self.refused[module.path] = f"{self.settings.method} does not take its kind"
        return parts

    def adapt_parameters(self) -> None:
        """Adds the tensors of `target_parameters`, which LoRA has."""
        if self.settings.method == "LORA":
            for path, parts in parameters(self.modules, self.settings):
                self.required |= {f"{PREFIX}{path}.{name}": shape for name, shape in parts.items()}
                self.wrapped[path] = None

    def add_what_lies_beside(self) -> None:
        """Adds what is not of single modules."""
        modules, settings = self.modules, self.settings
        if settings.method == "FROD":
            self.required |= beside.frod(self.adapted.values(), settings)
        self.required |= beside.shared(self.adapted.values(), settings)
        self.required |= _prefixed(beside.trained_in_full(modules, settings))
        self.required |= _prefixed(beside.trained_tokens(modules, settings))
        if _version(settings) >= _BIASES_SINCE:
            self.required |= _prefixed(beside.biases(modules, [*self.adapted, *self.wrapped], settings))

    def optional(self) -> dict[str, Shape]:
        """What may be there beside what must."""
        modules, settings = self.modules, self.settings
        other = _Assembly(modules, settings)
        for module in (*beside.tied_copies(modules, self.adapted, settings), *_as_before_fusing(modules)):
            parts = other._parts(module) or {}
            other.required |= {f"{PREFIX}{module.path}.{name}": shape for name, shape in parts.items()}
        for module in self.adapted.values():
            copied = beside.copies(module, self.adapted.values(), settings)
            other.required |= {f"{PREFIX}{module.path}.{name}": shape for name, shape in copied.items()}
        every = Settings({**settings.raw, "bias": "all"}, settings.method, settings.model_type)
        other.required |= _prefixed(beside.embeddings(modules))
        other.required |= _prefixed(beside.biases(modules, self.adapted, every))
        self.unknown += other.unknown
        return {name: shape for name, shape in other.required.items() if name not in self.required}


def _as_before_fusing(modules: Modules) -> Iterable[Module]:
    """Single experts, and the routers, that were linear modules before transformers 5 and may have been adapted."""
    if not modules.unfused:
        return
    yield from modules.unfused.values()
    for path, module in modules.found.items():
        if module.kind is Kind.PARAMETER and len(module.weight) == 2:
            yield Module(path, Kind.LINEAR, module.own)


def _prefixed(named: Iterable[tuple[str, Shape]]) -> dict[str, Shape]:
    return {f"{PREFIX}{name}": shape for name, shape in named}


def _version(settings: Settings) -> tuple[int, ...]:
    """The version of PEFT that wrote the config; () where it does not say (before 0.18)."""
    parts = str(settings.raw.get("peft_version") or "").split(".")[:2]
    return tuple(int(part) for part in parts) if len(parts) == 2 and all(map(str.isdecimal, parts)) else ()


def compare(wanted: AdapterTensors, held: Mapping[str, tuple[int, ...]]) -> AdapterComparison:
    """Holds the tensors of a file against those that it must hold."""
    names = _in_memory(wanted, held)
    known = {**wanted.optional, **wanted.required}
    seen = set(names.values())
    misshapen = [
        (name, held[name], known[expected])
        for name, expected in names.items()
        if expected in known and not fits(held[name], known[expected])
    ]
    return AdapterComparison(
        missing=tuple(name for name in wanted.required if name not in seen),
        unexpected=tuple(
            name for name, expected in names.items() if expected not in known and not expected.startswith(wanted.open)
        ),
        misshapen=tuple(misshapen),
    )


def fits(shape: tuple[int, ...], wanted: Shape) -> bool:
    """Whether a shape has as many dimensions, and each of the size that is wanted."""
    return len(shape) == len(wanted) and all(size in (None, length) for length, size in zip(shape, wanted, strict=True))


def _in_memory(wanted: AdapterTensors, held: Iterable[str]) -> dict[str, str]:
    """Name in the file -> the name that PEFT finds it by, which renames as transformers does."""
    known = wanted.required.keys() | wanted.optional.keys()
    modules = sorted({name.rpartition(".")[0] for name in known}, key=len, reverse=True)
    ends = {name[len(PREFIX) :] for name in modules if name.startswith(PREFIX)}
    return {name: name if name in known else _renamed(name, wanted.modules.memory_name, ends) or name for name in held}


def _renamed(name: str, rename: Callable[[str], str], modules: set[str]) -> str | None:
    if not name.startswith(PREFIX):
        return None
    inner = name[len(PREFIX) :]
    parts = inner.split(".")
    for length in range(len(parts) - 1, 0, -1):
        path, rest = ".".join(parts[:length]), ".".join(parts[length:])
        new = rename(f"{path}.weight").removesuffix(".weight")
        if new != path and (new in modules or f"{new}.{rest}".rpartition(".")[0] in modules):
            return f"{PREFIX}{new}.{rest}"
    return None
