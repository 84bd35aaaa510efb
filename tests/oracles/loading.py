"""Loads a repository as its users do, and says what transformers found."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor


@dataclass(frozen=True)
class LoadReport:
    """What `from_pretrained` said of a repository.

    Attributes:
        missing: Weights of the model that the files lack and that were made up; tied ones are not among them.
        unexpected: Tensors in the files that the model has no use for.
        mismatched: Names of tensors of the wrong shape. transformers raises instead, unless it was called with
            `ignore_mismatched_sizes=True`.
        tensors: The state dict of the loaded model; tied weights under each of their names.
    """

    missing: frozenset[str]
    unexpected: frozenset[str]
    mismatched: frozenset[str]
    tensors: Mapping[str, Tensor]

    @property
    def clean(self) -> bool:
        return not (self.missing or self.unexpected or self.mismatched)


def load_report(directory: Path, **arguments: Any) -> LoadReport:
    """Load the repository offline with the class that its config names.

    Args:
        directory: The repository. Anything but a whole model (an adapter, say) fails.
        arguments: More for `from_pretrained`, such as `Case.load`.

    Raises:
        Exception: Whatever transformers raises.
    """
    import transformers

    config = json.loads((directory / "config.json").read_bytes())
    model_class = getattr(transformers, config["architectures"][0])
    asked = {"local_files_only": True, "device_map": "auto", "dtype": "auto", **arguments}
    model, info = model_class.from_pretrained(directory, output_loading_info=True, **asked)
    return LoadReport(
        missing=frozenset(info["missing_keys"]),
        unexpected=frozenset(info["unexpected_keys"]),
        mismatched=frozenset(name for name, *_shapes in info["mismatched_keys"]),
        tensors=model.state_dict(),
    )


def same_tensors(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether names, dtypes, shapes and bits are equal: -0.0 differs from 0.0, and a NaN equals itself."""
    return not differing_tensors(one, other)


def differing_tensors(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> frozenset[str]:
    """Names that only one side has, or whose tensors are not the same."""
    shared = one.keys() & other.keys()
    return frozenset((one.keys() ^ other.keys()) | {name for name in shared if not _same(one[name], other[name])})


def _same(one: Tensor, other: Tensor) -> bool:
    import torch

    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))
