"""Which tensors of quantized weights belong together: a weight, and what it is read with.

By names alone: the scales, zero points and states of a module are called after it, whatever the method. Sources:
formats of GPTQModel, AutoAWQ, bitsandbytes 0.50, compressed-tensors 0.20, transformers 5.24 (fp8, mxfp4, hqq), torchao
0.18, MLX, ModelOpt.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

WEIGHT: Final = "weight"
# What nearly every tensor is called: no expression is run over 100,000 names for them.
_PLAIN: Final = frozenset(
    {WEIGHT, "bias", "weight_scale", "weight_scale_inv", "weight_packed", "weight_shape", "qweight", "qzeros", "scales"}
)

# bitsandbytes and quanto hang their companions below the name of the weight.
_BELOW: Final = re.compile(
    r"(?:^|\.)(?P<part>[^.]+\.(?:(?:nested_)?(?:absmax|quant_map)|quant_state\.[^.]+|_(?:data|scale|shift)))$"
)
# The experts of a layer in one module: each of its parameters is a weight of its own, and what belongs to it is hung on
# with an underscore.
_FUSED: Final = re.compile(
    r"(?:^|\.)experts\.(?P<stem>[^.]+?)"
    r"(?:_(?P<part>blocks|scales|bias|qdata|(?:(?:weight|input|output)_)?(?:scale(?:_inv|_2)?|global_scale"
    r"|zero_point|packed|shape))|\.(?P<below>(?:nested_)?(?:absmax|quant_map)|quant_state\.[^.]+))?$"
)


def split(name: str) -> tuple[str, str]:
    """The module of a tensor, and which part of it the tensor is: `weight_scale`, `weight.absmax`, `blocks`."""
    module, _, part = name.rpartition(".")
    if part in _PLAIN and not module.endswith("experts"):
        return module, part
    if (fused := _FUSED.search(name)) is not None:
        stem = fused["stem"].removeprefix("_")  # torchao: `experts._gate_up_proj_qdata`
        return f"{name[: fused.start('stem')]}{stem}", fused["part"] or fused["below"] or WEIGHT
    if (below := _BELOW.search(name)) is not None:
        return name[: below.start()], below["part"]
    return module, part


def module_of(name: str) -> str:
    """The module of a tensor: what must lie in one file."""
    return split(name)[0]


def by_module(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Module -> part -> name of the tensor."""
    found: dict[str, dict[str, str]] = {}
    for name in names:
        module, part = split(name)
        found.setdefault(module, {})[part] = name
    return found


def brought_together(file_of: Mapping[str, str]) -> int:
    """How many modules lie in more than one file.

    Args:
        file_of: Name of a tensor to the file that it lies in.
    """
    files: dict[str, set[str]] = {}
    for name, file in file_of.items():
        files.setdefault(module_of(name), set()).add(file)
    return sum(len(places) > 1 for places in files.values())
