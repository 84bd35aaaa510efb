"""The factors of parameters that experts share: one matrix for all of them (`target_parameters`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from repokit.builder.merging.weights import MatrixAt
from repokit.formats.tensors import DTYPE_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.builder.checkpoints.stored import TensorAt
    from repokit.builder.merging.lora import Adapter

# Parts that transformers fuses into one parameter of all experts, in the order of its rows (conversion_mapping.py).
FUSED: Final = {
    "gate_up_proj": (("gate_proj", "up_proj"), ("w1", "w3")),
    "down_proj": (("down_proj",), ("w2",)),
}


class Experts:
    """The factors of one parameter of a module: those of all experts, in one matrix each.

    A has the rows of one expert after those of another; in B the experts are what changes fastest (peft 0.21
    lora/layer.py ParamWrapper.get_delta_weight).
    """

    def __init__(self, adapter: Adapter, module: str, parts: Mapping[str, TensorAt], rank: int, scale: float) -> None:
        self.adapter = adapter
        self.module = module
        self.a, self.b = parts["lora_A"], parts["lora_B"]
        self.rank = rank
        self.scale = scale

    @property
    def sizes(self) -> tuple[int, int]:
        """Outputs and inputs."""
        return self.b.shape[0], self.a.shape[1]

    def of(self, experts: int) -> bool:
        """Whether there are the factors of so many."""
        rows = self.rank * experts
        return self.a.shape == (rows, self.sizes[1]) and self.b.shape == (self.sizes[0], rows)

    def expert(self, number: int, experts: int, first: int, outputs: int) -> tuple[MatrixAt, MatrixAt]:
        """A and B of one expert.

        Args:
            number: Which.
            experts: Of how many.
            first: The first output of those that are wanted.
            outputs: How many.
        """
        of_a, of_b = (_strides(tensor) for tensor in (self.a, self.b))
        a = _part(self.a, number * self.rank * of_a[0], (self.rank, self.sizes[1]), of_a)
        b = _part(self.b, first * of_b[0] + number * of_b[1], (outputs, self.rank), (of_b[0], of_b[1] * experts))
        stored = self.adapter.stored
        return MatrixAt(stored, a, (self.rank, self.sizes[1])), MatrixAt(stored, b, (outputs, self.rank))


def _strides(tensor: TensorAt) -> tuple[int, ...]:
    return tensor.strides or (tensor.shape[1], 1)


def _part(tensor: TensorAt, elements: int, shape: tuple[int, int], strides: tuple[int, ...]) -> TensorAt:
    offset = tensor.offset + elements * DTYPE_BITS[tensor.dtype] // 8
    return replace(tensor, offset=offset, shape=shape, strides=None if strides == (shape[1], 1) else strides)
