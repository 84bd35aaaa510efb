"""What transformers refuses in a `quantization_config` although each type is right: it raises while the model loads.

Source: the __init__ and post_init of the classes in transformers 5.24 utils/quantization_config.py, and
quantizers/auto.py; for compressed-tensors the validators of its version 0.20.1. Values that are absent, null or of a
wrong type are left to their own rule, so that one wrong value is one finding.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from repokit.printable import printable
from repokit.schema.document import alternatives, pointer
from repokit.schema.quantization import method_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Raw: TypeAlias = "Mapping[str, Any]"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A value with which no load succeeds.

    Attributes:
        pointer: JSON Pointer to the value, in the quantization_config; "" where it is about the whole object.
        message: Goes on from the value's name: `is 5, must be 2, 3, 4 or 8`.
        reader: Who refuses it: `transformers 5.24`.
    """

    pointer: str
    message: str
    reader: str = "transformers 5.24"


def refusals(raw: Raw) -> Iterator[Refusal]:
    """Everything in the object of a known method with which its loader stops."""
    if raw.get("load_in_4bit") is True and raw.get("load_in_8bit") is True:
        yield Refusal("/load_in_8bit", "and `load_in_4bit` are both true, and one model is packed in one way")
    method = method_of(raw)
    for limit in _LIMITS.get(method or "", ()):
        yield from limit(raw)


def _listed(*choices: object, spelled: Callable[[Any], Any] = lambda value: value) -> Callable[[Any], str | None]:
    """A check for one of a few values."""
    wanted = "must be " + alternatives([_shown(choice) for choice in choices])

    def check(value: object) -> str | None:
        if type(value) not in {type(choice) for choice in choices} or spelled(value) in choices:
            return None
        return f"is {_shown(value)}, {wanted}"

    return check


def _lower(value: Any) -> Any:  # noqa: ANN401 - whatever stands there
    return value.lower() if isinstance(value, str) else value


def _shown(value: object) -> str:
    return printable(repr(value), 60)


def _group_size(value: object) -> str | None:
    fits = type(value) is not int or value == -1 or value > 0
    return None if fits else f"is {value}, must be -1 or greater than 0"


def _positive(value: object) -> str | None:
    return None if type(value) is not int or value > 0 else f"is {value}, must be greater than 0"


def _fraction(value: object) -> str | None:
    fits = type(value) not in {int, float} or 0 < value < 1  # type: ignore[operator] # a number by then
    return None if fits else f"is {value}, must be between 0 and 1, both excluded"


def _dataset(value: object) -> str | None:
    names = ("wikitext2", "c4", "c4-new")
    if not isinstance(value, str) or value in names:
        return None
    return f"is {_shown(value)}, must be a list of texts or {alternatives([repr(name) for name in names])}"


def _block(value: object) -> str | None:
    if not isinstance(value, list) or not all(type(side) is int for side in value):
        return None
    return None if len(value) == 2 and min(value) > 0 else f"is {value[:5]}, must be two integers greater than 0"


# getattr(torch, name): names of dtypes in torch 2.13, of which some newer ones have a suffix.
_DTYPE: Final = re.compile(r"half|float|double|short|int|long|bool|(?:bfloat|float|u?int|bits|complex)\d+(?:_\w+|x\d)?")


def _torch_dtype(value: object) -> str | None:
    fits = not isinstance(value, str) or _DTYPE.fullmatch(value)
    return None if fits else f"is {_shown(value)}, must be the name of a dtype in torch, such as 'bfloat16'"


def _fields(**checks: Callable[[Any], str | None]) -> Callable[[Raw], Iterator[Refusal]]:
    """One check per key."""

    def limit(raw: Raw) -> Iterator[Refusal]:
        for key, check in checks.items():
            if message := check(raw.get(key)):
                yield Refusal(pointer([key]), message)

    return limit


def _needs(*keys: str) -> Callable[[Raw], Iterator[Refusal]]:
    """Keys without which the class cannot be made."""

    def limit(raw: Raw) -> Iterator[Refusal]:
        for key in keys:
            if key not in raw:
                yield Refusal("", f"lacks `{key}`")

    return limit


def _awq_format(raw: Raw) -> Iterator[Refusal]:
    """`version` wins over `format`; the backend llm-awq over both."""
    key = "version" if raw.get("version") is not None else "format"
    check = _listed("gemm", "gemv", "gemv_fast", "llm-awq", spelled=_lower if key == "version" else str)
    if raw.get("backend") != "llm-awq" and (message := check(raw.get(key))):
        yield Refusal(pointer([key]), message)


def _bitsandbytes_flags(raw: Raw) -> Iterator[Refusal]:
    if not raw.get("load_in_4bit") and not raw.get("load_in_8bit") and raw.get("quant_method") == "bitsandbytes":
        message = "is 'bitsandbytes', and neither `load_in_4bit` nor `load_in_8bit` is true: no method has that name"
        yield Refusal("/quant_method", message)


def _quant_type(raw: Raw) -> Iterator[Refusal]:
    if message := _listed("nf4", "fp4")(raw.get("bnb_4bit_quant_type")):
        yield Refusal("/bnb_4bit_quant_type", message, "bitsandbytes")


def _float_threshold(raw: Raw) -> Iterator[Refusal]:
    if type(raw.get("llm_int8_threshold")) is int:
        number = raw["llm_int8_threshold"]
        yield Refusal("/llm_int8_threshold", f"is {number}, must be a float: {float(number)}")


def _higgs_sizes(raw: Raw) -> Iterator[Refusal]:
    size, group = raw.get("hadamard_size", 512), raw.get("group_size", 256)
    if type(size) is int and group in {64, 128, 256} and size % group:
        yield Refusal("/hadamard_size", f"is {size}, must be a multiple of `group_size`, which is {group}")


def _fp_quant(raw: Raw) -> Iterator[Refusal]:
    forward = raw.get("forward_dtype", "nvfp4")
    sizes = {"mxfp4": (32, 64, 128), "nvfp4": (16, 32, 64, 128)}.get(forward if isinstance(forward, str) else "")
    if sizes is None:
        return
    method = _listed("abs_max", "quest") if forward == "mxfp4" else _listed("abs_max")
    backward = _listed("bf16", "mxfp8", "mxfp4") if forward == "mxfp4" else _listed("bf16")
    yield from _fields(forward_method=method, backward_dtype=backward, hadamard_group_size=_listed(*sizes))(raw)


def _torchao(raw: Raw) -> Iterator[Refusal]:
    kind = raw.get("quant_type")
    if isinstance(kind, str):
        yield Refusal("/quant_type", f"is {_shown(kind)}, a string of transformers 4; 5 reads torchao's own config")
    elif isinstance(kind, dict) and kind.keys() != {"default"}:
        yield Refusal("/quant_type", "must have the one key `default`")


def _vptq(raw: Raw) -> Iterator[Refusal]:
    if raw.get("enable_proxy_error") is True:
        yield Refusal("/enable_proxy_error", "is true, must be false")
    layers = raw.get("config_for_layers")
    for name, layer in layers.items() if isinstance(layers, dict) else ():
        if isinstance(layer, dict) and layer.get("is_indice_packed") is False:
            yield Refusal(pointer(["config_for_layers", name, "is_indice_packed"]), "is false, must be true")


def _compressed_tensors(raw: Raw) -> Iterator[Refusal]:
    from repokit.schema.compressed_tensors import refused_values

    inner = raw.get("quantization_config")
    prefix, config = ("/quantization_config", inner) if isinstance(inner, dict) else ("", raw)
    for place, message in refused_values(config):
        yield Refusal(prefix + place, message, "compressed-tensors 0.20")


_FP8: Final = _fields(
    activation_scheme=_listed("dynamic", "static", spelled=_lower),
    weight_block_size=_block,
    scale_fmt=_listed("float", "ue8m0"),
    expert_dtype=_listed("fp8", "fp4"),
)
_BACKENDS: Final = (
    *("autoawq", "auto", "auto_trainable", "machete", "marlin", "exllama_v2", "exllama_v1", "gemm", "gemm_triton"),
    *("gemv", "gemv_fast", "torch_awq", "torch_fused_awq"),
)

# quant_method -> what its class checks.
_LIMITS: Final[Mapping[str, Sequence[Callable[[Raw], Iterator[Refusal]]]]] = {
    "auto-round": (_fields(bits=_listed(2, 3, 4, 5, 6, 7, 8), group_size=_group_size),),
    "awq": (_awq_format, _fields(backend=_listed(*_BACKENDS, "llm-awq", spelled=_lower))),
    "bitnet": (
        _fields(linear_class=_listed("bitlinear", "autobitlinear"), quantization_mode=_listed("online", "offline")),
    ),
    "bitsandbytes": (
        _bitsandbytes_flags,
        _float_threshold,
        _quant_type,
        _fields(
            bnb_4bit_compute_dtype=_torch_dtype,
            bnb_4bit_quant_storage=_listed("float16", "float32", "int8", "uint8", "float64", "bfloat16"),
        ),
    ),
    "compressed-tensors": (_compressed_tensors,),
    "eetq": (_fields(weights=_listed("int8")),),
    "fp8": (_FP8,),
    "fp_quant": (
        _fp_quant,
        _fields(forward_dtype=_listed("mxfp4", "nvfp4"), transform_init=_listed("hadamard", "identity", "gsr")),
    ),
    "gptq": (
        _needs("bits"),
        _fields(bits=_listed(2, 3, 4, 8), group_size=_group_size, damp_percent=_fraction, dataset=_dataset),
    ),
    "higgs": (_higgs_sizes, _fields(bits=_listed(2, 3, 4), p=_listed(1, 2), group_size=_listed(64, 128, 256))),
    "hqq": (_needs("quant_config", "skip_modules"),),
    "metal": (_fields(bits=_listed(2, 4, 8), group_size=_positive),),
    "mxfp8": (_FP8,),
    "quanto": (_fields(weights=_listed("float8", "int8", "int4", "int2"), activations=_listed("int8", "float8")),),
    "sinq": (_fields(method=_listed("sinq", "asinq", spelled=_lower)),),
    "spqr": (_fields(bits=_listed(3), beta1=_listed(16), beta2=_listed(16)),),
    "torchao": (_needs("quant_type"), _torchao),
    "vptq": (_vptq,),
}
