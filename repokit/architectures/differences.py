"""What can differ between the tensors of a file and those of a skeleton."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from repokit.architectures.expansion import Shape

Held = Mapping[str, tuple[int, ...]]


class Form(StrEnum):
    """In which of its two forms a class's checkpoint is."""

    DISK = "disk"
    """As save_pretrained writes it."""
    MEMORY = "memory"
    """As the model holds it."""
    BOTH = "both"
    """Some layers so, some layers so."""


class Misshapen(NamedTuple):
    """A tensor of the right name and the wrong shape."""

    name: str
    held: tuple[int, ...]
    expected: Shape


@dataclass(slots=True)
class Comparison:
    """What differs between a file and its skeleton; names as the file has them, missing ones as the skeleton.

    Attributes:
        missing: Asked for and not there.
        unexpected: There, and no loader has a place for it.
        misshapen: There, in another shape.
        torn: Tensors of layers that hold parts of both forms, so that loaders find neither whole.
        duplicates: Copy of a tied weight -> the tensor that it is a copy of, both as the file has them.
        respelled: Second spelling -> the tensor of the skeleton that the file holds under another one as well.
        legacy: Buffers that older versions stored and newer ones compute.
        ignored: What the class passes over on purpose.
        renamed: As the file has it -> as the skeleton has it, where these differ.
        form: Which form the file is in.
    """

    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    misshapen: list[Misshapen] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    duplicates: dict[str, str] = field(default_factory=dict)
    respelled: dict[str, str] = field(default_factory=dict)
    legacy: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    form: Form = Form.DISK

    @property
    def exact(self) -> bool:
        """Whether a loader finds everything, in its shape, and nothing that it has no place for."""
        return not (self.missing or self.unexpected or self.misshapen or self.torn)

    @property
    def problems(self) -> int:
        """How many tensors are not as they should be."""
        return len(self.missing) + len(self.unexpected) + len(self.misshapen) + len(self.torn)


def fits(shape: tuple[int, ...], wanted: Shape) -> bool:
    """Whether a shape is the wanted one, unknown sizes aside."""
    return len(shape) == len(wanted) and all(
        size is None or size == own for own, size in zip(shape, wanted, strict=True)
    )


def differing(left: Iterable[int | None], right: Iterable[int | None]) -> list[int]:
    """The dimensions in which two shapes of equal length differ."""
    pairs = enumerate(zip(left, right, strict=True))
    return [dimension for dimension, (one, other) in pairs if one is not None and other is not None and one != other]
