"""WGT: tensors that are stored in another precision than their like."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from repokit.formats.tensors import FLOATS
from repokit.linter.examples import Example, edited
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.printable import count
from repokit.repo.weights import ADAPTER, SINGLE

if TYPE_CHECKING:
    from repokit.formats.tensors import TensorInfo
    from repokit.repo.repository import Repository

UP: Final = "model.layers.1.mlp.up_proj.weight"

_NUMBER: Final = re.compile(r"(?<=\.)[0-9]+(?=\.)")


class OddPrecision(Rule):
    """A tensor is stored in another precision than the same tensor of other layers, or than all others.

    A partial save or an edit of one shard left it so. Loaded in the declared dtype it has the digits of the smaller
    one; and the outputs are not those of the model that was tested.
    """

    code = "WGT230"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("one matrix of one layer", {SINGLE: edited(add={UP: ("F32", (24, 16))})}),
        Example("the other half format", {SINGLE: edited(add={"model.embed_tokens.weight": ("F16", (32, 16))})}),
        Example(
            "one factor of an adapter",
            {ADAPTER: edited(add={"base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight": ("BF16", (8, 4))})},
            "lora",
        ),
    )
    good = (
        Example(
            "the norms of every layer",
            {
                SINGLE: edited(
                    add={f"model.layers.{layer}.input_layernorm.weight": ("F32", (16,)) for layer in range(2)}
                )
            },
        ),
        Example("a head in full precision", {SINGLE: edited(add={"lm_head.weight": ("F32", (32, 16))})}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        weights = repository.weights
        main = weights.main
        if main is None or weights.stored.packed:
            return
        for (dtype, usual), names in odd(weights.tensors, weights.stored.dtype).items():
            message = f"holds {count(len(names), 'tensor')} in {dtype}; the others of the kind are in {usual}"
            yield self.finding(main, message, names=names, place=names[0])


RULES: Final = (OddPrecision(),)


def odd(tensors: Mapping[str, TensorInfo], usual: str | None) -> dict[tuple[str, str], list[str]]:
    """Own dtype and that of its like, to the names of tensors that stand out.

    Args:
        tensors: All of them.
        usual: The dtype of most bytes.
    """
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    if usual not in FLOATS or len({info.dtype for info in tensors.values()} & FLOATS) < 2:
        return found
    kinds: dict[str, list[TensorInfo]] = defaultdict(list)
    for name, info in tensors.items():
        if info.dtype in FLOATS:
            kinds[_NUMBER.sub("#", name)].append(info)
    for alike in kinds.values():
        is_mixed = any(info.dtype == usual for info in alike)
        for info in alike:
            # A single tensor may well be kept in more digits than the rest; none is cut on purpose.
            if info.dtype != usual and (is_mixed or (len(alike) == 1 and is_cut(info.dtype, usual))):
                found[info.dtype, usual].append(info.name)
    return found


def is_cut(dtype: str, usual: str) -> bool:
    """Whether numbers of the usual dtype lose something in this one."""
    return dtype in {"F16", "BF16"} and usual != dtype
