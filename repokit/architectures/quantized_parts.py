"""What a quantized module consists of: the vocabulary that the methods of quantization share.

A method says which modules it changes (`Verdict`) and which tensors then stand in the place of a weight (`Part`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Final

from repokit.architectures.errors import NotCovered
from repokit.architectures.expansion import Shape
from repokit.architectures.member import Kind
from repokit.printable import printable

Size = int | None

# Integer types under the names of safetensors. Floats of scales follow the model's dtype, and are not judged.
I8, U8, I16, I32, I64, U32, F32 = ("I8", "U8", "I16", "I32", "I64", "U32", "F32")
F8: Final = ("F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2", "F8_E5M2FNUZ")
EXPONENTS: Final = ("U8", "F8_E8M0")  # scales that are powers of two

LARGEST: Final = 1 << 20  # of bits, groups and blocks; a larger group than a model has inputs is one group


class NotTransformed(NotCovered):
    """What this method stores for a weight is not known here, so nothing can be said about the tensors.

    Attributes:
        method: As config.json has it: `hqq`, `torchao`.
    """

    def __init__(self, method: str, why: str | None = None) -> None:
        self.method = method
        what = f"what the quantization method {printable(method, 60)} stores is not known"
        super().__init__(what if why is None else f"{what}: {printable(why, 200)}")


class Verdict(Enum):
    """What a config says about one module."""

    QUANTIZED = "quantized"
    PLAIN = "plain"
    OPEN = "open"
    """It does not say: programs that read the same config differ, or the writer had a choice."""
    ELSEWHERE = "elsewhere"
    """It is stored in a layout that is not known: with the other experts of its layer."""


class Need(Enum):
    """Whether a part must be there."""

    REQUIRED = "required"
    UNIFORM = "uniform"
    """In every quantized module of a repository, or in none: writers differ."""
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor of a quantized module.

    Attributes:
        suffix: What stands in the place of `.weight`: `.qweight`, `.weight.absmax`.
        shape: None: any size.
        dtypes: Names of safetensors; () where the method leaves it open.
        also: Other shapes that loaders take.
        spellings: Other suffixes for the same tensor; a repository has one of them.
    """

    suffix: str
    shape: Shape
    dtypes: tuple[str, ...] = ()
    also: tuple[Shape, ...] = ()
    need: Need = Need.REQUIRED
    spellings: tuple[str, ...] = ()

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Every suffix that it may have."""
        return (self.suffix, *self.spellings)


@dataclass(frozen=True, slots=True)
class Module:
    """A module with a weight of two dimensions.

    Attributes:
        name: As on disk, without `.weight`.
        names: What programs may call it: on disk, and in memory where that differs.
        rows: Outputs.
        columns: Inputs.
        kind: Linear, transposed or embedding.
        block: It is one of a numbered list: a layer.
        router: By its name it chooses experts; quantizers often leave those.
        expert: It is one of the experts of a layer.
        head: It predicts tokens or labels, and stands outside the layers.
    """

    name: str
    names: tuple[str, ...]
    rows: Size
    columns: Size
    kind: Kind
    block: bool = False
    router: bool = False
    expert: bool = False
    head: bool = False

    @property
    def linear(self) -> bool:
        """Whether its weight is of a linear layer, transposed or not."""
        return self.kind in {Kind.LINEAR, Kind.TRANSPOSED}

    @property
    def weight(self) -> Shape:
        """The shape of its weight where it is not quantized."""
        pair = (self.rows, self.columns)
        return pair[::-1] if self.kind is Kind.TRANSPOSED else pair


class Method(ABC):
    """A method of quantization with the settings of one config.

    Attributes:
        name: As config.json has it.
        numbered: Whether the verdict about `layers.0.mlp` can differ from the one about `layers.1.mlp`.
        extras: Find tensors that may be there beside.
        unsaid: What an open verdict means where the file is not known.
        note: What could not be decided; "" where everything could.
    """

    name: str = ""
    unsaid: ClassVar[Verdict] = Verdict.OPEN
    numbered: bool = False
    extras: ClassVar[tuple[re.Pattern[str], ...]] = ()
    note: str = ""

    @abstractmethod
    def verdict(self, module: Module) -> Verdict:
        """Whether the config says that the module is quantized."""

    @abstractmethod
    def parts(self, module: Module) -> Sequence[Part]:
        """What stands in the place of the module's weight."""

    def spelled(self, name: str) -> str:
        """A tensor's name as programs of this method have it."""
        return name

    def kept(self, shape: Shape, kind: Kind) -> Shape:
        """The shape of a tensor that is not quantized."""
        del kind
        return shape

    def fused(self, name: str, shape: Shape) -> Sequence[Part] | None:
        """What stands in the place of the experts of a layer that are one tensor of three dimensions.

        The suffixes are added to the name. None: it stays as it is; (): that cannot be said.
        """
        del name, shape
        return None


# ---------------------------------------------------------------- sizes, of which some are unknown


def divided(size: Size, by: Size) -> Size:
    """How many pieces a size has, the last one perhaps smaller."""
    return None if size is None or by is None else -(-size // by)


def words(size: Size, bits: int, word: int = 32) -> Size:
    """How many words so many values of so many bits fill."""
    return None if size is None else -(-size * bits // word)


def times(*sizes: Size) -> Size:
    """The product."""
    product = 1
    for size in sizes:
        if size is None:
            return None
        product *= size
    return product


# ---------------------------------------------------------------- values of a config, which anyone may have written


class Settings:
    """A declaration's values, checked: what no program takes ends in NotTransformed."""

    def __init__(self, method: str, values: Mapping[str, Any]) -> None:
        self.method, self.values = method, values

    def refuse(self, why: str) -> NotTransformed:
        """The exception to raise."""
        return NotTransformed(self.method, why)

    def integer(self, key: str, default: int, allowed: Sequence[int] | None = None) -> int:
        """A number above zero, or one of those that are allowed; a null is the default."""
        value = self.values.get(key)
        value = default if value is None else value
        if type(value) is not int or value > LARGEST or not (value in allowed if allowed else value > 0):
            raise self.refuse(f"{key} is {str(value)[:40]}")
        return value

    def group(self, key: str = "group_size", default: int = 128) -> int | None:
        """The inputs that share a scale; None: all of a row."""
        if self.values.get(key) == -1:
            return None
        return self.integer(key, default)

    def text(self, key: str) -> str:
        """A text; "" where there is none."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise self.refuse(f"{key} is no text")
        return value or ""

    def word(self, *keys: str, default: str = "") -> str:
        """The first of these texts that is there, in lower case: the name of a format."""
        return (next(filter(None, map(self.text, keys)), None) or default).lower()

    def flag(self, key: str) -> bool:
        return self.values.get(key) is True

    def strings(self, *keys: str) -> tuple[str, ...] | None:
        """The first list that is there; None: there is none."""
        value = next((self.values[key] for key in keys if self.values.get(key) is not None), None)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise self.refuse(f"{keys[0]} is no list of names")
        return tuple(value)

    def mapping(self, key: str) -> Mapping[str, Any]:
        """An object; {} where there is none."""
        value = self.values.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.refuse(f"{key} is no object")
        return value
