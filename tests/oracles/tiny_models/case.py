from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Kind = Literal[
    "causal", "encoder", "seq2seq", "vision", "audio", "multimodal", "vlm",
    "sharded", "dtype", "tied", "vocab", "variant", "rope", "generation", "template",
    "training", "base", "adapter",
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One repository that a library writes.

    Attributes:
        name: Also the name of its folder.
        kind: What it stands for. Every kind but `adapter` is a whole model.
        save: Writes the repository into an empty folder.
        load: What a user must tell `from_pretrained` beside the folder.
        base: The case that holds the base model; adapters only.
    """

    name: str
    kind: Kind
    save: Callable[[Path], None]
    load: Mapping[str, str] = field(default_factory=dict)
    base: str | None = None

    def write(self, directory: Path) -> None:
        """Write the repository. Its weights depend on the name alone, whatever was written before in this process."""
        seed(self.name)
        directory.mkdir(parents=True)
        self.save(directory)


def seed(name: str) -> None:
    import torch

    torch.manual_seed(zlib.crc32(name.encode()))


def table(*cases: Case) -> dict[str, Case]:
    return {case.name: case for case in cases}
