"""`quantization_config` of compressed-tensors, as llm-compressor writes it.

Source: compressed-tensors 0.20.1 quantization/quant_config.py, quant_scheme.py and quant_args.py. Inside a
group its own models refuse keys that they do not have; a newer version may have them, so that they are kept here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic import ConfigDict, Field

from repokit.printable import printable
from repokit.schema.document import Document, alternatives, pointer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class QuantizationArguments(Document):
    """How one kind of tensor is quantized: QuantizationArgs."""

    model_config = ConfigDict(defer_build=True)

    num_bits: int | None = Field(None, description="Bits per value.")
    type: str | None = Field(None, description="int or float.")
    symmetric: bool | None = Field(None, description="Whether there are no zero points.")
    strategy: str | None = Field(
        None, description="What shares a scale: tensor, channel, group, block, token, tensor_group or attn_head."
    )
    group_size: int | None = Field(None, description="Values that share a scale (group, tensor_group); -1: channel.")
    block_structure: list[int] | str | None = Field(None, description="[rows, columns]; `128x128` in old files.")
    dynamic: bool | str | None = Field(None, description="Whether scales are computed in each pass; or local.")
    actorder: str | bool | None = Field(None, description="weight, static or null; `group` is no longer read.")
    scale_dtype: str | None = Field(None, description="dtype of the scales, a name in torch.")
    zp_dtype: str | None = Field(None, description="dtype of the zero points, a name in torch.")
    observer: str | None = Field(None, description="How the range was found: minmax, mse, ...")
    observer_kwargs: dict[str, Any] | None = Field(None, description="Arguments of the observer.")


class QuantizationGroup(Document):
    """Modules that are quantized alike: QuantizationScheme."""

    model_config = ConfigDict(defer_build=True)

    targets: list[str] | None = Field(None, description="Classes (Linear), names, or `re:` patterns of modules.")
    weights: QuantizationArguments | None = Field(None, description="null where weights are not quantized.")
    input_activations: QuantizationArguments | None = Field(None, description="null where inputs are not quantized.")
    output_activations: QuantizationArguments | None = Field(None, description="null where outputs are not quantized.")
    format: str | None = Field(None, description="How these weights are packed; the config's `format` where null.")


class CompressedTensors(Document):
    """The object, or one with the object inside, as early versions wrote it."""

    model_config = ConfigDict(defer_build=True)

    quant_method: str | None = Field(None, description="compressed-tensors.")
    config_groups: dict[str, QuantizationGroup | list[str]] | None = Field(
        None, description="Group -> how its modules are quantized; or name of a preset -> its targets."
    )
    format: str | None = Field(
        None, description="pack-quantized, int-quantized, float-quantized, nvfp4-pack-quantized, mixed-precision, ..."
    )
    quantization_status: str | None = Field(None, description="initialized, calibration, frozen or compressed.")
    ignore: list[str] | None = Field(None, description="Modules that are not quantized: names, or `re:` patterns.")
    kv_cache_scheme: QuantizationArguments | None = Field(None, description="null where the cache is not quantized.")
    global_compression_ratio: float | None = Field(None, description="Size after divided by size before.")
    sparsity_config: dict[str, Any] | None = Field(None, description="{format, sparsity_structure, ...}; old files.")
    moe_sparsity_config: dict[str, Any] | None = Field(None, description="Which experts were pruned.")
    transform_config: dict[str, Any] | None = Field(None, description="Rotations: {config_groups}.")
    version: str | None = Field(None, description="The version that wrote the object.")
    run_compressed: bool | None = Field(None, description="Whether weights stay packed in memory.")
    dequantize: bool | None = Field(None, description="Whether a load turns the weights back.")
    use_optimized_inference: bool | None = Field(None, description="Whether a load may use kernels for FP8.")
    quantization_config: CompressedTensors | None = Field(None, description="The object itself, in early files.")


_STRATEGIES: Final = ("tensor", "channel", "group", "block", "token", "tensor_group", "attn_head")
_FORMATS: Final = (
    *("dense", "sparse-bitmask", "sparse-24-bitmask", "int-quantized", "float-quantized", "naive-quantized"),
    *("pack-quantized", "marlin-24", "mixed-precision", "nvfp4-pack-quantized", "mxfp4-pack-quantized"),
    *("mxfp6-pack-quantized", "mxfp8-quantized"),
)
_STATUSES: Final = ("initialized", "calibration", "frozen", "compressed", "decompressed")
_GROUPED: Final = {"group", "tensor_group"}


def refused_values(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the library's validators stop at although its type is right: JSON Pointer and message.

    The library reads the object only where it has groups or a scheme for the cache.
    """
    groups, cache = config.get("config_groups"), config.get("kv_cache_scheme")
    if not groups and not cache:
        return
    if groups is None:
        yield "", "has no `config_groups`, which may be empty"
    yield from _one_of("/quantization_status", config.get("quantization_status"), _STATUSES)
    for name, group in groups.items() if isinstance(groups, dict) else ():
        if isinstance(group, dict):
            yield from _refused_in_group(pointer(["config_groups", name]), group)
    if isinstance(cache, dict):
        yield from _refused_arguments("/kv_cache_scheme", cache)


def _refused_in_group(place: str, group: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "targets" not in group:
        yield place, "lacks `targets`"
    yield from _one_of(f"{place}/format", group.get("format"), [name for name in _FORMATS if name != "mixed-precision"])
    for key in ("weights", "input_activations", "output_activations"):
        if not isinstance(arguments := group.get(key), dict):
            continue
        yield from _refused_arguments(f"{place}/{key}", arguments)
        if key != "weights" and arguments.get("actorder"):
            yield f"{place}/{key}/actorder", "is set, and only weights have an order"
        if key == "input_activations" and (strategy := _strategy(arguments)) in {"channel", "block"}:
            yield f"{place}/{key}/strategy", f"is '{strategy}', which is for weights"


def _refused_arguments(place: str, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind, bits = arguments.get("type"), arguments.get("num_bits", 8)
    yield from _one_of(f"{place}/type", kind, ("int", "float"), any_case=True)
    floating = isinstance(kind, str) and kind.lower() == "float" and arguments.get("zp_dtype") is None
    if floating and type(bits) is int and bits not in {4, 6, 8}:
        yield f"{place}/num_bits", f"is {bits}, and `type` is 'float': must be 4, 6 or 8"
    yield from _one_of(f"{place}/strategy", arguments.get("strategy"), _STRATEGIES, any_case=True)
    order = arguments.get("actorder")
    if order is True or (isinstance(order, str) and order.lower() in {"group", "dynamic"}):
        yield f"{place}/actorder", f"is {_json(order)}: the order by group (g_idx) is no longer read"
    else:
        yield from _one_of(f"{place}/actorder", order, ("weight", "static"))
    yield from _refused_sizes(place, arguments)


def _refused_sizes(place: str, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    size, strategy, block = arguments.get("group_size"), _strategy(arguments), arguments.get("block_structure")
    if type(size) is int and (size < -1 or (size == 0 and arguments.get("strategy") is None)):
        yield f"{place}/group_size", f"is {size}, must be -1 or greater than 0"
    elif strategy in _GROUPED and (size is None or (type(size) is int and size <= 0)):
        yield f"{place}/group_size", f"is {_json(size)}, and `strategy` is '{strategy}': must be greater than 0"
    elif strategy is not None and strategy not in _GROUPED and type(size) is int and size > 0:
        yield f"{place}/group_size", f"is {size}, and `strategy` is '{strategy}': must be null or -1"
    if strategy is not None and (strategy == "block") is (block is None):
        yield f"{place}/block_structure", f"is {_json(block)}, and `strategy` is '{strategy}'"
    yield from _refused_dynamic(f"{place}/dynamic", arguments.get("dynamic"), strategy)


def _refused_dynamic(place: str, dynamic: object, strategy: str | None) -> Iterator[tuple[str, str]]:
    yield from _one_of(place, dynamic, ("local",), any_case=True)
    if strategy == "token" and dynamic in {None, False}:
        yield place, "is not true, and `strategy` is 'token', which needs it"
    elif dynamic is True and strategy in {"channel", "block", "attn_head"}:
        yield place, f"is true, and `strategy` is '{strategy}', which is static"
    elif isinstance(dynamic, str) and dynamic.lower() == "local" and strategy not in {"tensor_group", None}:
        yield place, f"is 'local', and `strategy` is '{strategy}': must be 'tensor_group'"


def _strategy(arguments: Mapping[str, Any]) -> str | None:
    """The strategy, inferred from the group size where none is given; None where neither can be told."""
    given, size = arguments.get("strategy"), arguments.get("group_size")
    if isinstance(given, str):
        return given.lower() if given.lower() in _STRATEGIES else None
    if given is not None or (size is not None and type(size) is not int):
        return None
    return "tensor" if size is None else "group" if size > 0 else "channel" if size == -1 else None


def _one_of(place: str, value: object, choices: Sequence[str], *, any_case: bool = False) -> Iterator[tuple[str, str]]:
    if isinstance(value, str) and (value.lower() if any_case else value) not in choices:
        yield place, f"is {_json(value)}, must be {alternatives([repr(choice) for choice in choices])}"


def _json(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
    return printable(repr(value), 60)
