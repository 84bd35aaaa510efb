"""Quantized weights: what config.json declares, and how the modules of the weights are stored."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.repo.document import Document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from repokit.formats.tensors import TensorInfo
    from repokit.repo.config import Config
    from repokit.repo.repository import Repository

GPTQ_FILE: Final = "quantize_config.json"  # AutoGPTQ, GPTQModel
AWQ_FILE: Final = "quant_config.json"  # AutoAWQ
MODELOPT_FILE: Final = "hf_quant_config.json"  # NVIDIA ModelOpt
# Key of the file -> key of quantization_config. Lists of modules are spelled in two languages, and not compared.
SIDE_FILES: Final[Mapping[str, Mapping[str, str]]] = {
    GPTQ_FILE: {key: key for key in ("bits", "group_size", "desc_act", "sym", "quant_method", "checkpoint_format")},
    AWQ_FILE: {"w_bit": "bits", "q_group_size": "group_size", "zero_point": "zero_point", "version": "version"},
    MODELOPT_FILE: {"quant_algo": "quant_algo", "group_size": "group_size"},
}

# Sub-configs whose quantization_config counts for the whole model: transformers 5.24 quantizers/auto.py
# `get_hf_quantizer` asks config.get_text_config(decoder=True).
_TEXT_KEYS: Final = ("decoder", "generator", "text_config")

# What a module's tensors are called after its own name. bitsandbytes puts its companions below `weight`; the fused
# experts of gpt-oss hang theirs on with an underscore.
_FUSED: Final = re.compile(r"(?<=_proj)_(?P<part>blocks|scales|bias|scale_inv)$")
_PART: Final = re.compile(
    r"(?:^|\.)(?P<part>weight\.(?:nested_)?(?:absmax|quant_map)|weight\.quant_state\..+|[^.]+)$",
)

F8: Final = frozenset({"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})
_PLAIN_PARTS: Final = frozenset({"weight", "bias"})
# What holds the scales of a module's weight: compressed-tensors and ModelOpt, transformers and DeepSeek, and the two
# spellings that transformers renames (5.24 quantizers/quantizer_finegrained_fp8.py).
SCALES: Final = ("weight_scale", "weight_scale_inv", "scale", "qscale_weight")
# Scales that are a weight's beyond doubt; `scale` alone may be a norm's.
_SURE_SCALES: Final = frozenset({"weight_scale", "weight_scale_inv", "qscale_weight", "weight_global_scale"})

# Modules that predict further tokens and are left in full precision without a word (DeepSeek, Qwen3-Next, GLM).
_DRAFT: Final = re.compile(r"(?:^|[._])(?:mtp|nextn|eagle|draft)")


class Module(NamedTuple):
    """Modules of one name pattern whose tensors have the same parts, dtypes and shapes.

    Attributes:
        pattern: `model.layers.*.mlp.down_proj`.
        parts: What follows the module's name to one such tensor: `qweight`, `weight.absmax`, `blocks`.
        names: The modules, in file order.
    """

    pattern: str
    parts: Mapping[str, TensorInfo]
    names: tuple[str, ...]

    def shape(self, part: str) -> tuple[int, ...]:
        """The shape of a part; () where it is not there."""
        return self.parts[part].shape if part in self.parts else ()

    def dtype(self, part: str) -> str | None:
        return self.parts[part].dtype if part in self.parts else None

    @property
    def scale(self) -> TensorInfo | None:
        """The scales of `weight`, whatever they are called."""
        return next((self.parts[part] for part in SCALES if part in self.parts), None)

    @property
    def stored(self) -> str | None:
        """How the weight is stored: the name of a form of storage, or None where it is not quantized.

        `packed rows` is what GPTQ, AWQ and AutoRound share (`qweight`); `packed` is compressed-tensors.
        """
        weight, parts = self.parts.get("weight"), self.parts
        for part, form in (("qweight", "packed rows"), ("weight_packed", "packed"), ("SCB", "bitsandbytes int8")):
            if part in parts:
                return form
        if "blocks" in parts:
            return "mxfp4"
        if any(part.startswith("weight.") for part in parts):
            return "bitsandbytes 4-bit"
        return None if weight is None or len(weight.shape) < 2 else self._by_dtype(weight)

    def _by_dtype(self, weight: TensorInfo) -> str | None:
        if weight.dtype in F8 and self.scale is not None:
            return "float8"
        if weight.dtype == "U32" and "scales" in self.parts:
            return "mlx"
        if weight.dtype in {"I8", "U8", "F4"} and self.scale is not None:
            return "int8" if weight.dtype == "I8" else "float4"
        return None

    @property
    def quantized(self) -> bool:
        """Whether anything of it is a quantizer's: the weight, or companions that lost theirs."""
        return self.stored is not None or bool(_SURE_SCALES & self.parts.keys()) or "qzeros" in self.parts


class Declared(NamedTuple):
    """A declaration of how the weights are quantized.

    Attributes:
        config: The object that says so.
        method: `gptq`, `bitsandbytes`, ...; `mlx` and `modelopt` where only the shape of the object tells; None where
            nothing does.
    """

    config: Document
    method: str | None


class Quantization:
    """What is declared and what is stored."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._config: Config | None = repository.config

    # ---------------------------------------------------------------- declared

    @cached_property
    def declared(self) -> Declared | None:
        """The declaration that loaders go by; None where config.json has none."""
        config = self._config
        if config is None:
            return None
        own = config.mapping("quantization_config") or config.mapping("compression_config")
        mlx = config.mapping("quantization")
        if own is None and mlx is None:
            texts = (config.mapping(key) for key in _TEXT_KEYS)
            own = next((found for text in texts if text and (found := text.mapping("quantization_config"))), None)
        if mlx is not None and (own is None or declaration(own).method is None):
            return Declared(mlx, "mlx")  # MLX writes its object under both keys, and reads this one
        return None if own is None else declaration(own)

    @cached_property
    def nested(self) -> tuple[Document, ...]:
        """Declarations in sub-configs that loaders do not go by, outermost first."""
        config, used = self._config, None if self.declared is None else self.declared.config.pointer
        found = () if config is None else (level.mapping("quantization_config") for level in config.levels)
        return tuple(document for document in found if document is not None and document.pointer != used)

    @cached_property
    def elsewhere(self) -> bool:
        """Whether something other than a quantization_config says that the weights are quantized.

        ModelOpt's own file, which vLLM and TensorRT-LLM read, and the keys of ChatGLM's and MOSS's own code.
        """
        own_key = self._config is not None and self._config.raw.keys() & {"quantization_bit", "wbits"}
        return bool(own_key) or self._repository.has(MODELOPT_FILE)

    # ---------------------------------------------------------------- stored

    @cached_property
    def modules(self) -> tuple[Module, ...]:
        """Modules with companions or packed weights, and their siblings in other layers.

        Raises:
            MalformedFile: A weight file has no valid header.
            MissingInput: Not all of the weights are there.
        """
        weights = self._repository.weights
        tensors = weights.whole
        if not tensors or weights.of_adapter:
            return ()
        parts: dict[str, dict[str, tuple[int, list[str]]]] = {}
        for pattern, names in weights.groups.items():
            if (found := _split(pattern)) is not None:
                module, part, cut = found
                parts.setdefault(module, {})[part] = (cut, names)
        packed = weights.stored.packed
        judged = {module: own for module, own in parts.items() if packed or not own.keys() <= _PLAIN_PARTS}
        return tuple(module for pattern, own in judged.items() for module in _modules(pattern, own, tensors))

    @cached_property
    def stored(self) -> tuple[Module, ...]:
        """The modules of which something is quantized."""
        return tuple(module for module in self.modules if module.quantized)

    @cached_property
    def forms(self) -> tuple[str, ...]:
        """The forms of storage that the weights have, sorted."""
        return tuple(sorted({module.stored for module in self.modules if module.stored is not None}))

    def is_draft(self, name: str) -> bool:
        """Whether a module belongs to layers that predict further tokens: by name, or behind the last layer."""
        if _DRAFT.search(name):
            return True
        config = self._config
        layers = None if config is None else config.layers or config.text.integer("num_hidden_layers")
        number = re.search(r"(?:^|\.)layers\.([0-9]{1,9})\.", name)
        return layers is not None and number is not None and int(number[1]) >= layers


def quantization(repository: Repository) -> Quantization:
    """The facet, worked out once.

    Raises:
        MalformedFile: config.json does not parse.
    """
    return repository.remember(("quantization", ""), lambda: Quantization(repository))


def declaration(document: Document) -> Declared:
    """An object as a declaration."""
    from repokit.schema.quantization import method_of  # loads pydantic, which most repositories do not need here

    method = method_of(document.raw)
    if method is None and ("quant_algo" in document or "producer" in document):
        method = "modelopt"
    return Declared(document, method)


def _split(pattern: str) -> tuple[str, str, int] | None:
    """Module, part, and how many characters of a name are the part and what separates it."""
    for expression in (_FUSED, _PART):
        if (found := expression.search(pattern)) is not None:
            return pattern[: found.start()], found["part"], len(pattern) - found.start()
    return None


def _modules(
    pattern: str, parts: Mapping[str, tuple[int, list[str]]], tensors: Mapping[str, TensorInfo]
) -> Iterator[Module]:
    """The modules of one pattern, those stored alike together: 60,000 experts are a handful."""
    found: dict[str, list[tuple[str, TensorInfo]]] = {}
    for part, (cut, names) in parts.items():
        for name in names:
            found.setdefault(name[:-cut], []).append((part, tensors[name]))
    alike: dict[tuple[tuple[str, str, tuple[int, ...]], ...], list[str]] = {}
    for module, own in found.items():
        key = tuple((part, tensor.dtype, tensor.shape) for part, tensor in own)
        alike.setdefault(key, []).append(module)
    for modules in alike.values():
        yield Module(pattern, dict(found[modules[0]]), tuple(modules))


# ---------------------------------------------------------------- lists of modules

_NAME: Final = re.compile(r"[\w.-]+")


class SkipList(NamedTuple):
    """The modules that a declaration excepts.

    Attributes:
        key: Where it stands in the declaration.
        names: Its plain names. Expressions are not run: one out of a file may take for ever.
        plain: Whether it has nothing but plain names.
        inside: Whether a name stands for everything below it, and for the ends of names (transformers 5.24
            quantizers/quantizers_utils.py `should_convert_module`); compressed-tensors takes names as they are.
    """

    key: str
    names: tuple[str, ...]
    plain: bool
    inside: bool

    def covers(self) -> Callable[[str], str | None]:
        """A function that gives the entry that excepts a module, or None."""
        exact = frozenset(self.names)
        if not self.inside:
            return lambda module: module if module in exact else None
        return lambda module: next((name for name in self._around(module) if name in exact), None)

    @staticmethod
    def _around(module: str) -> Iterator[str]:
        """A name, what it lies in, and its own ends: every name that would except it."""
        steps = module.split(".")
        for length in range(len(steps), 0, -1):
            yield ".".join(steps[:length])
            yield ".".join(steps[len(steps) - length :])


_SKIP_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "compressed-tensors": ("ignore",),
    "awq": ("modules_to_not_convert",),
    "fp8": ("modules_to_not_convert", "ignored_layers"),
    "fbgemm_fp8": ("modules_to_not_convert",),
    "mxfp4": ("modules_to_not_convert",),
    "bitsandbytes": ("llm_int8_skip_modules",),
}


def skip_list(declared: Declared) -> SkipList | None:
    """The list of a method whose meaning is known; None for other methods. An absent list excepts nothing."""
    keys = _SKIP_KEYS.get(declared.method or "")
    if keys is None:
        return None
    key = next((key for key in keys if declared.config.raw.get(key)), keys[0])
    entries = declared.config.strings(key)
    plain = tuple(entry for entry in entries if _NAME.fullmatch(entry))
    return SkipList(key, plain, len(plain) == len(entries), declared.method != "compressed-tensors")


# ---------------------------------------------------------------- schemes of compressed-tensors


class Scheme(NamedTuple):
    """What compressed-tensors or ModelOpt do to the weights of a group.

    Attributes:
        weights: How weights are quantized.
        inputs: How activations are; None where they are not.
        form: `pack-quantized`, ...; of the group, else of the whole.
        targets: Classes of modules, or names.
    """

    weights: Document
    inputs: Document | None
    form: str | None
    targets: tuple[str, ...]


def schemes(config: Document) -> tuple[Scheme, ...]:
    """The groups that quantize weights."""
    groups = config.mapping("config_groups")
    found: list[Scheme] = []
    for name in () if groups is None else groups.raw:
        group = groups.mapping(name) if groups is not None else None
        weights = None if group is None else group.mapping("weights")
        if group is not None and weights is not None:
            form = group.string("format") or config.string("format")
            found.append(Scheme(weights, group.mapping("input_activations"), form, group.strings("targets")))
    return tuple(found)


def keeps_weights(declared: Declared) -> bool:
    """Whether a declaration leaves weights in full precision: only activations or the cache, or undone on load."""
    config = declared.config
    if config.flag("dequantize"):
        return True
    if declared.method == "modelopt" and config.string("quant_algo"):
        return False
    if declared.method in {"compressed-tensors", "modelopt"}:
        return not schemes(config)
    return False
