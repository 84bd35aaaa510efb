"""ADP: the values of adapters, with --deep."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example, edited, safetensors
from repokit.linter.examples_values import one_after_another, zero_rows, zeroed
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.adapter import with_weights
from repokit.printable import count, printable
from repokit.repo.weights import ADAPTER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repokit.repo.adapter import Adapter
    from repokit.repo.repository import Repository
    from repokit.repo.values import TensorValues

B: Final = "lora_B.weight"
FUSED: Final = {
    f"base_model.model.model.layers.{layer}.self_attn.qkv_proj.lora_{side}.weight": ("F32", shape)
    for layer in range(2)
    for side, shape in {"A": (4, 16), "B": (32, 4)}.items()
}
_MOST_RANKS: Final = 4096  # processes of one training run
_FEWEST: Final = 2  # modules: a chance in one is none in two

# Several matrices in one, of which some may not have been trained.
_IS_FUSED: Final = re.compile(r"qkv|kv_|gate_up|c_attn|query_key_value|in_proj|pack", re.IGNORECASE)
# One row a token: those of tokens that never came are not trained.
_BY_TOKEN: Final = re.compile(r"embed|wte|lm_head|head$", re.IGNORECASE)


class PartlyFilledAdapter(Rule):
    """In every module of an adapter the same share of rows is zero.

    One process of a sharded run (ZeRO-3, FSDP) saved its own rows, and zeros in place of the others': the adapter loads
    and does a part of what it has learned.
    """

    code = "ADP120"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TENSORS
    bad = (
        Example("the rows of one process of eight", {ADAPTER: zero_rows(1, 8, B)}, "lora"),
        Example("the rows of the second of two", {ADAPTER: zero_rows(0, 4, B)}, "lora"),
    )
    good = (
        Example("rows of one module", {ADAPTER: zero_rows(4, 8, f"0.self_attn.q_proj.{B}")}, "lora"),
        Example("no part of the rows", {ADAPTER: zero_rows(0, 3, B)}, "lora"),
        Example(
            "queries alone were trained, in a matrix of three",
            {
                ADAPTER: one_after_another(lambda _: safetensors(FUSED), zero_rows(4, 8, B)),
                "adapter_config.json": {"target_modules": ["qkv_proj"]},
            },
            "lora",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, adapter in with_weights(repository):
            found = _partly_filled(repository, path, adapter)
            if (ranks := _ranks(found)) is not None:
                name = found[0].tensor.name
                message = f"has 1 of {ranks} parts of the rows of {count(len(found), 'factor')}, zeros in the others"
                names = [values.tensor.name for values in found]
                hint = "gather the parameters before saving (accelerator.get_state_dict), and save again"
                yield self.finding(path, message, names=names, place=printable(name), hint=hint)


def _partly_filled(repository: Repository, path: str, adapter: Adapter) -> list[TensorValues]:
    """The second factors that are not zero; [] where only a fused module has one, or one by token."""
    values = repository.values.of(path)
    found = []
    for module, pair in adapter.pairs.items():
        if pair.b is None or pair.embedding or _BY_TOKEN.search(module.rpartition(".")[2]):
            continue
        one = values.get(pair.b.name)
        if one is not None and not one.zero:
            found.append(one)
    plain = [one for one in found if not _IS_FUSED.search(one.tensor.name.partition(".lora_")[0].rpartition(".")[2])]
    return found if plain and len(found) >= _FEWEST else []


def _ranks(found: list[TensorValues]) -> int | None:
    """Of how many equal parts of the rows each factor holds one and zeros else; None where it is not so."""
    fitting: set[int] | None = None
    for values in found:
        if len(values.tensor.shape) != 2 or len(runs := values.nonzero_rows) != 1:
            return None
        (start, stop), rows = runs[0], values.tensor.shape[0]
        # torch.chunk: every part but the last has ceil(rows / parts) rows.
        parts = {number for number in range(2, min(rows, _MOST_RANKS) + 1) if -(-rows // number) == stop - start}
        fitting = parts if fitting is None else fitting & parts
        if start % (stop - start) or not fitting:
            return None
    return min(fitting) if fitting else None


class UntrainedAdapter(Rule):
    """Every module of an adapter changes nothing: its second factors are zero, as they are before training.

    Whoever loads it gets the base model.
    """

    code = "ADP320"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TENSORS
    bad = (Example("saved before the first step", {ADAPTER: zeroed(B)}, "lora"),)
    good = (
        Example("one module was not trained", {ADAPTER: zeroed(f"0.self_attn.q_proj.{B}")}, "lora"),
        Example(
            "a head was trained beside them",
            {
                ADAPTER: one_after_another(edited(add={"base_model.model.score.weight": ("F32", (2, 16))}), zeroed(B)),
                "adapter_config.json": {"task_type": "SEQ_CLS", "modules_to_save": ["score"]},
            },
            "lora",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, adapter in with_weights(repository):
            values = repository.values.of(path)
            # Of an embedding the first factor begins at zero (peft tuners/lora/layer.py reset_lora_parameters).
            factors = [pair.a if pair.embedding else pair.b for pair in adapter.pairs.values()]
            known = [values[factor.name] for factor in factors if factor is not None and factor.name in values]
            alone = all(".lora_" in name and "magnitude" not in name for name in adapter.names)
            if alone and known and all(one.zero for one in known):
                message = f"changes nothing: {count(len(known), 'factor')} of nothing but zeros"
                yield self.finding(path, message, place=known[0].tensor.name)


RULES: Final = (PartlyFilledAdapter(), UntrainedAdapter())
