"""The tensors of LoRA and AdaLoRA (peft 0.21 tuners/lora/layer.py, dora.py and variants.py; tuners/adalora)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from repokit.architectures.adapters_modules import LINEAR, Module, Modules
from repokit.architectures.adapters_targets import Settings, by_pattern
from repokit.architectures.errors import NotCovered
from repokit.architectures.expansion import Shape
from repokit.architectures.member import Kind

Parts = Mapping[str, Shape]
"""What is saved for one module: the rest of the name -> shape."""

# These add tensors of their own that are not worked out here.
_UNKNOWN_VARIANTS: Final = ("use_bdlora", "velora_config", "monteclora_config", "arrow_config")
# Classes whose fused experts are [experts, in, out]: transformers 5.24, use_experts_implementation(is_transposed=True).
# PEFT takes every other parameter of three dimensions for [experts, out, in].
_TRANSPOSED_EXPERTS: Final = ("gpt_oss", "openai_privacy_filter", "aria")


def check_variant(settings: Settings) -> None:
    """Refuses what is not worked out.

    Raises:
        NotCovered: The config asks for a variant that saves tensors of its own.
    """
    if variant := next((key for key in _UNKNOWN_VARIANTS if settings[key]), None):
        raise NotCovered(f"the tensors of {variant} are not worked out")


def rank(settings: Settings, path: str) -> int | None:
    """The rank of a module; None where the config says something that is none."""
    value = by_pattern(settings.mapping("rank_pattern"), path)
    return settings.number("r") if value is None else value if type(value) is int and value > 0 else None


def lora(module: Module, settings: Settings) -> Parts | None:
    """The factors of one module; None for one that LoRA does not take."""
    size = rank(settings, module.path)
    inputs, outputs = module.sizes
    match module.kind:
        case Kind.EMBEDDING:
            factors: dict[str, Shape] = {"lora_embedding_A": (size, inputs), "lora_embedding_B": (outputs, size)}
            magnitude: Shape = (outputs,)
        case Kind.CONVOLUTION:
            ones = (1,) * (len(module.weight) - 2)
            upper = size if inputs is not None else None  # rank / groups
            factors = {
                "lora_A.weight": (size, inputs, *module.weight[2:]),
                "lora_B.weight": (outputs, upper, *ones),
            }
            magnitude = (1, outputs, *ones)
        case kind if kind in LINEAR:
            pooled = None if settings["use_qalora"] else inputs  # it pools the inputs of modules of GPTQ only
            factors = {"lora_A.weight": (size, pooled), "lora_B.weight": (outputs, size)}
            magnitude = (outputs,)
        case _:
            return None
    if settings["use_dora"]:
        factors["lora_magnitude_vector"] = magnitude
    if settings["lora_bias"] and module.kind is not Kind.EMBEDDING:
        factors["lora_B.bias"] = (outputs,)
    if settings["kasa_config"]:
        factors["lora_diag"] = (size,)
    return factors


def adalora(module: Module, settings: Settings) -> Parts | None:
    """The three factors of one module; None for one that AdaLoRA does not take."""
    if module.kind not in LINEAR:
        return None
    size = _kept(settings, module.path)
    inputs, outputs = module.sizes
    return {"lora_A": (size, inputs), "lora_B": (outputs, size), "lora_E": (size, 1)}


def _kept(settings: Settings, path: str) -> int | None:
    """The rank that AdaLoRA left a module: it began with init_r, and wrote which of its values it kept."""
    for key, kept in settings.mapping("rank_pattern").items():
        if f".{key.partition('.lora_E')[0]}".endswith(f".{path}"):
            return sum(map(bool, kept)) if isinstance(kept, list) else kept if type(kept) is int else None
    return settings.number("init_r")


def parameters(modules: Modules, settings: Settings) -> Iterator[tuple[str, Parts]]:
    """`target_parameters`: paths of modules, and what is saved for a parameter of them.

    Each parameter wraps its module once more, so the factors of the last stand outermost and those of the others under
    `base_layer` (peft 0.21 tuners_utils.py _inject_parameters, lora/layer.py ParamWrapper).
    """
    wanted = settings.texts("target_parameters")
    ends = tuple(f".{name}" for name in wanted)
    for path, module in modules.found.items():
        chosen = [name for name in module.own if f"{path}.{name}" in wanted or f"{path}.{name}".endswith(ends)]
        for depth, name in enumerate(reversed(chosen)):
            before = "base_layer." * depth
            factors = _parameter(module.own[name], rank(settings, f"{path}.{name}"), modules.model_type)
            yield path, {f"{before}{part}": shape for part, shape in factors.items()}


def is_transposed(model_type: str) -> bool:
    """Whether the fused experts of a model type are [experts, inputs, outputs]."""
    return model_type.startswith(_TRANSPOSED_EXPERTS)


def _parameter(shape: Shape, size: int | None, model_type: str) -> Parts:
    if len(shape) == 3:
        experts, first, second = shape
        inputs, outputs = (first, second) if is_transposed(model_type) else (second, first)
    elif len(shape) == 2:
        experts, (outputs, inputs) = 1, shape
    else:
        raise NotCovered("target_parameters names a parameter that has neither two nor three dimensions")
    rows = None if size is None or experts is None else size * experts
    return {"lora_A.weight": (rows, inputs), "lora_B.weight": (outputs, rows)}


_LAYER: Final = re.compile(r"((?:.*\.)?(?:layers|h|encoder\.layer)\.)([0-9]+)((?:\..+)?)")


def replicated(modules: Modules, settings: Settings) -> Modules:
    """The modules after `layer_replication`, which stacks copies of the layers anew.

    Raises:
        NotCovered: It is no list of pairs.
    """
    order = _order(settings["layer_replication"])
    if not order:
        return modules
    found: dict[str, Module] = {}
    for path, module in modules.found.items():
        match = _LAYER.fullmatch(path)
        if match is None:
            found[path] = module
            continue
        for number, source in enumerate(order):
            if source == int(match[2]):
                copy = f"{match[1]}{number}{match[3]}"
                found[copy] = Module(copy, module.kind, module.own)
    return replace(modules, found=found, unfused={})


def _order(given: object) -> list[int]:
    order: list[int] = []
    for pair in given if isinstance(given, list) else []:
        match pair:
            case [int() as start, int() as end] if 0 <= start <= end and end - start + len(order) <= 10_000:
                order += range(start, end)
            case _:
                raise NotCovered("layer_replication is no list of pairs")
    return order
